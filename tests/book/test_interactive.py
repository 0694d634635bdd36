"""The figures that respond: their numbers are labkit's and numpy's; every control works from the keyboard."""

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from settling import size
from sklearn.datasets import load_digits

from labkit import schedules

SCHEDULES, DESCENT = "book/1-cifar10/schedules.html", "book/3-thor/natural-gradient.html"
FIGURES = {SCHEDULES: "fig-schedules-shapes", DESCENT: "fig-natural-paths"}


@pytest.fixture
def look(browser, html):
    """Function that opens a page anew, on a screen with JavaScript, and returns its figure."""

    def look(name):
        size(browser, 1280)
        browser.get((html / name).as_uri())
        return browser.find_element(By.ID, FIGURES[name])

    yield look
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def pictures(figure):
    """What is drawn, as text."""
    return [picture.get_attribute("innerHTML") for picture in figure.find_elements(By.CSS_SELECTOR, "svg.plot")]


@pytest.mark.parametrize("shape", ["cosine", "linear", "quadratic"])
def test_schedules_are_labkits(browser, look, shape):
    look(SCHEDULES)
    for epochs, steps, warmup in ((90, 1562, 5), (7, 3, 2.5), (1, 30, 0.5), (40, 1, 0), (3, 20, 4)):
        setting = {"epochs": epochs, "steps_per_epoch": steps, "warmup_epochs": warmup,
                   "lr_init": 0.013, "lr_max": 0.4, "lr_end": 0.002}  # fmt: skip
        script = "try { return Array.from(labkitSchedule(arguments[0])) } catch (error) { return error.message }"
        found = browser.execute_script(script, {"shape": shape, **setting})
        if warmup > epochs:
            with pytest.raises(ValueError) as refused:
                schedules.SCHEDULES[shape](**setting)
            assert found == str(refused.value)
        else:
            expected = schedules.SCHEDULES[shape](**setting)
            np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-9)


def test_the_rate_that_is_read_out(look):
    figure, rates = look(SCHEDULES), schedules.quadratic(90, 1562)
    readout = figure.find_element(By.CSS_SELECTOR, "[aria-live]")
    assert f"rate {rates[70_290]:.4g}" in readout.text
    assert f"Mean rate {rates.mean():.4f}; {np.mean(rates < 0.01):.0%}" in readout.text


# -- The descent on two weights ------------------------------------------------------------------------

DIGITS = load_digits()
CHOSEN = np.isin(DIGITS.target, (3, 8))
X = DIGITS.images[CHOSEN][:, 4:, :4].mean(axis=(1, 2)) / 2
Y = (DIGITS.target[CHOSEN] == 8).astype(float)
TINY = 1e-30


def logits(form, weights):
    first, second = weights
    return first * (X - second) if form == "threshold" else first * X + second


def derivatives(function, weights):
    """By complex steps, which cost no digit: (2, ...)."""
    return np.array([np.imag(function(weights + 1j * TINY * unit)) / TINY for unit in np.eye(2)])


def loss(form, weights):
    z = logits(form, weights)
    return np.mean(np.log(1 + np.exp(z)) - Y * z)


def fisher(form, weights):
    """By its definition: the mean of the gradients' products, with labels from the model."""
    total = np.zeros((2, 2))
    p = 1 / (1 + np.exp(-logits(form, weights)))
    for label, share in ((1, p), (0, 1 - p)):
        each = derivatives(lambda w, y=label: y * logits(form, w) - np.log(1 + np.exp(logits(form, w))), weights)
        total += (share * each) @ each.T / len(X)
    return total


def walk(form, start, method, rate, momentum, damping, steps):
    place, velocity = np.array(start, float), np.zeros(2)
    path = [place]
    for _ in range(steps):
        gradient = derivatives(lambda w: loss(form, w), place)
        if method == "natural":
            place = place - np.linalg.inv(fisher(form, place) + damping * np.eye(2)) @ gradient
        else:
            velocity = (momentum if method == "momentum" else 0) * velocity + gradient
            place = place - rate * velocity
        path.append(place)
    return np.array(path), np.array([loss(form, place) for place in path])


@pytest.mark.parametrize("form", ["line", "threshold"])
def test_paths_are_numpys(browser, look, form):
    look(DESCENT)
    start = (2.0, 1.0) if form == "threshold" else (0.5, 0.5)
    for method, options in [
        ("gradient", {"rate": 0.8}),
        ("momentum", {"rate": 0.1, "momentum": 0.9}),
        *(("natural", {"damping": damping}) for damping in (0, 0.02, 5)),
    ]:
        setting = {"rate": 1.0, "momentum": 0.9, "damping": 0.0, "steps": 25, **options}
        found = browser.execute_script(
            "return labkitDescent(arguments[0])", {"form": form, "start": start, "method": method, **setting}
        )
        path, losses = walk(form, start, method, **setting)
        np.testing.assert_allclose(found["path"], path, rtol=1e-7, atol=1e-9, err_msg=f"{method} {options}")
        np.testing.assert_allclose(found["losses"], losses, rtol=1e-7, err_msg=f"{method} {options}")


# -- For everybody -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_every_control_has_a_name_and_answers_to_the_keyboard(look, name):
    figure = look(name)
    controls = figure.find_elements(By.CSS_SELECTOR, ".widget :is(input, button)")
    assert len(controls) >= 10
    for control in controls:
        assert control.accessible_name and control.is_displayed()
        kind = control.get_attribute("type")
        if control.text == "Play" or (kind == "radio" and control.is_selected()):
            continue
        before = pictures(figure)
        control.send_keys(Keys.ARROW_RIGHT if kind == "range" else Keys.SPACE)
        assert pictures(figure) != before, control.accessible_name
        if kind == "checkbox":
            control.send_keys(Keys.SPACE)  # shown again
            assert pictures(figure) == before


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_stands_in_where_nothing_can_move(browser, look, html, name):
    """In print, and without JavaScript."""

    def shown(figure):
        return [part.is_displayed() for part in figure.find_elements(By.CSS_SELECTOR, "img, .widget")]

    assert shown(look(name)) == [True, False]  # the live figure, then the picture
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert shown(browser.find_element(By.ID, FIGURES[name])) == [False, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get((html / name).as_uri())
    assert shown(browser.find_element(By.ID, FIGURES[name])) == [True]

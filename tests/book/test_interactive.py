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


def settings(count):
    """Parameters of schedules: ordinary, short ones, and halves of a step in the warm-up."""
    random = np.random.default_rng(1)
    for number in range(count):
        epochs, steps = int(random.integers(1, 100)), int(random.integers(1, 30))
        yield {
            "shape": ("cosine", "linear", "quadratic")[number % 3],
            "epochs": epochs,
            "steps_per_epoch": steps,
            "warmup_epochs": float(random.integers(0, 2 * epochs)) / 2,
            **dict(zip(("lr_init", "lr_max", "lr_end"), random.random(3).round(3).tolist())),
        }


def test_schedules_are_labkits(browser, look):
    look(SCHEDULES)
    compared = 0
    for setting in settings(150):
        options = dict(setting)
        schedule = schedules.SCHEDULES[options.pop("shape")]
        found = browser.execute_script(
            "try { return Array.from(labkitSchedule(arguments[0])) } catch (error) { return error.message }", setting
        )
        try:
            expected = schedule(**options)
        except ValueError as error:
            assert found == str(error).replace(".0 epochs", " epochs")  # JavaScript writes 5.0 as 5
            continue
        np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-9)
        compared += 1
    assert compared > 100


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


def mean_loss(form, weights):
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


def model(form):
    """Loss, gradient and Fisher matrix as functions of the weights."""
    if form != "bowl":
        return (
            lambda w: mean_loss(form, w),
            lambda w: derivatives(lambda other: mean_loss(form, other), w),
            lambda w: fisher(form, w),
        )
    loss, gradient, matrix = model("line")
    best = np.zeros(2)
    for _ in range(10):
        best = best - np.linalg.solve(matrix(best), gradient(best))
    hessian = matrix(best)
    return (
        lambda w: loss(best) + (w - best) @ hessian @ (w - best) / 2,
        lambda w: hessian @ (w - best),
        lambda w: hessian,
    )


def walk(form, start, method, rate, momentum, damping, steps):
    loss, gradient, matrix = model(form)
    place, velocity = np.array(start, float), np.zeros(2)
    path = [place]
    for _ in range(steps):
        g = gradient(place)
        if method == "natural":
            place = place - np.linalg.inv(matrix(place) + damping * np.eye(2)) @ g
        else:
            velocity = (momentum if method == "momentum" else 0) * velocity + g
            place = place - rate * velocity
        path.append(place)
    return np.array(path), np.array([loss(place) for place in path])


@pytest.mark.parametrize("form", ["bowl", "line", "threshold"])
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
def test_a_picture_stands_in_where_nothing_can_move(browser, look, name):
    """In print, and without JavaScript."""

    def shown(figure):
        return [part.is_displayed() for part in figure.find_elements(By.CSS_SELECTOR, "img, .widget")]

    assert shown(look(name)) == [True, False]  # the live figure, then the picture
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert shown(browser.find_element(By.ID, FIGURES[name])) == [False, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    assert shown(look(name)) == [True]

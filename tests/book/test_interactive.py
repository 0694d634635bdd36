"""The figures that respond: their numbers are labkit's and numpy's; every control works from the keyboard."""

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from settling import settle
from sklearn.datasets import load_digits

from labkit import schedules

SCHEDULES, DESCENT = "book/1-cifar10/schedules.html", "book/3-thor/natural-gradient.html"
FIGURES = {SCHEDULES: "fig-schedules-shapes", DESCENT: "fig-natural-paths"}

pytestmark = pytest.mark.browser


@pytest.fixture
def look(browser, html):
    """Function that opens a page anew, on a screen with JavaScript, and returns its figure."""

    def look(name, width=1280):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        browser.get((html / name).as_uri())
        return browser.find_element(By.ID, FIGURES[name])

    yield look
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def pictures(figure):
    """What is drawn, as text."""
    return [picture.get_attribute("innerHTML") for picture in figure.find_elements(By.CSS_SELECTOR, "svg.plot")]


def move(browser, control, position):
    """Put a slider where a pointer would."""
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
        control, position,
    )  # fmt: skip


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
    seeds = {"shape": "quadratic", "epochs": 90, "steps_per_epoch": 1562, "warmup_epochs": 5,
             "lr_init": 0.01, "lr_max": 0.1, "lr_end": 0.0}  # fmt: skip
    compared = 0
    for setting in [seeds, *settings(150)]:
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


def test_rate_that_is_read_out(browser, look):
    figure = look(SCHEDULES)
    rates = schedules.quadratic(90, 1562)
    readout = figure.find_element(By.CSS_SELECTOR, "[aria-live]")
    assert f"rate {rates[70_290]:.4g}" in readout.text
    assert f"Mean rate {rates.mean():.4f}; {np.mean(rates < 0.01):.0%}" in readout.text

    step = figure.find_element(By.ID, "lr-step")
    step.send_keys(Keys.END, Keys.ARROW_LEFT)  # the last step, one before the end of the slider
    assert f"Step 140,579, epoch 90.00: rate {rates[-1]:.3e}"[:-8] in readout.text
    step.send_keys(Keys.ARROW_RIGHT)
    assert "the array ends at step 140,579" in readout.text
    move(browser, figure.find_element(By.ID, "lr-epochs"), 3)
    assert readout.text == "ValueError: warm-up of 5 epochs must end before training does, after 4"


def digits():
    """x and y of the chapter."""
    found = load_digits()
    chosen = np.isin(found.target, (3, 8))
    return found.images[chosen][:, 4:, :4].mean(axis=(1, 2)) / 2, (found.target[chosen] == 8).astype(float)


X, Y = digits()
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
        *(("gradient", {"rate": rate}) for rate in (0.1, 0.8, 1.5)),
        *(("momentum", {"rate": rate, "momentum": keep}) for rate, keep in ((0.1, 0.9), (0.5, 0.5))),
        *(("natural", {"damping": damping}) for damping in (0, 0.02, 0.3, 5)),
    ]:
        setting = {"rate": 1.0, "momentum": 0.9, "damping": 0.0, "steps": 25, **options}
        found = browser.execute_script(
            "return labkitDescent(arguments[0])", {"form": form, "start": start, "method": method, **setting}
        )
        path, losses = walk(form, start, method, **setting)
        np.testing.assert_allclose(found["path"], path, rtol=1e-7, atol=1e-9, err_msg=f"{method} {options}")
        np.testing.assert_allclose(found["losses"], losses, rtol=1e-7, err_msg=f"{method} {options}")


def test_undamped_step_is_newtons_and_a_large_damping_the_gradients(browser, look):
    """What the figure is there to show."""
    look(DESCENT)

    def after(**setting):
        return np.array(browser.execute_script("return labkitDescent(arguments[0])", setting)["path"])

    bowl = {"form": "bowl", "start": [0, 0], "steps": 1}
    best = after(**bowl, method="natural", damping=0)[1]
    loss, gradient, _ = model("line")
    assert np.abs(gradient(best)).max() < 1e-12
    natural = after(form="threshold", start=[1, 3], method="natural", damping=100, steps=50)
    plain = after(form="threshold", start=[1, 3], method="gradient", rate=0.01, steps=50)
    np.testing.assert_allclose(natural, plain, atol=0.02 * np.abs(plain[-1] - plain[0]).max())


def test_a_path_that_is_lost_says_so(browser, look):
    figure = look(DESCENT)
    figure.find_element(By.ID, "gd-damping").send_keys(Keys.HOME)
    figure.find_element(By.ID, "gd-step").send_keys(Keys.END)
    assert "natural gradient: lost" in figure.find_element(By.CSS_SELECTOR, "[aria-live]").text


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


def test_play_goes_on_and_stops(browser, look):
    from selenium.webdriver.support.ui import WebDriverWait

    figure = look(DESCENT)
    step, play = figure.find_element(By.ID, "gd-step"), figure.find_elements(By.TAG_NAME, "button")[1]
    play.send_keys(Keys.ENTER)
    WebDriverWait(browser, 10).until(lambda _: int(step.get_attribute("value")) > 14)
    assert play.text == "Pause"
    play.send_keys(Keys.ENTER)
    assert play.text == "Play"


def test_reader_who_wants_no_motion_sees_the_end_at_once(browser, look):
    figure = look(DESCENT)
    settle(browser)
    reduced = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", reduced)
    figure.find_elements(By.TAG_NAME, "button")[1].click()
    assert figure.find_element(By.ID, "gd-step").get_attribute("value") == "100"


def test_start_can_be_dragged(browser, look):
    from selenium.webdriver import ActionChains

    figure = look(DESCENT)
    settle(browser)
    start = figure.find_element(By.CSS_SELECTOR, ".start")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", start)
    before = figure.find_element(By.ID, "gd-first").get_attribute("value")
    ActionChains(browser).drag_and_drop_by_offset(start, 60, 20).perform()
    assert int(figure.find_element(By.ID, "gd-first").get_attribute("value")) > int(before)


@pytest.mark.parametrize("name", FIGURES)
def test_picture_stands_in_where_nothing_can_move(browser, look, name):
    """In print, and without JavaScript."""

    def shown(figure):
        return [part.is_displayed() for part in figure.find_elements(By.CSS_SELECTOR, "img, .widget")]

    assert shown(look(name)) == [True, False]  # the live figure, then the picture
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert shown(browser.find_element(By.ID, FIGURES[name])) == [False, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    assert shown(look(name)) == [True]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", FIGURES)
def test_live_figure_fits_its_column(browser, look, name, width):
    outside = browser.execute_script(
        """
        const column = arguments[0].getBoundingClientRect();
        return [...arguments[0].querySelectorAll('.widget, .widget :not(svg svg *)')].filter(part => {
          const {left, right} = part.getBoundingClientRect();
          return left < column.left - 1 || right > column.right + 1;
        }).map(part => part.outerHTML.slice(0, 100));
        """,
        look(name, width),
    )
    assert outside == []


def test_numbers_of_the_text(browser, look):
    """Steps until the loss is below 0.372, as the chapter on the natural gradient and its exercise 5 give them."""
    look(DESCENT)

    def first(start, **setting):
        setting = {"form": "threshold", "start": start, "steps": 100, **setting}
        losses = browser.execute_script("return labkitDescent(arguments[0]).losses", setting)
        return int(np.argmax(np.array(losses, float) < 0.372))

    assert first([2, 1], method="momentum", rate=0.1) == 67
    assert first([2, 1], method="gradient", rate=0.8) == 69
    dampings = (0, 0.001, 0.005, 0.01, 0.02, 0.03, 1)
    for start, expected in (([2, 1], [3, 3, 3, 4, 4, 5, 58]), ([1, 3], [0, 31, 5, 4, 4, 5, 69])):  # 0: never
        assert [first(start, method="natural", damping=damping) for damping in dampings] == expected

    assert f"{schedules.quadratic(90, 1562, lr_max=0.146).mean():.4f}" == "0.0503"  # exercise 5 on schedules
    assert f"{schedules.linear(90, 1562).mean():.4f}" == "0.0503"

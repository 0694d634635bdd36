"""The size of a browser's page, and when it can be looked at or pointed at."""

SETTLED = """
const done = arguments[0];
Promise.all([window.MathJax ? MathJax.startup.promise : null, document.fonts.ready])
  .then(() => requestAnimationFrame(() => done(null)), error => done(String(error)));
"""


RESIZED = """
const [width, done] = arguments;
const look = () => innerWidth === width ? requestAnimationFrame(() => setTimeout(done)) : requestAnimationFrame(look);
look();
"""


def size(browser, width):
    """Give the page this width in pixels, as on a screen or a phone; it has heard of it when this returns."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_async_script(RESIZED, width)


def settle(browser):
    """Wait for formulas and fonts, which move what is around them."""
    error = browser.execute_async_script(SETTLED)
    assert error is None, error

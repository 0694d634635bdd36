"""The size of a browser's page, and when it can be looked at or pointed at."""

SETTLED = """
const done = arguments[0];
Promise.all([window.MathJax ? MathJax.startup.promise : null, document.fonts.ready])
  .then(() => requestAnimationFrame(() => done(null)), error => done(String(error)));
"""


def size(browser, width):
    """Give the page this width in pixels, as on a screen or a phone."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def settle(browser):
    """Wait for formulas and fonts, which move what is around them."""
    error = browser.execute_async_script(SETTLED)
    assert error is None, error

"""When a page can be looked at, or pointed at."""

SETTLED = """
const done = arguments[0];
Promise.all([window.MathJax ? MathJax.startup.promise : null, document.fonts.ready])
  .then(() => requestAnimationFrame(() => done(null)), error => done(String(error)));
"""


def settle(browser):
    """Wait for formulas and fonts, which move what is around them."""
    error = browser.execute_async_script(SETTLED)
    assert error is None, error

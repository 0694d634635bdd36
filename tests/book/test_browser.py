"""Pages in a real browser, opened as files and without a network, at desktop and phone width."""

import pytest

EXPECTED = (
    "net::ERR_NAME_NOT_RESOLVED",  # an outside address: there is no network here
    "/_static/vendor/fontawesome/",  # the theme's preload of its fonts, refused for files; its style sheet loads them
)
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_page_fits_and_is_quiet(browser, html, page, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get_log("browser")  # forget the page before
    browser.get((html / page).as_uri())
    wide = browser.execute_script(
        """
        const room = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= room && document.body.scrollWidth <= room) return [];
        return [...document.body.querySelectorAll('main *')]
          .filter(e => e.getBoundingClientRect().right > room + 1)
          .map(e => e.tagName + '.' + e.className).slice(0, 5)
          .concat(`${document.body.scrollWidth} px wide, room for ${room}`);
        """
    )
    assert wide == [], "the page scrolls sideways"
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in severe if not any(known in message for known in EXPECTED)] == []

"""Pages in a real browser, opened as files and without a network, at desktop and phone width."""

import os
import shutil

import pytest

EXPECTED = (
    "net::ERR_NAME_NOT_RESOLVED",  # an outside address: there is no network here
    "/_static/vendor/fontawesome/",  # the theme's preload of its fonts, refused for files; its style sheet loads them
)
WIDTHS = {"desktop": 1280, "phone": 390}


def _chromium() -> tuple[str | None, str | None]:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return browser, shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary, driver = _chromium()
    if not (binary and driver):
        message = "pages not looked at: no Chromium with chromedriver here (Debian: chromium chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",  # what a reader without a network sees
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    chrome.set_page_load_timeout(60)
    yield chrome
    chrome.quit()


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

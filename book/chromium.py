"""Chromium, which prints the book and opens its pages in tests."""

import shutil
import subprocess

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def browser() -> tuple[str | None, str | None]:
    """Programs of Chromium and its chromedriver on PATH, each None if it is missing."""
    return next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")


def no_font(language: str) -> str:
    """Why fontconfig has no font with the letters of a language, such as "zh"; "" where it has one."""
    if not shutil.which("fc-list"):
        return "fc-list is not installed (Debian: apt install fontconfig)"
    found = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, check=True).stdout
    return "" if found else f"no font for {language} is installed (Chinese, Debian: apt install fonts-noto-cjk)"


def start(*flags: str, logs: bool = False) -> webdriver.Chrome:
    """Chromium without a network but this machine's own address; if asked, it keeps logs of requests and messages."""
    binary, driver = browser()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, *flags):
        options.add_argument(flag)
    if logs:
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))

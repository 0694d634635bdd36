"""Chromium, its chromedriver, and fonts, for printing and testing pages."""

import shutil
import subprocess

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> tuple[str | None, str | None]:
    """Programs of Chromium and its chromedriver on PATH, each None if it is missing."""
    return next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")


def no_font(language: str) -> str:
    """Why there is no font for a language, such as "zh"; "" if fontconfig has one."""
    if not shutil.which("fc-list"):
        return "fc-list is not installed (Debian: apt install fontconfig)"
    fonts = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, check=True).stdout
    return "" if fonts else f"no font for {language} is installed (Chinese, Debian: apt install fonts-noto-cjk)"

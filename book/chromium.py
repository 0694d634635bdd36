"""What pages are printed and tested with: Chromium, its chromedriver, and fonts."""

import shutil
import subprocess

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> tuple[str | None, str | None]:
    """Programs of Chromium and its chromedriver on PATH, each None if it is missing."""
    return next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")


def no_font(language: str) -> str:
    """Why fontconfig has no font with the letters of a language, such as "zh"; "" where it has one."""
    if not shutil.which("fc-list"):
        return "fc-list is not installed (Debian: apt install fontconfig)"
    fonts = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, check=True).stdout
    return "" if fonts else f"no font for {language} is installed (Chinese, Debian: apt install fonts-noto-cjk)"

"""What a test may need besides the course's packages: `require("PyTorch")`, called by a fixture or a test.

Where that is missing, the test is skipped; where $LABKIT_TESTS_NEED names it, as in CI, the test fails instead.
"""

import os
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "book"))


def _pytorch():
    from labkit.parity import pytorch

    try:
        pytorch.torchvision()
    except pytorch.NoTorchError as error:
        return str(error)


def _bubblewrap():
    from grader import sandbox

    return sandbox.unavailable()


def _chromium():
    import pdf

    if not all(pdf.browser()):
        return "Chromium or its chromedriver is not installed (Debian: apt install chromium chromium-driver)"


def _chinese_font():
    import pdf

    return pdf.no_font("zh")


NEEDS = {"PyTorch": _pytorch, "bubblewrap": _bubblewrap, "Chromium": _chromium, "Chinese font": _chinese_font}
why_missing = cache(lambda need: NEEDS[need]())  # a reason, None or "" where it is there


def require(need: str) -> None:
    """Skip or fail the test that asks, where one of NEEDS is missing."""
    if reason := why_missing(need):
        demanded = os.environ.get("LABKIT_TESTS_NEED", "").split(",")
        (pytest.fail if need in demanded else pytest.skip)(f"needs {need}: {reason}")


def torch_or_none():
    """The module torch for a test file's top, None without it: its tests that use it ask for the fixture `pytorch`."""
    from labkit.parity import pytorch

    return None if why_missing("PyTorch") else pytorch.torch()

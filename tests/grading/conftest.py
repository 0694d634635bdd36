"""What the tests of grading share: the tiny lab."""

import os
from pathlib import Path

import pytest

from labkit.grading import sandbox
from labkit.grading.lab import load

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def tiny():
    """The tiny lab, which executes in a second."""
    return load("tiny", TINY)


@pytest.fixture(scope="session")
def sandboxed():
    """True; skips where bubblewrap cannot be used, and fails in CI, which installs it."""
    if sandbox.unavailable():
        (pytest.fail if "CI" in os.environ else pytest.skip)(f"no sandbox: {sandbox.unavailable()}")
    return True

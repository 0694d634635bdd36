"""What the tests of grading share: the tiny lab."""

from pathlib import Path

import pytest

from labkit.grading.lab import load

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def tiny():
    """The tiny lab, which executes in a second."""
    return load("tiny", TINY)

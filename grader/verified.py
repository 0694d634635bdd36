"""Stages of a release that have passed already: none is executed again until something that it depends on has changed.

An empty file in `_build/released` says so, named by a digest: nothing there tells a solution or a value.
"""

import hashlib
import json
import time
from contextlib import contextmanager, suppress

from grader import digests
from grader import lab as labs
from grader.lab import Lab
from labkit.system.environment import REPO

FOLDER = REPO / "_build" / "released"


class Stages:
    """The stages of one release, each told with the seconds that it took; again: none counts as passed before."""

    def __init__(self, lab: Lab, tell, again: bool = False, **given):
        about = digests.about(lab) | {"labkit": digests.all_of_labkit(), "lab's files": digests.of_files(lab), **given}
        self.about, self.tell, self.again = about, tell, again

    @contextmanager
    def stage(self, told: str, *parts):
        """Gives whether there is anything to do; what passes is remembered by what it depends on, as JSON holds it."""
        text = json.dumps([self.about, told, parts], sort_keys=True)
        mark = FOLDER / hashlib.sha256(text.encode()).hexdigest()
        if mark.exists() and not self.again:
            self.tell(f"{told}: passed before, and nothing has changed")
            yield False
            return
        self.tell(f"{told} ...")
        begun = time.monotonic()
        yield True
        self.tell(f"  passed in {time.monotonic() - begun:.0f} s")
        with suppress(OSError):  # a checkout that cannot be written to: it is executed again next time
            if (REPO / "labs").is_dir():  # not beside installed packages
                FOLDER.mkdir(parents=True, exist_ok=True)
                mark.touch()


def code(cells: list[dict]) -> list:
    """What of a notebook's cells decides how they execute: source and metadata of code cells, no text."""
    return [[labs.source(cell), cell["metadata"]] for cell in cells if cell["cell_type"] == "code"]

"""A plugin of pytest that has nbval execute a rebuilt notebook, and reports each cell as it begins and ends."""

import json
import os
import re
import signal
import time
from collections import defaultdict
from functools import partial
from queue import Empty

import pytest
from nbval.plugin import NbCellError

from grader.limits import Limits, exceeded
from grader.values import emitted

LONGEST, LONGEST_TRACEBACK = 300, 6000  # characters of an error's message, and of its traceback
TO_END = 5  # seconds that an interrupted cell has


class KernelDied(Exception):
    """The kernel's process has ended while a cell was executed."""


class Report:
    """Writes each cell's beginning and end to `out`, and has the notebook on the disk only until it is read.

    A cell that times out or kills the kernel is the last one: what comes after it would be judged by its ruins.
    """

    def __init__(self, document: dict, out):
        self.seconds, self.out = document["seconds"], out
        self.limits = Limits(0, document["memory"], document["processes"])
        self.kernel = self.begun = None

    def write(self, **line) -> None:
        """{cell, outcome, ...}: one begins (no outcome) or ends; {complete}, {failed: why}: there are no more."""
        left = memoryview(json.dumps(line).encode() + b"\n")
        while left:
            left = left[self.out.write(left) :]

    def end(self, cell: str, outcome: str, error: str = "", traceback: str = "", values: dict | None = None) -> str:
        """The outcome as it was written."""
        stopped = ""
        if outcome in ("passed", "error"):  # what a cell has used up is not to be the next one's fault
            stopped = exceeded(os.getpid(), self.limits)
        if stopped:
            outcome, error, traceback, values = "crashed", "", "", {}
        self.write(cell=cell, outcome=outcome, error=error, traceback=traceback, values=values or {}, stopped=stopped)
        return outcome

    def pytest_collectreport(self, report):
        if report.failed:
            self.write(failed=f"no notebook: {report.longreprtext.splitlines()[-1]}")

    def pytest_collection_modifyitems(self, items):
        items[0].path.unlink()
        for item in items:  # markers in a learner's comments
            item.options = defaultdict(bool, check=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        result = yield
        if item.parent.kernel is not self.kernel:
            self.kernel = item.parent.kernel
            self.kernel.get_message = _watchful(self, item.parent, self.kernel.get_message)
            # nbval would take its connections down one by one, and wait.
            self.kernel.stop = partial(self.kernel.km.signal_kernel, signal.SIGKILL)
        # nbval would wait 5 seconds for the end of the output, whatever the cell may take.
        item.config.option.nbval_cell_timeout = item.output_timeout = self.seconds[item.cell.id]
        self.begun = item.cell.id
        self.write(cell=item.cell.id, outcome=None)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        # What the teardown says is left out: on a slow machine a kernel's end may look like a crash.
        if call.when == "call":
            outcome = self.end(item.cell.id, *_outcome(item, call.excinfo and call.excinfo.value))
            if outcome in ("timed out", "crashed"):
                item.session.shouldstop = outcome
        elif call.when == "setup" and call.excinfo:
            if self.begun == item.cell.id:
                self.end(item.cell.id, "crashed")
            else:
                self.write(failed=f"no kernel: {call.excinfo.exconly()}")
            item.session.shouldstop = "setup"
        return report


def _watchful(report, notebook, get_message):
    """nbval's way to wait for a message, but a kernel that has died is noticed within a second.

    All messages of a cell have one end, and so have all after its interrupt: nbval begins to wait anew with each.
    """
    ends = {}

    def watchful(stream, timeout=None):
        if notebook.timed_out:  # the cell has been interrupted
            timeout = min(timeout, TO_END)
        phase = report.begun, notebook.timed_out or stream
        deadline = ends.setdefault(phase, time.monotonic() + timeout)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Empty
            try:
                message = get_message(stream, timeout=min(left, 0.5))
            except Empty:
                if not notebook.kernel.is_alive():
                    raise KernelDied("the kernel died") from None
                continue
            asked = [part.get("source") for part in message["content"].get("payload") or () if isinstance(part, dict)]
            if "ask_exit" in asked:
                raise KernelDied("the cell has asked its kernel to end")  # as `quit()` does, a moment after the cell
            return message

    return watchful


def _place(frames):
    """ ", line 3" where the traceback tells in which line of the cell it was; ""."""
    found = re.search(r"^ *Cell In\[\d+\], line (\d{1,4})\b", "\n".join(frames), re.MULTILINE)
    return f", line {found[1]}" if found else ""


def _outcome(item, error):
    """passed, with the values emitted; error, with its name, place, first line and traceback; timed out; crashed."""
    if isinstance(error, NbCellError) or error is None:
        if item.parent.timed_out:  # also where the cell went on after the interrupt and ended well
            return ("timed out",)
        raised = next((out for out in item.test_outputs or [] if out.output_type == "error"), None)
        if raised is None and error is None:
            return "passed", "", "", emitted(item.test_outputs or [])
        if raised is not None:
            first = (str(raised.evalue).splitlines() or [""])[0]
            frames = [re.sub(r"\x1b\[[0-9;]*m", "", frame) for frame in raised.traceback]
            named = f"{raised.ename}{_place(frames)}: {first}"[:LONGEST].rstrip(": ")
            return "error", named, "\n".join(frames)[-LONGEST_TRACEBACK:]
    return ("crashed",)

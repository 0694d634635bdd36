"""A pytest plugin that has nbval execute a rebuilt notebook, and reports when each cell begins and ends."""

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
TO_END = 5  # seconds for an interrupted cell to end


class Report:
    """Writes each cell's beginning and end to `out`; deletes the notebook from the disk once it is read.

    A cell that times out or kills the kernel is the last one, since it could affect those after it.
    """

    def __init__(self, document: dict, out):
        self.seconds, self.out = document["seconds"], out
        self.limits = Limits(0, document["memory"], document["processes"])
        self.kernel = self.running = None

    def write(self, **line) -> None:
        """{cell, outcome, ...}: a cell begins (no outcome) or ends; {complete}, {failed: reason}: the last line."""
        print(json.dumps(line), file=self.out, flush=True)

    def end(self, cell: str, outcome: str, error: str = "", traceback: str = "", values: dict | None = None) -> str:
        """Write a cell's end; returns the outcome as written, since the cell may have exceeded a limit."""
        # The next cell must not be blamed for what this one has used up.
        stopped = exceeded(os.getpid(), self.limits) if outcome in ("passed", "error") else ""
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
            # nbval would close its connections one by one, and wait.
            self.kernel.stop = partial(self.kernel.km.signal_kernel, signal.SIGKILL)
        # By default nbval waits 5 seconds for the end of the output, even if the cell may take longer.
        item.config.option.nbval_cell_timeout = item.output_timeout = self.seconds[item.cell.id]
        self.running = item.cell.id
        self.write(cell=item.cell.id, outcome=None)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        # Ignore the teardown: on a slow machine a kernel's end may look like a crash.
        if call.when == "call":
            outcome = self.end(item.cell.id, *_outcome(item, call.excinfo and call.excinfo.value))
            if outcome in ("timed out", "crashed"):
                item.session.shouldstop = outcome
        elif call.when == "setup" and call.excinfo:
            if self.running == item.cell.id:
                self.end(item.cell.id, "crashed")
            else:
                self.write(failed=f"no kernel: {call.excinfo.exconly()}")
            item.session.shouldstop = "setup"
        return report


def _watchful(report, notebook, get_message):
    """nbval's function that waits for a message, except that it notices a dead kernel within a second.

    All messages of a cell share one deadline, and so do all after its interrupt: nbval starts anew with each message.
    """
    deadlines = {}

    def watchful(stream, timeout=None):
        if notebook.timed_out:  # the cell has been interrupted
            timeout = min(timeout, TO_END)
        phase = report.running, notebook.timed_out or stream
        deadline = deadlines.setdefault(phase, time.monotonic() + timeout)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Empty
            try:
                message = get_message(stream, timeout=min(left, 0.5))
            except Empty:
                if not notebook.kernel.is_alive():
                    raise RuntimeError("the kernel died") from None
                continue
            sources = [part.get("source") for part in message["content"].get("payload") or () if isinstance(part, dict)]
            if "ask_exit" in sources:
                raise RuntimeError("the cell asked its kernel to end")  # `quit()` ends it shortly after the cell
            return message

    return watchful


def _outcome(item, error):
    """Arguments for Report.end: passed, with values; error, with name, place and traceback; timed out; crashed."""
    if isinstance(error, NbCellError) or error is None:
        if item.parent.timed_out:  # even if the cell continued after the interrupt and ended normally
            return ("timed out",)
        raised = next((out for out in item.test_outputs or [] if out.output_type == "error"), None)
        if raised is None and error is None:
            return "passed", "", "", emitted(item.test_outputs or [])
        if raised is not None:
            first = (str(raised.evalue).splitlines() or [""])[0]
            traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(raised.traceback))
            line = re.search(r"^ *Cell In\[\d+\], line (\d{1,4})\b", traceback, re.MULTILINE)
            named = f"{raised.ename}{f', line {line[1]}' if line else ''}: {first}"[:LONGEST].rstrip(": ")
            return "error", named, traceback[-LONGEST_TRACEBACK:]
    return ("crashed",)

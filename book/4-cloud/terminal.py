"""A terminal for the chapters of this part: runs labkit's commands in a new folder and wraps their output."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from labkit.system.environment import REPO, data_root

FOREIGN = ("OBS_", "HUAWEICLOUD_", "S3_", "ACCESS_KEY", "SECRET_ACCESS_KEY", "MODELARTS_", "MA_", "VC_", "RANK_")


class Terminal:
    """Runs commands in a new folder, `work`. Removes all variables with accounts from this process's environment."""

    def __init__(self):
        self.work = Path(tempfile.mkdtemp())
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            del os.environ[name]
        os.environ |= {"XDG_CACHE_HOME": str(self.work / ".cache"), "PYTHONPATH": str(REPO), "TMPDIR": str(self.work)}

    def start(self, command, **environment):
        """Start a process that runs a labkit command."""
        words = [sys.executable, "-m", "labkit", *shlex.split(command)[1:]]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(words, cwd=self.work, env=os.environ | environment, text=True, **streams)

    def sh(self, command, last=None, **environment):
        """Run a command; print its output (or the last lines), with shorter paths, and its status if it is not 0."""
        process = self.start(command, **environment)
        output = process.communicate()[0].rstrip()
        for folder, name in ((self.work, ""), (data_root(), "data/"), (REPO, "")):
            output = output.replace(f"{folder}/", name)
        lines = list(wrapped(re.sub(r"labkit-(\w+)-\w{8}/", "JOB/", output)))
        print(*wrapped(f"$ {command}"), *(["..."] if last else []), *lines[-(last or 0) :], sep="\n")
        if process.returncode:
            print(f"[exit status {process.returncode}]")


def wrapped(text):
    """The text's lines, wrapped to fit a page."""
    options = {"subsequent_indent": "    ", "break_long_words": False, "break_on_hyphens": False}
    return [line if len(line) < 80 else textwrap.fill(line, 78, **options) for line in text.splitlines()]

"""Record which of the project's files a chapter reads: runs at the start of every Python process of a chapter.

execution.py has Python's start-up run this file where $BOOK_READS names the file to write to. An audit hook sees what
imports, `open` and directory listings see. A process without that variable is not recorded, such as one in the sandbox.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
NOT_INPUTS = tuple(ROOT + name + os.sep for name in (".git", ".venv", "_build", "data", "runs", "work"))


def record(log):
    """Append to `log` each path below ROOT that this process reads; a directory that it lists ends with a slash."""
    seen = set()

    def hook(event, arguments):
        if event == "open":
            path, _, flags = arguments
            if flags & os.O_WRONLY:
                return
        elif event in ("os.listdir", "os.scandir"):
            path = arguments[0] or "."
            if "importlib" in sys._getframe(1).f_globals.get("__name__", ""):
                return  # Python looks for a module: what it finds, it opens
        else:
            return
        if not isinstance(path, str | bytes | os.PathLike) or path in seen:
            return
        if os.path.isabs(path):  # a relative path is another file in another working directory
            seen.add(path)
        full = os.path.realpath(os.fsdecode(path)) + os.sep * (event != "open")
        if full.startswith(ROOT) and not full.startswith(NOT_INPUTS):
            with open(log, "a", encoding="utf-8") as file:
                file.write((full[len(ROOT) :] or "./") + "\n")

    sys.addaudithook(hook)


record(os.environ["BOOK_READS"])

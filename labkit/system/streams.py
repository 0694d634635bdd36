"""Standard streams that stay usable, whatever started this process and whatever happens to its terminal."""

import errno
import os
import sys
from functools import partial


class _Stream:
    """A stream whose terminal may be gone: what is written then is lost, which is no error of the training."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        value = getattr(self._stream, name)
        return partial(_if_there, value) if name in ("write", "flush") else value


def _if_there(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def prepare() -> None:
    """Make the streams and settings of this process usable, whatever started it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file to be opened would get this number
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):  # names and logs may contain characters that this terminal cannot show
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _Stream(stream))
    os.environ["MPLBACKEND"] = "agg"  # figures go to files; a backend for a screen may not be installed

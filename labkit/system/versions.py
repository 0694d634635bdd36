"""The versions of Python and MindSpore that the course supports. Only this file decides that.

`make env` runs this file with each Python it finds, before there is an environment: it prints the interpreter's version
and exits with 1 if the course does not support it.
"""

import sys

PYTHONS = ("3.10", "3.11", "3.12")
MINDSPORE = "2.8.0"  # the default: the newest that is fast on every CPU; requirements.txt pins the same
MINDSPORES = ("2.8", "2.9", "2.10")  # the series that are supported


def series_of(version) -> str:
    """The first two numbers of a version, given as text or as a tuple: "2.8" of "2.8.0"."""
    return ".".join(map(str, (version.split(".") if isinstance(version, str) else version)[:2]))


if __name__ == "__main__":
    print(".".join(map(str, sys.version_info[:3])))
    sys.exit(series_of(sys.version_info) not in PYTHONS)

"""The error that the command line shows in one line."""

import sys
from contextlib import contextmanager


class LabkitError(Exception):
    """What a user can fix: one line that names the key, file or cell. The command line prints it and ends with 1."""

    exit_status = 1


def first_line(error: Exception) -> str:
    """The first line of an error's message; the error's class if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def of_file_system(error: OSError) -> str:
    """The file that an error of the file system is about, and what is wrong with it."""
    return f"{error.filename or 'file system'}: {error.strerror or error}"


@contextmanager
def one_line_errors():
    """End the program with one line on stderr, and an exit status, for labkit's own errors and the file system's."""
    try:
        yield
    except LabkitError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        sys.exit(f"Error: {of_file_system(error)}")

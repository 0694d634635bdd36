"""Errors that the command line shows in one line."""

import sys
from contextlib import contextmanager


class LabkitError(Exception):
    """What a user can fix: one line that names the key, file or cell. The command line prints it and exits with 1."""

    exit_status = 1


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class if the message is empty."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def of_file_system(error: OSError) -> str:
    """The file that an OSError is about, the target of a copy, and what is wrong with it."""
    return f"{error.filename2 or error.filename or 'file system'}: {error.strerror or error}"


@contextmanager
def one_line_errors():
    """Exit with one line on stderr and the exit status of the error, for labkit's own errors and file system errors."""
    try:
        yield
    except LabkitError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        sys.exit(f"Error: {of_file_system(error)}")

"""The error that the command line shows in one line."""

import sys
from contextlib import contextmanager


class LabkitError(Exception):
    """What a user can fix: one line that names the key, file or cell. The command line prints it and ends with 1."""

    exit_status = 1


@contextmanager
def one_line_errors():
    """End the program with one line on stderr, and an exit status, for labkit's own errors and the file system's."""
    try:
        yield
    except LabkitError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        sys.exit(f"Error: {error.filename or 'file system'}: {error.strerror or error}")

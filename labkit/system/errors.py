"""The error that the command line shows in one line."""


class LabkitError(Exception):
    """What a user can fix: one line that names the key, file or cell. The command line prints it and ends with 1."""

    exit_status = 1

"""labkit's commands in this process."""

from click.testing import CliRunner

from labkit.cli import main


def labkit(*arguments):
    """What a command prints, and its exit status."""
    return CliRunner().invoke(main, [str(word) for word in arguments])

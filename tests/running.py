"""labkit's commands: in this process, what starts them in one of their own, and the files that they leave."""

import sys

from click.testing import CliRunner

from labkit.cli import main

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')"]


def labkit(*arguments):
    """What a command prints, and its exit status; raises what would be a traceback."""
    done = CliRunner().invoke(main, [str(word) for word in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def contents(folder):
    """{name: content} of all files below a folder, hidden ones as well."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

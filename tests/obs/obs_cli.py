"""labkit obs in the tests' own process."""

import json

from click.testing import CliRunner
from swift import SECRET_KEY

from labkit.cli import main


def run(*arguments, stdin=None):
    """labkit obs with these, in this process: status, stdout, stderr; an error is one line and no traceback."""
    done = CliRunner().invoke(main, ["obs", *map(str, arguments)], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert SECRET_KEY not in done.output
    return done.exit_code, done.stdout, done.stderr


def document(*arguments, status=0):
    """The JSON document that is all of stdout."""
    found, stdout, stderr = run(*arguments, "--json")
    assert found == status, stderr
    return json.loads(stdout)


def refused(*arguments, status=1):
    """The error's line."""
    found, stdout, stderr = run(*arguments)
    assert (found, stdout) == (status, "")
    lines = stderr.splitlines()
    assert lines[-1].startswith("Error: ") and (status == 2 or len(lines) == 1)
    return lines[-1]


def keys(store, bucket):
    return [entry.key for entry in store.list(bucket)]

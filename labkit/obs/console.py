"""Options, connection, progress bar and messages of the commands for buckets and jobs."""

import sys
from contextlib import contextmanager

import click

from labkit.obs.place import parse

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print what would be done.")
QUIET = click.option("--quiet", is_flag=True, help="Print warnings and errors only.")


def deadline(seconds=300.0):
    """The option --deadline with this default."""
    return click.option(
        "--deadline", type=click.FloatRange(0, 30 * 86400, min_open=True), default=seconds, show_default=True,
        metavar="SECONDS", help="Give up a request after this long without success.",
    )  # fmt: skip


def connected(*places, deadline=300.0):
    """The object server, with this deadline in seconds; None if all places are on this machine."""
    from labkit.obs import copying

    return copying.connected(None, *map(parse, places), deadline=deadline, notice=warn)


def warn(line):
    """Print a line on stderr, above the progress bar if there is one."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


@contextmanager
def bar(quiet=False):
    """A progress bar on a terminal, unless quiet; yields a function to call with bytes done and the total."""
    from tqdm import tqdm

    with tqdm(unit="B", unit_scale=True, dynamic_ncols=True, delay=0.5, disable=quiet or None) as bar:

        def progress(done, total):
            bar.total = total
            bar.update(done - bar.n)

        yield progress


def shown(name):
    """The name, escaped if it would move the cursor or cannot be printed."""
    return name if name.isprintable() else ascii(name)


def count(files):
    return f"{files:,} {'file' if files == 1 else 'files'}"

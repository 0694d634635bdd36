"""What the tests of the data scripts share: archives, and how a command is run and fails."""

import io
import tarfile

from click.testing import CliRunner


def tar(contents, mode="w", prefix=""):
    """A tar of {name: bytes}; a TarInfo instead of a name goes in as it is."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as archive:
        for name, content in contents.items():
            entry = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def link(name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, str(target)
    return entry


def runner(script):
    """Function that runs a script's command in this process; returns its result (exit_code, stdout, stderr)."""
    return lambda *args: CliRunner().invoke(script.main, [str(arg) for arg in args])


def failed(result, *words):
    """The command ended as errors should: status 1, and a last line on stderr with all `words`."""
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: "), result.stderr
    for word in words:
        assert str(word) in last
    return last

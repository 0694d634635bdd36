"""Files: written whole or not at all, locked against other processes, and which of them git tracks."""

import errno
import os
import secrets
import subprocess
from contextlib import contextmanager
from pathlib import Path


def atomic_write(path: Path, data: str | bytes) -> None:
    """Write a file so that it appears whole or not at all, whatever stops or writes it too."""
    require_replaceable(path)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with open(part, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def require_replaceable(path: Path) -> None:
    """OSError for a device, a FIFO or a socket, or a link to one: a file must not take its place."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "neither a file nor a folder, and not replaced by one", str(path))


def lock(handle: int) -> bool:
    """Take the lock of an open file; False if another process holds it. Closing the file, or any exit, releases it.

    On a file system without locks it is always True: there, a second process goes unnoticed.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True


@contextmanager
def locked(folder: Path, refusal: Exception):
    """Hold a folder's lock, or raise `refusal`; the lock is released when the process ends, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock(handle):
            raise refusal
        yield
    finally:
        os.close(handle)


def checkout(folder: Path) -> Path | None:
    """The top of git's checkout that a folder is in; None if there is none."""
    place = folder.resolve()
    return next((parent for parent in (place, *place.parents) if (parent / ".git").exists()), None)


def tracked(folder: Path, error: type[Exception]) -> list[str] | None:
    """Names of the files below a folder that git tracks; None outside a checkout. Raises `error` if git fails."""
    if checkout(folder) is None:
        return None
    done = subprocess.run(["git", "-C", str(folder), "ls-files", "-z"], capture_output=True)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]  # git's last line says most
        raise error(f"{folder}: git cannot say what it tracks ({why})")
    return [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]

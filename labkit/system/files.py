"""Files: atomic writes, locks against other processes, and which files git tracks."""

import errno
import os
import secrets
import subprocess
from contextlib import contextmanager
from pathlib import Path

from labkit.system.errors import LabkitError


def atomic_write(path: Path, data: str | bytes) -> None:
    """Write a file so that it is either complete or absent, even if this is interrupted or others write it too."""
    require_replaceable(path)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with open(part, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def require_replaceable(path: Path) -> None:
    """Raise OSError if `path` is a device, a FIFO or a socket, or a link to one, which a file must not replace."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "neither a file nor a folder, so it is not replaced", str(path))


def lock(handle: int) -> bool:
    """Lock an open file; False if another process has locked it. Closing the file, or any exit, releases the lock.

    Always True on a file system without locks, where a second process goes unnoticed.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True


@contextmanager
def locked(folder: Path, refusal: Exception):
    """Hold a folder's lock, or raise `refusal`; it is also released when the process ends, for whatever reason."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock(handle):
            raise refusal
        yield
    finally:
        os.close(handle)


def user_folder(top) -> Path:
    """This user's folder in a shared one, created if necessary; LabkitError if it belongs to another user."""
    folder = Path(top, f"labkit-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise LabkitError(f"{folder}: belongs to another user")
    return folder


def git(folder: Path, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess:
    """A git command about the repository that a folder is in, not one that a hook's variables name; output as bytes."""
    kept = ("GIT_CONFIG", "GIT_EXEC", "GIT_SSH")  # GIT_DIR and its like stay out
    env = {key: value for key, value in os.environ.items() if key.startswith(kept) or not key.startswith("GIT_")}
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, env=env, timeout=timeout)


def checkout(folder: Path) -> Path | None:
    """The root of the git checkout that contains a folder; None outside of a checkout."""
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def tracked(folder: Path, error: type[Exception]) -> list[str] | None:
    """Names of the files in a folder that git tracks; None outside of a checkout. Raises `error` if git fails."""
    if checkout(folder) is None:
        return None
    done = git(folder, "ls-files", "-z")
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]  # git's last line says most
        raise error(f"{folder}: git cannot list the files it tracks ({reason})")
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]

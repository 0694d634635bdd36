"""What a job with URLs carries: data to this machine before a training, its Run back to the bucket, however it ends."""

import os
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from labkit.modelarts.node_lock import copy_once_per_node
from labkit.obs import copying
from labkit.obs.place import CloudError, Remote, parse
from labkit.obs.upload_record import short
from labkit.system import environment
from labkit.system.files import locked
from labkit.training import runs

FAST_DISK = Path("/cache")  # of ModelArts' machines
PERIOD = 30.0  # seconds between two looks for a new checkpoint
PARTS = ("*.part", "part.ckpt", "*/part.ckpt")  # files of a Run that are being written


def is_url(text) -> bool:
    """Whether this is obs://, s3:// or file://: what is there is copied. A path is used where it is."""
    return "://" in str(text)


def below(url, name: str) -> str:
    """The place `name` in the folder at a URL or path."""
    place = parse(url)
    return str(place.below(name)) if isinstance(place, Remote) else f"file://{place.path / name}"


def data_folder(url) -> Path:
    """The data at a URL, in a folder of this machine: one of its processes copies, the others wait for it.

    CloudError also where the folder has a file of an earlier copy that the URL has not any more.
    """
    folder = _cache("data", url)
    report = copy_once_per_node(url, folder)
    if report.copied:
        print(f"data: {url}, {report.copied} files, copied to {folder}", flush=True)
    # Hidden ones are labkit's own: what a scan of the images has found.
    here = {Path(top, name) for top, _, names in os.walk(folder) for name in names if not name.startswith(".")}
    here = {path.relative_to(folder).as_posix() for path in here}
    if len(here) != report.copied + report.skipped and (gone := here - {item.name for item in copying.ls(url)}):
        raise CloudError(f"{folder}: has {min(gone)}, which {url} has not any more: remove the folder")
    return folder


@contextmanager
def run_folder(url, fetches: bool, sends: bool):
    """A folder of this machine for the Run at a URL, with the unfinished one that is there already, if there is one.

    fetches: in one process of each machine. sends: in one process of all. It takes the Run back to the URL in the end,
    whether the training ended, failed or was interrupted, and after each checkpoint meanwhile, in case it is killed.
    """
    folder = _cache("runs", url)
    if fetches:
        _set_aside(folder, url)
        if copying.exists(below(url, "recipe.yaml")):
            report = copying.copy(url, folder)
            print(f"Run: {url}, {report.copied} files, copied to {folder}", flush=True)
    if not sends:
        yield folder
        return
    if fetches and runs.Run(folder).complete:  # such a Run is never changed, so nothing is to go back
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
        return
    ended = threading.Event()
    saver = threading.Thread(target=_save_meanwhile, args=(folder, url, ended), daemon=True)
    saver.start()
    try:
        yield folder
    except BaseException:
        ended.set()
        saver.join()
        try:
            _send(folder, url)
        except (CloudError, OSError) as error:  # the first error is the one to raise
            print(f"Error: {error}", file=sys.stderr, flush=True)
        raise
    ended.set()
    saver.join()
    _send(folder, url)


def _cache(kind, url):
    """A folder for what is copied, the same in all processes of this machine; nobody else's."""
    base = FAST_DISK if os.access(FAST_DISK, os.W_OK) else Path(tempfile.gettempdir())
    top = base / f"labkit-{environment.user_id()}"
    top.mkdir(mode=0o700, exist_ok=True)
    if top.stat().st_uid != environment.user_id() or top.is_symlink():
        raise CloudError(f"{top}: belongs to another user")
    return top / kind / short(str(url).rstrip("/"))


def _set_aside(folder, url):
    """Make room for what is at the URL; what a killed start left here is kept: it may be more than is there."""
    if folder.exists():
        refusal = CloudError(f"{url}: another training on this machine writes this Run")
        with locked(folder, refusal):
            kept = runs.free_path(folder.parent, f"{folder.name}-before")
            folder.rename(kept)
        print(f"Run: what an earlier start left in {folder} is kept as {kept}", flush=True)


def copy_runs(folder, url, summary=True, parts=PARTS) -> None:
    """Copy Runs so that what is at the URL can be gone on with, wherever this is cut off.

    The history goes before the checkpoint that counts on it, and summary.json, by which a Run is complete, last.
    parts: patterns of files that stay here.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for later in [("*checkpoints/*", "*summary.json"), ("*summary.json",), ()][: 3 if summary else 2]:
        left_out = parts + later
        if any(not any(fnmatchcase(name, pattern) for pattern in left_out) for name in names):
            copying.copy(folder, url, exclude=left_out)


@contextmanager
def kept(what, folder):
    """Where something goes wrong, it is said that what was to be copied stays in a folder."""
    try:
        yield
    except CloudError as error:
        error.args = (f"{error.args[0]}; {what} stays in {folder}",)
        raise
    except BaseException:
        print(f"{what} stays in {folder}", file=sys.stderr, flush=True)
        raise


def _send(folder, url):
    """Copy the Run to its URL and remove it here; where that fails, it stays, and the error says where.

    CloudError where another process trains it: it began after this one had looked, and sends the Run itself.
    """
    if not (folder / "recipe.yaml").exists():
        return  # the training failed before it made one
    with locked(folder, CloudError(f"{url}: another training on this machine writes this Run")):
        with kept("the Run", folder):
            copy_runs(folder, url)
        print(f"Run: copied to {url}", flush=True)
        shutil.rmtree(folder)


def _save_meanwhile(folder, url, ended):
    checkpoint, saved = runs.Run(folder).checkpoint, None
    while not ended.wait(PERIOD):
        found = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        if found == saved:
            continue
        try:
            with _snapshot(folder) as whole:
                copy_runs(whole, url, summary=False)
            saved = found
        except (CloudError, OSError) as error:  # the next time, or in the end
            print(f"Run: not copied to {url} yet: {error}", file=sys.stderr, flush=True)


@contextmanager
def _snapshot(folder):
    """The Run as it is now. The checkpoint comes first, so the history is at least as long as it says."""
    whole = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        (whole / "checkpoints").mkdir()
        checkpoint = runs.Run(folder).checkpoint
        os.link(checkpoint, runs.Run(whole).checkpoint)  # it is replaced by the next one, never written over
        for file in folder.iterdir():
            if file.is_file() and file.suffix != ".part":
                shutil.copyfile(file, whole / file.name)
        yield whole
    finally:
        shutil.rmtree(whole)

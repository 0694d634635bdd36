"""Input and output of a job with URLs: data is copied to this machine before a training, its Run to the bucket after.

However the training ends, the Run is copied; also after each checkpoint, in case the machine is lost.
"""

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
from labkit.obs.local_files import own_folder, short
from labkit.obs.place import CloudError, Local, Remote, parse
from labkit.obs.plan import files_below
from labkit.system.files import locked
from labkit.training import runs

FAST_DISK = Path("/cache")  # of ModelArts' machines
PERIOD = 30.0  # seconds between two looks for a new checkpoint
COUNTED_ON = ("*history.jsonl", "*recipe.yaml", "*checkpoints/*")  # by files of a Run that are copied later
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

    CloudError also where the folder has a file of an earlier copy that is no longer at the URL.
    """
    folder = _cache("data", url)
    report = copy_once_per_node(url, folder)
    if report.copied:
        print(f"data: {url}, {report.copied} files, copied to {folder}", flush=True)
    # Hidden ones are labkit's own: what a scan of the images has found.
    here = {Path(top, name) for top, _, names in os.walk(folder) for name in names if not name.startswith(".")}
    here = {path.relative_to(folder).as_posix() for path in here}
    if len(here) != report.copied + report.skipped and (gone := here - {item.name for item in copying.ls(url)}):
        raise CloudError(f"{folder}: has {min(gone)}, which is no longer at {url}: remove the folder")
    return folder


@contextmanager
def run_folder(url, downloads: bool, uploads: bool):
    """A folder of this machine for the Run at a URL, with the unfinished one that is there already, if there is one.

    downloads: in one process of each machine. uploads: in one process of all. It copies the Run to the URL in the end,
    whether the training ended, failed or was interrupted, and after each checkpoint meanwhile.
    """
    folder = _cache("runs", url)
    if downloads:
        _set_aside(folder, url)
        if copying.exists(below(url, "recipe.yaml")):
            report = copying.copy(url, folder)
            print(f"Run: {url}, {report.copied} files, copied to {folder}", flush=True)
    if not uploads:
        yield folder
        return
    if downloads and runs.Run(folder).complete:  # such a Run is never changed, so nothing is to be copied back
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
        return
    ended, failed = threading.Event(), True
    saver = threading.Thread(target=_upload_meanwhile, args=(folder, url, ended), daemon=True)
    saver.start()
    try:
        yield folder
        failed = False
    finally:
        ended.set()
        saver.join()
        try:
            _upload(folder, url)
        except (CloudError, OSError) as error:
            if not failed:
                raise
            print(f"Error: {error}", file=sys.stderr, flush=True)  # the training's own error is the one to raise


def _cache(kind, url):
    """A folder for what is copied, the same in all processes of this machine; nobody else's."""
    top = own_folder(FAST_DISK if os.access(FAST_DISK, os.W_OK) else tempfile.gettempdir())
    return top / kind / short(str(url).rstrip("/"))


def _set_aside(folder, url):
    """Make room for what is at the URL; what a killed start left here stays: it may be more than is there."""
    if folder.exists():
        with locked(folder, _another_training(url)):
            aside = runs.free_path(folder.parent, f"{folder.name}-before")
            folder.rename(aside)
        print(f"Run: what an earlier start left in {folder} is now {aside}", flush=True)


def _another_training(url):
    return CloudError(f"{url}: another training on this machine writes this Run")


def copy_runs(folder, url, summary=True, parts=PARTS) -> dict[str, str]:
    """Copy Runs so that what is at the URL can be resumed, wherever this is cut off.

    The history is copied before the checkpoint that counts on it, and summary.json, by which a Run is complete, last.
    A file that fails stops what counts on it, but nothing else. parts: patterns of files that stay here. Returns why
    what is no file stays here, by name. Raises CloudError.
    """
    odd, failed = {}, {}
    names = [item.name for item in files_below(Local(folder), None, odd=odd)[0]]
    for later in [("*checkpoints/*", "*summary.json"), ("*summary.json",), ()][: 3 if summary else 2]:
        left_out = parts + later
        if any(not any(fnmatchcase(name, pattern) for pattern in left_out) for name in names):
            try:
                copying.copy(folder, url, exclude=left_out, odd=odd)
            except copying.CopyError as error:
                failed |= dict(error.report.failed)
                if any(fnmatchcase(name, pattern) for name in failed for pattern in COUNTED_ON):
                    raise
                known = error
    if failed:
        raise known
    return odd


def list_odd(odd, what="") -> None:
    """Say of what could not be copied what it is called and why."""
    for name, reason in sorted(odd.items()):
        print(CloudError(f"not copied: {what}{name}: {reason}"), file=sys.stderr, flush=True)


@contextmanager
def stays_on_failure(what, folder):
    """Where copying fails, the error says that what was to be copied stays in a folder."""
    try:
        yield
    except CloudError as error:
        error.args = (f"{error.args[0]}; {what} stays in {folder}",)
        raise
    except BaseException as error:
        print(f"{what} stays in {folder}", file=sys.stderr, flush=True)
        error.told = True  # where it is
        raise


def _upload(folder, url):
    """Copy the Run to its URL and remove it here; where that fails, it stays, and the error says where.

    CloudError where another process trains it: it began after this one had looked, and uploads the Run itself.
    """
    if not (folder / "recipe.yaml").exists():
        return  # the training failed before it made one
    with locked(folder, _another_training(url)):
        with stays_on_failure("the Run", folder):
            list_odd(copy_runs(folder, url))
        print(f"Run: copied to {url}", flush=True)
        shutil.rmtree(folder)


def _upload_meanwhile(folder, url, ended):
    checkpoint, uploaded = runs.Run(folder).checkpoint, None
    while not ended.wait(PERIOD):
        found = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        if found == uploaded:
            continue
        try:
            with _snapshot(folder) as whole:
                copy_runs(whole, url, summary=False)
            uploaded = found
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

"""A job with URLs (API v1): its data is copied to this machine before the training, its Run to the bucket after it.

However the training ends, the Run is copied; also after each checkpoint, in case the machine is lost.
"""

import os
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path

from labkit.launch.start_files import JobContext, is_url
from labkit.modelarts.node_lock import copy_once_per_node
from labkit.obs import copying
from labkit.obs.local_files import short, user_folder
from labkit.obs.place import CloudError
from labkit.system.files import locked
from labkit.training import jobs, recipes, runs

FAST_DISK = Path("/cache")  # of ModelArts' machines
PERIOD = 30.0  # seconds between two looks for a new checkpoint
PARTS = ("*.part", "part.ckpt", "*/part.ckpt")  # files of a Run that are being written


def train(recipe: recipes.Recipe, out: str, here: JobContext) -> None:
    """Train a recipe into the Run at `out` where its data or the Run is at a URL. Raises LabkitError."""
    if here.start == "scheduler":  # copies nothing, and does not come back
        jobs.train(recipe, Path(out), here)
        return
    with run_folder(out, here.leads_host, here.leads) if is_url(out) else nullcontext(Path(out)) as folder:
        if is_url(recipe.data.folder):
            data = recipe.data.model_copy(update={"folder": str(data_folder(recipe.data.folder))})
            recipe = recipe.model_copy(update={"data": data})
        jobs.train(recipe, folder, here)


def data_folder(url) -> Path:
    """The data at a URL, in a folder of this machine: one of its processes copies, the others wait for it."""
    folder = _cache("data", url)
    report = copy_once_per_node(url, folder)
    if report.copied:
        print(f"data: {url}, {report.copied} files, copied to {folder}", flush=True)
    return folder


@contextmanager
def run_folder(url, leads_host: bool, leads: bool):
    """A folder of this machine for the Run at a URL, with the unfinished one that is there already, if there is one.

    leads_host: in one process of each machine, which fetches the Run. leads: in one of all, which copies it to the URL:
    after each checkpoint, and in the end, whether the training ended, failed or was interrupted.
    """
    top = _cache("runs", url)
    folder = top / "run"
    if not leads_host:
        yield folder
        return
    top.mkdir(parents=True, exist_ok=True)
    with locked(top, CloudError(f"{url}: another training on this machine writes this Run")):
        if folder.exists():  # a killed start left it; it may have more than is at the URL
            before = folder.rename(runs.free_path(top, "before"))
            print(f"Run: what an earlier start left in {folder} is now {before}", flush=True)
        if copying.exists(f"{url.rstrip('/')}/recipe.yaml"):
            report = copying.copy(url, folder)
            print(f"Run: {url}, {report.copied} files, copied to {folder}", flush=True)
        if leads and not runs.Run(folder).complete:
            with _saved(folder, url):
                yield folder
            return
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # there is none where the training failed before it made one


def _cache(kind, url):
    """A folder for what is copied, the same in all processes of this machine; nobody else's."""
    top = user_folder(FAST_DISK if os.access(FAST_DISK, os.W_OK) else tempfile.gettempdir())
    return top / kind / short(str(url).rstrip("/"))


@contextmanager
def _saved(folder, url):
    """Copy a Run to its URL after each checkpoint and in the end. Where that fails, it stays here."""
    ended, failed = threading.Event(), True
    saver = threading.Thread(target=_save_meanwhile, args=(folder, url, ended), daemon=True)
    saver.start()
    try:
        yield
        failed = False
    finally:
        ended.set()
        saver.join()
        try:
            if (folder / "recipe.yaml").exists():
                copy_run(folder, url)
                print(f"Run: copied to {url}", flush=True)
                shutil.rmtree(folder)
        except CloudError as error:
            kept = f"{error}; the Run stays in {folder}"
            if not failed:
                raise CloudError(kept) from None
            print(f"Error: {kept}", file=sys.stderr, flush=True)  # the training's own error is the one to raise


def _save_meanwhile(folder, url, ended):
    checkpoint, saved = runs.Run(folder).checkpoint, None
    while not ended.wait(PERIOD):
        newest = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        if newest == saved:
            continue
        try:
            with tempfile.TemporaryDirectory(dir=folder.parent) as top:
                copy_run(_snapshot(folder, Path(top)), url)
            saved = newest
        except (CloudError, OSError) as error:  # the next time, or in the end
            print(f"Run: not copied to {url} yet: {error}", file=sys.stderr, flush=True)


def _snapshot(folder, top):
    """The Run as it is now. The checkpoint comes first, so the history is at least as long as it says."""
    (top / "checkpoints").mkdir()
    os.link(runs.Run(folder).checkpoint, runs.Run(top).checkpoint)  # it is replaced by the next one, never written over
    for name in ("recipe.yaml", "provenance.json", "history.jsonl"):
        shutil.copyfile(folder / name, top / name)
    return top


def copy_run(folder, url) -> None:
    """Copy a Run so that what is at the URL can be resumed, wherever this is cut off.

    The history is copied before the checkpoint that counts on it, and summary.json, by which a Run is complete, last.
    """
    for later in (("checkpoints/*", "summary.json"), ("summary.json",), ()):
        copying.copy(folder, url, exclude=(*PARTS, *later))

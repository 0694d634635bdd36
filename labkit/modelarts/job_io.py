"""A job with URLs (API v1): copy its data to this machine before the training, and its Run to the bucket afterwards.

The Run is copied however the training ends, and after each checkpoint, in case the machine is lost.
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
from labkit.obs.local_files import short
from labkit.obs.place import CloudError
from labkit.system.files import locked, user_folder
from labkit.training import jobs, recipes, runs

FAST_DISK = Path("/cache")  # of ModelArts' machines
PERIOD = 30.0  # seconds between two checks for a new checkpoint
PARTS = ("*.part", "part.ckpt", "*/part.ckpt")  # unfinished files in a Run


def train(recipe: recipes.Recipe, out: str, here: JobContext) -> None:
    """Train a recipe into the Run at `out`; its data and the Run may be at URLs. Raises LabkitError."""
    if here.start == "scheduler":  # copies nothing and does not return
        jobs.train(recipe, Path(out), here)
        return
    with run_folder(out, here.leads_host, here.leads) if is_url(out) else nullcontext(Path(out)) as folder:
        if is_url(recipe.data.folder):
            recipe = recipes.with_folder(recipe, str(data_folder(recipe.data.folder)))
        jobs.train(recipe, folder, here)


def data_folder(url) -> Path:
    """Copy the data at a URL to a folder on this machine: one process copies, the others wait for it."""
    folder = _cache("data", url)
    report = copy_once_per_node(url, folder)
    if report.copied:
        print(f"data: {url}, {report.copied} files, copied to {folder}", flush=True)
    return folder


@contextmanager
def run_folder(url, leads_host: bool, leads: bool):
    """A folder on this machine for the Run at a URL; if there is an unfinished Run, it is copied into the folder.

    leads_host: True in one process per machine, which fetches the Run. leads: True in one process of all, which copies
    the Run to the URL after each checkpoint and in the end, even if the training failed or was interrupted.
    """
    top = _cache("runs", url)
    folder = top / "run"
    if not leads_host:
        yield folder
        return
    top.mkdir(parents=True, exist_ok=True)
    with locked(top, CloudError(f"{url}: another training on this machine is writing this Run")):
        if folder.exists():  # left by a killed start; it may have more than is at the URL
            before = folder.rename(runs.new_folder(top, "before"))
            print(f"Run: what an earlier start left in {folder} is now in {before}", flush=True)
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
            shutil.rmtree(folder, ignore_errors=True)  # it does not exist if the training failed early


def _cache(name, url):
    """A folder for copies, the same in all of this user's processes on this machine."""
    top = user_folder(FAST_DISK if os.access(FAST_DISK, os.W_OK) else tempfile.gettempdir())
    return top / name / short(str(url).rstrip("/"))


@contextmanager
def _saved(folder, url):
    """Copy a Run to its URL after each checkpoint and in the end. If that fails, the Run stays in the folder."""
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
            message = f"{error}; the Run stays in {folder}"
            if not failed:
                raise CloudError(message) from None
            print(f"Error: {message}", file=sys.stderr, flush=True)  # the training's own error is raised


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
        except (CloudError, OSError) as error:  # it is copied the next time, or in the end
            print(f"Run: not copied to {url} yet: {error}", file=sys.stderr, flush=True)


def _snapshot(folder, top):
    """A copy of the Run. It takes the checkpoint first, so the history is at least as long as the checkpoint needs."""
    (top / "checkpoints").mkdir()
    os.link(runs.Run(folder).checkpoint, runs.Run(top).checkpoint)  # the next checkpoint replaces it, in a new file
    for name in ("recipe.yaml", "provenance.json", "history.jsonl"):
        shutil.copyfile(folder / name, top / name)
    return top


def copy_run(folder, url) -> None:
    """Copy a Run so that the Run at the URL can be resumed even if this is interrupted.

    The history is copied before the checkpoint, which depends on it, and summary.json, which completes a Run, last.
    """
    for later in (("checkpoints/*", "summary.json"), ("summary.json",), ()):
        copying.copy(folder, url, exclude=(*PARTS, *later))

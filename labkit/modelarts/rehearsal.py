"""Rehearsal: a job on this machine under ModelArts' contract (API v2), with a folder or an object server as OBS.

Code and inputs are copied from the bucket into fresh folders. The start file gets --NAME=FOLDER for inputs and outputs,
and the job's environment. Its outputs and its log are copied to the bucket, however it ends.
"""

import codecs
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from labkit.modelarts.job_io import copy_runs, list_odd, stays_on_failure
from labkit.modelarts.submission import Submission
from labkit.obs import copying
from labkit.obs.place import CloudError
from labkit.system import interrupts

# Of another launch, which this is no part of.
FOREIGN = ("RANK_", "MS_", "VC_", "MA_", "OMPI_", "LABKIT_LAUNCH", "DEVICE_ID", "ASCEND_DEVICE_ID")
TIME_TO_SAVE = 60.0  # seconds between "stop" and the end of an interrupted job


def rehearse(submission: Submission, cards: int = 1, printed=None, begun=lambda: None) -> int:
    """Run a job whose code and data are in the bucket; returns the start file's exit status, negative for a signal.

    cards: of the machine, as a custom image sees it: one start file starts a process for each.
    printed: called with each piece of its output.
    begun: called when the start file starts.

    Preset images, which start one start file per card, and API v1, whose arguments are URLs, are not rehearsed.
    Ctrl-C stops it as ModelArts does, with SIGTERM, and its outputs are copied all the same. Raises CloudError.
    """
    spec = submission.spec
    top = Path(tempfile.mkdtemp(prefix=f"labkit-{spec.name}-"))
    code, log = top / "user-job-dir" / "code", top / "log"
    for folder in (code, log):
        folder.mkdir(parents=True)
    results, status = {spec.log: log} if spec.log else {}, None
    try:
        copying.copy(submission.place(spec.code), code)
        arguments = []
        for number, (name, place) in enumerate(spec.inputs.items()):
            folder = top / "inputs" / f"{name}_{number}"
            copying.copy(submission.place(place), folder)
            arguments.append(f"--{name}={folder}")
        for number, (name, place) in enumerate(spec.outputs.items()):
            folder = results[place] = top / "outputs" / f"{name}_{number}"
            folder.mkdir(parents=True)
            arguments.append(f"--{name}={folder}")
        arguments += [f"--{name}={value}" for name, value in spec.parameters.items()]
        command = [sys.executable, str(code / spec.boot_file), *arguments]
        log_file = log / f"{spec.name}-worker-0.log"
        begun()
        status = _run(command, environment(spec, code.parent, log, cards), top, log_file, printed)
        return status
    finally:
        stopped = sys.exc_info()[1]
        try:
            _upload(submission, results, top)
        except (CloudError, OSError) as error:
            if status == 0:
                raise
            if stopped:
                stopped.told = True  # where the output is
            print(f"Error: {error}", file=sys.stderr, flush=True)  # how the job ended says more


def _upload(submission, results, top):
    """Copy what the job wrote to the bucket; only then its folders are removed."""
    if not top.is_dir():
        raise CloudError("the job has removed its own folders, and with them what it wrote")
    with stays_on_failure("what the job wrote", top):
        replaced = [folder for folder in results.values() if folder.is_symlink() or folder.is_file()]
        for place, folder in results.items():
            if folder.is_dir() and not folder.is_symlink():
                list_odd(copy_runs(folder, submission.place(place), parts=()), f"{folder.relative_to(top)}/")
        if replaced:
            raise CloudError(f"not copied: {replaced[0].relative_to(top)}: the job has replaced this folder")
    with suppress(RecursionError):
        shutil.rmtree(top, ignore_errors=True)
    if top.exists():  # the job left a folder that nobody may write, or thousands in each other
        print(f"{top}: cannot be removed", file=sys.stderr, flush=True)


def environment(spec, job_dir, log, cards) -> dict[str, str]:
    """The environment of a job's start file on the only machine of the job."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return own | {
        "MA_JOB_DIR": str(job_dir), "MA_LOG_DIR": str(log), "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": str(cards),
        "VC_WORKER_NUM": "1", "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "127.0.0.1", "PYTHONUNBUFFERED": "1",
        **spec.environment,
    }  # fmt: skip


def _run(command, environment, folder, log, printed):
    with open(log, "wb", buffering=0) as file:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=interrupts.die_with_parent,
        )  # fmt: skip
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        try:
            for piece in _pieces(process):
                file.write(piece)
                if printed:
                    printed(decoder.decode(piece))
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            for piece in _pieces(process, TIME_TO_SAVE):
                file.write(piece)
            raise
        finally:
            with suppress(ProcessLookupError):  # whatever it has started and left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


def _pieces(process, seconds=math.inf):
    """What a process prints until it has ended, or for so long; what it has started may hold the pipe's other end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended = process.poll() is not None
        if select.select([process.stdout], [], [], 0 if ended else 0.2)[0]:
            if not (piece := process.stdout.read1(1 << 16)):
                return
            yield piece
        elif ended:
            return

"""Rehearsal: run a job on this machine as ModelArts does (API v2), with a folder or an object server as OBS.

Code and inputs are copied from the bucket into new folders. The start file gets --NAME=FOLDER for inputs and outputs,
and the job's environment. However it ends, its outputs and its log are copied to the bucket.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.launch.msrun import Follower, start_process
from labkit.modelarts.job import JobSpec
from labkit.obs import copying
from labkit.obs.place import CloudError

# Prefixes of variables from another launch or job, which must not affect this one.
FOREIGN = ("RANK_", "MS_", "VC_", "MA_", "OMPI_", "LABKIT_LAUNCH", "DEVICE_ID", "ASCEND_DEVICE_ID")
TIME_TO_SAVE = 60.0  # seconds between "stop" and the end of an interrupted job


def rehearse(spec: JobSpec, cards: int = 1, printed=lambda text: None) -> int:
    """Run a job whose code and data are in the bucket; returns the start file's exit status, negative for a signal.

    cards: number of cards, as in a custom image: one start file starts a process per card.
    printed: called with new output of the start file.

    Preset images, which run one start file per card, and API v1, with URLs as arguments, cannot be rehearsed. Ctrl-C
    stops the job with SIGTERM, as ModelArts does; its outputs are copied nevertheless. Raises CloudError.
    """
    top = Path(tempfile.mkdtemp(prefix=f"labkit-{spec.name}-"))
    code, log = top / "user-job-dir" / "code", top / "log"
    log.mkdir()
    arguments, results = [], {spec.log: log} if spec.log else {}
    with _copied_back(spec, results, top):
        copying.copy(spec.url(spec.code), code)
        for number, (name, place) in enumerate(spec.inputs.items()):
            folder = top / "inputs" / f"{name}_{number}"
            copying.copy(spec.url(place), folder)
            arguments.append(f"--{name}={folder}")
        for number, (name, place) in enumerate(spec.outputs.items()):
            folder = results[place] = top / "outputs" / f"{name}_{number}"
            folder.mkdir(parents=True)
            arguments.append(f"--{name}={folder}")
        arguments += [f"--{name}={value}" for name, value in spec.parameters.items()]
        command = [sys.executable, str(code / spec.boot_file), *arguments]
        log_file = log / f"{spec.name}-worker-0.log"
        return _run(command, environment(spec, code.parent, log, cards), top, log_file, printed)


@contextmanager
def _copied_back(spec, results, top):
    """Copy the results, {place: folder}, to the bucket in the end, then remove the job's folders."""
    try:
        yield
    finally:
        try:
            for place, folder in results.items():
                if any(folder.iterdir()):
                    copying.copy(folder, spec.url(place))
        except (CloudError, OSError) as error:
            raise CloudError(f"{error}; what the job wrote stays in {top}") from None
        shutil.rmtree(top, ignore_errors=True)


def environment(spec, job_dir, log, cards) -> dict[str, str]:
    """The environment of a job's start file if the job has one machine."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | {
        "MA_JOB_DIR": str(job_dir), "MA_LOG_DIR": str(log), "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": str(cards),
        "VC_WORKER_NUM": "1", "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "127.0.0.1", "PYTHONUNBUFFERED": "1",
        **spec.environment,
    }  # fmt: skip


def _run(command, environment, folder, log, printed):
    output, process = Follower(log), start_process(command, environment, log, folder)
    try:
        while process.poll() is None:
            time.sleep(0.1)
            printed(output.read())
        return process.returncode
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(TIME_TO_SAVE)
        raise
    finally:
        with suppress(ProcessLookupError):  # kill whatever processes it has left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        printed(output.read(rest=True))

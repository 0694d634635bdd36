"""Doctor: is this machine fit for the course, and what to do if it is not."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

import click

from labkit.system import environment
from labkit.system.errors import first_line
from labkit.system.versions import MINDSPORE, MINDSPORES, PYTHONS, series_of

MEMORY = 3  # GB, as much as the largest chapter takes
DISK = 2  # GB, in addition to the environment, which is installed by the time this runs
SLOW_CONVOLUTION = 0.5  # seconds; a fast kernel needs about 0.03, oneDNN's reference kernel about 3
DEFAULT = f"`make env MINDSPORE={MINDSPORE}` installs the default"
FITS = "run `make env`; it installs versions that fit together"


@dataclass(frozen=True)
class Finding:
    """One line of the report; status is "ok", "note" or "problem"; advice is empty if it is "ok"."""

    name: str
    status: str
    value: str
    advice: str = ""


def examine() -> list[Finding]:
    """Run all CHECKS, which takes a few seconds. A check that raises an error is reported as a problem."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings.append(Finding(name, *check()))
        except Exception as error:  # whatever it is, the user needs the rest of the report
            findings.append(Finding(name, "problem", f"{type(error).__name__}: {first_line(error)}", _remedy(error)))
    return findings


def _remedy(error):
    missing = re.search(r"(lib\S+): cannot open shared object file", str(error))
    if not missing:
        return FITS
    package = " (Debian: `apt install libgomp1`)" if missing[1].startswith("libgomp.") else ""
    return f"install the system library {missing[1]}{package}; if it is installed already, run `make env`"


# -- Checks: each returns a status, a value and, unless the status is "ok", advice ---------------------------


def _judged(good, value, advice, otherwise="note"):
    return ("ok", value) if good else (otherwise, value, advice)


def _platform():
    system = f"{platform.system()} on {platform.machine()}"
    if system == "Linux on x86_64":
        return "ok", f"{system}: tested"
    if system == "Linux on aarch64" or platform.system() == "Darwin":
        advice = "grading and training in several processes need Linux; a virtual machine will do"
        return "note", f"{system}: should work, but is not tested", advice
    return "problem", f"{system}: not supported", "use Linux on x86-64; on Windows, install the course in WSL2"


def _python():
    version = platform.python_version()
    advice = f"use Python {' or '.join(PYTHONS)}: `make env PYTHON=/path/to/python{PYTHONS[1]}`"
    return _judged(series_of(version) in PYTHONS, version, advice, "problem")


def _mindspore():
    version = environment.mindspore_version()
    if version is None:
        return "problem", "not installed", "run `make env`"
    if series_of(version) not in MINDSPORES:
        return "note", f"{version}: not tested with this course", f"{', '.join(MINDSPORES)} are tested; {DEFAULT}"
    return "ok", version


def _cores():
    value = f"{environment.cores()} ({environment.machine()})"
    return _judged(environment.cores() >= 2, value, "expect twice the times that the book states for two cores")


def _memory():
    """Memory available to new programs; a container's limit is not considered."""
    import psutil

    free = psutil.virtual_memory().available / 1e9
    advice = f"close other programs: the largest chapters and labs take up to {MEMORY} GB each"
    return _judged(free >= MEMORY, f"{free:.1f} GB free", advice)


def _disk():
    free = shutil.disk_usage(environment.REPO).free / 1e9
    advice = "free some space: a Run of ResNet-50 takes 0.2 GB, CIFAR-10 0.4 GB"
    return _judged(free >= DISK, f"{free:.1f} GB free at {environment.REPO}", advice)


def _onednn():
    """Whether oneDNN uses its slow reference convolution; see `environment.onednn_trap`."""
    flags, version = environment.cpu_flags(), environment.mindspore_version()
    if not flags or version is None:
        reason = "not known without the CPU's instruction sets and MindSpore's version"
        return "note", reason, "`convolution` below says whether it is fast"
    cpu = f"a CPU {'with' if any(flag.startswith('avx512') for flag in flags) else 'without'} AVX-512"
    if not environment.onednn_trap():
        return "ok", f"{cpu}, MindSpore {version}: fast convolutions"
    name, value = environment.ONEDNN_CAP, os.environ.get(environment.ONEDNN_CAP)
    if value == "AVX2":
        advice = f"MindSpore {MINDSPORE} has faster matrix products: {DEFAULT}"
        return "note", f"slow kernels on {cpu}, fixed: labkit sets {name}=AVX2", advice
    return "problem", f"slow kernels on {cpu}, and you set {name}={value}", f"unset {name}, so that labkit can set AVX2"


def _convolution():
    """MindSpore's device, and how long a convolution takes: 3x3, 64 to 64 channels, 32x32 pixels, batch 32."""
    import mindspore as ms
    import numpy as np
    from mindspore import nn

    layer = nn.Conv2d(64, 64, 3)
    images = ms.Tensor(np.ones((32, 64, 32, 32), np.float32))
    times = []
    for _ in range(4):  # the best time counts: the first call prepares the kernel, and the machine may be busy
        start = time.perf_counter()
        layer(images).asnumpy()
        times.append(time.perf_counter() - start)
    value = f"{ms.get_context('device_target')}, {1000 * min(times):.0f} ms for a 3x3 convolution"
    advice = f"see `oneDNN` above; on a CPU with AVX-512 try {environment.ONEDNN_CAP}=AVX2, and close other programs"
    return _judged(min(times) < SLOW_CONVOLUTION, value, advice, "problem")


def _data(prefix, command, need):
    from labkit.data import cifar10_files

    folder = environment.data_root() / prefix / cifar10_files.FOLDER
    if not folder.exists():
        return "note", f"missing from {folder}", f"{need}`python data_scripts/cifar10.py {command}` gets it"
    try:
        info = cifar10_files.check(folder)
    except cifar10_files.DataError as error:
        return "problem", str(error), f"delete {folder}, then `python data_scripts/cifar10.py {command}`"
    value = f"{info.train_images:,} + {info.test_images:,} images at {folder}: {info.name}"
    value += f" ({info.note})" if info.note else ""
    return _judged(not info.note, value, f"`python data_scripts/cifar10.py {command} --force` gets it again")


def _pytorch():
    versions = {package: environment.version_of(package) for package in ("torch", "torchvision", "onnxruntime")}
    value = ", ".join(f"{package} {version or 'is not installed'}" for package, version in versions.items())
    advice = "optional: with all of them, part 2 runs live instead of showing recorded results: `make torch`"
    return _judged(all(versions.values()), value, advice)


def _sandbox():
    command = ["bwrap", "--ro-bind", "/", "/", "true"]
    works = shutil.which("bwrap") and subprocess.run(command, capture_output=True).returncode == 0
    advice = "optional, only grading needs it (Debian: `apt install bubblewrap`); root may be allowed to use it"
    return _judged(works, f"bubblewrap {'works' if works else 'is not installed, or not allowed here'}", advice)


CHECKS = {
    "platform": _platform,
    "python": _python,
    "mindspore": _mindspore,
    "cores": _cores,
    "memory": _memory,
    "disk": _disk,
    "oneDNN": _onednn,
    "convolution": _convolution,
    "sample data": partial(_data, "sample", "sample", ""),
    "CIFAR-10": partial(_data, "", "download", "only the profiles `laptop` and `full` need it: "),
    "PyTorch": _pytorch,
    "sandbox": _sandbox,
}


@click.command("doctor")
def command():
    """Examine this machine (versions, device, cores, convolution speed, data) and say how to fix what is wrong.

    Exit status 1 if there is a problem.

    \b
    Example:  labkit doctor
    """
    findings = examine()
    colours = {"ok": "green", "note": "yellow", "problem": "red"}
    for finding in findings:
        status = click.style(f"{finding.status:8}", fg=colours[finding.status])
        click.echo(f"{status} {finding.name:15} {finding.value}")
        if finding.advice:
            click.echo(f"{'':24} -> {finding.advice}")
    sys.exit(any(finding.status == "problem" for finding in findings))

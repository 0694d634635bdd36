"""Doctor: is this machine fit for the course, and what to do where it is not."""

import os
import platform
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit import runtime
from labkit.versions import MINDSPORE, MINDSPORES, PYTHONS, in_words, series_of

MEMORY = 3  # GB; what a chapter takes, at most
DISK = 2  # GB, beside the environment, which is there where this runs
SLOW_CONVOLUTION = 0.5  # seconds; a fast kernel needs about 0.03, oneDNN's reference kernel about 3


@dataclass(frozen=True)
class Finding:
    """One line of the report; status is "ok", "note" or "problem", advice is empty when it is "ok"."""

    name: str
    status: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at versions, cores, memory, disk, oneDNN, device, data, launcher and sandbox; takes a few seconds."""
    findings = [_python(), _mindspore(), _numpy(), _cores(), _memory(), _disk(), _onednn()]
    if runtime.mindspore_version() is not None:
        findings += _device()
    return [*findings, _data("sample/"), _data(""), _launcher(), _sandbox()]


def as_dict(findings: list[Finding]) -> dict:
    """Report for machines: {ok, findings}."""
    return {"ok": all(f.status != "problem" for f in findings), "findings": [asdict(f) for f in findings]}


def _python():
    version = platform.python_version()
    if series_of(version) in PYTHONS:
        return Finding("python", "ok", version)
    return Finding("python", "problem", version, f"use Python {in_words(PYTHONS)}: `make env PYTHON=/path/to/python`")


def _mindspore():
    version = runtime.mindspore_version()
    if version is None:
        return Finding("mindspore", "problem", "not installed", "run `make env`")
    if series_of(version) in MINDSPORES:
        return Finding("mindspore", "ok", version)
    advice = f"the course is tested with {in_words(MINDSPORES)}: run `make env MINDSPORE={MINDSPORE}`"
    return Finding("mindspore", "note", version, advice)


def _numpy():
    version = runtime.version_of("numpy")
    if version is None:
        return Finding("numpy", "problem", "not installed", "run `make env`")
    if version.startswith("1."):
        return Finding("numpy", "ok", version)
    return Finding("numpy", "problem", version, f"MindSpore {MINDSPORE} needs numpy below 2: run `make env`")


def _cores():
    found = f"{runtime.cores()} ({runtime.machine()})"
    if runtime.cores() >= 2:
        return Finding("cores", "ok", found)
    return Finding("cores", "note", found, "expect twice the times that the book states for two cores")


def _memory():
    """What is free for new programs; a container's limit is not in it."""
    import psutil

    free = psutil.virtual_memory().available / 1e9
    found = f"{free:.1f} GB free"
    if free >= MEMORY:
        return Finding("memory", "ok", found)
    advice = f"close what else is running: the longest chapters and labs take up to {MEMORY} GB each"
    return Finding("memory", "note", found, advice)


def _disk():
    free = shutil.disk_usage(runtime.REPO).free / 1e9
    found = f"{free:.1f} GB free at {runtime.REPO}"
    if free >= DISK:
        return Finding("disk", "ok", found)
    return Finding("disk", "note", found, "make room: a Run of ResNet-50 takes 0.2 GB, CIFAR-10 0.4")


def _onednn():
    """Whether oneDNN picks its reference convolution: see `runtime.onednn_trap`."""
    wide = any(flag.startswith("avx512") for flag in runtime.cpu_flags())
    cpu = "a CPU with AVX-512" if wide else "a CPU without AVX-512"
    if runtime.mindspore_version() is None:
        return Finding("oneDNN", "note", f"{cpu}; which kernels it gets is not known without MindSpore")
    if not runtime.onednn_trap():
        return Finding("oneDNN", "ok", f"{cpu}, MindSpore {runtime.mindspore_version()}: fast convolutions")
    value = os.environ.get(runtime.ONEDNN_CAP)
    if value == "AVX2":
        return Finding("oneDNN", "note", f"slow kernels on {cpu}, mended: labkit sets {runtime.ONEDNN_CAP}=AVX2",
                       f"install MindSpore {MINDSPORE} for faster matrix products")  # fmt: skip
    return Finding("oneDNN", "problem", f"slow kernels on {cpu}, and you set {runtime.ONEDNN_CAP}={value}",
                   f"unset {runtime.ONEDNN_CAP}, so that labkit can set AVX2")  # fmt: skip


def _device():
    """MindSpore's device, and a convolution timed on it: 3x3, 64 to 64 channels, 32x32 pixels, batch 32."""
    try:
        import mindspore as ms
        import numpy as np
        from mindspore import nn

        layer = nn.Conv2d(64, 64, 3)
        images = ms.Tensor(np.ones((32, 64, 32, 32), np.float32))
        layer(images).asnumpy()  # the first call prepares the kernel
        times = []
        for _ in range(3):  # the best of three: the machine may be busy
            start = time.perf_counter()
            layer(images).asnumpy()
            times.append(time.perf_counter() - start)
        seconds = min(times)
    except Exception as error:  # whatever it is, the report is what the user needs now
        reason = f"MindSpore does not work: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return [Finding("device", "problem", reason, "run `make env`; it installs versions that fit together")]
    device = Finding("device", "ok", ms.get_context("device_target"))
    found = f"{1000 * seconds:.0f} ms for a 3x3 convolution"
    if seconds < SLOW_CONVOLUTION:
        return [device, Finding("convolution", "ok", found)]
    advice = f"see `oneDNN` above; on a CPU with AVX-512 try {runtime.ONEDNN_CAP}=AVX2, and close what else is running"
    return [device, Finding("convolution", "problem", found, advice)]


def _data(prefix):
    name = "sample data" if prefix else "CIFAR-10"
    try:
        from labkit.data import cifar10_files
    except ImportError as error:  # numpy is missing, or broken
        return Finding(name, "problem", f"cannot be read: {str(error).splitlines()[0]}", "run `make env`")
    command = f"python data_scripts/cifar10.py {'sample' if prefix else 'download'}"
    folder = runtime.data_root() / prefix / cifar10_files.FOLDER
    if not folder.exists():
        return Finding(name, "note", f"not at {folder}", f"`{command}` gets it")
    try:
        info = cifar10_files.check(folder)
    except cifar10_files.DataError as error:
        return Finding(name, "problem", str(error), f"delete {folder}, then `{command}`")
    found = f"{info.train_images:,} + {info.test_images:,} images at {folder}: {info.name}"
    if info.note:
        return Finding(name, "note", f"{found} ({info.note})", f"`{command} --force` gets it anew")
    return Finding(name, "ok", found)


def _launcher():
    """msrun starts `python` from PATH, not this interpreter."""
    found = shutil.which("python")
    if found and Path(found).resolve() == Path(sys.executable).resolve() and sys.prefix == _prefix_of(found):
        return Finding("python on PATH", "ok", found)
    advice = f"activate the environment (`. {sys.prefix}/bin/activate`): msrun starts the `python` that is on PATH"
    return Finding("python on PATH", "note", f"{found or 'none'}, not {sys.executable}", advice)


def _sandbox():
    from labkit.grading import sandbox

    if not (why := sandbox.unavailable()):
        return Finding("sandbox", "ok", "bubblewrap works")
    advice = "only `labkit release` and `labkit grade` need it: install bubblewrap, 0.8 or newer (Debian: " \
             "`apt install bubblewrap`); where it is forbidden, as in many containers, use root or another machine"
    return Finding("sandbox", "note", why, advice)


def _prefix_of(python):
    """Prefix of an interpreter's environment: the virtual environment that its path lies in, or its own."""
    folder = Path(python).absolute().parent.parent
    return str(folder) if (folder / "pyvenv.cfg").exists() else sys.base_prefix

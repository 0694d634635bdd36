"""Doctor: is this machine fit for the course, and what to do if it is not."""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from labkit.system import environment
from labkit.system.versions import MINDSPORE, MINDSPORES, PYTHONS, in_words, series_of

MEMORY = 3  # GB; the most that a chapter takes
DISK = 2  # GB, in addition to the environment, which exists when this runs
SLOW_CONVOLUTION = 0.5  # seconds; a fast kernel needs about 0.03, oneDNN's reference kernel about 3
DEFAULT = f"`make env MINDSPORE={MINDSPORE}` installs the default"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Finding:
    """One line of the report; status is "ok", "note" or "problem", advice is empty when it is "ok"."""

    name: str
    status: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at the platform, versions, memory, disk, speed, data and optional programs; takes a few seconds."""
    findings = [_platform(), _python(), _mindspore(), _numpy(), _cores(), _memory(), _disk(), _onednn()]
    if environment.mindspore_version() is not None:
        findings += _device()
    if problem := environment.outside_course():
        findings.append(Finding("course", "problem", problem, "run `pip install -e .` in the course's folder"))
    return [*findings, _data("sample/"), _data(""), _launcher(), _pytorch(), _sandbox(), _browser()]


def as_dict(findings: list[Finding]) -> dict:
    """Report for machines: {ok, findings}."""
    return {"ok": all(f.status != "problem" for f in findings), "findings": [asdict(f) for f in findings]}


def browser() -> tuple[str | None, str | None]:
    """Programs of Chromium and its chromedriver on PATH, each None if it is missing."""
    return next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")


def no_font(language: str) -> str:
    """Why fontconfig has no font with the letters of a language, such as "zh"; "" where it has one."""
    if not shutil.which("fc-list"):
        return "fc-list is not installed (Debian: apt install fontconfig)"
    found = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, check=True).stdout
    return "" if found else f"no font for {language} is installed (Chinese, Debian: apt install fonts-noto-cjk)"


def _platform():
    machine = {"AMD64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    name = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
    here = f"{name} on {machine}"
    if (name, machine) == ("Linux", "x86-64"):
        return Finding("platform", "ok", f"{here}: tested")
    elsewhere = {
        ("Linux", "aarch64"): "`labkit grade` works without its filter of system calls, which is for x86-64",
        ("macOS", machine): "`labkit grade`, `labkit release` and training in several processes need a Linux machine, "
                            "a virtual one or a container",
    }  # fmt: skip
    if limit := elsewhere.get((name, machine)):
        return Finding("platform", "note", f"{here}: should work, but is not tested", limit)
    advice = "use WSL2 and install the course in its Linux" if name == "Windows" else "use Linux on x86-64"
    return Finding("platform", "problem", f"{here}: not supported", advice)


def _python():
    version = platform.python_version()
    if series_of(version) in PYTHONS:
        return Finding("python", "ok", version)
    advice = f"use Python {in_words(PYTHONS)}: `make env PYTHON=/path/to/python{PYTHONS[1]}`"
    return Finding("python", "problem", version, advice)


def _mindspore():
    version = environment.mindspore_version()
    if version is None:
        return Finding("mindspore", "problem", "not installed", "run `make env`")
    if version == MINDSPORE:
        return Finding("mindspore", "ok", version)
    if series_of(version) not in MINDSPORES:
        advice = f"tested are {in_words(MINDSPORES)}; {DEFAULT}"
        return Finding("mindspore", "note", f"{version}: not tested with this course", advice)
    slower = f", but slower than {MINDSPORE} on this CPU with AVX-512" if environment.onednn_trap() else ""
    return Finding("mindspore", "ok", f"{version}: the course is tested with {series_of(version)}.0{slower}")


def _numpy():
    version = environment.version_of("numpy")
    if version is None:
        return Finding("numpy", "problem", "not installed", "run `make env`")
    wanted = _asked_by_mindspore("numpy")
    if wanted is None:
        return Finding("numpy", "ok", version)
    found = f"{version}; MindSpore {environment.mindspore_version()} asks for {wanted or 'any version'}"
    if wanted.contains(version, prereleases=True):
        return Finding("numpy", "ok", found)
    return Finding("numpy", "problem", found, "run `make env`; it installs versions that fit together")


def _asked_by_mindspore(package):
    """Versions of a package (a SpecifierSet) that the installed MindSpore asks for; None if it names none."""
    try:
        from packaging.requirements import Requirement  # MindSpore itself needs it

        needs = map(Requirement, importlib.metadata.requires("mindspore") or ())
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return None
    return next((need.specifier for need in needs if need.name == package), None)


def _cores():
    found = f"{environment.cores()} ({environment.machine()})"
    if environment.cores() >= 2:
        return Finding("cores", "ok", found)
    return Finding("cores", "note", found, "expect twice the times that the book states for two cores")


def _memory():
    """Memory free for new programs, regardless of a container's limit."""
    try:
        import psutil
    except ImportError:
        return Finding("memory", "problem", "not known: psutil is not installed", "run `make env`")
    free = psutil.virtual_memory().available / 1e9
    found = f"{free:.1f} GB free"
    if free >= MEMORY:
        return Finding("memory", "ok", found)
    advice = f"close what else is running: the longest chapters and labs take up to {MEMORY} GB each"
    return Finding("memory", "note", found, advice)


def _disk():
    free = shutil.disk_usage(environment.REPO).free / 1e9
    found = f"{free:.1f} GB free at {environment.REPO}"
    if free >= DISK:
        return Finding("disk", "ok", found)
    return Finding("disk", "note", found, "make room: a Run of ResNet-50 takes 0.2 GB, CIFAR-10 0.4")


def _onednn():
    """Whether oneDNN picks its reference convolution: see `environment.onednn_trap`."""
    flags = environment.cpu_flags()
    if not flags:
        return Finding("oneDNN", "note", "the instruction sets of this CPU are not known",
                       "`convolution` below says whether it is fast")  # fmt: skip
    wide = any(flag.startswith("avx512") for flag in flags)
    cpu = "a CPU with AVX-512" if wide else "a CPU without AVX-512"
    if environment.mindspore_version() is None:
        found = f"{cpu}; which kernels it gets is not known without MindSpore"
        return Finding("oneDNN", "note", found, "run `make env`")
    if not environment.onednn_trap():
        return Finding("oneDNN", "ok", f"{cpu}, MindSpore {environment.mindspore_version()}: fast convolutions")
    value = os.environ.get(environment.ONEDNN_CAP)
    if value == "AVX2":
        return Finding("oneDNN", "note", f"slow kernels on {cpu}, fixed: labkit sets {environment.ONEDNN_CAP}=AVX2",
                       f"MindSpore {MINDSPORE} has faster matrix products: {DEFAULT}")  # fmt: skip
    return Finding("oneDNN", "problem", f"slow kernels on {cpu}, and you set {environment.ONEDNN_CAP}={value}",
                   f"unset {environment.ONEDNN_CAP}, so that labkit can set AVX2")  # fmt: skip


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
        advice = "run `make env`; it installs versions that fit together"
        if missing := re.search(r"(lib\S+): cannot open shared object file", reason):
            package = " (Debian: `apt install libgomp1`)" if missing[1].startswith("libgomp.") else ""
            advice = f"install {missing[1]}, a library of the system{package}; if it is there, run `make env`"
        return [Finding("device", "problem", reason, advice)]
    device = Finding("device", "ok", ms.get_context("device_target"))
    found = f"{1000 * seconds:.0f} ms for a 3x3 convolution"
    if seconds < SLOW_CONVOLUTION:
        return [device, Finding("convolution", "ok", found)]
    advice = f"see `oneDNN` above; on a CPU with AVX-512 try {environment.ONEDNN_CAP}=AVX2, and close other programs"
    return [device, Finding("convolution", "problem", found, advice)]


def _data(prefix):
    name = "sample data" if prefix else "CIFAR-10"
    try:
        from labkit.data import cifar10_files
    except ImportError as error:  # numpy is missing, or broken
        return Finding(name, "problem", f"cannot be read: {str(error).splitlines()[0]}", "run `make env`")
    command = f"python data_scripts/cifar10.py {'sample' if prefix else 'download'}"
    need = "" if prefix else "only the profiles `laptop` and `full` need it: "
    folder = environment.data_root() / prefix / cifar10_files.FOLDER
    if not folder.exists():
        return Finding(name, "note", f"not at {folder}", f"{need}`{command}` gets it")
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
    advice = f"only `msrun` needs it, which starts that `python`; put it there by `. {sys.prefix}/bin/activate`"
    return Finding("python on PATH", "note", f"{found or 'none'}, not {sys.executable}", advice)


def _pytorch():
    found = {package: environment.version_of(package) for package in ("torch", "torchvision", "onnxruntime")}
    if missing := [package for package, version in found.items() if version is None]:
        advice = "optional: with it, part 2 runs live instead of showing recorded results; `make torch` installs it"
        return Finding("PyTorch", "note", f"not installed: {', '.join(missing)}", advice)
    versions = f"{found['torch']}, torchvision {found['torchvision']}, onnxruntime {found['onnxruntime']}"
    return Finding("PyTorch", "ok", f"{versions}: part 2 runs live")


def _sandbox():
    from grader import sandbox

    if not (why := sandbox.unavailable()):
        return Finding("sandbox", "ok", "bubblewrap works, for `labkit release` and `labkit grade`")
    advice = "optional: `labkit release` and `labkit grade` need Linux"
    if sys.platform == "linux":
        advice = "optional: `labkit release` and `labkit grade` need bubblewrap, 0.8 or newer (Debian: `apt install " \
                 "bubblewrap`); where it is forbidden, as in many containers, use root or another machine"
    return Finding("sandbox", "note", why, advice)


def _browser():
    program, driver = browser()
    if program and driver:
        return Finding("Chromium", "ok", f"{program}, {driver}: for `make pdf` and the tests of the pages")
    missing = [name for name, there in (("Chromium", program), ("chromedriver", driver)) if not there]
    return Finding("Chromium", "note", f"not on PATH: {', '.join(missing)}",
                   "optional: `make pdf` and the tests of the pages need it (Debian: `apt install chromium "
                   "chromium-driver`)")  # fmt: skip


def _prefix_of(python):
    """Prefix of an interpreter's environment: the virtual environment that contains its path, or its own."""
    folder = Path(python).absolute().parent.parent
    return str(folder) if (folder / "pyvenv.cfg").exists() else sys.base_prefix


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json):
    """Examine this machine: versions, device, cores, convolution speed, data; and say what to do.

    Exit status 1 if there is a problem.

    \b
    Example:  labkit doctor
    """
    findings = examine()
    report = as_dict(findings)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        colours = {"ok": "green", "note": "yellow", "problem": "red"}
        for finding in findings:
            status = click.style(f"{finding.status:8}", fg=colours[finding.status])
            click.echo(f"{status} {finding.name:15} {_wrapped(finding.found, '')}")
            if finding.advice:
                click.echo(f"{'':24} -> {_wrapped(finding.advice, '   ')}")
    sys.exit(0 if report["ok"] else 1)


def _wrapped(text, indent):
    """A text after the 25 columns of a finding's status and name, in lines that fit the terminal, no command split."""
    if not sys.stdout.isatty():
        return text
    indent = " " * 25 + indent
    width = max(60, shutil.get_terminal_size().columns)
    text = re.sub("`.*?`", lambda command: command[0].replace(" ", "\0"), indent + text)
    lines = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.lstrip().replace("\0", " ")

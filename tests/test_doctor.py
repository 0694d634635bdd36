"""What the doctor says of versions, platforms and optional programs; and that all files name the same versions."""

import importlib.metadata
import os
import platform
import pty
import re
import subprocess
import sys
import warnings

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from labkit import doctor
from labkit.system import environment, versions

# -- Versions ---------------------------------------------------------------------------------------------


def requirements(file):
    return {one.name: one for one in map(Requirement, re.findall(r"^[^#\s].*$", file.read_text(), flags=re.M))}


def test_all_files_name_the_same_versions(repo_root):
    pyproject = (repo_root / "pyproject.toml").read_text()
    (pythons,) = re.findall(r'^requires-python = "(.*)"$', pyproject, flags=re.M)
    minor = range(8, 16)
    assert [f"3.{n}" for n in minor if SpecifierSet(pythons).contains(f"3.{n}.1")] == list(versions.PYTHONS)
    (mindspores,) = re.findall(r'^    "mindspore(.*)",$', pyproject, flags=re.M)
    assert [f"2.{n}" for n in minor if SpecifierSet(mindspores).contains(f"2.{n}.0")] == list(versions.MINDSPORES)
    for name in ("requirements.txt", "constraints.txt"):
        assert str(requirements(repo_root / name)["mindspore"].specifier) == f"=={versions.MINDSPORE}", name
    assert versions.series_of(versions.MINDSPORE) in versions.MINDSPORES
    assert (repo_root / "binder" / "runtime.txt").read_text().strip().removeprefix("python-") in versions.PYTHONS


def test_pins_are_what_labkit_asks_for(repo_root):
    """Each dependency of pyproject.toml is pinned, in a version that it allows, and CONTRIBUTING.md says why."""
    pyproject, reasons = (repo_root / "pyproject.toml").read_text(), (repo_root / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"^dependencies = \[\n(.*?)^\]", pyproject, flags=re.M | re.S)
    pins = requirements(repo_root / "requirements.txt")
    for asked in map(Requirement, re.findall(r'"(.+)"', block)):
        (pin,) = pins[asked.name].specifier
        assert asked.specifier.contains(pin.version), asked.name
        assert re.search(rf"^\| ([\w, ]*, )?{re.escape(asked.name)}[ ,]", reasons, flags=re.M), asked.name


@pytest.fixture
def installed(monkeypatch):
    """Function that makes the doctor see these versions, and what MindSpore's metadata asks for."""

    def installed(needs=(), flags=(), **found):
        monkeypatch.setattr(environment, "version_of", lambda package: found.get(package))
        monkeypatch.setattr(environment, "cpu_flags", lambda: set(flags))
        monkeypatch.setattr(importlib.metadata, "requires", lambda package: list(needs))

    return installed


@pytest.mark.parametrize(
    "needs, version, status",
    [(["numpy<2.0.0,>=1.20.0"], "1.26.4", "ok"), (["numpy<2.0.0,>=1.20.0"], "2.3.1", "problem"),
     (["numpy>=1.20.0"], "2.3.1", "ok"), (["numpy>=1.20.0"], "1.19.5", "problem"), (["scipy>=1"], "2.3.1", "ok")],
)  # fmt: skip
def test_numpy_is_what_mindspore_asks_for(installed, needs, version, status):
    installed(needs, mindspore="2.10.0", numpy=version)
    finding = doctor._numpy()
    assert finding.status == status and version in finding.found
    if status == "problem":
        assert "MindSpore 2.10.0 asks for" in finding.found and "make env" in finding.advice


def test_numpy_without_mindspore(installed, monkeypatch):
    def requires(package):
        raise importlib.metadata.PackageNotFoundError(package)

    installed(numpy="2.3.1")
    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert doctor._numpy() == doctor.Finding("numpy", "ok", "2.3.1")


@pytest.mark.parametrize("flags, slower", [(["avx512f"], True), (["avx2"], False)])
def test_a_tested_mindspore_that_is_not_the_default(installed, flags, slower):
    for version, known in ((versions.MINDSPORE, False), ("2.10.0", True)):
        installed(flags=flags, mindspore=version)
        finding = doctor._mindspore()
        assert finding.status == "ok" and ("tested" in finding.found) is known
        assert (f"slower than {versions.MINDSPORE} on this CPU with AVX-512" in finding.found) is (known and slower)


def test_an_untested_mindspore(installed):
    installed(mindspore="2.11.0")
    finding = doctor._mindspore()
    assert finding.status == "note" and "not tested" in finding.found
    assert f"make env MINDSPORE={versions.MINDSPORE}" in finding.advice


# -- Platforms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "system, machine, status, found, advice",
    [("linux", "x86_64", "ok", "Linux on x86-64: tested", ""),
     ("linux", "aarch64", "note", "Linux on aarch64: should work", "system calls"),
     ("darwin", "arm64", "note", "macOS on aarch64: should work", "Linux machine"),
     ("win32", "AMD64", "problem", "Windows on x86-64: not supported", "WSL2"),
     ("linux", "riscv64", "problem", "Linux on riscv64: not supported", "x86-64")],
)  # fmt: skip
def test_platforms(monkeypatch, system, machine, status, found, advice):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    finding = doctor._platform()
    assert finding.status == status and found in finding.found and advice in finding.advice
    assert bool(finding.advice) is (status != "ok")


def test_an_emulated_cpu_has_no_flags_of_x86(monkeypatch):
    """Under emulation /proc/cpuinfo may be the real CPU's."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(environment, "mindspore_version", lambda: "2.10.0")
    assert environment.cpu_flags() == set() and not environment.onednn_trap()
    finding = doctor._onednn()
    assert finding.status == "note" and "not known" in finding.found and finding.advice


# -- What is optional -------------------------------------------------------------------------------------


def test_pytorch(installed):
    installed(torch="2.13.0", onnxruntime="1.23.2")
    finding = doctor._pytorch()
    assert finding.status == "note" and finding.found == "not installed: torchvision" and "make torch" in finding.advice
    installed(torch="2.13.0", torchvision="0.22.0", onnxruntime="1.23.2")
    assert doctor._pytorch().status == "ok" and "part 2" in doctor._pytorch().found


def test_chromium(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = doctor._browser()
    assert missing.status == "note" and "Chromium, chromedriver" in missing.found and "make pdf" in missing.advice
    for name in ("google-chrome", "chromedriver"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert doctor.browser() == (str(tmp_path / "google-chrome"), str(tmp_path / "chromedriver"))
    assert doctor._browser().status == "ok"


def test_no_psutil(monkeypatch):
    """As with a Python that is not the environment's."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    finding = doctor._memory()
    assert finding.status == "problem" and "psutil" in finding.found and "make env" in finding.advice


@pytest.mark.parametrize("library, package", [("libgomp.so.1", "apt install libgomp1"), ("libother.so.2", "")])
def test_a_library_of_the_system_is_missing(monkeypatch, library, package):
    """Minimal installations of Linux lack libgomp; no package of Python brings it."""

    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "mindspore":
                raise ImportError(f"{library}: cannot open shared object file: No such file or directory")

    monkeypatch.delitem(sys.modules, "mindspore", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    (finding,) = doctor._device()
    assert finding.status == "problem" and library in finding.found
    assert f"install {library}" in finding.advice and package in finding.advice


@pytest.mark.parametrize("machine, heard", [("aarch64", 0), ("x86_64", 1)])
def test_numpys_warning_of_mindspores_rounding_on_aarch64(monkeypatch, machine, heard):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        environment.prepare_mindspore()
        warnings.warn("The value of the smallest subnormal for <class 'numpy.float64'> type is zero.", stacklevel=1)
    assert len(told) == heard


# -- On a terminal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_fit_the_terminal_and_commands_stay_whole(columns, monkeypatch):
    findings = [doctor.Finding("platform", "ok", "Linux on x86-64: tested"),
                doctor.Finding("sandbox", "note", "bwrap is not installed (package bubblewrap)",
                               "optional: `labkit release` and `labkit grade` need bubblewrap, 0.8 or newer (Debian: "
                               "`apt install bubblewrap`); where it is forbidden, use root")]  # fmt: skip
    say = f"from labkit import cli, doctor; doctor.examine = lambda: {findings!r}; cli.main(['doctor'])"
    say = say.replace("Finding(", "doctor.Finding(")
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": str(columns)}
    done = subprocess.Popen([sys.executable, "-c", say], stdout=theirs, env=env)
    os.close(theirs)
    assert done.wait() == 0
    text = re.sub(r"\x1b\[\d*m", "", os.read(ours, 10_000).decode())
    os.close(ours)
    lines = text.split("\r\n")
    assert max(map(len, lines)) <= columns and lines[0] == "ok       platform        Linux on x86-64: tested"
    for command in ("labkit release", "labkit grade", "apt install bubblewrap"):
        assert any(f"`{command}`" in line for line in lines), text
    assert (len(lines) > 5) is (columns == 80), text

"""What the doctor says of versions, the platform, data and a broken installation; all files name the same versions."""

import os
import platform
import re
import subprocess
import sys
import warnings

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from running import labkit

from labkit import doctor
from labkit.system import environment, versions


def requirements(file):
    return {need.name: need for need in map(Requirement, re.findall(r"^[^#\s][^#\n]*", file.read_text(), flags=re.M))}


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


# -- The whole report -------------------------------------------------------------------------------------


def findings():
    return {finding.name: finding for finding in doctor.examine()}


def test_report(sample_data):
    found = findings()
    assert list(found) == list(doctor.CHECKS)
    assert {finding.status for finding in found.values()} <= {"ok", "note", "problem"}
    assert all(bool(finding.advice) is (finding.status != "ok") for finding in found.values())
    assert found["sample data"].status == "ok" and "1,437 + 360" in found["sample data"].value
    done = labkit("doctor")
    assert all(name in done.stdout for name in found)
    assert done.exit_code == any(line.startswith("problem") for line in done.stdout.splitlines())


def test_damaged_and_missing_data(tmp_path, monkeypatch):
    damaged = tmp_path / "sample" / "cifar-10-batches-bin"
    damaged.mkdir(parents=True)
    (damaged / "data_batch_1.bin").write_bytes(b"12345")
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    found = findings()
    assert found["sample data"].status == "problem" and "data_batch_1.bin" in found["sample data"].value
    assert found["CIFAR-10"].status == "note" and "download" in found["CIFAR-10"].advice


BROKEN = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "mindspore":
            raise OSError("libgomp.so.1: cannot open shared object file\\nand more")
        if name == "psutil":
            raise ModuleNotFoundError("No module named 'psutil'")
sys.meta_path.insert(0, Broken())
from labkit.cli import main
main(["doctor"])
"""


def test_a_broken_installation_gets_the_whole_report(sample_data):
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    found = dict(re.findall(r"^\w+ +(\S+(?: \S+)?) {2,}(.*(?:\n {24} -> .*)?)", done.stdout, flags=re.M))
    assert list(found) == list(doctor.CHECKS)
    assert found["convolution"].startswith("OSError: libgomp.so.1: cannot open shared object file\n")
    assert "apt install libgomp1" in found["convolution"] and "make env" in found["memory"]


# -- Single checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version, status", [("3.9.19", "problem"), ("3.12.1", "ok"), ("3.13.0", "problem")])
def test_pythons(monkeypatch, version, status):
    monkeypatch.setattr(platform, "python_version", lambda: version)
    assert doctor._python()[0] == status


@pytest.mark.parametrize(
    "version, status, says",
    [("2.7.1", "note", "not tested"), ("2.10.1", "ok", "2.10.1"), (None, "problem", "not installed")],
)
def test_mindspores(monkeypatch, version, status, says):
    monkeypatch.setattr(environment, "mindspore_version", lambda: version)
    found = doctor._mindspore()
    assert found[0] == status and says in found[1]


@pytest.mark.parametrize(
    "system, machine, status", [("Linux", "x86_64", "ok"), ("Darwin", "arm64", "note"), ("Windows", "AMD64", "problem")]
)
def test_platforms(monkeypatch, system, machine, status):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert doctor._platform()[0] == status


def test_optional_programs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._sandbox()[0] == "note"
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    os.chmod(tmp_path / "bwrap", 0o755)
    assert doctor._sandbox()[0] == "note"  # installed, but forbidden
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    assert doctor._sandbox()[0] == "ok"


@pytest.mark.parametrize("machine, heard", [("aarch64", 0), ("x86_64", 1)])
def test_numpys_warning_of_mindspores_rounding_on_aarch64(monkeypatch, machine, heard):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        environment.prepare_mindspore()
        warnings.warn("The value of the smallest subnormal for <class 'numpy.float64'> type is zero.", stacklevel=1)
    assert len(caught) == heard

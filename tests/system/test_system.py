"""labkit.system: the oneDNN trap and what the doctor says of it; files, locks, stops."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import filelock
import pytest

from labkit import doctor
from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError, of_file_system
from labkit.system.files import atomic_write, locked, tracked

WIDE, NARROW = {"avx2", "avx512f"}, {"avx2"}


@pytest.fixture
def machine(monkeypatch):
    """Function that makes labkit see another MindSpore, CPU and setting than there are."""

    def machine(version, flags, cap=None):
        monkeypatch.setattr(environment, "mindspore_version", lambda: version)
        monkeypatch.setattr(environment, "cpu_flags", lambda: flags)
        monkeypatch.delenv(environment.ONEDNN_CAP, raising=False)
        if cap:
            monkeypatch.setenv(environment.ONEDNN_CAP, cap)

    return machine


@pytest.mark.parametrize(
    "version, flags, trap",
    [("2.8.0", WIDE, False), ("2.9.0", WIDE, True), ("2.10.0", WIDE, True), ("2.10.0", NARROW, False),
     ("3.0.0rc1", WIDE, True), (None, WIDE, False)],
)  # fmt: skip
def test_trap_is_version_and_cpu(machine, version, flags, trap):
    machine(version, flags)
    assert environment.onednn_trap() is trap
    environment.prepare_mindspore()
    assert os.environ.get(environment.ONEDNN_CAP) == ("AVX2" if trap else None)


def test_what_the_user_has_set_stays(machine):
    machine("2.10.0", WIDE, "AVX512_CORE")
    environment.prepare_mindspore()
    assert os.environ[environment.ONEDNN_CAP] == "AVX512_CORE"


@pytest.mark.parametrize(
    "imports, wanted, heard",
    [("import labkit, mindspore", None, False), ("import mindspore, labkit", None, False),
     ("import labkit, mindspore", "2", True)],
)  # fmt: skip
def test_mindspores_warnings(imports, wanted, heard):
    """Not heard, in whichever order the two are imported, unless the user asks for them."""
    env = {name: value for name, value in os.environ.items() if name != "GLOG_v"}
    env |= {"GLOG_v": wanted} if wanted else {}
    warn = f"{imports}\nmindspore.log.warning('for developers')\nmindspore.log.error('for users')"
    done = subprocess.run([sys.executable, "-c", warn], env=env, text=True, capture_output=True, check=True)
    assert "for users" in done.stderr
    assert ("for developers" in done.stderr) == heard


@pytest.mark.parametrize(
    "version, flags, cap, status, says",
    [("2.8.0", WIDE, None, "ok", "fast convolutions"), ("2.10.0", WIDE, "AVX2", "note", "fixed"),
     ("2.10.0", WIDE, "AVX512_CORE", "problem", "you set"), (None, WIDE, None, "note", "not known"),
     ("2.10.0", set(), None, "note", "not known")],
)  # fmt: skip
def test_doctor_on_the_trap(machine, version, flags, cap, status, says):
    machine(version, flags, cap)
    found = doctor._onednn()
    assert (found[0], says in found[1]) == (status, True)


def test_an_error_of_a_copy_names_the_target():
    """As shutil raises it when a disk is full."""
    full = OSError(28, "No space left on device", "source", None, "target")
    assert of_file_system(full) == "target: No space left on device"


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    """Each file appears whole: the text of one of them, and no rest."""
    texts = [str(number) * 1_000_000 for number in range(4)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda text: atomic_write(tmp_path / "file", text), 5 * texts))
    assert (tmp_path / "file").read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch):
    def without(handle, blocking):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(filelock, "lock_descriptor", without)
    with locked(tmp_path, LabkitError("taken")):
        pass


def test_what_git_tracks(tmp_path, monkeypatch):
    """Also a name that is not UTF-8."""
    assert tracked(tmp_path, LabkitError) is None
    (tmp_path / "lab").mkdir()
    for name in ("tracked.py", os.fsdecode(b"caf\xe9.py")):
        (tmp_path / "lab" / name).write_text("x")
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    assert tracked(tmp_path / "lab", LabkitError) == []
    subprocess.run(["git", "-C", tmp_path, "add", "--all"], check=True)
    assert set(tracked(tmp_path / "lab", LabkitError)) == set(os.listdir(tmp_path / "lab"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere/.git"))  # as git sets it for a hook
    monkeypatch.setenv("LC_ALL", "zh_CN.GBK")
    assert set(tracked(tmp_path / "lab", LabkitError)) == set(os.listdir(tmp_path / "lab"))


def test_a_stop_behind_the_last_step_is_heard(capfd):
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.stopped_once(), interrupts.stopped_at_steps():
        signal.raise_signal(signal.SIGTERM)
        done.append("the step ends")
    assert done, "the signal cut the step off"
    assert "stopping" in capfd.readouterr().err


def test_an_error_at_a_step_is_reported_rather_than_the_stop(capfd):
    with pytest.raises(ZeroDivisionError), interrupts.stopped_once(), interrupts.stopped_at_steps():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError


@pytest.mark.parametrize("quota, cores", [
    ("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 4), (None, 4), ("800000 100000", 4),
])  # fmt: skip
def test_cores_are_those_that_the_container_grants(tmp_path, monkeypatch, quota, cores):
    """A quota of CPU time does not show in the number of CPUs that a process may run on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(environment, "CPU_QUOTA", tmp_path / "cpu.max")
    if quota:
        environment.CPU_QUOTA.write_text(f"{quota}\n")
    assert environment.cores() == cores

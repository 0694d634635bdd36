"""`labkit jobs`: what it prints of the stand-in's jobs, and exit statuses."""

import threading
import time

import modelarts_server as stubs
import pytest
from modelarts_server import KEYS
from running import labkit

from labkit.modelarts import jobs_commands


@pytest.fixture
def two(stub):
    """Two jobs: the newer one runs."""
    for number, (name, phase) in enumerate((("cifar10-1", "Completed"), ("thor-1", "Running")), start=1):
        metadata = {"id": f"job-{number}", "name": name, "create_time": 1700000000000 + 1000 * number}
        status = {"phase": phase, "duration": 61000, "tasks": ["worker-0", "worker-1"]}
        stub.jobs[f"job-{number}"] = {"metadata": metadata, "status": status}
    return stub


def test_list(two):
    done = labkit("jobs", "list")
    assert done.exit_code == 0
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["id", "name", "phase"], ["job-2", "thor-1", "Running"], ["job-1", "cifar10-1", "Completed"]
    ]  # fmt: skip
    assert "2023-11-14 22:13:22 UTC  0:01:01" in done.stdout
    named = labkit("jobs", "list", "--name", "cifar").stdout.splitlines()
    assert [line.split()[0] for line in named] == ["id", "job-1"]
    two.jobs.clear()
    done = labkit("jobs", "list")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no jobs\n")


def test_show_and_stop(two):
    done = labkit("jobs", "show", "job-2")
    assert done.exit_code == 0 and done.stdout.splitlines() == [
        "id        job-2", "name      thor-1", "phase     Running", "created   2023-11-14 22:13:22 UTC",
        "duration  0:01:01", "tasks     worker-0, worker-1",
    ]  # fmt: skip
    assert "phase     Terminating" in labkit("jobs", "stop", "job-2").stdout
    done = labkit("jobs", "stop", "job-1")
    assert done.exit_code == 1 and "cannot be terminated" in done.stderr


def test_logs(two):
    """Half a letter, as a log that was cut may have, can be printed."""
    two.log = "a \ud83d b 日本\n"
    assert labkit("jobs", "logs", "job-2").stdout == "a ? b 日本\n"


@pytest.mark.parametrize("phase, status", [("Completed", 0), ("Failed", 1)])
def test_logs_to_the_end(two, monkeypatch, phase, status):
    """A log that is not there yet says nothing of the job, which runs."""
    monkeypatch.setattr(jobs_commands, "POLL", 0.05)
    two.faults["GET training-jobs/preview"] = [(404, {"error_msg": "no such log"})]

    def finish():
        while two.operations().count("GET training-jobs/preview") < 3:
            time.sleep(0.02)  # for ever, where labkit has failed: it ends with the tests
        two.log += "step 2\n"
        two.jobs["job-2"]["status"]["phase"] = phase

    threading.Thread(target=finish, daemon=True).start()
    done = labkit("jobs", "logs", "job-2", "--follow")
    assert (done.exit_code, done.stdout) == (status, "step 1\nstep 2\n")
    assert done.stderr.splitlines() == ["job thor-1: Running", f"job thor-1: {phase}"]


@pytest.mark.parametrize("shown, log, added", [
    ("", "a\n", "a\n"), ("a\n", "a\nb\n", "b\n"), ("a\n", "a\n", ""), ("a\nb\n", "", ""),
    ("x" * 600 + "\nend\n", "x" * 500 + "\nend\nmore\n", "more\n"), ("a" * 500, "b" * 500, "b" * 500),
])  # fmt: skip
def test_what_is_new_in_a_log(shown, log, added):
    """ModelArts shows the end of it, as long as that is."""
    assert jobs_commands.added(shown, log) == added


def test_flavors_and_engines(stub):
    rows = [line.split()[:2] for line in labkit("jobs", "flavors").stdout.splitlines()]
    assert rows[1:] == [["modelarts.cpu.8", "CPU"], ["modelarts.npu.1", "Ascend"]]
    assert "cpu" not in labkit("jobs", "flavors", "--kind", "Ascend").stdout
    assert labkit("jobs", "engines").stdout.splitlines()[1].split() == ["Ascend-Powered-Engine", "mindspore_2.3.0"]


def test_what_is_missing_is_named(nobody, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    done = labkit("jobs", "list")
    assert done.exit_code == 1 and "no region: set MODELARTS_REGION" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and stubs.SECRET not in done.stderr

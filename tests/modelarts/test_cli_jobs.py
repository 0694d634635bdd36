"""`labkit jobs`: what it prints of the stub's jobs, and exit statuses."""

import json
import os
import subprocess
import sys
import threading
import time

import modelarts_stub as stubs
import pytest
from modelarts_stub import KEYS
from running import labkit

from labkit.modelarts import submission
from labkit.system.environment import REPO


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
    assert [job["id"] for job in json.loads(labkit("jobs", "list", "--name", "cifar", "--json").stdout)] == ["job-1"]


def test_list_of_nothing(stub):
    done = labkit("jobs", "list")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no jobs\n")
    assert labkit("jobs", "list", "--json").stdout == "[]\n"


def test_show_and_stop(two):
    done = labkit("jobs", "show", "job-2")
    assert done.exit_code == 0 and done.stdout.splitlines() == [
        "id        job-2", "name      thor-1", "phase     Running", "created   2023-11-14 22:13:22 UTC",
        "duration  0:01:01", "tasks     worker-0, worker-1",
    ]  # fmt: skip
    assert json.loads(labkit("jobs", "show", "job-2", "--json").stdout)["tasks"] == ["worker-0", "worker-1"]
    assert "phase     Terminating" in labkit("jobs", "stop", "job-2").stdout
    assert json.loads(labkit("jobs", "stop", "job-2", "--json").stdout)["phase"] == "Terminating"
    done = labkit("jobs", "stop", "job-1")
    assert done.exit_code == 1 and "cannot be terminated" in done.stderr


def test_logs(two):
    assert labkit("jobs", "logs", "job-2").stdout == "step 1\n"
    assert labkit("jobs", "logs", "job-2", "--task", "../x").exit_code == 1


@pytest.fixture
def follow(two, monkeypatch):
    """Function that follows a job, which ends in this phase when its log has been looked at three times."""
    monkeypatch.setattr(submission, "POLL", 0.05)

    def follow(phase):
        def go_on():
            while two.operations().count("GET training-jobs/preview") < 3:
                time.sleep(0.02)  # for ever, where labkit has failed: it ends with the tests
            two.log += "step 2\n"
            two.jobs["job-2"]["status"]["phase"] = phase

        threading.Thread(target=go_on, daemon=True).start()
        return labkit("jobs", "logs", "job-2", "--follow")

    return follow


@pytest.mark.parametrize("phase, status", [("Completed", 0), ("Failed", 1), ("Terminated", 1)])
def test_logs_to_the_end(follow, phase, status):
    done = follow(phase)
    assert (done.exit_code, done.stdout) == (status, "step 1\nstep 2\n")
    assert done.stderr.splitlines() == ["job thor-1: Running", f"job thor-1: {phase}"]


def test_a_log_that_is_not_there_yet(follow, two):
    """It says nothing of the job, which goes on."""
    two.faults["GET training-jobs/preview"] = [(404, {"error_msg": "no such log"})] * 2
    done = follow("Completed")
    assert (done.exit_code, done.stdout) == (0, "step 1\nstep 2\n")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["job thor-1", "no log", "job thor-1"]


@pytest.mark.parametrize("answer, says", [((403, {}), "Forbidden"), ((502, "<html>"), "given up after")])
def test_a_job_that_cannot_be_looked_at(two, monkeypatch, answer, says):
    monkeypatch.setattr(submission, "PERSISTENT", 0.1)
    monkeypatch.setattr(submission, "POLL", 0.05)
    two.faults["GET training-jobs/ID"] = [answer] * 99
    done = labkit("jobs", "logs", "job-2", "--follow", "--deadline", 0.2)
    assert done.exit_code == 1 and says in done.stderr


def test_waiting_is_told(two):
    two.faults["POST training-job-searches"] = [(503, {})] * 99
    done = labkit("jobs", "list", "--deadline", 0.3)
    first, last = done.stderr.splitlines()
    assert done.exit_code == 1 and first.endswith("; asking again, 0.3 s at most") and "given up after" in last


def test_flavors_and_engines(stub):
    rows = [line.split()[:2] for line in labkit("jobs", "flavors").stdout.splitlines()]
    assert rows[1:] == [["modelarts.npu.1", "Ascend"], ["modelarts.cpu.8", "CPU"]]
    assert "cpu" not in labkit("jobs", "flavors", "--kind", "Ascend").stdout
    assert json.loads(labkit("jobs", "engines", "--json").stdout) == stubs.ENGINES
    assert labkit("jobs", "engines").stdout.splitlines()[1].split() == ["Ascend-Powered-Engine", "mindspore_2.3.0"]


@pytest.mark.parametrize("command", [("show", "job-9"), ("logs", "job-9"), ("stop", "job-9"), ("show", "../x")])
def test_no_such_job(stub, command):
    done = labkit("jobs", *command)
    assert done.exit_code == 1 and done.stderr.startswith("Error: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("show",), ("flavors", "--kind", "TPU"), ("nothing",), ("list", "--jsno")])
def test_wrong_usage(nobody, arguments):
    assert labkit("jobs", *arguments).exit_code == 2


@pytest.mark.parametrize("given, says", [
    ({}, "no credentials: set OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY"),
    ({"HUAWEICLOUD_SDK_AK": "x"}, "HUAWEICLOUD_SDK_SK is not set, but HUAWEICLOUD_SDK_AK is"),
    (KEYS, "no region: set MODELARTS_REGION"), ({**KEYS, "MODELARTS_REGION": "cn-north-4"}, "no project: set"),
])  # fmt: skip
def test_what_is_missing_is_named(nobody, monkeypatch, given, says):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    done = labkit("jobs", "list")
    assert done.exit_code == 1 and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert stubs.SECRET not in done.stderr


def test_keys_by_the_names_of_the_sdk(stub, monkeypatch):
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", stubs.ACCESS)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", stubs.SECRET)
    assert labkit("jobs", "list").exit_code == 0


def test_help_is_quick(repo_root):
    """Neither MindSpore nor the SDK nor what asks ModelArts is imported for it."""
    heavy = "{'mindspore', 'numpy', 'obs', 'requests', 'labkit.modelarts.client'}"
    code = f"import sys, labkit.cli; assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300", "-1"])
@pytest.mark.parametrize("command", [("jobs", "list"), ("obs", "ls", "obs://my-bucket")])
def test_a_deadline_that_is_none(stub, command, seconds):
    done = labkit(*command, "--deadline", seconds)
    assert done.exit_code == 2 and "--deadline" in done.stderr and isinstance(done.exception, SystemExit)


ODD = (
    None, 7, "text", [], [7], {}, {"metadata": None}, {"metadata": {"id": 1}}, {"items": 7}, {"items": [None]},
    {"items": [{"engine_name": 7, "engine_version": None}]}, {"flavors": ["npu"]}, {"flavors": [{"max_num": 2}]},
    {"flavors": {"flavor_id": "npu"}}, {"content": 7}, {"content": ["a"]}, {"content": {}},
    *({"metadata": {"id": "a", "name": "b", "create_time": time}, "status": {"tasks": [7]}}
      for time in ("soon", 1e300, -1, 1 << 60, [], float("inf"))),
    {"metadata": {"id": "a", "name": "b"}, "status": 7}, {"metadata": {"id": "a", "name": "b"}, "status": {"tasks": 7}},
)  # fmt: skip


@pytest.mark.parametrize("command, operation", [
    (("list",), "POST training-job-searches"), (("show", "job-2"), "GET training-jobs/ID"),
    (("logs", "job-2"), "GET training-jobs/preview"), (("flavors",), "GET training-job-flavors"),
    (("engines",), "GET training-job-engines"),
])  # fmt: skip
def test_answers_of_an_unexpected_shape(two, command, operation):
    """One line, whatever comes."""
    for answer in ODD:
        two.faults[operation] = [(200, answer)] * 50
        done = labkit("jobs", *command, "--deadline", "0.01")
        assert operation in two.operations()
        assert isinstance(done.exception, SystemExit | None), (answer, done.exception)
        assert done.exit_code == 0 or len(done.stderr.splitlines()) <= 2, (answer, done.stderr)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_what_a_terminal_cannot_show(two, encoding):
    """Half a letter, as a log that was cut may have, and letters of other languages."""
    two.log = "a \ud83d b 日本\n"
    two.jobs["job-2"]["metadata"]["name"] = "日本 \ud83d"
    for command in (("logs", "job-2"), ("list",), ("show", "job-2")):
        done = subprocess.run(
            [sys.executable, "-m", "labkit", "jobs", *command], capture_output=True, timeout=60,
            env=os.environ | {"PYTHONPATH": str(REPO), "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        assert ("日本" if encoding == "utf-8" else "\\u65e5\\u672c") in done.stdout.decode(encoding)

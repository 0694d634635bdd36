"""Inside a job: where a start file finds itself, and what it starts. No training."""

import pytest

from labkit.launch import msrun, start_files
from labkit.launch.msrun import Hosts
from labkit.launch.start_files import JobContext
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError

JOB = {"MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir"}
CARD = {"RANK_TABLE_FILE": "/table.json", "RANK_ID": "3", "RANK_SIZE": "8", "ASCEND_DEVICE_ID": "3"}
MSRUN = {"MS_ROLE": "MS_WORKER", "RANK_ID": "1", "RANK_SIZE": "2"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
EIGHT = {**JOB, "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "8"}
FOUR_HOSTS = {"MA_NUM_HOSTS": "4", "MA_NUM_GPUS": "8", "VC_WORKER_HOSTS": "first.job,second.job,third,fourth"}
SECOND = {**JOB, **FOUR_HOSTS, "VC_TASK_INDEX": "1"}
NAMES = {"MS_ROLE", "LABKIT_LAUNCHED", *JOB, *CARD, *MSRUN, *MPIRUN, *SECOND}
PATHS, URLS = ("/in", "/out"), ("obs://b-1/in", "obs://b-1/out")
BOTH, HOST, NEITHER = (True, True), (True, False), (False, False)


@pytest.fixture
def environment(monkeypatch):
    """Function that sets these variables, and no others of a job."""

    def environment(values):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return environment


@pytest.mark.parametrize("values, urls, expected, leads", [
    ({}, PATHS, JobContext(), BOTH),
    ({}, URLS, JobContext("v1"), BOTH),
    (JOB, PATHS, JobContext("v2"), BOTH),
    ({**JOB, "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "0"}, PATHS, JobContext("v2"), BOTH),  # a machine without cards
    (CARD, URLS, JobContext("v1", "card", 3, 8), NEITHER),
    ({**CARD, "RANK_ID": "0"}, URLS, JobContext("v1", "card", 0, 8), BOTH),
    ({**EIGHT, **CARD}, PATHS, JobContext("v2", "card", 3, 8), NEITHER),
    ({**SECOND, **CARD, "RANK_ID": "8", "RANK_SIZE": "32"}, PATHS, JobContext("v2", "card", 8, 8), HOST),
    ({"RANK_ID": "0", "RANK_SIZE": "1"}, PATHS, JobContext(), BOTH),  # of `labkit launch -n 1`
    (MSRUN, PATHS, JobContext("local", "msrun", 1, 2), NEITHER),
    ({"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "RANK_SIZE": "2"}, PATHS, JobContext("local", "scheduler"), NEITHER),
    (MPIRUN, PATHS, JobContext("local", "mpirun", 1, 2), NEITHER),
    (EIGHT, PATHS, JobContext("v2", "image", 0, 8), BOTH),
    (SECOND, PATHS, JobContext("v2", "image", 8, 8, Hosts(4, 1, "first.job")), HOST),
    ({**SECOND, "VC_TASK_INDEX": "0"}, PATHS, JobContext("v2", "image", 0, 8, Hosts(4, 0, "first.job")), BOTH),
])  # fmt: skip
def test_context(environment, values, urls, expected, leads):
    """Of the processes that lead, one of each machine fetches, one of all sends."""
    environment(values)
    here = start_files.context(*urls)
    assert here == expected and (here.leads_host, here.leads) == leads


@pytest.mark.parametrize("values, says", [
    ({"MA_NUM_GPUS": "eight"}, "^MA_NUM_GPUS: must be a number, not 'eight'$"),
    ({name: value for name, value in SECOND.items() if name != "VC_WORKER_HOSTS"}, "^VC_WORKER_HOSTS: missing"),
    ({name: value for name, value in SECOND.items() if name != "VC_TASK_INDEX"}, "^VC_TASK_INDEX: missing"),
    ({"RANK_TABLE_FILE": "/t", "RANK_ID": "x", "RANK_SIZE": "8"}, "RANK_SIZE is 8, but RANK_ID"),
])  # fmt: skip
def test_no_context(environment, values, says):
    environment(values)
    with pytest.raises(LabkitError, match=says):
        start_files.context(*PATHS)


# -- What is started for the cards of a custom image -----------------------------------------------------


def test_command_line_of_msrun_on_several_hosts():
    """As ModelArts' guide to custom images has it, for the second of four machines with eight cards each."""
    command = msrun._msrun(["train.py", "--x", "1"], 8, 12345, "/logs", Hosts(4, 1, "first.job"))
    assert {
        "--worker_num=32", "--local_worker_num=8", "--master_addr=first.job", "--master_port=8118", "--node_rank=1",
        "--log_dir=/logs", "--join=True", "--cluster_time_out=7200",
    } <= set(command)  # fmt: skip
    assert command[-3:] == ("train.py", "--x", "1")
    alone = msrun._msrun(["train.py"], 8, 12345, "/logs")
    assert {"--worker_num=8", "--local_worker_num=8", "--master_port=12345"} <= set(alone)
    assert not [word for word in alone if word.startswith(("--master_addr", "--node_rank", "--cluster_time_out"))]


def test_a_start_file_passes_the_status_on(capsys):
    def main():
        raise msrun.LaunchError("x", -9)

    with pytest.raises(SystemExit) as ended:
        start_files.start(main)
    assert (ended.value.code, capsys.readouterr().err) == (137, "Error: x\n")


@pytest.mark.parametrize("name, arguments", [
    ("eval.py", ("--checkpoint_path", "obs://b-1/run")),
    ("export.py", ("--checkpoint_path", "run", "--data_url", "obs://b-1/data")),
])  # fmt: skip
def test_urls_that_are_not_read(run_file, name, arguments):
    done = run_file(REPO / "labs" / "imagenet" / name, *arguments)
    assert done.returncode == 1
    assert done.stderr == f"Error: {arguments[-1]}: a URL, which is not read here; copy it first with `labkit obs cp`\n"

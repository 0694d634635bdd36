"""Inside a job: where a start file finds itself, what it starts, and what a job with URLs carries. No training."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial

import pytest
from swift import environment as swift_environment
from waiting import wait_until

from labkit.launch import msrun
from labkit.launch.msrun import Hosts
from labkit.modelarts import job_io, start_files
from labkit.modelarts.start_files import JobContext
from labkit.obs.place import CloudError
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write
from labkit.training import recipes, runs

JOB = {"MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir"}
CARD = {"RANK_TABLE_FILE": "/table.json", "RANK_ID": "3", "RANK_SIZE": "8", "ASCEND_DEVICE_ID": "3"}
MSRUN = {"MS_ROLE": "MS_WORKER", "RANK_ID": "1", "RANK_SIZE": "2"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
ONE = {**JOB, "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "1"}
EIGHT = {**JOB, "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "8"}
FOUR_HOSTS = {"MA_NUM_HOSTS": "4", "MA_NUM_GPUS": "8", "VC_WORKER_HOSTS": "first.job,second.job,third,fourth"}
SECOND = {**JOB, **FOUR_HOSTS, "VC_TASK_INDEX": "1"}
NAMES = {"MS_ROLE", "LABKIT_LAUNCHED", *JOB, *CARD, *MSRUN, *MPIRUN, *SECOND}
PATHS, URLS = ("/in", "/out"), ("obs://b-1/in", "obs://b-1/out")


@pytest.fixture
def environment(monkeypatch):
    """Function that sets these variables, and no others of a job."""

    def environment(values):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return environment


@pytest.mark.parametrize("values, urls, expected", [
    ({}, PATHS, JobContext()),
    ({}, URLS, JobContext("v1")),
    ({}, ("/in", "s3://b-1/out"), JobContext("v1")),
    ({}, ("file:///in", "/out"), JobContext("v1")),
    (JOB, PATHS, JobContext("v2")),
    (JOB, URLS, JobContext("v1")),
    (ONE, PATHS, JobContext("v2")),
    ({**JOB, "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "0"}, PATHS, JobContext("v2")),  # a machine without cards
    (CARD, URLS, JobContext("v1", "card", 3, 8)),
    ({**EIGHT, **CARD}, PATHS, JobContext("v2", "card", 3, 8)),
    ({**EIGHT, **CARD, "RANK_ID": "0", "RANK_SIZE": "1"}, PATHS, JobContext("v2", "card", 0, 1)),
    ({**SECOND, **CARD, "RANK_ID": "8", "RANK_SIZE": "32"}, PATHS, JobContext("v2", "card", 8, 8)),
    ({"RANK_ID": "0", "RANK_SIZE": "1"}, PATHS, JobContext()),  # of `labkit launch -n 1`
    ({**EIGHT, "RANK_ID": "0", "RANK_SIZE": "1"}, PATHS, JobContext("v2")),
    (MSRUN, PATHS, JobContext("local", "msrun", 1, 2)),
    ({**EIGHT, **MSRUN}, URLS, JobContext("v1", "msrun", 1, 2)),
    ({**EIGHT, **MSRUN, "RANK_TABLE_FILE": "/t"}, PATHS, JobContext("v2", "msrun", 1, 2)),
    ({"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "RANK_SIZE": "2"}, PATHS, JobContext("local", "scheduler")),
    ({**EIGHT, "MS_ROLE": "MS_SCHED"}, URLS, JobContext("v1", "scheduler")),
    (MPIRUN, PATHS, JobContext("local", "mpirun", 1, 2)),
    (EIGHT, PATHS, JobContext("v2", "image", 0, 8)),
    (EIGHT, URLS, JobContext("v1", "image", 0, 8)),
    ({**EIGHT, "RANK_TABLE_FILE": "/t"}, PATHS, JobContext("v2", "image", 0, 8)),
    (SECOND, PATHS, JobContext("v2", "image", 8, 8, Hosts(4, 1, "first.job"))),
])  # fmt: skip
def test_context(environment, values, urls, expected):
    environment(values)
    assert start_files.context(*urls) == expected


@pytest.mark.parametrize("values, leads_host, leads", [
    ({}, True, True), (CARD, False, False), ({**CARD, "RANK_ID": "0"}, True, True), (MSRUN, False, False),
    ({**SECOND, **CARD, "RANK_ID": "8", "RANK_SIZE": "32"}, True, False), (EIGHT, True, True), (SECOND, True, False),
    ({**SECOND, "VC_TASK_INDEX": "0"}, True, True), ({"MS_ROLE": "MS_SCHED"}, False, False),
])  # fmt: skip
def test_who_copies(environment, values, leads_host, leads):
    """One process of each machine fetches, one of all sends."""
    environment(values)
    here = start_files.context(*PATHS)
    assert (here.leads_host, here.leads) == (leads_host, leads)


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


PRINT = """
import json, os, sys
from labkit.modelarts import start_files
here = start_files.context(*sys.argv[1:])
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID")
if here.start == "image":
    start_files.launch([*sys.argv], here.cards, sys.argv[1], hosts=here.hosts)
elif here.start != "scheduler":
    print(json.dumps({"start": here.start, "hosts": here.hosts, **{n: os.environ.get(n) for n in names}}))
"""


def test_a_custom_image_starts_msrun_once(environment, tmp_path):
    """Each of the processes that msrun starts knows that it is msrun's, and starts no other."""
    environment({**EIGHT, "MA_NUM_GPUS": "2"})
    (tmp_path / "start.py").write_text(PRINT)
    command = [sys.executable, tmp_path / "start.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for rank in ("0", "1"):
        printed = json.loads((tmp_path / f"worker_{rank}.log").read_text())
        assert printed == {"start": "msrun", "hosts": None, "RANK_ID": rank, "RANK_SIZE": "2", "DEVICE_ID": rank}


@pytest.mark.parametrize("error, status", [(LabkitError("x"), 1), (msrun.LaunchError("x", 3), 3),
                                           (msrun.LaunchError("x", -9), 137)])  # fmt: skip
def test_a_start_file_passes_the_status_on(error, status, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as ended:
        start_files.start(main)
    assert (ended.value.code, capsys.readouterr().err) == (status, "Error: x\n")


def test_a_complete_run_with_paths_stays_as_it_is(environment, run_file, sample_data, tmp_path):
    """ModelArts would copy a change back; that the data lies elsewhere now does not matter any more."""
    out = tmp_path / "out"
    shutil.copytree(REPO / "labs" / "cifar10" / "runs" / "resnet20-laptop", out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    environment(ONE)
    data = sample_data / "cifar-10-batches-bin"
    done = run_file(
        REPO / "labs" / "cifar10" / "train.py", "--data_url", data, "--train_url", out, "--profile", "laptop"
    )
    assert (done.returncode, done.stdout) == (0, f"{out} is complete: nothing to train\n"), done.stderr
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


@pytest.mark.parametrize("name, arguments", [
    ("eval.py", ("--checkpoint_path", "obs://b-1/run")), ("export.py", ("--checkpoint_path", "obs://b-1/run")),
    ("export.py", ("--checkpoint_path", "run", "--data_url", "obs://b-1/data")),
])  # fmt: skip
def test_urls_that_are_not_read(run_file, name, arguments):
    done = run_file(REPO / "labs" / "imagenet" / name, *arguments)
    assert done.returncode == 1
    assert done.stderr == f"Error: {arguments[-1]}: a URL, which is not read here; copy it first with `labkit obs cp`\n"


# -- What a job with URLs carries ------------------------------------------------------------------------


@pytest.fixture
def carried(tmp_path, monkeypatch):
    """A URL for a Run, in a folder of its own; what is cached is below tmp_path as well."""
    monkeypatch.setattr(job_io, "FAST_DISK", tmp_path)
    return f"file://{tmp_path}/bucket/run"


def write_run(folder, steps, complete=False):
    """A Run that looks like one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints").mkdir(exist_ok=True)
    asked = recipes.load(recipes.find("cifar10"), "sample")
    atomic_write(folder / "recipe.yaml", asked.dump())
    (folder / "history.jsonl").write_text("".join(json.dumps({"step": n + 1}) + "\n" for n in range(steps)))
    atomic_write(folder / "checkpoints" / "latest.ckpt", str(steps))
    (folder / "checkpoints" / "part.ckpt").write_text("half")
    if complete:
        (folder / "summary.json").write_text("{}")


def there(url):
    place = job_io.parse(url).path
    return {file.relative_to(place).as_posix(): file.read_text() for file in place.rglob("*") if file.is_file()}


def left(tmp_path):
    return sorted(path.name for path in tmp_path.glob("labkit-*/runs/*"))


def test_a_run_goes_back_in_the_end(carried, tmp_path):
    with job_io.run_folder(carried, True, True) as folder:
        assert not folder.exists()
        write_run(folder, 3, complete=True)  # with a part.ckpt
        (folder / "checkpoints" / "depart.ckpt").write_text("whole")
    assert there(carried).keys() == {
        "recipe.yaml", "history.jsonl", "checkpoints/latest.ckpt", "checkpoints/depart.ckpt", "summary.json"
    }  # fmt: skip
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [ArithmeticError("planted"), KeyboardInterrupt(), SystemExit(3)])
def test_a_run_goes_back_when_the_training_ends_otherwise(carried, tmp_path, error):
    with pytest.raises(type(error)), job_io.run_folder(carried, True, True) as folder:
        write_run(folder, 2)
        raise error
    assert there(carried)["checkpoints/latest.ckpt"] == "2" and left(tmp_path) == []


def test_an_unfinished_run_is_fetched_first(carried, tmp_path):
    write_run(tmp_path / "bucket" / "run", 2)
    with job_io.run_folder(carried, True, True) as folder:
        assert len(runs.open_run(folder).steps()) == 2 and runs.open_run(folder).checkpoint.read_text() == "2"
        write_run(folder, 4, complete=True)
    assert there(carried)["checkpoints/latest.ckpt"] == "4"


def test_a_complete_run_stays_as_it_is(carried, tmp_path):
    write_run(tmp_path / "bucket" / "run", 4, complete=True)
    before = there(carried)
    with job_io.run_folder(carried, True, True) as folder:
        runs.relocate(runs.open_run(folder), "/elsewhere")  # where the start file has the data
    assert there(carried) == before and left(tmp_path) == []


def test_a_training_without_a_run(carried, tmp_path):
    """It failed before it made one: that error is the one to see."""
    with pytest.raises(ArithmeticError), job_io.run_folder(carried, True, True):
        raise ArithmeticError("planted")
    assert not (tmp_path / "bucket").exists()


def test_another_process_copies_nothing(carried, tmp_path):
    with job_io.run_folder(carried, False, False) as folder:
        write_run(folder, 1)
    assert not (tmp_path / "bucket").exists() and folder.exists()


def test_what_a_killed_start_left_is_kept(carried, tmp_path, capsys):
    """There it may have had more than it copied."""
    with job_io.run_folder(carried, False, False) as folder:
        write_run(folder, 7)
    write_run(tmp_path / "bucket" / "run", 2)
    with job_io.run_folder(carried, True, False) as again:
        assert again == folder and len(runs.open_run(again).steps()) == 2
    assert len(runs.open_run(folder.with_name(f"{folder.name}-before")).steps()) == 7
    assert f"is now {folder}-before" in capsys.readouterr().out


def test_two_trainings_of_one_run(carried):
    with job_io.run_folder(carried, False, False) as folder:
        write_run(folder, 1)
    with runs.alone(runs.open_run(folder)), pytest.raises(CloudError, match="run: another training on this machine"):
        job_io.run_folder(carried, True, True).__enter__()


def test_two_trainings_of_one_run_that_begin_together(carried, tmp_path, capsys):
    """Both have looked before there was a folder; the one that is refused takes nothing of the other's away."""
    with job_io.run_folder(carried, True, True) as folder:
        refused = pytest.raises(runs.RunError, match="another training of this Run is under way")
        with refused, job_io.run_folder(carried, True, True) as same:
            assert same == folder
            write_run(folder, 1)  # by the first
            training = contextlib.ExitStack()
            training.enter_context(runs.alone(runs.open_run(folder)))
            with runs.alone(runs.open_run(same)):
                raise AssertionError("two at once")
        assert "run: another training on this machine writes this Run" in capsys.readouterr().err
        assert runs.open_run(folder).checkpoint.read_text() == "1" and not (tmp_path / "bucket").exists()
        write_run(folder, 3, complete=True)
        training.close()
    assert there(carried)["checkpoints/latest.ckpt"] == "3" and "summary.json" in there(carried)
    assert left(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_cannot_go_back_stays(carried, tmp_path, fails, capsys):
    """A file is in the way; the training's own error, if there is one, is the one that is raised."""
    (tmp_path / "bucket").write_text("in the way")
    error = ArithmeticError if fails else CloudError
    with pytest.raises(error) as caught, job_io.run_folder(carried, False, True) as folder:
        write_run(folder, 5)
        if fails:
            raise ArithmeticError("planted")
    told = capsys.readouterr().err if fails else str(caught.value)
    assert f"the Run stays in {folder}" in told and len(runs.open_run(folder).steps()) == 5


def test_a_checkpoint_that_cannot_go_back(tmp_path, monkeypatch, swift, proxy, bucket):
    """Then the Run at the URL is not complete, and the next start goes on from the checkpoint that is there."""
    for name, value in swift_environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(job_io, "FAST_DISK", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"obs://{bucket}/run"
    with job_io.run_folder(url, True, True) as folder:
        write_run(folder, 2)
    proxy.plant(method="PUT", path="latest.ckpt", times=99, answer=(403, b"", {}))
    refused = pytest.raises(CloudError, match="latest.ckpt: .*status 403.*the Run stays in ")
    with refused, job_io.run_folder(url, True, True) as folder:
        write_run(folder, 4, complete=True)
    proxy.clear()
    with job_io.run_folder(url, True, True) as folder:
        again = runs.open_run(folder)
        assert not again.complete and again.checkpoint.read_text() == "2" and len(again.steps()) == 4
        write_run(folder, 5, complete=True)
    with job_io.run_folder(url, True, False) as folder:
        assert runs.open_run(folder).complete and runs.open_run(folder).checkpoint.read_text() == "5"


SAVES = """
import sys
from labkit.modelarts import start_files
from labkit.system import interrupts
from labkit.modelarts import job_io
with interrupts.stopped_once(), job_io.run_folder(sys.argv[1], True, True) as folder:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text("lab: x")
    copy_runs = job_io.copy_runs
    def slowly(*arguments):
        print("saving", flush=True)
        sys.stdin.readline()
        return copy_runs(*arguments)
    job_io.copy_runs = slowly
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_second_interrupt_does_not_cut_off_the_saving(tmp_path):
    """As of somebody who presses Ctrl-C again, or of a machine that says SIGTERM twice."""
    env = os.environ | {"PYTHONPATH": str(REPO), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SAVES, f"file://{tmp_path}/bucket/run"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=env, **pipes, preexec_fn=hears_ctrl_c)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "saving\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    _, stderr = process.communicate("\n", timeout=60)
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert (tmp_path / "bucket/run/recipe.yaml").read_text() == "lab: x"


def hears_ctrl_c():
    """In a process that is started: tests may run where it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_checkpoint_goes_back_at_once(carried, tmp_path, monkeypatch):
    """So a machine that is lost loses little. The history is as long as the checkpoint says, or longer."""
    monkeypatch.setattr(job_io, "PERIOD", 0.02)

    def sent(name):  # once there, a file is replaced as a whole
        file = tmp_path / "bucket/run" / name
        return file.read_text() if file.exists() else ""

    def all_sent(steps):
        return sent("checkpoints/latest.ckpt") == str(steps) and sent("history.jsonl").count("\n") == steps

    with job_io.run_folder(carried, True, True) as folder:
        for steps in (1, 2):
            write_run(folder, steps)
            wait_until(partial(all_sent, steps))
            found = there(carried)
            assert found["checkpoints/latest.ckpt"] == str(steps)
            assert found["history.jsonl"].count("\n") == steps
            assert "checkpoints/part.ckpt" not in found
    assert left(tmp_path) == []


def test_data_is_copied_once(carried, tmp_path, capsys):
    source = tmp_path / "bucket" / "data"
    (source / "train").mkdir(parents=True)
    (source / "train" / "a.bin").write_text("a")
    folder = job_io.data_folder(f"file://{source}")
    assert (folder / "train" / "a.bin").read_text() == "a" and "1 files, copied to" in capsys.readouterr().out
    (folder / ".labkit-scan.json").write_text("{}")  # what labkit has found of the images
    assert job_io.data_folder(f"file://{source}/") == folder and capsys.readouterr().out == ""
    (source / "train" / "a.bin").rename(source / "b.bin")
    with pytest.raises(CloudError, match=r"has train/a.bin, which is no longer at file://\S+: remove the folder"):
        job_io.data_folder(f"file://{source}")
    shutil.rmtree(source)
    with pytest.raises(CloudError, match="there is no such file or folder"):
        job_io.data_folder(f"file://{source}")


def test_a_cache_of_somebody_else(carried, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"labkit-{job_io.os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CloudError, match="belongs to another user"):
        job_io.data_folder("file:///data")

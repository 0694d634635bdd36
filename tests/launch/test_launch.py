"""`labkit launch`, and the labs' scripts: arguments, environment, ports, rank tables. No training.

Ascend and GPUs cannot be had here: what their processes would be given is printed by real processes.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext

import pytest

from labkit.launch import msrun
from labkit.launch.msrun import LaunchError
from tests.launch.conftest import table

# What a started process is: its arguments and the environment that matters.
PRINT = """
import json, os, sys
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE", "LABKIT_DEVICE", "MS_ROLE")
print(json.dumps({"file": sys.argv[0], "arguments": sys.argv[1:], **{n: os.environ.get(n) for n in names}}))
"""


@pytest.fixture
def two_cards(tmp_path):
    """A rank table with two cards."""
    file = tmp_path / "hccl_2p.json"
    file.write_text(json.dumps(table(("10.0.0.1", [4, 5]))))
    return file


@pytest.fixture
def script(tmp_path):
    """Function that writes a Python file and returns its path."""

    def script(text):
        file = tmp_path / "script.py"
        file.write_text(text)
        return file

    return script


def printed(logs):
    """What PRINT printed, by rank."""
    return [json.loads(log.read_text()) for log in sorted(logs.glob("worker_*.log"))]


def test_one_process_for_each_card(labkit, script, two_cards, tmp_path):
    done = labkit.run(
        "launch", "-n", 2, "--device-target", "Ascend", "--rank-table", two_cards, "--log-dir", tmp_path / "logs",
        script(PRINT), "--data_url", "d", "-n", "7", "--help",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    processes = printed(tmp_path / "logs")
    assert [(p["RANK_ID"], p["RANK_SIZE"], p["DEVICE_ID"]) for p in processes] == [("0", "2", "4"), ("1", "2", "5")]
    for process in processes:
        assert process["arguments"] == ["--data_url", "d", "-n", "7", "--help"]  # none is taken for the launch's own
        assert (process["RANK_TABLE_FILE"], process["LABKIT_DEVICE"]) == (str(two_cards), "Ascend")
        assert process["MS_ROLE"] is None
    assert json.loads(done.stdout) == processes[0]  # only rank 0's output is shown


def test_one_process_alone(labkit, script, tmp_path):
    """Logs of an earlier launch go, other files stay."""
    (tmp_path / "logs").mkdir()
    for name in ("worker_7.log", "mine.log"):
        (tmp_path / "logs" / name).write_text("old")
    done = labkit.run("launch", "-n", 1, "--log-dir", tmp_path / "logs", script(PRINT), "x")
    process = json.loads(done.stdout)
    assert (done.returncode, process["RANK_ID"], process["RANK_SIZE"], process["LABKIT_DEVICE"]) == (0, "0", "1", None)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["mine.log", "worker_0.log"]


FAILING = """
import os, signal, time
print("rank", os.environ["RANK_ID"], flush=True)
if os.environ["RANK_ID"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def test_a_failure_ends_all_at_once(labkit, script, two_cards, tmp_path):
    cards = ("--rank-table", two_cards, "--log-dir", tmp_path / "logs")
    done = labkit.run("launch", "-n", 2, *cards, script(FAILING))
    assert done.returncode == 137
    log = f"{tmp_path}/logs/worker_1.log"
    assert done.stderr == f"Error: worker_1 was killed (SIGKILL); the end of {log}:\n    rank 1\n"
    assert labkit.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_launch_leaves_nothing(labkit, script, two_cards, tmp_path, number):
    """The first interrupts it; SIGINT is what Ctrl-C sends."""
    stop = f"import os, time\nif os.environ['RANK_ID'] == '1': os.kill(os.getppid(), {number.value})\ntime.sleep(600)"
    done = labkit.run("launch", "-n", 2, "--rank-table", two_cards, script(stop))
    assert (done.returncode, done.stderr) == (130, "\nstopped\n")
    assert labkit.left() == []


KILLING = """
import os, pathlib, psutil, sys, time
ready = pathlib.Path(sys.argv[1])
name = os.environ["MS_ROLE"] + os.environ["RANK_ID"]  # msrun's scheduler is of rank 0, too
if name != "MS_WORKER1":
    (ready / name).touch()
else:
    while len(list(ready.iterdir())) < 2:
        time.sleep(0.05)
    psutil.Process().parents()[2].kill()
time.sleep(600)
"""


def test_a_killed_launch_leaves_nothing(labkit, script, tmp_path):
    """The system tells each process that its parent is gone: program, shield and msrun."""
    (tmp_path / "ready").mkdir()
    done = labkit.run("launch", "-n", 2, script(KILLING), tmp_path / "ready")
    assert done.returncode == -signal.SIGKILL
    assert labkit.left(seconds=60) == []


def test_error_behind_a_progress_bar(labkit, script):
    """labkit's own errors are told in one line."""
    last = "50%|##   | [00:08<00:51, loss=1]Error: loss is nan\\r 60%|"
    done = labkit.run("launch", "-n", 1, script(f"print('before')\nprint('{last}')\nraise SystemExit(3)"))
    assert done.stderr == "Error: worker_0: loss is nan\n"


def test_children_of_a_failed_process_do_not_stay(labkit, script):
    """Such as the workers of a data pipeline; even one that has left its family."""
    child = "import subprocess, sys, labkit; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(3)"
    done = labkit.run("launch", "-n", 1, script(child))
    assert "ended with exit status 3" in done.stderr
    assert labkit.left() == []


ENDING = """
import atexit, os, pathlib, signal, time
if os.environ["RANK_ID"] == "1" and os.environ["MS_ROLE"] == "MS_WORKER":
    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
elif os.environ["MS_ROLE"] == "MS_WORKER":
    time.sleep(3)  # msrun looks every second
    pathlib.Path("late").write_text("all saved")
"""


def test_a_crash_after_the_end_of_a_program(labkit, script, place):
    """MindSpore's, where processes part: the program's status counts, and the others come to their end."""
    done = labkit.run("launch", "-n", 2, script(ENDING))
    assert (done.returncode, done.stderr) == (0, "")
    assert (place / "late").read_text() == "all saved"


@pytest.mark.parametrize("end, as_module", [("", True), ("sys.exit('said')", False), ("1 / 0", False)])
def test_a_program_of_msrun_is_run_as_python_does(script, end, as_module):
    text = "import os, sys\nprint(sys.argv, sys.path[0], __name__, __file__)\n"
    file = script(text + "print(sys.modules['__main__'].__file__, flush=True)\n" + end)
    done = [
        subprocess.run(
            [sys.executable, *shield, *(["-m", file.stem] if as_module else [file]), "-x", "--help"], cwd=file.parent,
            capture_output=True, text=True,
        ) for shield in ([], ["-m", "labkit.launch.shield"])
    ]  # fmt: skip
    assert done[1].stdout == done[0].stdout
    assert (done[1].returncode, done[1].stderr[-30:]) == (done[0].returncode, done[0].stderr[-30:])


@pytest.mark.parametrize("arguments, named, env", [
    (("train", "nolab"), "nolab", {}), (("nothing.py",), "nothing.py", {}),
    (("train", "cifar10", "--set", "data.folder=nowhere"), "nowhere", {}),
    (("train", "cifar10", "--set", "data.folder={place}/data", "--set", "data.batch_size=101"),
     "200 images, 100 for each of 2 processes", {}),
    # As where ModelArts starts the boot file once for each card.
    (("nothing.py",), "MS_ROLE or RANK_SIZE is set", {"RANK_SIZE": "8", "RANK_ID": "3"}),
])  # fmt: skip
def test_mistakes(labkit, place, arguments, named, env):
    before = set(place.iterdir())
    done = labkit.run("launch", "-n", 2, *(argument.format(place=place) for argument in arguments), **env)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert set(place.iterdir()) == before


def test_a_port_that_is_taken_ends_the_launch(tmp_path, monkeypatch, labkit, repo_root):
    """Should it happen all the same: the scheduler cannot listen, and the others would wait for minutes."""
    for name, value in labkit.env.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(msrun, "_free_port", lambda: nullcontext(taken.getsockname()[1]))
        start = [repo_root / "labs/cifar10/train.py", "--data_url", "nowhere", "--train_url", tmp_path / "never"]
        with pytest.raises(LaunchError, match="^scheduler: msrun's scheduler cannot find the other processes: .*$"):
            msrun.launch(start, 2, tmp_path)
    assert labkit.left() == []


# -- Scripts ----------------------------------------------------------------------------------------


@pytest.fixture(params=["imagenet", "thor"])
def lab(request):
    """Its name. Most scripts of the THOR lab are links to those of the other."""
    return request.param


@pytest.fixture
def sh(lab, labkit, tmp_path, repo_root):
    """Function that runs a script by `sh`, in an empty folder, on start files that print what they are given."""
    shutil.copytree(repo_root / "labs" / lab / "scripts", tmp_path / "lab" / "scripts")
    for name in ("train.py", "eval.py"):
        (tmp_path / "lab" / name).write_text(PRINT)
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.defpath])
    return lambda name, *arguments, **env: subprocess.run(
        ["sh", tmp_path / "lab" / "scripts" / name, *map(str, arguments)], cwd=tmp_path / "work", timeout=120,
        env={**labkit.env, "PATH": path, **env}, capture_output=True, text=True,
    )  # fmt: skip


def process_of(done):
    """What the first process was given: its start file, its arguments as pairs, and the rest."""
    assert done.returncode == 0, done.stderr
    process = json.loads(done.stdout)
    return os.path.basename(process["file"]), dict(zip(process["arguments"][::2], process["arguments"][1::2])), process


@pytest.mark.parametrize("suffix, device", [("", "Ascend"), ("_gpu", "GPU")])
def test_train_and_eval(sh, lab, suffix, device):
    """THOR has its own numbers for GPUs."""
    full = {"--profile": "full-gpu"} if (lab, device) == ("thor", "GPU") else {}
    done = sh(f"run_standalone_train{suffix}.sh", "my data", "--num_epochs", 1, DEVICE_ID="3")
    file, pairs, process = process_of(done)
    given = {"--data_url": "my data", "--train_url": "train", "--device_target": device, "--num_epochs": "1"}
    assert (file, pairs, process["DEVICE_ID"]) == ("train.py", given | full, "3")
    file, pairs, process = process_of(sh(f"run_eval{suffix}.sh", "my data", "latest.ckpt"))
    given = {"--data_url": "my data", "--checkpoint_path": "latest.ckpt", "--device_target": device}
    assert (file, pairs, process["DEVICE_ID"]) == ("eval.py", given, "0")


def test_run_distribute_train(sh, two_cards, tmp_path):
    file, pairs, first = process_of(sh("run_distribute_train.sh", two_cards, "my data", 2, "--profile", "full"))
    assert pairs == {"--data_url": "my data", "--train_url": "train_parallel/run", "--profile": "full"}
    processes = printed(tmp_path / "work" / "train_parallel" / "logs")
    assert processes[0] == first and len(processes) == 2
    for rank, process in enumerate(processes):
        assert (process["RANK_ID"], process["DEVICE_ID"], process["RANK_SIZE"]) == (str(rank), str(4 + rank), "2")
        assert (process["RANK_TABLE_FILE"], process["LABKIT_DEVICE"]) == (str(two_cards), "Ascend")

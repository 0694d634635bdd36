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
from made_tables import table

from labkit.launch import msrun
from labkit.launch.msrun import LaunchError

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


def test_output_without_an_end_of_line_and_in_pieces(labkit, script):
    text = "import time\nfor piece in ('ä\\rhalf', ' a line\\n', '[INFO] not for users\\n', 'end'):\n"
    text += "    print(piece, end='', flush=True)\n    time.sleep(0.3)\n"
    done = labkit.run("launch", "-n", 1, script(text), PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["ä", "half a line", "end"])


FAILING = """
import os, signal, sys, time
print("rank", os.environ["RANK_ID"], flush=True)
if os.environ["RANK_ID"] == "1":
    {}
time.sleep(600)
"""


@pytest.mark.parametrize("action, how, status", [
    ("os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL)", 137),
    ("sys.exit(3)", "ended with exit status 3", 3), ("os.kill(os.getpid(), 40)", "was killed (signal 40)", 168),
])  # fmt: skip
def test_a_failure_ends_all_at_once(labkit, script, two_cards, tmp_path, action, how, status):
    done = labkit.run(
        "launch", "-n", 2, "--rank-table", two_cards, "--log-dir", tmp_path / "logs",
        script(FAILING.format(action)),
    )  # fmt: skip
    assert done.returncode == status
    assert done.stderr == f"Error: worker_1 {how}; the end of {tmp_path}/logs/worker_1.log:\n    rank 1\n"
    assert labkit.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_launch_leaves_nothing(labkit, script, two_cards, tmp_path, number):
    """The first interrupts it; SIGINT is what Ctrl-C sends. The folder of its logs goes too."""
    (tmp_path / "tmp").mkdir()
    stop = f"import os, time\nif os.environ['RANK_ID'] == '1': os.kill(os.getppid(), {number.value})\ntime.sleep(600)"
    done = labkit.run("launch", "-n", 2, "--rank-table", two_cards, script(stop), TMPDIR=str(tmp_path / "tmp"))
    assert (done.returncode, done.stderr) == (130, "\nstopped\n")
    assert labkit.left() == [] and list((tmp_path / "tmp").iterdir()) == []


KILLING = """
import os, pathlib, psutil, time
ready = pathlib.Path({ready!r})
name = os.environ.get("MS_ROLE", "MS_WORKER") + os.environ["RANK_ID"]  # msrun's scheduler is of rank 0, too
if name != "MS_WORKER1":
    (ready / name).touch()
else:
    while len(list(ready.iterdir())) < {others}:
        time.sleep(0.05)
    psutil.Process().parents()[{between}].kill()
time.sleep(600)
"""


@pytest.mark.parametrize("by_msrun", [False, True])
def test_a_killed_launch_leaves_nothing(labkit, script, two_cards, tmp_path, by_msrun):
    """The system tells each process that its parent is gone. Under msrun: program, shield and msrun."""
    (tmp_path / "ready").mkdir()
    kill = script(KILLING.format(ready=str(tmp_path / "ready"), others=1 + by_msrun, between=2 if by_msrun else 0))
    cards = () if by_msrun else ("--rank-table", two_cards)
    done = labkit.run("launch", "-n", 2, *cards, kill)
    assert done.returncode == -signal.SIGKILL
    assert labkit.left(seconds=60) == []


@pytest.mark.parametrize("last, expected", [
    ("50%|##   | [00:08<00:51, loss=1]Error: loss is nan\\r 60%|", "worker_0: loss is nan"),
    ("ValueError: planted", "worker_0 ended with exit status 3; the end of"),
])  # fmt: skip
def test_error_behind_a_progress_bar(labkit, script, last, expected):
    """labkit's own errors are told in one line; others with what stands before them."""
    done = labkit.run("launch", "-n", 1, script(f"print('before')\nprint('{last}')\nraise SystemExit(3)"))
    assert done.stderr.startswith(f"Error: {expected}")
    assert len(done.stderr.splitlines()) == (1 if "nan" in last else 3)


def test_children_of_a_failed_process_do_not_stay(labkit, script):
    """Such as the workers of a data pipeline; even one that has left its family."""
    child = "import subprocess, sys, labkit; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(3)"
    done = labkit.run("launch", "-n", 1, script(child))
    assert "ended with exit status 3" in done.stderr
    assert labkit.left() == []


ENDING = """
import atexit, os, pathlib, signal, sys, time
if os.environ["RANK_ID"] == "1" and os.environ["MS_ROLE"] == "MS_WORKER":
    {}
elif os.environ["MS_ROLE"] == "MS_WORKER":
    time.sleep(3)  # msrun looks every second
    pathlib.Path("late").write_text("all saved")
"""


def test_a_crash_after_the_end_of_a_program(labkit, script, place):
    """MindSpore's, where processes part: the program's status counts, and the others come to their end."""
    crash = "atexit.register(os.kill, os.getpid(), signal.SIGSEGV)"
    done = labkit.run("launch", "-n", 2, script(ENDING.format(crash)))
    assert (done.returncode, done.stderr) == (0, "")
    assert (place / "late").read_text() == "all saved"
    done = labkit.run("launch", "-n", 2, script(ENDING.format(f"{crash}; sys.exit(3)")))
    assert (done.returncode, "worker_1 ended with exit status 3" in done.stderr) == (3, True)
    assert "SIGSEGV after the program's end, which had exit status 3" in done.stderr


def test_a_crash_before_the_end_of_a_program(labkit, script):
    done = labkit.run("launch", "-n", 2, script(ENDING.format("os.kill(os.getpid(), signal.SIGSEGV)")))
    assert (done.returncode, "worker_1 was killed (SIGSEGV)" in done.stderr) == (139, True)


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(7)", "sys.exit('said')", "sys.exit(-1)", "1 / 0"])
def test_a_program_of_msrun_is_run_as_python_does(script, repo_root, end, as_module):
    text = "import os, sys\nprint(sys.argv, sys.path[0], __name__, __file__)\n"
    file = script(text + "print(sys.modules['__main__'].__file__, flush=True)\n" + end)
    done = [
        subprocess.run(
            [sys.executable, *shield, *(["-m", file.stem] if as_module else [file]), "-x", "--help"], cwd=file.parent,
            env=os.environ | {"PYTHONPATH": str(repo_root)}, capture_output=True, text=True,
        ) for shield in ([], ["-m", "labkit.launch.shield"])
    ]  # fmt: skip
    assert done[1].stdout == done[0].stdout
    assert (done[1].returncode, done[1].stderr[-30:]) == (done[0].returncode, done[0].stderr[-30:])


def test_logs_of_a_launch_under_way(labkit, script, tmp_path):
    (tmp_path / "logs").mkdir()
    nested = "import os, sys; os.environ.pop('RANK_SIZE'); os.execv(sys.executable, [sys.executable, '-m', 'labkit', "
    nested += f"'launch', '-n', '1', '--log-dir', {str(tmp_path / 'logs')!r}, sys.argv[0]])"
    done = labkit.run("launch", "-n", 1, "--log-dir", tmp_path / "logs", script(nested))
    assert done.returncode == 1
    assert done.stderr == f"Error: worker_0: {tmp_path}/logs: another launch writes its logs there\n"


@pytest.mark.parametrize("arguments, named", [
    (("-n", "2", "train", "nolab"), "nolab"),
    (("-n", "2", "train", "cifar10", "--set", "data.folder=nowhere"), "nowhere"),
    (("-n", "2", "train", "cifar10", "--set", "data.folder={place}/data", "--set", "data.batch_size=101"),
     "200 images, 100 for each of 2 processes"),
    (("-n", "2", "nothing.py"), "nothing.py"),
    (("-n", "2", "--rank-table", "nothing.json", "train", "cifar10"), "nothing.json"),
])  # fmt: skip
def test_mistakes(labkit, place, arguments, named):
    before = set(place.iterdir())
    done = labkit.run("launch", *(argument.format(place=place) for argument in arguments))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ") and named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert set(place.iterdir()) == before


@pytest.mark.parametrize("arguments", [
    ("-n", "0", "train", "cifar10"), ("-n", "2"), ("-n", "2", "train", "cifar10", "--no-such-option"),
])  # fmt: skip
def test_wrong_usage(labkit, arguments):
    done = labkit.run("launch", *arguments)
    assert (done.returncode, "Usage: " in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_no_launch_in_one_of_several_processes(labkit, script):
    """As where ModelArts starts the boot file once for each card."""
    done = labkit.run("launch", "-n", 2, script(PRINT), RANK_SIZE="8", RANK_ID="3")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: RANK_SIZE is 8") and len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_ends_the_launch(tmp_path, monkeypatch, labkit, repo_root):
    """Should it happen all the same: the scheduler cannot listen, and the others would wait for minutes."""
    for name, value in labkit.env.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(msrun, "_free_port", lambda: nullcontext(taken.getsockname()[1]))
        start = [repo_root / "labs/cifar10/train.py", "--data_url", "nowhere", "--train_url", tmp_path / "never"]
        with pytest.raises(LaunchError, match="^scheduler: msrun's scheduler does not find the other processes: .*$"):
            msrun.launch(start, 2, tmp_path)
    assert labkit.left() == []


# -- Scripts ----------------------------------------------------------------------------------------


@pytest.fixture(params=["imagenet", "thor"])
def lab(request):
    """Its name. Most scripts of the THOR lab are links to those of the other."""
    return request.param


@pytest.fixture
def sh(lab, labkit, tmp_path, repo_root):
    """Function that runs a script by `sh`, in an empty folder, on start files that print what they are given.

    There is a `mpirun` for one machine.
    """
    shutil.copytree(repo_root / "labs" / lab / "scripts", tmp_path / "lab" / "scripts")
    for name in ("train.py", "eval.py"):
        (tmp_path / "lab" / name).write_text(PRINT)
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text('#!/bin/sh\nprintf "%s " "$@" >mpirun.txt\nwhile [ "$1" != python ]; do shift; done\nexec "$@"\n')
    mpirun.chmod(0o755)
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([str(tmp_path / "bin"), os.path.dirname(sys.executable), os.defpath])
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
    done = sh("run_distribute_train.sh", two_cards, "data", 8)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.endswith("hccl_2p.json: lists 2 devices, not 8\n")


def test_run_distribute_train_on_gpus(sh, lab, tmp_path):
    full = {"--profile": "full-gpu"} if lab == "thor" else {}
    _, pairs, _ = process_of(sh("run_distribute_train_gpu.sh", "data", 8))
    assert pairs == {"--data_url": "data", "--train_url": "train_parallel/run", "--device_target": "GPU"} | full
    assert (tmp_path / "work" / "mpirun.txt").read_text().startswith("-n 8 --output-filename train_parallel/logs ")


@pytest.mark.parametrize("lab", ["imagenet"], indirect=True)
@pytest.mark.parametrize("name, few", [
    ("run_standalone_train", 0), ("run_standalone_train_gpu", 0), ("run_distribute_train", 2),
    ("run_distribute_train_gpu", 1), ("run_eval", 1), ("run_eval_gpu", 1),
])  # fmt: skip
def test_script_without_its_arguments(sh, name, few):
    done = sh(f"{name}.sh", *["x"] * few)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: sh {name}.sh ") and len(done.stderr.splitlines()) == 1

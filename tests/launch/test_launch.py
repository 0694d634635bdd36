"""`labkit launch`, and the labs' scripts: arguments, environment, ports, rank tables. No training.

Ascend and GPUs cannot be had here: what their processes would be given is printed by real processes.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext

import psutil
import pytest

from labkit.launch import msrun, rank_tables
from labkit.launch.msrun import LaunchError
from labkit.launch.rank_tables import Card, RankTableError

# What a started process is: its arguments and the environment that matters.
PRINT = """
import json, os, sys
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE", "LABKIT_DEVICE", "MS_ROLE", "OMPI_COMM_WORLD_RANK")
print(json.dumps({"file": sys.argv[0], "arguments": sys.argv[1:], **{n: os.environ.get(n) for n in names}}))
"""


def table(*servers, **changes):
    """A rank table; each server is an address and its device ids."""
    rank = iter(range(100))
    listed = [
        {
            "server_id": address,
            "device": [
                {"device_id": str(d), "device_ip": f"192.168.100.{d + 1}", "rank_id": str(next(rank))} for d in devices
            ],
            "host_nic_ip": "reserve",
        }
        for address, devices in servers
    ]
    return {"version": "1.0", "server_count": str(len(listed)), "server_list": listed, "status": "completed", **changes}


@pytest.fixture
def write(tmp_path):
    """Function that writes a rank table, or any text, and returns its path."""

    def write(content):
        file = tmp_path / "hccl_2p.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


# -- Rank tables ----------------------------------------------------------------------------------


def test_rank_table(write):
    found = rank_tables.read_rank_table(write(table(("10.0.0.1", [4, 5]), ("10.0.0.2", [0, 1]))))
    assert found == [Card("10.0.0.1", 4, 0), Card("10.0.0.1", 5, 1), Card("10.0.0.2", 0, 2), Card("10.0.0.2", 1, 3)]


def test_rank_table_in_any_order(write):
    content = table(("10.0.0.1", [0, 1, 2]))
    content["server_list"][0]["device"].reverse()
    assert [card.rank for card in rank_tables.read_rank_table(write(content))] == [0, 1, 2]


ONE = ("10.0.0.1", [0, 1])


def without(key, content=None):
    content = content or table(ONE)
    return {name: value for name, value in content.items() if name != key}


def with_device(**changes):
    content = table(ONE)
    content["server_list"][0]["device"][1].update(changes)
    return content


@pytest.mark.parametrize(
    "content, named",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "rank table"),
        ("3", "rank table"),
        (without("version"), "version: missing"),
        (table(ONE, version="0.1"), "version: must be '1.0', not '0.1'"),
        (table(ONE, status="initializing"), "status: must be 'completed'"),
        (without("server_list"), "server_list: missing"),
        (table(ONE, server_list=None), "rank table"),
        (table(ONE, server_list=[]), "server_count: 1, but server_list has 0"),
        (table(ONE, server_count="2"), "server_count: 2, but server_list has 1"),
        (table(ONE, server_count="0", server_list=[]), "rank_id"),
        (table(ONE, server_list=[without("device", table(ONE)["server_list"][0])]), "device: missing"),
        (table(ONE, server_list=[without("server_id", table(ONE)["server_list"][0])]), "server_id: missing"),
        (with_device(rank_id="2"), r"rank_id: must count from 0 without a gap, not \[0, 2\]"),
        (with_device(rank_id="0"), r"rank_id: must count from 0 without a gap, not \[0, 0\]"),
        (with_device(rank_id="one"), "rank table.*'one'"),
        (with_device(device_id="0"), "device_id"),
        (with_device(device_id=None), "rank table"),
        (with_device(device_ip="192.168.100"), "device_ip: '192.168.100' is no IP address"),
        (with_device(device_ip=7), "device_ip: 7 is no IP address"),
        (table(ONE, ONE), "server_id: a server is listed twice"),
        (table(ONE, ("10.0.0.2", [0])), "device: must be as many on each server, not 2 and 1"),
        (table(("10.0.0.2", []), ONE), "device: must be as many on each server, not 0 and 2"),
    ],
)
def test_rank_table_that_is_wrong(write, content, named):
    file = write(content)
    with pytest.raises(RankTableError, match=rf"^{file}: .*{named}") as caught:
        rank_tables.read_rank_table(file)
    assert len(str(caught.value).splitlines()) == 1


def test_rank_table_of_one_server_without_addresses(write):
    content = table(ONE)
    for device in content["server_list"][0]["device"]:
        del device["device_ip"]
    assert len(rank_tables.read_rank_table(write(content))) == 2


def test_rank_table_that_is_missing(tmp_path):
    with pytest.raises(RankTableError, match="nothing.json: cannot be read"):
        rank_tables.read_rank_table(tmp_path / "nothing.json")
    with pytest.raises(RankTableError, match="cannot be read"):
        rank_tables.read_rank_table(tmp_path)


def test_cards_of_this_server(write):
    """Of several servers the one that has an address of this machine; loopback is one."""
    file = write(table(("10.254.254.1", [0, 1]), ("127.0.0.1", [6, 7])))
    found = rank_tables.local_cards(file, 4)
    assert [(card["RANK_ID"], card["RANK_SIZE"], card["DEVICE_ID"]) for card in found] == [
        ("2", "4", "6"), ("3", "4", "7")
    ]  # fmt: skip
    assert {card["RANK_TABLE_FILE"] for card in found} == {str(file)}


@pytest.mark.parametrize("servers, count, named", [
    ([ONE], 8, "lists 2 devices, not 8"),
    ([ONE, ("10.254.254.2", [0, 1])], 4, "server_id: none of its servers"),
])  # fmt: skip
def test_cards_that_do_not_fit(write, servers, count, named):
    with pytest.raises(RankTableError, match=named):
        rank_tables.local_cards(write(table(*servers)), count)


def test_two_servers_that_are_this_machine(write):
    """By two of its addresses, of any kind, as any machine has: which cards are here, nobody can tell."""
    own = sorted({one.address for found in psutil.net_if_addrs().values() for one in found})[:2]
    both = re.escape(f"server_id: {own[0]} and {own[1]} are both an address of this machine")
    with pytest.raises(RankTableError, match=both):
        rank_tables.local_cards(write(table((own[0], [0, 1]), (own[1], [0, 1]))), 4)


# -- Processes without MindSpore --------------------------------------------------------------------


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


def test_one_process_for_each_card(labkit, script, write, tmp_path):
    file = write(table(("10.0.0.1", [4, 5, 6])))
    done = labkit.run(
        "launch", "-n", 3, "--device-target", "Ascend", "--rank-table", file, "--log-dir", tmp_path / "logs",
        script(PRINT), "--data_url", "d", "-n", "7", "--help",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = printed(tmp_path / "logs")
    assert [(p["RANK_ID"], p["RANK_SIZE"], p["DEVICE_ID"]) for p in found] == [
        ("0", "3", "4"), ("1", "3", "5"), ("2", "3", "6")
    ]  # fmt: skip
    for process in found:
        assert process["arguments"] == ["--data_url", "d", "-n", "7", "--help"]  # none is taken for the launch's own
        assert (process["RANK_TABLE_FILE"], process["LABKIT_DEVICE"]) == (str(file), "Ascend")
        assert process["MS_ROLE"] is None
    assert json.loads(done.stdout) == found[0]  # only rank 0's output is shown


def test_one_process_alone(labkit, script):
    done = labkit.run("launch", "-n", 1, script(PRINT), "x")
    found = json.loads(done.stdout)
    assert (done.returncode, found["RANK_ID"], found["RANK_SIZE"], found["LABKIT_DEVICE"]) == (0, "0", "1", None)


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
def test_a_failure_ends_all_at_once(labkit, script, write, tmp_path, action, how, status):
    done = labkit.run(
        "launch", "-n", 3, "--rank-table", write(table(("10.0.0.1", [0, 1, 2]))), "--log-dir", tmp_path / "logs",
        script(FAILING.format(action)),
    )  # fmt: skip
    assert done.returncode == status
    assert done.stderr == f"Error: worker_1 {how}; the end of {tmp_path}/logs/worker_1.log:\n    rank 1\n"
    assert labkit.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_launch_leaves_nothing(labkit, script, write, tmp_path, number):
    """The first interrupts it; SIGINT is what Ctrl-C sends. The folder of its logs goes too."""
    (tmp_path / "tmp").mkdir()
    stop = f"import os, time\nif os.environ['RANK_ID'] == '1': os.kill(os.getppid(), {number.value})\ntime.sleep(600)"
    file = write(table(("10.0.0.1", [0, 1])))
    done = labkit.run("launch", "-n", 2, "--rank-table", file, script(stop), TMPDIR=str(tmp_path / "tmp"))
    assert (done.returncode, done.stderr) == (130, "\nstopped\n")
    assert labkit.left() == [] and list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("count", [1, 2])
def test_the_variable_of_the_shield_reaches_no_program(labkit, script, count):
    """A nested `python -m labkit.launch.shield` would sign in among the wrong logs."""
    done = labkit.run("launch", "-n", count, script("import os; raise SystemExit('LABKIT_LAUNCH_LOGS' in os.environ)"))
    assert done.returncode == 0, done.stderr


def test_logs_of_a_failed_launch_stay(labkit, script, tmp_path):
    (tmp_path / "tmp").mkdir()
    done = labkit.run("launch", "-n", 1, script("raise SystemExit(3)"), TMPDIR=str(tmp_path / "tmp"))
    [log] = (tmp_path / "tmp").glob("labkit-launch-*/worker_0.log")
    assert done.stderr == f"Error: worker_0 ended with exit status 3; the end of {log}: (empty)\n"


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
def test_a_killed_launch_leaves_nothing(labkit, script, write, tmp_path, by_msrun):
    """The system tells each process that its parent is gone. Under msrun: program, shield and msrun."""
    (tmp_path / "ready").mkdir()
    kill = script(KILLING.format(ready=str(tmp_path / "ready"), others=1 + by_msrun, between=2 if by_msrun else 0))
    cards = () if by_msrun else ("--rank-table", write(table(("10.0.0.1", [0, 1]))))
    done = labkit.run("launch", "-n", 2, *cards, kill)
    assert done.returncode == -signal.SIGKILL
    assert labkit.left(seconds=60) == []


def test_error_of_a_start_file_is_one_line(labkit, repo_root):
    start = repo_root / "labs" / "cifar10" / "train.py"
    done = labkit.run("launch", "-n", 1, start, "--data_url", "nowhere", "--train_url", "never", "--profile", "sample")
    assert done.returncode == 1
    assert re.fullmatch(r"Error: worker_0: \S*/nowhere: .*\n", done.stderr)


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


def test_logs_of_an_earlier_launch_go(labkit, script, tmp_path):
    (tmp_path / "logs").mkdir()
    for name in ("worker_7.log", "mine.log"):
        (tmp_path / "logs" / name).write_text("old")
    labkit.run("launch", "-n", 1, "--log-dir", tmp_path / "logs", script(PRINT))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["mine.log", "worker_0.log"]


def test_logs_of_a_launch_under_way(labkit, script, tmp_path):
    (tmp_path / "logs").mkdir()
    nested = "import os, sys; os.environ.pop('RANK_SIZE'); os.execv(sys.executable, [sys.executable, '-m', 'labkit', "
    nested += f"'launch', '-n', '1', '--log-dir', {str(tmp_path / 'logs')!r}, sys.argv[0]])"
    done = labkit.run("launch", "-n", 1, "--log-dir", tmp_path / "logs", script(nested))
    assert done.returncode == 1
    assert done.stderr == f"Error: worker_0: {tmp_path}/logs: another launch writes its logs there\n"


# -- Mistakes: one line, and nothing is started -------------------------------------------------------


@pytest.mark.parametrize("arguments, named", [
    (("-n", "2", "train", "nolab"), "nolab"),
    (("-n", "2", "train", "cifar10", "--profile", "none"), "profile"),
    (("-n", "2", "train", "cifar10", "--set", "epohcs=1"), "epohcs"),
    (("-n", "2", "train", "cifar10", "--set", "all_reduce_fusion=[3,2]"), "all_reduce_fusion"),
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
    ("-n", "0", "train", "cifar10"), ("train", "cifar10"), ("-n", "2"), ("-n", "2", "train"),
    ("-n", "2", "train", "cifar10", "--no-such-option"), ("-n", "2", "--device-target", "TPU", "train", "cifar10"),
])  # fmt: skip
def test_wrong_usage(labkit, arguments):
    done = labkit.run("launch", *arguments)
    assert (done.returncode, "Usage: " in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_no_launch_in_one_of_several_processes(labkit, script):
    """As where ModelArts starts the boot file once for each card."""
    done = labkit.run("launch", "-n", 2, script(PRINT), RANK_SIZE="8", RANK_ID="3")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: RANK_SIZE is 8") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("role", [{"MS_ROLE": "MS_SCHED"}, {"MS_ROLE": "MS_WORKER", "RANK_ID": "0", "RANK_SIZE": "1"}])
def test_no_launch_below_msrun(labkit, script, role):
    done = labkit.run("launch", "-n", 2, script(PRINT), **role)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: MS_ROLE is set, so msrun has started this: ")
    assert len(done.stderr.splitlines()) == 1


def test_help_shows_both_forms(labkit):
    done = labkit.run("launch", "--help")
    assert "labkit launch -n 2 train cifar10 --profile sample" in done.stdout
    assert "labkit launch -n 8 labs/cifar10/train.py" in done.stdout


# -- Ports ----------------------------------------------------------------------------------------


def test_a_port_is_held_but_can_be_listened_on():
    with msrun._free_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as scheduler:  # MindSpore's sets this option
            scheduler.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            scheduler.bind(("127.0.0.1", port))
            scheduler.listen()


def test_launches_at_the_same_time_get_ports_of_their_own():
    held = [msrun._free_port() for _ in range(200)]
    ports = [port.__enter__() for port in held]
    for port in held:
        port.__exit__(None, None, None)
    assert len(set(ports)) == 200


def test_a_port_that_is_taken_ends_the_launch(tmp_path, monkeypatch, labkit, repo_root):
    """Should it happen all the same: the scheduler cannot listen, and the others would wait for minutes."""
    for name, value in labkit.env.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(msrun, "_free_port", lambda: nullcontext(taken.getsockname()[1]))
        start = [
            repo_root / "labs" / "cifar10" / "train.py",
            "--data_url",
            "nowhere",
            "--train_url",
            tmp_path / "never",
        ]
        with pytest.raises(LaunchError, match="^scheduler: msrun's scheduler does not find the other processes: .*$"):
            msrun.launch(start, 2, tmp_path)
    assert labkit.left() == []


# -- Scripts ----------------------------------------------------------------------------------------


@pytest.fixture(params=["imagenet", "thor"])
def lab(request):
    """Its name. Most scripts of the THOR lab are links to those of the other."""
    return request.param


@pytest.fixture
def scripts(lab, tmp_path, repo_root):
    """A copy of the lab's scripts, with start files that print what they are given; and a `mpirun` for one machine."""
    shutil.copytree(repo_root / "labs" / lab / "scripts", tmp_path / "lab" / "scripts")
    for name in ("train.py", "eval.py"):
        (tmp_path / "lab" / name).write_text(PRINT)
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text('#!/bin/sh\nprintf "%s " "$@" >mpirun.txt\nwhile [ "$1" != python ]; do shift; done\nexec "$@"\n')
    mpirun.chmod(0o755)
    return tmp_path / "lab" / "scripts"


@pytest.fixture
def sh(scripts, labkit, tmp_path):
    """Function that runs a script as the seeds do, by `sh`, in an empty folder."""
    work = tmp_path / "work"
    work.mkdir()
    path = os.pathsep.join([str(tmp_path / "bin"), os.path.dirname(sys.executable), os.defpath])

    def sh(name, *arguments, **env):
        return subprocess.run(
            ["sh", scripts / name, *map(str, arguments)], cwd=work, env={**labkit.env, "PATH": path, **env},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return sh


@pytest.fixture
def full(lab):
    """Function: what the lab's scripts say of the profile on a device; THOR has its own numbers for GPUs."""
    return lambda device: ["--profile", "full-gpu"] if (lab, device) == ("thor", "GPU") else []


def found(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("suffix, device", [("", "Ascend"), ("_gpu", "GPU")])
def test_run_standalone_train(sh, full, suffix, device):
    process = found(sh(f"run_standalone_train{suffix}.sh", "my data", "--num_epochs", "1", DEVICE_ID="3"))
    assert os.path.basename(process["file"]) == "train.py" and process["DEVICE_ID"] == "3"
    pairs = dict(zip(process["arguments"][::2], process["arguments"][1::2]))
    assert pairs == {
        "--data_url": "my data", "--train_url": "train", "--device_target": device, "--num_epochs": "1",
        **dict([full(device)] if full(device) else []),
    }  # fmt: skip
    assert found(sh(f"run_standalone_train{suffix}.sh", "d"))["DEVICE_ID"] == "0"


@pytest.mark.parametrize("suffix, device", [("", "Ascend"), ("_gpu", "GPU")])
def test_run_eval(sh, suffix, device):
    process = found(sh(f"run_eval{suffix}.sh", "my data", "train/checkpoints/latest.ckpt"))
    assert os.path.basename(process["file"]) == "eval.py" and process["DEVICE_ID"] == "0"
    pairs = dict(zip(process["arguments"][::2], process["arguments"][1::2]))
    assert pairs == {
        "--data_url": "my data", "--checkpoint_path": "train/checkpoints/latest.ckpt", "--device_target": device
    }  # fmt: skip


def test_run_distribute_train(sh, write, tmp_path):
    file = write(table(("10.0.0.1", [0, 1])))
    process = found(sh("run_distribute_train.sh", file, "my data", 2, "--profile", "full"))
    every = printed(tmp_path / "work" / "train_parallel" / "logs")
    assert every[0] == process and len(every) == 2
    for rank, process in enumerate(every):
        assert (process["RANK_ID"], process["DEVICE_ID"], process["RANK_SIZE"]) == (str(rank), str(rank), "2")
        assert (process["RANK_TABLE_FILE"], process["LABKIT_DEVICE"]) == (str(file), "Ascend")
        assert process["arguments"] == [
            "--data_url", "my data", "--train_url", "train_parallel/run", "--profile", "full"
        ]  # fmt: skip


def test_run_distribute_train_on_gpus(sh, full, tmp_path):
    process = found(sh("run_distribute_train_gpu.sh", "data", 8, "--num_epochs", 1))
    assert process["arguments"] == [
        "--data_url", "data", "--train_url", "train_parallel/run", "--device_target", "GPU", *full("GPU"),
        "--num_epochs", "1",
    ]  # fmt: skip
    assert (tmp_path / "work" / "mpirun.txt").read_text().startswith("-n 8 --output-filename train_parallel/logs ")


@pytest.mark.parametrize("name, few", [
    ("run_standalone_train", 0), ("run_standalone_train_gpu", 0), ("run_distribute_train", 2),
    ("run_distribute_train_gpu", 1), ("run_eval", 1), ("run_eval_gpu", 1),
])  # fmt: skip
def test_script_without_its_arguments(sh, name, few):
    done = sh(f"{name}.sh", *["x"] * few)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: sh {name}.sh ") and len(done.stderr.splitlines()) == 1


def test_run_distribute_train_with_a_wrong_table(sh, write):
    done = sh("run_distribute_train.sh", write(table(ONE)), "data", 8)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("hccl_2p.json: lists 2 devices, not 8\n") and len(done.stderr.splitlines()) == 1

"""What a job with URLs copies: data before the training, its Run afterwards, however it ends. No training."""

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

from labkit.modelarts import job_io
from labkit.obs.place import CloudError
from labkit.system.environment import REPO
from labkit.system.files import atomic_write
from labkit.training import recipes, runs


@pytest.fixture
def run_url(tmp_path, monkeypatch):
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


def test_a_run_goes_back_in_the_end(run_url, tmp_path):
    with job_io.run_folder(run_url, True, True) as folder:
        assert not folder.exists()
        write_run(folder, 3, complete=True)  # with a part.ckpt
        (folder / "checkpoints" / "depart.ckpt").write_text("whole")
    assert there(run_url).keys() == {
        "recipe.yaml", "history.jsonl", "checkpoints/latest.ckpt", "checkpoints/depart.ckpt", "summary.json"
    }  # fmt: skip
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [ArithmeticError("planted"), KeyboardInterrupt(), SystemExit(3)])
def test_a_run_goes_back_when_the_training_ends_otherwise(run_url, tmp_path, error):
    with pytest.raises(type(error)), job_io.run_folder(run_url, True, True) as folder:
        write_run(folder, 2)
        raise error
    assert there(run_url)["checkpoints/latest.ckpt"] == "2" and left(tmp_path) == []


def test_an_unfinished_run_is_fetched_first(run_url, tmp_path):
    write_run(tmp_path / "bucket" / "run", 2)
    with job_io.run_folder(run_url, True, True) as folder:
        assert len(runs.open_run(folder).steps()) == 2 and runs.open_run(folder).checkpoint.read_text() == "2"
        write_run(folder, 4, complete=True)
    assert there(run_url)["checkpoints/latest.ckpt"] == "4"


def test_a_complete_run_stays_as_it_is(run_url, tmp_path):
    write_run(tmp_path / "bucket" / "run", 4, complete=True)
    before = there(run_url)
    with job_io.run_folder(run_url, True, True) as folder:
        runs.relocate(runs.open_run(folder), "/elsewhere")  # where the start file has the data
    assert there(run_url) == before and left(tmp_path) == []


def test_a_training_without_a_run(run_url, tmp_path):
    """It failed before it made one: that error is the one to see."""
    with pytest.raises(ArithmeticError), job_io.run_folder(run_url, True, True):
        raise ArithmeticError("planted")
    assert not (tmp_path / "bucket").exists()


def test_another_process_copies_nothing(run_url, tmp_path):
    with job_io.run_folder(run_url, False, False) as folder:
        write_run(folder, 1)
    assert not (tmp_path / "bucket").exists() and folder.exists()


def test_what_a_killed_start_left_is_kept(run_url, tmp_path, capsys):
    """There it may have had more than it copied."""
    with job_io.run_folder(run_url, False, False) as folder:
        write_run(folder, 7)
    write_run(tmp_path / "bucket" / "run", 2)
    with job_io.run_folder(run_url, True, False) as again:
        assert again == folder and len(runs.open_run(again).steps()) == 2
    assert len(runs.open_run(folder.with_name(f"{folder.name}-before")).steps()) == 7
    assert f"is now {folder}-before" in capsys.readouterr().out


def test_two_trainings_of_one_run(run_url):
    with job_io.run_folder(run_url, False, False) as folder:
        write_run(folder, 1)
    with runs.alone(runs.open_run(folder)), pytest.raises(CloudError, match="run: another training on this machine"):
        job_io.run_folder(run_url, True, True).__enter__()


def test_two_trainings_of_one_run_that_begin_together(run_url, tmp_path, capsys):
    """Both have looked before there was a folder; the one that is refused takes nothing of the other's away."""
    with job_io.run_folder(run_url, True, True) as folder:
        refused = pytest.raises(runs.RunError, match="another training of this Run is under way")
        with refused, job_io.run_folder(run_url, True, True) as same:
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
    assert there(run_url)["checkpoints/latest.ckpt"] == "3" and "summary.json" in there(run_url)
    assert left(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_cannot_go_back_stays(run_url, tmp_path, fails, capsys):
    """A file is in the way; the training's own error, if there is one, is the one that is raised."""
    (tmp_path / "bucket").write_text("in the way")
    error = ArithmeticError if fails else CloudError
    with pytest.raises(error) as caught, job_io.run_folder(run_url, False, True) as folder:
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


def test_a_checkpoint_goes_back_at_once(run_url, tmp_path, monkeypatch):
    """So a machine that is lost loses little. The history is as long as the checkpoint says, or longer."""
    monkeypatch.setattr(job_io, "PERIOD", 0.02)

    def sent(name):  # once there, a file is replaced as a whole
        file = tmp_path / "bucket/run" / name
        return file.read_text() if file.exists() else ""

    def all_sent(steps):
        return sent("checkpoints/latest.ckpt") == str(steps) and sent("history.jsonl").count("\n") == steps

    with job_io.run_folder(run_url, True, True) as folder:
        for steps in (1, 2):
            write_run(folder, steps)
            wait_until(partial(all_sent, steps))
            found = there(run_url)
            assert found["checkpoints/latest.ckpt"] == str(steps)
            assert found["history.jsonl"].count("\n") == steps
            assert "checkpoints/part.ckpt" not in found
    assert left(tmp_path) == []


def test_data_is_copied_once(run_url, tmp_path, capsys):
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


def test_a_cache_of_somebody_else(run_url, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"labkit-{job_io.os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CloudError, match="belongs to another user"):
        job_io.data_folder("file:///data")

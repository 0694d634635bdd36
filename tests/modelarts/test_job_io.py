"""What a job with URLs copies: data before the training, its Run afterwards, however it ends. No training."""

import json
import shutil

import pytest
from waiting import wait_until

from labkit.modelarts import job_io
from labkit.obs.place import CloudError, parse
from labkit.system.files import atomic_write
from labkit.training import recipes, runs


@pytest.fixture
def run_url(tmp_path, monkeypatch):
    """A URL for a Run, in a folder of its own; what is cached is below tmp_path as well."""
    monkeypatch.setattr(job_io, "FAST_DISK", tmp_path)
    return f"file://{tmp_path}/bucket/run"


def write_run(folder, steps, complete=False):
    """A Run that looks like one."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    asked = recipes.load(recipes.find("cifar10"), "sample")
    atomic_write(folder / "recipe.yaml", asked.dump())
    (folder / "provenance.json").write_text("{}")
    (folder / "history.jsonl").write_text("".join(json.dumps({"step": n + 1}) + "\n" for n in range(steps)))
    atomic_write(folder / "checkpoints" / "latest.ckpt", str(steps))
    (folder / "checkpoints" / "part.ckpt").write_text("half")
    if complete:
        (folder / "summary.json").write_text("{}")


def there(url):
    place = parse(url)
    return {file.relative_to(place).as_posix(): file.read_text() for file in place.rglob("*") if file.is_file()}


def left(tmp_path):
    return sorted(path.name for path in tmp_path.glob("labkit-*/runs/*/*"))


def test_a_run_is_copied_in_the_end(run_url, tmp_path):
    with job_io.run_folder(run_url, True, True) as folder:
        assert not folder.exists()
        write_run(folder, 3, complete=True)  # with a part.ckpt
    assert there(run_url).keys() == {
        "recipe.yaml", "provenance.json", "history.jsonl", "checkpoints/latest.ckpt", "summary.json"
    }  # fmt: skip
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [ArithmeticError("planted"), KeyboardInterrupt()])
def test_a_run_is_copied_when_the_training_ends_otherwise(run_url, tmp_path, error):
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


def test_a_complete_run_is_not_changed(run_url, tmp_path):
    write_run(tmp_path / "bucket" / "run", 4, complete=True)
    before = there(run_url)
    with job_io.run_folder(run_url, True, True) as folder:
        runs.relocate(runs.open_run(folder), "/elsewhere")
    assert there(run_url) == before and left(tmp_path) == []


def test_a_training_without_a_run(run_url, tmp_path):
    """It failed before it made one: that error is the one to see."""
    with pytest.raises(ArithmeticError), job_io.run_folder(run_url, True, True):
        raise ArithmeticError("planted")
    assert not (tmp_path / "bucket").exists()


def test_what_a_killed_start_left_is_kept(run_url, tmp_path, capsys):
    """There it may have had more than it copied."""
    with job_io.run_folder(run_url, False, False) as folder:  # not the first process here: it copies nothing
        write_run(folder, 7)
    write_run(tmp_path / "bucket" / "run", 2)
    with job_io.run_folder(run_url, True, False) as again:
        assert again == folder and len(runs.open_run(again).steps()) == 2
    assert len(runs.open_run(folder.with_name("before")).steps()) == 7
    assert f"is now in {folder.with_name('before')}" in capsys.readouterr().out


def test_two_trainings_of_one_run(run_url):
    with job_io.run_folder(run_url, True, True) as folder:
        write_run(folder, 1)
        with pytest.raises(CloudError, match="run: another training on this machine"):
            job_io.run_folder(run_url, True, True).__enter__()
    assert there(run_url)["checkpoints/latest.ckpt"] == "1"


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_cannot_be_copied_stays(run_url, tmp_path, fails, capsys):
    """The training's own error, if there is one, is the one that is raised."""
    error = ArithmeticError if fails else CloudError
    with pytest.raises(error) as caught, job_io.run_folder(run_url, True, True) as folder:
        write_run(folder, 5)
        (tmp_path / "bucket").write_text("in the way")
        if fails:
            raise ArithmeticError("planted")
    message = capsys.readouterr().err if fails else str(caught.value)
    assert f"the Run stays in {folder}" in message and len(runs.open_run(folder).steps()) == 5


def test_a_checkpoint_that_cannot_be_copied(run_url, tmp_path):
    """Then the Run at the URL is not complete, and the next start resumes it from the checkpoint that is there."""
    with job_io.run_folder(run_url, True, True) as folder:
        write_run(folder, 2)
    blocked = tmp_path / "bucket/run/checkpoints/latest.ckpt"
    with pytest.raises(CloudError, match="the Run stays in "), job_io.run_folder(run_url, True, True) as folder:
        write_run(folder, 4, complete=True)
        blocked.unlink()
        blocked.mkdir()
    assert "summary.json" not in there(run_url) and there(run_url)["history.jsonl"].count("\n") == 4


def test_a_checkpoint_is_copied_at_once(run_url, tmp_path, monkeypatch):
    """So a machine that is lost loses little. The history is as long as the checkpoint says, or longer."""
    monkeypatch.setattr(job_io, "PERIOD", 0.02)
    with job_io.run_folder(run_url, True, True) as folder:
        for steps in (1, 2):
            write_run(folder, steps)
            file = tmp_path / "bucket/run/checkpoints/latest.ckpt"
            wait_until(lambda: file.exists() and file.read_text() == str(steps))  # noqa: B023
            assert there(run_url)["history.jsonl"].count("\n") == steps
            assert "checkpoints/part.ckpt" not in there(run_url)
    assert left(tmp_path) == []


def test_data_is_copied_once(run_url, tmp_path, capsys):
    source = tmp_path / "bucket" / "data"
    (source / "train").mkdir(parents=True)
    (source / "train" / "a.bin").write_text("a")
    folder = job_io.data_folder(f"file://{source}")
    assert (folder / "train" / "a.bin").read_text() == "a" and "1 files, copied to" in capsys.readouterr().out
    assert job_io.data_folder(f"file://{source}/") == folder and capsys.readouterr().out == ""
    shutil.rmtree(source)
    with pytest.raises(CloudError, match="there is no such file or folder"):
        job_io.data_folder(f"file://{source}")

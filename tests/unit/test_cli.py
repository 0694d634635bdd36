"""The command line and the job's start file, as processes: output, exit status, and never a traceback."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from labkit.cli import main

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')"]
COMMANDS = ("train", "eval", "plot", "doctor")


@pytest.fixture(scope="module")
def place(tmp_path_factory, repo_root):
    """A working directory with a small data set (200 + 50 images) in `data`."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    for name, images in [*((f"data_batch_{i}.bin", 40) for i in range(1, 6)), ("test_batch.bin", 50)]:
        records = rng.integers(0, 256, (images, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(images) % 9  # no image of the last class
        (folder / "data" / name).write_bytes(records.tobytes())
    return folder


@pytest.fixture(scope="module")
def call(place, repo_root):
    """Function that runs a command in `place`; labkit with the arguments unless told otherwise."""

    def call(*arguments, command=LABKIT, **environment):
        return subprocess.run(
            [*command, *map(str, arguments)], cwd=place, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": str(repo_root), **environment},
        )  # fmt: skip

    return call


def small(place, *more):
    return [f"--set={s}" for s in (f"data.folder={place / 'data'}", "data.batch_size=40", "epochs=2", *more)]


@pytest.fixture(scope="module")
def trained(call, place):
    """A complete Run and what training it printed."""
    done = call("train", "cifar10", "--out", "trained", *small(place))
    assert done.returncode == 0, done.stderr
    return place / "trained", done


@pytest.fixture
def invoke(place, monkeypatch):
    """Function that runs labkit in this process, where MindSpore is imported once."""
    monkeypatch.chdir(place)

    def invoke(*arguments):
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception  # what would be a traceback
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return invoke


def refusal(done, status=1):
    """The one line that an error is."""
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    if status == 1:
        assert len(lines) == 1, done.stderr
    assert lines[-1].startswith("Error: ")
    return lines[-1]


# -- Help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_needs_no_mindspore(call, arguments):
    """Nor anything else that takes long: answers come at once."""
    watch = "import sys; import atexit; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr)); "
    done = call(*arguments, command=[sys.executable, "-c", watch + LABKIT[2]])
    assert done.returncode == 0
    loaded = {name.split(".")[0] for name in eval(done.stderr)}
    assert "labkit" in loaded and "click" in loaded
    assert not loaded & {"mindspore", "matplotlib", "sklearn", "scipy", "numpy"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_carries_an_example(call, name):
    text = call(name, "--help").stdout
    assert f"labkit {name}" in text.partition("Example:")[2]
    assert name in call("--help").stdout


def test_top_help_says_how_to_start(call):
    assert "labkit doctor" in call("--help").stdout


# -- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["train"],
        ["train", "cifar10", "--fast"],
        ["eval"],
        ["plot"],
        ["train", "cifar10", "--profile"],
        ["--x"],
    ],
)
def test_wrong_usage(invoke, arguments):
    refusal(invoke(*arguments), status=2)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["train", "nolab"], "no lab 'nolab'"),
        (["train", "cifar10", "--profile", "huge"], "no profile 'huge'"),
        (["train", "cifar10", "--set", "epochs"], "key=value"),
        (["train", "cifar10", "--set", "epochs=many"], "epochs"),
        (["train", "cifar10", "--set", "colour=red"], "colour: unknown key"),
        (["train", "cifar10", "--set", "epochs=1"], "schedule.warmup_epochs: 1"),
        (["train", "cifar10", "--set", "data.folder=nowhere"], "nowhere"),
        (["train", "cifar10", "--set", "data.batch_size=2000"], "data.batch_size: 2000"),
        (["train", "cifar10", "--set", "network.num_classes=3"], "network.num_classes: 3"),
        (["train", "cifar10", "--resume"], "no unfinished Run"),
        (["train", "cifar10", "--resume", "--out", "nowhere"], "nowhere: not a Run"),
        (["eval", "nowhere"], "nowhere: not a Run"),
        (["plot", "nowhere"], "nowhere: not a Run"),
    ],
)
def test_bad_input_is_one_line(invoke, place, sample_data, arguments, says):
    assert says in refusal(invoke(*arguments))
    assert not (place / "runs").exists()


def test_train_does_not_overwrite(invoke, place, sample_data):
    (place / "mine").mkdir()
    (place / "mine" / "thesis.txt").write_text("mine")
    assert "mine: already there" in refusal(invoke("train", "cifar10", "--out", "mine"))
    assert [path.name for path in (place / "mine").iterdir()] == ["thesis.txt"]


def test_damaged_data_is_named(invoke, place):
    broken = place / "broken"
    broken.mkdir()
    for file in (place / "data").iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:-1] if "4" in file.name else file.read_bytes())
    message = refusal(invoke("train", "cifar10", "--out", "never", *small(place, f"data.folder={broken}")))
    assert "data_batch_4.bin" in message
    assert not (place / "never").exists()


def test_one_of_several_processes_is_refused(call, place):
    message = refusal(call("train", "cifar10", "--out", "ranks", *small(place), RANK_SIZE="2"))
    assert "RANK_SIZE" in message
    assert not (place / "ranks").exists()


# -- Train, evaluate, plot, resume ----------------------------------------------------------------


@pytest.mark.slow
def test_train_makes_a_complete_run(trained):
    run, done = trained
    assert {path.name for path in run.iterdir()} >= {"recipe.yaml", "history.jsonl", "summary.json", "checkpoints"}
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["epochs"], summary["steps"]) == (2, 10)
    assert 0 <= summary["accuracy"] <= 1 and summary["step_ms"] > 0
    assert summary["images_per_second"] == pytest.approx(40_000 / summary["step_ms"], rel=0.01)
    assert len(summary["provenance"]["dataset"]["sha256"]) == 64
    assert f"accuracy {summary['accuracy']:.2%} after 2 epochs" in done.stdout
    assert done.stdout.splitlines()[-1] == "trained"
    assert "10/10" in done.stderr  # the bar


@pytest.mark.slow
def test_eval_agrees_with_the_training(call, trained):
    run, _ = trained
    result = json.loads(call("eval", run, "--json").stdout)
    summary = json.loads((run / "summary.json").read_text())
    assert result["accuracy"] == pytest.approx(summary["accuracy"])
    assert result["images"] == 50 and result["correct"] == round(50 * result["accuracy"])
    confusion = np.array(result["confusion"])
    assert confusion.shape == (10, 10) and confusion.sum() == 50 and confusion.trace() == result["correct"]
    np.testing.assert_array_equal(confusion.sum(axis=1), np.bincount(np.arange(50) % 9, minlength=10))
    for row, counted in zip(result["classes"], confusion, strict=True):
        assert row["images"] == counted.sum()
    assert [row["correct"] for row in result["classes"]] == list(confusion.diagonal())
    assert result["classes"][9]["accuracy"] is None  # no image, no accuracy
    assert json.loads((run / "evaluation.json").read_text()) == result


@pytest.mark.slow
def test_eval_as_a_table(invoke, trained):
    run, _ = trained
    done = invoke("eval", run)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 11
    assert lines[-1].split()[0] == "all" and lines[-1].split()[3] == "50"
    accuracy = json.loads((run / "summary.json").read_text())["accuracy"]
    assert lines[-1].endswith(f"{accuracy:.2%}")


@pytest.mark.slow
def test_plot_makes_an_image(invoke, trained, place):
    run, _ = trained
    done = invoke("plot", run, run, "--out", "curves.png")
    assert done.stdout.strip() == "curves.png", done.stderr
    image = np.asarray(Image.open(place / "curves.png").convert("RGB"))
    assert image.shape[1] > image.shape[0] > 300 and image.std() > 5
    assert invoke("plot", run).stdout.strip() == str(run / "curves.png")
    assert (run / "curves.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.parametrize("out", ["nowhere/curves.png", "curves.xyz", "."])
def test_plot_that_cannot_be_written(invoke, trained, out):
    done = invoke("plot", trained[0], "--out", out)
    assert done.returncode in (1, 2) and done.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.slow
def test_resume_of_a_complete_run_changes_nothing(invoke, trained):
    run, _ = trained
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = invoke("train", "cifar10", "--resume", "--out", run)
    assert done.returncode == 0
    assert "is complete: nothing to resume" in done.stdout
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_resume_keeps_the_recipe(invoke, trained, place):
    run, _ = trained
    settings = small(place, "schedule.lr_max=0.3")
    message = refusal(invoke("train", "cifar10", "--resume", "--out", run, *settings))
    assert "schedule.lr_max is 0.1, not 0.3" in message
    assert invoke("train", "cifar10", "--resume", "--out", run, *small(place)).returncode == 0


@pytest.mark.slow
def test_a_run_without_its_checkpoint(invoke, trained, place):
    """A recorded Run: it can be plotted, not evaluated."""
    recorded = place / "recorded"
    recorded.mkdir()
    for name in ("recipe.yaml", "history.jsonl", "summary.json"):
        (recorded / name).write_bytes((trained[0] / name).read_bytes())
    assert "latest.ckpt: missing" in refusal(invoke("eval", recorded))
    assert invoke("plot", recorded).returncode == 0


@pytest.mark.slow
def test_plot_of_a_run_that_has_only_begun(invoke, trained, place):
    begun = place / "begun"
    begun.mkdir()
    (begun / "recipe.yaml").write_bytes((trained[0] / "recipe.yaml").read_bytes())
    assert "history.jsonl: missing" in refusal(invoke("plot", begun))
    (begun / "history.jsonl").touch()
    assert invoke("plot", begun).returncode == 0


# -- Doctor ---------------------------------------------------------------------------------------


def test_doctor_as_json(call, sample_data):
    done = call("doctor", "--json")
    report = json.loads(done.stdout)
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert list(findings) == [
        "python", "mindspore", "numpy", "cores", "oneDNN", "device", "convolution", "sample data", "CIFAR-10",
        "python on PATH",
    ]  # fmt: skip
    statuses = {finding["status"] for finding in findings.values()}
    assert statuses <= {"ok", "note", "problem"}
    assert report["ok"] is ("problem" not in statuses)
    assert done.returncode == (0 if report["ok"] else 1)
    assert all(bool(finding["advice"]) is (finding["status"] != "ok") for finding in findings.values())
    assert findings["sample data"]["status"] == "ok" and "1,437 + 360" in findings["sample data"]["found"]


def test_doctor_finds_damaged_and_missing_data(invoke, tmp_path, monkeypatch):
    damaged = tmp_path / "sample" / "cifar-10-batches-bin"
    damaged.mkdir(parents=True)
    (damaged / "data_batch_1.bin").write_bytes(b"12345")
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    done = invoke("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert findings["sample data"]["status"] == "problem"
    assert "data_batch_1.bin" in findings["sample data"]["found"]
    assert findings["CIFAR-10"]["status"] == "note" and "download" in findings["CIFAR-10"]["advice"]


def test_doctor_for_people(invoke, sample_data):
    text = invoke("doctor").stdout
    for name in ("python", "mindspore", "cores", "oneDNN", "convolution", "sample data"):
        assert name in text


# -- The job's start file -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(call, repo_root):
    return lambda *arguments: call(*arguments, command=[sys.executable, repo_root / "labs" / "cifar10" / "train.py"])


@pytest.mark.slow
def test_job_takes_the_seeds_arguments_and_ignores_others(job, place):
    """As a job passes them: --init_method and the like are not for this file."""
    arguments = ["--data_url", "data", "--train_url", "job", "--num_epochs", "2", "--profile", "sample"]
    done = job(*arguments, "--init_method", "tcp://127.0.0.1:1", "--device_num=1", "stray")
    assert done.returncode == 0, done.stderr
    recipe = (place / "job" / "recipe.yaml").read_text()
    assert f"folder: {place / 'data'}" in recipe and "epochs: 2" in recipe
    lines = done.stdout.splitlines()
    assert [line.split(",")[1].split(":")[0].strip() for line in lines if "cost time" in line] == ["train step num"] * 2
    assert json.loads((place / "job" / "summary.json").read_text())["epochs"] == 2


def test_job_without_its_arguments(job):
    done = job("--num_epochs", "2")
    assert done.returncode == 2 and "--data_url" in done.stderr


@pytest.mark.parametrize("data_url, epochs, says", [("nowhere", "10", "nowhere"), ("data", "5", "warmup_epochs")])
def test_job_with_bad_input_says_so_in_one_line(job, place, data_url, epochs, says):
    done = job("--data_url", data_url, "--train_url", "bad", "--num_epochs", epochs)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert says in done.stderr.splitlines()[-1]
    assert not (place / "bad").exists()

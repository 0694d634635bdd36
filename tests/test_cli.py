"""The command line and the job's start file, as processes: output, exit status, and never a traceback."""

import json
import os
import resource
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from PIL import Image
from running import LABKIT, contents, labkit
from waiting import wait_until

from labkit.cli import COMMANDS
from labkit.training import loop
from labkit.training.runs import RunError, open_run

# Answers must come at once: asks each question and names what takes long to import, if the answers needed that.
ASK_QUICKLY = """
import sys
from labkit.cli import main
for words in {questions!r}:
    try:
        main(words)
    except SystemExit as ended:
        assert not ended.code or "colour=red" in words, words
packages = {{module.partition(".")[0] for module in sys.modules}}
print(packages & {{"mindspore", "matplotlib", "sklearn", "scipy"}})
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_noise):
    """A working directory with a small data set (200 + 50 images) in `data`."""
    folder = tmp_path_factory.mktemp("cli")
    write_noise(folder / "data", classes=9)  # no image of the last class
    return folder


@pytest.fixture(scope="module")
def call(place):
    """Function that runs a command in `place`; labkit with the arguments unless told otherwise."""

    def call(*arguments, command=LABKIT, **options):
        return subprocess.run(
            [*command, *map(str, arguments)], cwd=place, timeout=120,
            **{"capture_output": True, "text": True, **options},
        )  # fmt: skip

    return call


def small(place):
    settings = (f"data.folder={place / 'data'}", "network.name=resnet8", "data.batch_size=40", "epochs=2")
    return [f"--set={setting}" for setting in settings]


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
        done = labkit(*arguments)
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return invoke


def refusal(done, status=1):
    """The one line that an error is."""
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("Error: ") and (status == 2 or len(lines) == 1), done.stderr
    return lines[-1]


# -- Help -----------------------------------------------------------------------------------------


def test_answers_that_need_no_mindspore(call):
    """Help of every command, with an example, and a recipe that is refused."""
    questions = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    questions += [["obs", "ls", "--help"], ["train", "cifar10", "--set", "colour=red"]]
    done = call(command=[sys.executable, "-c", ASK_QUICKLY.format(questions=questions)])
    assert done.stdout.splitlines()[-1] == "set()", done.stdout + done.stderr
    for name in COMMANDS:
        assert f"Example:  labkit {name}" in done.stdout, name
    assert "colour: unknown key" in done.stderr


def test_without_the_grader(call):
    """As in a learner's folder."""
    without = "import sys; sys.modules['grader'] = None; " + LABKIT[2]
    listed = call("--help", command=[sys.executable, "-c", without]).stdout
    assert "  train " in listed and "  grade " not in listed and "  release " not in listed
    message = refusal(call("grade", "cifar10", "class", command=[sys.executable, "-c", without]))
    assert message.startswith("Error: labkit grade is for instructors: ")


# -- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, says", [
    (["trian"], "'train'"), (["train"], "LAB"), (["train", "cifar10", "--fast"], "--fast"),
])  # fmt: skip
def test_wrong_usage(invoke, arguments, says):
    assert says in refusal(invoke(*arguments), status=2)


@pytest.mark.parametrize("arguments, says", [
    (["train", "nolab"], "no lab 'nolab'"),
    (["train", "cifar10", "--profile", "huge"], "no profile 'huge'"),
    (["train", "cifar10", "--out", 300 * "x"], "File name too long"),
    (["train", "cifar10", "--set", "data.folder=nowhere"], "nowhere"),
    (["train", "cifar10", "--set", "data.batch_size=2000"], "data.batch_size: 2000"),
    (["train", "cifar10", "--resume", "--out", "nowhere"], "nowhere: not a Run"),
    (["eval", "nowhere"], "nowhere: not a Run"),
])  # fmt: skip
def test_bad_input_is_one_line(invoke, place, sample_data, arguments, says):
    assert says in refusal(invoke(*arguments))
    assert not (place / "runs").exists()


def test_output_into_a_closed_pipe_is_quiet(call, trained):
    """As `labkit ... | head` does it."""
    read, write = os.pipe()
    os.close(read)
    streams = {"capture_output": False, "stdout": write, "stderr": subprocess.PIPE}
    done = call("train", "cifar10", "--resume", "--out", "trained", **streams)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_nobodys_number(call, trained, place, closed):
    """The next file to be opened would get it, with what is printed in it."""
    streams = {name: subprocess.PIPE for number, name in enumerate(("stdin", "stdout", "stderr")) if number != closed}
    streams |= {"capture_output": False, "preexec_fn": lambda: os.close(closed)}
    done = call("plot", "trained", "--out", f"closed-{closed}.png", **streams)
    assert done.returncode == 0 and Image.open(place / f"closed-{closed}.png").size > (300, 300)


@pytest.mark.parametrize("start_file", [False, True])
def test_a_terminal_that_is_gone_ends_no_training(place, repo_root, start_file):
    terminal, stream = os.openpty()
    run, command = place / f"detached-{start_file}", [*LABKIT, "train", "cifar10", *small(place), "--out"]
    if start_file:
        command = [sys.executable, repo_root / "labs/cifar10/train.py", "--data_url", "data", "--profile", "sample"]
        command += ["--num_epochs", "2", "--train_url"]

    def detach():
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), stream)
    child = subprocess.Popen([*command, run], cwd=place, preexec_fn=detach, **streams)
    os.close(stream)
    wait_until(run.joinpath("history.jsonl").exists, seconds=60)
    os.close(terminal)
    assert child.wait(60) == 0 and open_run(run).complete


def test_a_full_disk_is_one_line_that_says_how_to_resume(call, place):
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2)}
    done = call("train", "cifar10", "--out", "full disk", *small(place), **full)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    again = "labkit train cifar10 --resume --out 'full disk'"
    assert f"Error: full disk: File too large; resume with: {again}" in done.stderr.splitlines()


# -- Train, evaluate, plot, resume ----------------------------------------------------------------


def test_train_makes_a_complete_run(trained):
    run, done = trained
    names = {path.name for path in run.iterdir()}
    assert names >= {"recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "checkpoints"}
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["epochs"], summary["steps"]) == (2, 10)
    assert 0 <= summary["accuracy"] <= 1 and summary["step_ms"] > 0
    assert summary["images_per_second"] == pytest.approx(40_000 / summary["step_ms"], rel=0.01)
    assert len(summary["provenance"]["dataset"]["sha256"]) == 64
    assert f"accuracy {summary['accuracy']:.2%} after epoch 2," in done.stdout
    assert done.stdout.splitlines()[-1] == "trained" and "10/10" in done.stderr  # the bar


def test_eval_agrees_with_the_training(call, trained):
    run, _ = trained
    said = call("eval", run).stdout
    result, summary = (json.loads((run / f"{name}.json").read_text()) for name in ("evaluation", "summary"))
    assert f"{result['correct']:,} of     50" in said and f"{result['accuracy']:.2%}" in said
    assert result["accuracy"] == pytest.approx(summary["accuracy"])
    assert result["images"] == 50 and result["correct"] == round(50 * result["accuracy"])
    confusion = np.array(result["confusion"])
    assert confusion.shape == (10, 10) and confusion.sum() == 50 and confusion.trace() == result["correct"]
    np.testing.assert_array_equal(confusion.sum(axis=1), np.bincount(np.arange(50) % 9, minlength=10))
    assert [row["images"] for row in result["classes"]] == list(confusion.sum(axis=1))
    assert [row["correct"] for row in result["classes"]] == list(confusion.diagonal())
    assert result["classes"][9]["accuracy"] is None  # no image, no accuracy


def test_export_makes_a_file(invoke, trained, place, onnxruntime):
    """In the Run unless told otherwise; what is in it, tests/training/test_export.py looks at."""
    run, _ = trained
    done = invoke("export", run)
    assert done.stdout.strip() == str(run / "resnet8.mindir"), done.stderr
    assert (run / "resnet8.mindir").stat().st_size > 3e5
    for how in (["--out", "mine.ONNX"], ["--format", "onnx", "--out", "mine.bin"]):
        done = invoke("export", run, *how, "--batch-size", 2, "--image-size", 40)
        assert done.stdout.strip() == how[-1], done.stderr
        (given,) = onnxruntime.InferenceSession(str(place / how[-1]), providers=["CPUExecutionProvider"]).get_inputs()
        assert given.shape == [2, 3, 40, 40]
    assert "only Ascend writes AIR" in refusal(invoke("export", run, "--format", "air"))
    assert not list(place.rglob("part-*"))


def test_plot_makes_an_image(invoke, trained, place):
    run, _ = trained
    done = invoke("plot", run, run, "--out", "curves.png")
    assert done.stdout.strip() == "curves.png", done.stderr
    assert invoke("plot", run, "--out", "no ending").stdout == "no ending.png\n" and (place / "no ending.png").exists()
    image = np.asarray(Image.open(place / "curves.png").convert("RGB"))
    assert min(image.shape[:2]) > 300 and image.std() > 5
    assert invoke("plot", run).stdout.strip() == str(run / "curves.png")
    assert (run / "curves.png").stat().st_size > 5000


def test_a_complete_run_is_never_changed(invoke, trained):
    run, _ = trained
    before = contents(run)
    done = invoke("train", "cifar10", "--resume", "--out", run)
    assert done.returncode == 0 and "is complete: nothing to resume" in done.stdout
    with pytest.raises(RunError, match=f"{run}: complete"):
        loop.train(open_run(run), progress=False)
    assert contents(run) == before


def test_a_run_without_its_checkpoint(invoke, trained, place):
    """A recorded Run: it can be plotted, not evaluated."""
    recorded = place / "recorded"
    recorded.mkdir()
    for name in ("recipe.yaml", "history.jsonl", "summary.json"):
        (recorded / name).write_bytes((trained[0] / name).read_bytes())
    assert "latest.ckpt: missing" in refusal(invoke("eval", recorded))
    assert "latest.ckpt: missing" in refusal(invoke("export", recorded))
    assert invoke("plot", recorded).returncode == 0


# -- The job's start file -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished_job(call, place, repo_root):
    """A job as a process of its own, with arguments that are not for train.py: its Run, and what it printed."""
    done = call(
        "--data_url", "data", "--train_url", "job", "--num_epochs", "2", "--profile", "sample",
        "--init_method", "tcp://127.0.0.1:1", "--device_num=1", "stray",
        command=[sys.executable, repo_root / "labs" / "cifar10" / "train.py"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return place / "job", done


def test_job_takes_the_seeds_arguments_and_ignores_others(finished_job, place):
    run, done = finished_job
    recipe = (run / "recipe.yaml").read_text()
    assert f"folder: {place / 'data'}" in recipe and "epochs: 2" in recipe
    lines = done.stdout.splitlines()
    assert [line.split(",")[1].split(":")[0].strip() for line in lines if "cost time" in line] == ["train step num"] * 2
    assert json.loads((run / "summary.json").read_text())["epochs"] == 2


def test_job_started_again(finished_job, place, repo_root, monkeypatch, run_file):
    """A complete Run stays as it is, an unfinished one is resumed, another recipe is refused."""
    run, _ = finished_job
    monkeypatch.chdir(place)
    arguments = ["--data_url", "data", "--train_url", run, "--profile", "sample", "--num_epochs"]
    job = partial(run_file, repo_root / "labs/cifar10/train.py", *arguments)
    before = contents(run)
    done = job(2)
    assert done.returncode == 0 and "complete" in done.stdout
    assert "epochs is 2, not 3" in job(3).stderr.splitlines()[-1]
    assert contents(run) == before
    (run / "summary.json").unlink()
    assert job(2).returncode == 0
    assert json.loads((run / "summary.json").read_text()) == json.loads(before["summary.json"])

"""The command line and the job's start file, as processes: output, exit status, and never a traceback."""

import json
import os
import pkgutil
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from labkit import doctor, grading, launch, modelarts, obs, system
from labkit.cli import main
from grader import sandbox
from labkit.system import versions
from labkit.training import evaluation, loop, recipes
from labkit.training.runs import RunError, create, open_run

LABKIT = [sys.executable, "-c", "from labkit.cli import main; main(prog_name='labkit')"]
# Prints the modules that were imported, last of all on stderr.
WATCH = "import sys, atexit; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr)); "
SLOW_TO_IMPORT = {"mindspore", "matplotlib", "sklearn", "scipy", "numpy"}
# Does one thing after another and fails at the first by which one of these packages has been imported.
WATCH_EACH = """
import importlib, sys
def watch(name, do):
    do()
    found = {module.split(".")[0] for module in sys.modules} & {*sys.argv[1:]}
    assert not found, f"{name} imports {found}"
    print(name)
"""
COMMANDS = ("train", "launch", "eval", "export", "plot", "compare", "doctor", "parity", "clinic", "convert", "obs",
            "submit", "jobs", "rank-table", "grade")  # fmt: skip
# Without MindSpore and numpy at import time, so that answers come at once: these, and all of five rooms.
QUICK = ["cli", "doctor", "parity.commands", "training.commands", "training.provenance", "training.recipes",
         "training.run_commands", "training.runs", "training.schema"]  # fmt: skip
QUICK += [
    f"{room.__name__.removeprefix('labkit.')}.{module.name}"
    for room in (system, launch, obs, modelarts, grading)
    for module in pkgutil.iter_modules(room.__path__)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_noise):
    """A working directory with a small data set (200 + 50 images) in `data`."""
    folder = tmp_path_factory.mktemp("cli")
    write_noise(folder / "data", classes=9)  # no image of the last class
    return folder


@pytest.fixture(scope="module")
def call(place, repo_root):
    """Function that runs a command in `place`; labkit with the arguments unless told otherwise."""

    def call(*arguments, command=LABKIT):
        return subprocess.run(
            [*command, *map(str, arguments)], cwd=place, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": str(repo_root)},
        )  # fmt: skip

    return call


def small(place, *more):
    settings = (f"data.folder={place / 'data'}", "network.name=resnet8", "data.batch_size=40", "epochs=2", *more)
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


def loaded(done):
    """Packages that a process under WATCH imported."""
    return {name.split(".")[0] for name in eval(done.stderr.splitlines()[-1])}


def test_help_needs_no_mindspore(call):
    """Nor anything else that takes long: answers come at once."""
    words = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    ask = f"""
from labkit.cli import main
def ask(words):
    try:
        main(words)
    except SystemExit as ended:
        assert not ended.code, words
for words in {words}:
    watch("asked: " + " ".join(words), lambda: ask(words))
"""
    done = call(*SLOW_TO_IMPORT, command=[sys.executable, "-c", WATCH_EACH + ask])
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("asked: ")] == [
        f"asked: {' '.join(each)}" for each in words
    ]


def test_quick_modules_need_no_mindspore(call):
    load = f"for name in {QUICK}:\n    watch(name, lambda: importlib.import_module(f'labkit.{{name}}'))\n"
    done = call(*SLOW_TO_IMPORT, "obs", "requests", command=[sys.executable, "-c", WATCH_EACH + load])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == QUICK


def test_a_bad_recipe_is_refused_without_mindspore(call):
    done = call("train", "cifar10", "--set", "colour=red", command=[sys.executable, "-c", WATCH + LABKIT[2]])
    assert done.returncode == 1 and "colour: unknown key" in done.stderr
    assert "mindspore" not in loaded(done)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_carries_an_example(invoke, name):
    text = invoke(name, "--help").stdout
    assert f"labkit {name}" in text.partition("Example:")[2]
    assert name in invoke("--help").stdout


def test_top_help_says_how_to_start(invoke):
    assert "labkit doctor" in invoke("--help").stdout


# -- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["train"],
        ["train", "cifar10", "--fast"],
        ["eval"],
        ["export"],
        ["export", "run", "--format", "pth"],
        ["export", "run", "--batch-size", "0"],
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
        (["train", "cifar10", "--set", "schedule.warmup_epochs=3.99"], "schedule: warm-up of 3.99 epochs"),
        (["train", "cifar10", "--out", 300 * "x"], "File name too long"),
        (["train", "cifar10", "--set", "data.folder=nowhere"], "nowhere"),
        (["train", "cifar10", "--set", "data.batch_size=2000"], "data.batch_size: 2000"),
        (["train", "cifar10", "--set", "network.num_classes=3"], "network.num_classes: 3"),
        (["train", "cifar10", "--resume"], "no unfinished Run"),
        (["train", "cifar10", "--resume", "--out", "nowhere"], "nowhere: not a Run"),
        (["eval", "nowhere"], "nowhere: not a Run"),
        (["export", "nowhere"], "nowhere: not a Run"),
        (["plot", "nowhere"], "nowhere: not a Run"),
    ],
)
def test_bad_input_is_one_line(invoke, place, sample_data, arguments, says):
    assert says in refusal(invoke(*arguments))
    assert not (place / "runs").exists()


def test_an_error_of_the_file_system_is_one_line(invoke, tmp_path):
    """Whatever the command: here a folder where a file should be."""
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "history.jsonl").mkdir()
    assert refusal(invoke("plot", tmp_path)).endswith("history.jsonl: Is a directory")


def test_output_into_a_closed_pipe_is_quiet(tmp_path, repo_root):
    """As `labkit ... | head` does it."""
    run = create(tmp_path / "run", recipes.load(repo_root / "labs/cifar10/recipe.yaml", "sample"))
    (run.path / "summary.json").write_text("{}")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*LABKIT, "train", "cifar10", "--resume", "--out", str(run.path)], cwd=repo_root, stdout=write,
        stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


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


def test_one_of_several_processes_is_refused(invoke, place, monkeypatch):
    monkeypatch.setenv("RANK_SIZE", "2")
    message = refusal(invoke("train", "cifar10", "--out", "ranks", *small(place)))
    assert "RANK_SIZE" in message
    assert not (place / "ranks").exists()


# -- Train, evaluate, plot, resume ----------------------------------------------------------------


def test_train_makes_a_complete_run(trained):
    run, done = trained
    assert {path.name for path in run.iterdir()} >= {
        "recipe.yaml", "history.jsonl", "provenance.json", "summary.json", "checkpoints",
    }  # fmt: skip
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["epochs"], summary["steps"]) == (2, 10)
    assert 0 <= summary["accuracy"] <= 1 and summary["step_ms"] > 0
    assert summary["images_per_second"] == pytest.approx(40_000 / summary["step_ms"], rel=0.01)
    assert len(summary["provenance"]["dataset"]["sha256"]) == 64
    assert f"accuracy {summary['accuracy']:.2%} after epoch 2," in done.stdout
    assert done.stdout.splitlines()[-1] == "trained"
    assert "compiling the first step:   0%" in done.stderr and "10/10" in done.stderr  # the bar
    assert done.stderr.splitlines()[-1] == "look at it: labkit eval trained; labkit plot trained"


@pytest.fixture(scope="module")
def evaluated(call, trained):
    """What `labkit eval --json` says of the Run; the Run keeps it."""
    return json.loads(call("eval", trained[0], "--json").stdout)


def test_eval_agrees_with_the_training(trained, evaluated):
    run, result = trained[0], evaluated
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


def test_eval_as_a_table(invoke, trained, evaluated, monkeypatch):
    run, _ = trained
    monkeypatch.setattr(evaluation, "evaluate", lambda run: run.evaluation)
    done = invoke("eval", run)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    assert lines[-2].split()[0] == "all" and lines[-2].split()[3] == "50"
    summary = json.loads((run / "summary.json").read_text())
    assert lines[-2].endswith(f"{summary['accuracy']:.2%}")
    assert lines[-1].startswith("top 5 ") and lines[-1].endswith(f"{summary['top_5_accuracy']:.2%}")
    assert lines[-1].split()[2:5] == [str(round(50 * summary["top_5_accuracy"])), "of", "50"]
    assert len({len(line) for line in lines}) == 1  # columns


def test_eval_of_five_classes_or_fewer_has_no_top_5(invoke, trained, evaluated, monkeypatch):
    result = open_run(trained[0]).evaluation
    del result["top_5_accuracy"]
    monkeypatch.setattr(evaluation, "evaluate", lambda run: result)
    assert invoke("eval", trained[0]).stdout.splitlines()[-1].startswith("all ")


def test_export_makes_a_file(invoke, trained, place, onnxruntime):
    """In the Run unless told otherwise; what is in it, tests/training/test_export.py looks at."""
    run, _ = trained
    done = invoke("export", run)
    assert done.stdout.strip() == str(run / "resnet8.mindir"), done.stderr
    assert (run / "resnet8.mindir").stat().st_size > 3e5
    done = invoke("export", run, "--format", "onnx", "--out", "mine.onnx", "--batch-size", 2, "--image-size", 40)
    assert done.stdout.strip() == "mine.onnx", done.stderr
    (given,) = onnxruntime.InferenceSession(str(place / "mine.onnx"), providers=["CPUExecutionProvider"]).get_inputs()
    assert given.shape == [2, 3, 40, 40]
    assert "only Ascend writes AIR" in refusal(invoke("export", run, "--format", "air"))
    assert not list(place.rglob("part-*"))


def test_plot_makes_an_image(invoke, trained, place):
    run, _ = trained
    done = invoke("plot", run, run, "--out", "curves.png")
    assert done.stdout.strip() == "curves.png", done.stderr
    image = np.asarray(Image.open(place / "curves.png").convert("RGB"))
    assert min(image.shape[:2]) > 300 and image.std() > 5
    assert invoke("plot", run).stdout.strip() == str(run / "curves.png")
    assert (run / "curves.png").stat().st_size > 5000
    before = (run / "curves.png").read_bytes()
    assert invoke("plot", run, run).stdout.strip() == "curves.png"
    assert (run / "curves.png").read_bytes() == before, "a figure of two Runs took the place of one Run's own"


@pytest.mark.parametrize("out", ["nowhere/curves.png", "curves.xyz", "."])
def test_plot_that_cannot_be_written(invoke, trained, out):
    done = invoke("plot", trained[0], "--out", out)
    assert done.returncode in (1, 2) and done.stderr.splitlines()[-1].startswith("Error: ")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_complete_run_is_never_changed(invoke, trained):
    run, _ = trained
    before = contents(run)
    done = invoke("train", "cifar10", "--resume", "--out", run)
    assert done.returncode == 0
    assert "is complete: nothing to resume" in done.stdout
    with pytest.raises(RunError, match=f"{run}: complete"):
        loop.train(open_run(run), progress=False)
    assert contents(run) == before


@pytest.mark.parametrize(
    "asked, says",
    [
        ([], None),  # its own profile, and nothing else is asked
        (["--set=epochs=2"], None),  # not the other settings that it began with
        (["--set=schedule.lr_max=0.3"], "schedule.lr_max is 0.1, not 0.3"),
        (["--set=data.batch_size=64"], "data.batch_size is 40, not 64"),
        (["--profile=sample"], None),
        (["--profile=laptop"], "profile is 'sample', not 'laptop'"),
        (["--set=colour=red"], "colour: unknown key"),
    ],
)
def test_resume_keeps_the_recipe(invoke, trained, asked, says):
    done = invoke("train", "cifar10", "--resume", "--out", trained[0], *asked)
    if says:
        assert says in refusal(done)
    else:
        assert done.returncode == 0, done.stderr


@pytest.fixture
def unfinished(trained, tmp_path):
    """The trained Run as it was just before its summary."""
    run = tmp_path / "unfinished"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("recipe.yaml", "history.jsonl", "provenance.json", "checkpoints/latest.ckpt"):
        (run / name).write_bytes((trained[0] / name).read_bytes())
    return run


def test_resume_finds_the_profile_in_the_run(invoke, unfinished):
    recipe = unfinished / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("profile: sample", "profile: laptop"))
    assert invoke("train", "cifar10", "--resume", "--out", unfinished).returncode == 0
    assert (unfinished / "summary.json").exists()


def test_eval_says_of_an_unfinished_run_that_it_is(invoke, trained, unfinished):
    done = invoke("eval", unfinished)
    assert (done.returncode, done.stderr) == (0, f"{unfinished}: not complete; this is its last checkpoint\n")
    assert invoke("eval", trained[0]).stderr == ""


def test_resume_with_other_data_is_refused(invoke, unfinished, place):
    file = place / "data" / "data_batch_3.bin"
    data, before = file.read_bytes(), contents(unfinished)
    try:
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        message = refusal(invoke("train", "cifar10", "--resume", "--out", unfinished))
    finally:
        file.write_bytes(data)
    assert str(unfinished) in message and "other data" in message
    assert contents(unfinished) == before


def test_a_run_without_its_checkpoint(invoke, trained, place):
    """A recorded Run: it can be plotted, not evaluated."""
    recorded = place / "recorded"
    recorded.mkdir()
    for name in ("recipe.yaml", "history.jsonl", "summary.json"):
        (recorded / name).write_bytes((trained[0] / name).read_bytes())
    assert "latest.ckpt: missing" in refusal(invoke("eval", recorded))
    assert "latest.ckpt: missing" in refusal(invoke("export", recorded))
    (recorded / "evaluation.json").write_text("{}")
    assert "in its evaluation.json" in refusal(invoke("eval", recorded))
    assert invoke("plot", recorded).returncode == 0


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
        "platform", "python", "mindspore", "numpy", "cores", "memory", "disk", "oneDNN", "device", "convolution",
        "sample data", "CIFAR-10", "python on PATH", "PyTorch", "sandbox", "Chromium",
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


def test_the_default_mindspore_is_what_is_pinned(repo_root):
    for file in ("requirements.txt", "constraints.txt"):
        (pin,) = re.findall(r"^mindspore==(\S+)$", (repo_root / file).read_text(), flags=re.M)
        assert pin == versions.MINDSPORE


@pytest.mark.parametrize("version, status", [
    ("3.9.19", "problem"), ("3.10.13", "ok"), ("3.11.7", "ok"), ("3.12.1", "ok"), ("3.13.0", "problem"),
])  # fmt: skip
def test_doctor_on_pythons(monkeypatch, version, status):
    monkeypatch.setattr(platform, "python_version", lambda: version)
    finding = doctor._python()
    assert finding.status == status and (status == "ok" or "3.10, 3.11 or 3.12" in finding.advice)


@pytest.mark.parametrize("version, status", [
    ("2.7.1", "note"), ("2.8.0", "ok"), ("2.9.0", "ok"), ("2.10.0", "ok"), ("2.10.1", "ok"), ("2.11.0", "note"),
])  # fmt: skip
def test_doctor_on_mindspores(monkeypatch, version, status):
    monkeypatch.setattr(doctor.environment, "mindspore_version", lambda: version)
    finding = doctor._mindspore()
    assert finding.status == status and (status == "ok" or "2.8, 2.9 or 2.10" in finding.advice)


def test_doctor_where_memory_and_disk_are_short_and_bubblewrap_is_missing(monkeypatch, repo_root):
    (kilobytes,) = re.findall(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), flags=re.M)
    disk = os.statvfs(repo_root)
    for look, constant, there in (
        (doctor._memory, "MEMORY", 1024 * int(kilobytes)),
        (doctor._disk, "DISK", disk.f_bavail * disk.f_frsize),
    ):
        assert float(look().found.split()[0]) == pytest.approx(there / 1e9, rel=0.1, abs=0.5)
        monkeypatch.setattr(doctor, constant, 2 * there / 1e9)
        assert look().status == "note" and look().advice
        monkeypatch.setattr(doctor, constant, there / 1e9 / 2)
        assert look().status == "ok"
    monkeypatch.setenv("PATH", "")
    sandbox.unavailable.cache_clear()
    finding = doctor._sandbox()
    sandbox.unavailable.cache_clear()
    assert finding.status == "note" and "bwrap is not installed" in finding.found and "bubblewrap" in finding.advice


NO_NUMPY = """
import importlib.metadata, sys
sys.modules["numpy"] = None
version = importlib.metadata.version
def look(name):
    if name == "numpy":
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = look
"""
BROKEN_MINDSPORE = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "mindspore":
            raise OSError("libgomp.so: cannot open shared object file\\nand more")
sys.meta_path.insert(0, Broken())
"""


@pytest.mark.parametrize(
    "before, expected",
    [
        (NO_NUMPY, {"numpy": "not installed", "device": "numpy"}),
        (BROKEN_MINDSPORE, {"device": "OSError: libgomp.so: cannot open shared object file"}),
    ],
)
def test_doctor_on_a_broken_installation(call, sample_data, before, expected):
    """It is asked just then: the whole report all the same."""
    done = call("doctor", "--json", command=[sys.executable, "-c", before + LABKIT[2]])
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    for name, says in expected.items():
        assert findings[name]["status"] == "problem" and "make env" in findings[name]["advice"]
        assert says in findings[name]["found"] and len(findings[name]["found"].splitlines()) == 1
    assert {"sample data", "CIFAR-10", "python on PATH"} <= set(findings)


def test_doctor_for_people(invoke, sample_data):
    text = invoke("doctor").stdout
    for name in ("python", "mindspore", "cores", "oneDNN", "convolution", "sample data"):
        assert name in text


# -- The job's start file -------------------------------------------------------------------------


@pytest.fixture
def job(place, repo_root, monkeypatch, run_file):
    """Function that runs train.py in this process, as a program; the arguments are the job's."""
    monkeypatch.chdir(place)
    return lambda *arguments: run_file(repo_root / "labs" / "cifar10" / "train.py", *arguments)


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


def test_job_started_again(job, finished_job):
    """A complete Run stays as it is, an unfinished one is resumed, another recipe is refused."""
    run, _ = finished_job
    arguments = ["--data_url", "data", "--train_url", run, "--profile", "sample", "--num_epochs"]
    before = contents(run)
    done = job(*arguments, 2)
    assert done.returncode == 0 and "complete" in done.stdout
    assert "epochs is 2, not 3" in job(*arguments, 3).stderr.splitlines()[-1]
    assert contents(run) == before
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").unlink()
    assert job(*arguments, 2).returncode == 0
    assert json.loads((run / "summary.json").read_text()) == summary


@pytest.mark.parametrize("missing", ["--data_url", "--train_url"])
def test_job_without_its_arguments(job, missing):
    """An abbreviation is not taken for the argument: it is the job's own, as --init_method is."""
    arguments = {"--data_url": "data", "--train_url": "never"}
    arguments[missing.removesuffix("_url")] = arguments.pop(missing)
    done = job(*(word for pair in arguments.items() for word in pair), "--num_epochs", "2")
    assert done.returncode == 2 and f"required: {missing}" in done.stderr


@pytest.mark.parametrize("data_url, epochs, says", [("nowhere", "10", "nowhere"), ("data", "5", "warmup_epochs")])
def test_job_with_bad_input_says_so_in_one_line(job, place, data_url, epochs, says):
    done = job("--data_url", data_url, "--train_url", "bad", "--num_epochs", epochs)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr
    assert not (place / "bad").exists()

"""One name, one job: who takes it, who is refused, and what resumes an interrupted submission. No training."""

import os
import re
import subprocess
import sys

import pytest
from swift import environment
from test_rehearsal import submit  # noqa: F401

from labkit.modelarts import claims
from labkit.obs import copying
from labkit.obs.place import CloudError
from labkit.system.environment import REPO

CLAIM = """
import sys, time
from labkit.modelarts import claims
print("ready", flush=True)
sys.stdin.readline()
with claims.claimed(sys.argv[1], "mine") as begun:
    print("taken", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["folder", "swift"])
def folder(request, tmp_path, monkeypatch):
    """The folder of the job `mine` in a bucket of each kind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "folder":
        return f"file://{tmp_path}/b/jobs/mine"
    swift = request.getfixturevalue("swift")
    for name, value in environment(swift.url).items():
        monkeypatch.setenv(name, value)
    return f"obs://{swift.new_bucket()}/jobs/mine"


def test_three_machines_take_one_name(folder, tmp_path):
    """All at once; one has it, also where none knows of the others but by the bucket."""
    processes = []
    for number in range(3):
        env = os.environ | {"PYTHONPATH": str(REPO), "XDG_CACHE_HOME": str(tmp_path / f"cache-{number}")}
        processes.append(subprocess.Popen(
            [sys.executable, "-c", CLAIM, folder], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ))  # fmt: skip
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    taken = [process.stdout.readline() for process in processes]
    assert sorted(taken) == ["", "", "taken\n"]
    for process, line in zip(processes, taken):
        _, stderr = process.communicate("\n")
        assert process.returncode == (0 if line else 1)
        assert line or "CloudError: mine: another submission has this name; choose another --name" in stderr
    assert len(copying.ls(f"{folder}/claim")) == 1


def test_an_interrupted_submission_is_resumed_here_alone(folder, tmp_path, monkeypatch):
    """By the machine that began it, until the job has begun."""
    with claims.claimed(folder, "mine"), pytest.raises(CloudError, match="mine: another"):
        claims.claimed(folder, "mine").__enter__()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(CloudError, match="or, if it was interrupted on another machine, remove .*jobs/mine/claim"):
        claims.claimed(folder, "mine").__enter__()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with claims.claimed(folder, "mine") as begun:
        begun()
    with pytest.raises(CloudError, match="mine: another submission has this name"):
        claims.claimed(folder, "mine").__enter__()


def test_three_rehearsals_of_one_name(submit, small_lab, tmp_path):  # noqa: F811
    """Started together they end as one job and two refusals, and while the first runs the name is taken too."""
    lab, arguments = small_lab(), ("--name", "exp")
    started = [submit(lab, f"file://{tmp_path}/b", *arguments, start=True) for _ in range(3)]
    ended = [(process.communicate(timeout=200)[1], process.returncode) for process in started]
    assert sum("job exp: Completed" in stderr for stderr, _ in ended) == 1, ended
    refused = [stderr for stderr, status in ended if status == 1 and "Completed" not in stderr]
    assert len(refused) == 2, ended
    known = "(another submission has this name|the bucket has files of a job of this name)"  # once the first has ended
    assert all(re.fullmatch(rf"Error: exp: {known}; choose another --name.*\n", stderr) for stderr in refused)


def test_a_killed_rehearsal_keeps_its_name(submit, small_lab, tmp_path):  # noqa: F811
    """It had begun, whatever is in the bucket."""
    process = submit(small_lab("import time; time.sleep(600)"), f"file://{tmp_path}/b", "--name", "exp", start=True)
    assert process.stdout.readline()  # it runs
    process.kill()
    process.wait()
    done = submit(tmp_path / "lab", f"file://{tmp_path}/b", "--name", "exp")
    assert done.returncode == 1 and "exp: another submission has this name" in done.stderr
    subprocess.run(["rm", "-r", *(tmp_path / "tmp").iterdir()], check=True)


def test_ten_rehearsals_without_a_name(submit, small_lab, tmp_path):  # noqa: F811
    """They end as ten jobs with ten results."""
    recipe = "(Path(__file__).parent / 'recipe.yaml').read_text()"
    lab = small_lab(f"Path(given['train_url'], 'result.txt').write_text({recipe})")
    started = [
        submit(lab, f"file://{tmp_path}/b", "--set", f"max_steps={number}", start=True) for number in range(1, 11)
    ]
    ended = [process.communicate(timeout=300)[1] for process in started]
    assert all("Completed, exit status 0" in stderr for stderr in ended), ended
    results = [path.read_text() for path in (tmp_path / "b/jobs").glob("*/run/result.txt")]
    assert len(results) == 10
    assert all(any(f"max_steps: {number}\n" in text for text in results) for number in range(1, 11))

"""A training of two processes in a job with URLs, by msrun, on hosts that share no folder."""

import subprocess
import sys

import pytest

from labkit.training import runs

# Makes of each process a host of its own: what it copies lies where the other one does not look.
APART = """
import os, runpy, sys, tempfile
from pathlib import Path
os.environ["MA_NUM_HOSTS"] = "2"
if os.environ.get("MS_ROLE") == "MS_WORKER":
    tempfile.tempdir = str(Path(__file__).parent / f"host-{os.environ['RANK_ID']}")
    Path(tempfile.tempdir).mkdir(exist_ok=True)
sys.argv[0] = str(Path(__file__).parent / "code" / "train.py")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow  # msrun, and four processes that train
def test_hosts_that_share_no_folder(uploaded, tmp_path):
    """The second one makes its own Run, and sends none; started again, both fetch what there is and resume it."""
    asked = uploaded(settings=("max_steps=4", "network.name=resnet8"))
    (tmp_path / "apart.py").write_text(APART)

    def train():
        done = subprocess.run(
            [sys.executable, "-m", "labkit", "launch", "-n", "2", "--device-target", "CPU", "--log-dir",
             tmp_path / "logs", tmp_path / "apart.py", "--data_url", asked.data, "--train_url", asked.run,
             "--profile", "sample"],
            cwd=tmp_path, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        run = runs.open_run(tmp_path / "b/jobs/mine/run")
        assert run.complete and run.processes == 2
        assert [record["step"] for record in run.steps()] == [1, 2, 3, 4]
        return run

    run = train()
    losses = [record["loss"] for record in run.steps()]
    assert len(list(tmp_path.glob("host-*/labkit-*/data/*/test_batch.bin"))) == 2
    assert list(tmp_path.glob("host-*/labkit-*/runs/*/*")) == []
    (run.path / "summary.json").unlink()  # as if it had been killed before its end
    run = train()
    assert [record["loss"] for record in run.steps()] == losses
    for rank in (0, 1):
        assert "/run, 4 files, copied to" in (tmp_path / "logs" / f"worker_{rank}.log").read_text()

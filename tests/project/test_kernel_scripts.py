"""The two scripts behind the performance chapter, and what they recorded."""

import json
import subprocess
import sys

import pytest

from labkit.system.environment import REPO
from tests.benchmarks import fusion, onednn

PARITY = REPO / "labs" / "imagenet" / "parity"


@pytest.mark.parametrize("name", ["onednn", "fusion"])
def test_records_say_where_they_come_from(name):
    record = json.loads((PARITY / f"{name}.json").read_text())
    assert {"date", "machine", "cores", "rounds", "rows"} <= record.keys()
    assert str(REPO) not in json.dumps(record)


def test_recorded_kernels():
    rows = json.loads((PARITY / "onednn.json").read_text())["rows"]
    kernels = {(row["mindspore"], row["cap"]): row["kernel"] for row in rows}
    assert "ref" in kernels["2.9.0", None]
    assert all("ref" not in kernel for key, kernel in kernels.items() if key != ("2.9.0", None))


def test_recorded_fusion_computes_the_same():
    rows = json.loads((PARITY / "fusion.json").read_text())["rows"]
    assert max(row["value"] for row in rows) - min(row["value"] for row in rows) < 1e-3
    assert all(row["operators"] < rows[0]["operators"] for row in rows[1:])


def test_onednn_says_its_kernel():
    result = onednn.run(cap="SSE41")
    assert result["kernel"] and "ref" not in result["kernel"]
    assert result["isa"] == "Intel SSE4.1"
    assert len(result["seconds"]["convolution"]) == onednn.CALLS


def script(name, *arguments):
    """Exit status and output of a script of tests/benchmarks."""
    command = [sys.executable, REPO / "tests" / "benchmarks" / f"{name}.py", *arguments]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("name", "says"), [("fusion", "CASE is chain or resnet18"), ("onednn", "--record FILE")])
def test_a_script_says_what_it_takes(name, says):
    status, output = script(name, "--help")
    assert status == 0 and says in output


@pytest.mark.parametrize("arguments", [(), ("resnet50",), ("chain", "fast"), ("--record",)], ids=str)
def test_fusion_refuses_what_it_does_not_know(arguments):
    status, output = script("fusion", *arguments)
    assert status == 2 and "fusion.py: error:" in output and "Traceback" not in output


def test_fusion_makes_one_operator_of_many():
    apart, fused = fusion.run("chain"), fusion.run("chain", fused=True)
    assert apart["operators"] > 5 and fused["operators"] == 1
    assert fused["value"] == pytest.approx(apart["value"], rel=1e-4)

"""The two scripts behind the performance chapter, and what they recorded."""

import json

import pytest

from labkit.system.environment import REPO
from tests.benchmarks import fusion, onednn

PARITY = REPO / "labs" / "imagenet" / "parity"


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


@pytest.mark.slow
def test_fusion_makes_one_operator_of_many():
    apart, fused = fusion.run("chain"), fusion.run("chain", fused=True)
    assert apart["operators"] > 5 and fused["operators"] == 1
    assert fused["value"] == pytest.approx(apart["value"], rel=1e-4)

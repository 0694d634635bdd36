"""The mapping tables: every name exists, every row agrees, every trap is one."""

import json

import mindspore as ms
import numpy as np
import operator_table
import pytest
from operator_check import Row


@pytest.fixture(scope="module")
def found(pytorch):
    return operator_table.examine()


def test_every_row_that_is_run_agrees(found):
    rows = found["operators"] + found["functions"]
    assert [row for row in rows if row["error"] is not None and not row["equal"]] == []
    assert [row["pytorch"] for row in rows if row["error"] is None] == ["torch.nn.parallel.DistributedDataParallel"]


def test_every_trap_differs(found):
    for row in found["operators"] + found["functions"]:
        for how, outcome in row["traps"].items():
            assert isinstance(outcome, str) or outcome > 1e-3, (row["pytorch"], how)


def test_what_the_network_uses_has_a_row(found):
    named = {row["pytorch"] for row in found["operators"] + found["functions"]}
    assert set(found["uses"]["calls"]) | set(found["uses"]["initialisers"]) <= named
    assert found["uses"]["calls"]["torch.nn.Conv2d"] == 53 and found["uses"]["calls"]["operator.add"] == 16


def test_what_is_recorded_is_whole(found):
    recorded = operator_table.recorded()
    assert {"date", "PyTorch", "torchvision", "MindSpore", "machine"} <= set(recorded["about"])
    for part in ("network", "uses", "published"):
        assert recorded[part] == found[part]
    for part in ("operators", "functions"):
        for old, new in zip(recorded[part], json.loads(json.dumps(found[part])), strict=True):
            assert {**old, "error": 0, "traps": list(old["traps"])} == {**new, "error": 0, "traps": list(new["traps"])}


def one(value):
    return lambda: np.float32(value)


def raising():
    raise TypeError


def test_a_row_that_differs_says_so(pytorch):
    traps = {"shape": one([1, 1]), "type": raising, "finite": one(np.nan), "value": one(3)}
    row = Row("torch.nn.ReLU", "mindspore.nn.ReLU", one(2), one(1), traps).examine()
    assert row["equal"] is False and row["error"] == 0.5
    assert row["traps"] == {"shape": "shape (2,), not ()", "type": "TypeError", "finite": "not finite", "value": 0.5}
    table = operator_table.table([row])
    assert "<td nowrap><strong>DIFFERS</strong>: 5e-01</td>" in table and "value: <strong>50%</strong> off" in table
    assert Row("torch.nn.ReLU", "mindspore.nn.ReLU", one(2), raising).examine()["equal"] is False


def test_what_the_chapter_says_of_mindspore_alone():
    """`mint` has names without kernels on a CPU; log-sum-exp of minus infinities is not a number."""
    images = ms.Tensor(np.zeros((1, 3, 8, 8), np.float32))
    with pytest.raises(RuntimeError):
        ms.mint.nn.Conv2d(3, 4, 3)(images).asnumpy()
    masked = ms.Tensor(np.full((1, 4), -np.inf, np.float32))
    assert np.isnan(ms.ops.logsumexp(masked, 1).asnumpy()).all()

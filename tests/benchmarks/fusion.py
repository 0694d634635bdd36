"""Graph-kernel fusion on a CPU: the same computation with and without, in processes of their own.

    python tests/benchmarks/fusion.py CASE [fused]     one line of JSON; CASE is chain or resnet18
    python tests/benchmarks/fusion.py --record FILE    resnet18 by turns: without, fused, with OpenMP tamed

It runs in an empty folder: the compiler behind the fusion, AKG, leaves files in the working directory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parents[2]
STEPS, ROUNDS = 8, 3


def chain():
    """Element-wise operations in a row, as they stand in an activation or an optimizer."""
    import mindspore as ms
    from mindspore import nn, ops

    class Chain(nn.Cell):
        def construct(self, x):
            return ops.tanh(0.5 * ops.exp(-x * x) + x) * 2.0 + ops.sqrt(ops.abs(x) + 1.0)

    x = ms.Tensor(np.linspace(-3, 3, 1 << 22, dtype=np.float32))
    net = Chain()
    return lambda: net(x).asnumpy()


def resnet18():
    """A training step: ResNet-18, 8 images of 64x64 pixels."""
    import resnet18_step

    return resnet18_step.train_step()


CASES = {"chain": chain, "resnet18": resnet18}


def measure(case, fused):
    """Seconds of the first call (compilation) and of the others, the last value, milliseconds by operator."""
    sys.path[:0] = [str(REPO), str(REPO / "book/2-migration")]
    import mindspore as ms

    import labkit  # noqa: F401 - settles the environment

    ms.set_context(mode=ms.GRAPH_MODE)
    if fused:
        ms.set_context(enable_graph_kernel=True)
    import resnet18_step  # only now: it makes tensors

    call, seconds = CASES[case](), []
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        value = call()
        seconds.append(time.perf_counter() - start)
    rows, _ = resnet18_step.operators(call)
    return {
        "mindspore": ms.__version__,
        "compile": seconds[0],
        "seconds": seconds[1:],
        "value": float(np.mean(value)),
        "operators": sum(row["calls"] for row in rows),
        "ms": {row["type"]: row["ms"] for row in rows},
        "calls": {row["type"]: row["calls"] for row in rows},
    }


def run(case, fused=False, **openmp):
    """`measure` in a new process; openmp: variables such as OMP_NUM_THREADS="1"."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")} | openmp
    command = [sys.executable, __file__, case, *(["fused"] if fused else [])]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env=variables, cwd=folder, text=True, capture_output=True, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"mindspore')))


def record(file):
    """Settings by turns; a row each with the median, lowest and highest of the rounds."""
    sys.path.insert(0, str(REPO))
    from labkit.system import environment

    settings = {
        "without": {},
        "fused": {"fused": True},
        "fused, OMP_WAIT_POLICY=passive": {"fused": True, "OMP_WAIT_POLICY": "passive"},
        "fused, OMP_NUM_THREADS=1": {"fused": True, "OMP_NUM_THREADS": "1"},
    }
    results_of = {name: [] for name in settings}
    for _ in range(ROUNDS):
        for name, setting in settings.items():
            results_of[name].append(run("resnet18", **setting))
    rows = []
    for name, results in results_of.items():
        times = [statistics.median(result["seconds"]) for result in results]
        first = results[times.index(statistics.median(times))]
        row = {"setting": name, "seconds": statistics.median(times), "lowest": min(times), "highest": max(times)}
        row |= {"compile": statistics.median(result["compile"] for result in results)}
        rows.append(row | {key: first[key] for key in ("value", "operators", "ms", "calls")})
    about = {"date": datetime.now(timezone.utc).date().isoformat(), "machine": environment.machine()}
    about |= {"cores": environment.cores(), "case": resnet18.__doc__, "rounds": ROUNDS}
    about |= {"versions": {"mindspore": results_of["without"][0]["mindspore"]}}
    Path(file).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", choices=CASES, metavar="CASE")
    parser.add_argument("fused", nargs="?", choices=["fused"], metavar="fused")
    parser.add_argument("--record", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.record:
        record(chosen.record)
    elif chosen.case:
        sys.stdout.write("\n" + json.dumps(measure(chosen.case, bool(chosen.fused))) + "\n")
    else:
        parser.error("give a CASE, or --record FILE")

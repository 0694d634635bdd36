"""Which kernel does oneDNN choose for a convolution, and what does it cost?

    python tests/benchmarks/onednn.py                          one line of JSON about this interpreter's MindSpore
    python tests/benchmarks/onednn.py --record FILE PYTHON...  interpreters by turns, each as it is and capped to AVX2

The first form needs MindSpore and nothing of labkit, so that any version can run it. Environment variables that oneDNN
reads are the caller's to set: the prefix is DNNL_ for MindSpore 2.8's oneDNN 2.2, ONEDNN_ for the 3.10 of 2.9 and 2.10.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

CALLS, ROUNDS = 3, 3
PREFIXES = ("DNNL", "ONEDNN")
UNITS = {
    "convolution": "3x3, 64 to 64 channels, 32x32 pixels, batch 32, forward",
    "product": "1024x1024 by 1024x1024, float32",
}


def measure():
    """Seconds of each call of a convolution and of a matrix product, the first calls left out."""
    os.environ.setdefault("GLOG_v", "3")
    import mindspore as ms
    import numpy as np
    from mindspore import nn, ops

    layer = nn.Conv2d(64, 64, 3)
    images = ms.Tensor(np.ones((32, 64, 32, 32), np.float32))
    square = ms.Tensor(np.ones((1024, 1024), np.float32))
    seconds = {}
    for name, call in (("convolution", lambda: layer(images)), ("product", lambda: ops.matmul(square, square))):
        call().asnumpy()
        seconds[name] = []
        for _ in range(CALLS):
            start = time.perf_counter()
            call().asnumpy()
            seconds[name].append(time.perf_counter() - start)
    return {"mindspore": ms.__version__, "numpy": np.__version__, "seconds": seconds}


def run(python=sys.executable, cap=None, variables=PREFIXES):
    """`measure` in a new process that may use instructions up to `cap`, with what oneDNN says of itself."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DNNL_", "ONEDNN_"))}
    for prefix in variables:
        environment[f"{prefix}_VERBOSE"] = "1"
        environment |= {f"{prefix}_MAX_CPU_ISA": cap} if cap else {}
    done = subprocess.run([python, __file__], env=environment, text=True, capture_output=True, check=True)
    lines = done.stdout.splitlines()
    told = [line.split(",") for line in lines if "dnn_verbose" in line or "dnnl_verbose" in line]
    result = json.loads(next(line for line in lines if line.startswith("{")))
    kernels = [fields[fields.index("convolution") + 1] for fields in told if "convolution" in fields]
    result["onednn"] = next((field for fields in told for field in fields if field.startswith("oneDNN v")), None)
    result["isa"] = next((field[4:] for fields in told for field in fields if field.startswith("isa:")), None)
    return {**result, "kernel": kernels[-1] if kernels else None, "cap": cap}


def record(file, pythons):
    """Interpreters by turns; medians over the rounds' medians go to `file`."""
    found = {}
    for _ in range(ROUNDS):
        for python in pythons:
            for cap in (None, "AVX2"):
                found.setdefault((python, cap), []).append(run(python, cap))
    rows = []
    for results in found.values():
        row = {key: results[0][key] for key in ("mindspore", "numpy", "onednn", "isa", "kernel", "cap")}
        for name in UNITS:
            times = [statistics.median(result["seconds"][name]) for result in results]
            row[name] = {"seconds": statistics.median(times), "lowest": min(times), "highest": max(times)}
        rows.append(row)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from labkit.system import environment

    about = {"date": datetime.now(timezone.utc).date().isoformat(), "machine": environment.machine()}
    about |= {"cores": environment.cores(), "load_at_the_end": round(os.getloadavg()[0], 1)}
    about |= {"rounds": ROUNDS, "calls": CALLS, "units": UNITS}
    Path(file).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", nargs="+", metavar=("FILE", "PYTHON"))
    chosen = parser.parse_args().record
    if chosen:
        record(chosen[0], chosen[1:])
    else:
        sys.stdout.write(json.dumps(measure()) + "\n")

"""Wrong answers to the tiny lab."""

from tests.grader.mutants import Mutant

MUTANTS = [
    Mutant("rounded up", "steps", "steps = 45", "wrong", 0),
    Mutant("a float", "steps", "steps = 1437 / batch", "wrong", 0),
    Mutant("a name that is not there", "steps", "steps = 1437 // batch_size", "error", 0),
    Mutant("not Python", "steps", "steps = 1437 //", "error", 0),
    Mutant("never ends", "steps", "while True:\n    pass", "timed out", 0),
    Mutant("kernel killed", "steps", "import os\nos._exit(0)", "crashed", 0),
    Mutant(
        "float64",
        "triangle",
        "def triangle(steps, lr_max):\n"
        "    ramp = np.arange(steps) / (steps / 2)\n"
        "    return lr_max * np.minimum(ramp, 2 - ramp)",
        "partly right",
        3,
    ),
    Mutant(
        "constant",
        "triangle",
        "def triangle(steps, lr_max):\n    return np.full(steps, lr_max, np.float32)",
        "partly right",
        1,
    ),
    Mutant("the mean", "total", "total = float(triangle(100, 1.0).mean())", "wrong", 0),
    Mutant("no number", "total", "total = float('nan')", "wrong", 0),
]

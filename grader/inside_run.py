"""Runs in the sandbox for a handed-in Run: computes its checkpoint's predictions for the test images.

`python -m grader.inside_run RECIPE CHECKPOINT` prints one line of JSON: {"predictions": [class, ...], "step": the
checkpoint's step} in the order of the files, or {"problem": why there are none}.
"""

import json
import os
import sys
from pathlib import Path

from labkit.system.errors import LabkitError
from labkit.training import recipes


def predictions(recipe_file: str, file: str) -> dict:
    """The document to print. Any error that MindSpore raises is reported as a problem with the checkpoint."""
    import numpy as np

    from labkit.system import device
    from labkit.training import build, checkpoint, evaluation

    recipe = recipes.read_resolved(Path(recipe_file))
    device.setup(recipe.seed)
    try:
        net = build.create_network(recipe)
        step = checkpoint.load_weights(Path(file), net)
        logits, _ = evaluation.predict(net, build.test_dataset(recipe))
    except LabkitError as error:
        return {"problem": str(error).replace(f"{file}: ", "").replace(file, "it")}
    except Exception as error:
        return {"problem": f"damaged, or does not fit this recipe: {type(error).__name__}"}
    if not np.isfinite(logits).all():
        return {"problem": "the network's outputs are not numbers (NaN or infinite)"}
    return {"predictions": logits.argmax(axis=1).tolist(), "step": step}


def main() -> None:
    """Print only the result: what MindSpore prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    recipe, checkpoint = sys.argv[1:]
    json.dump(predictions(recipe, str(Path(checkpoint).resolve())), out)
    out.close()


if __name__ == "__main__":
    main()

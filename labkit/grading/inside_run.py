"""What runs in the sandbox for a handed-in Run: recipe and checkpoint in, the predictions of the test images out.

`python -m labkit.grading.inside_run RECIPE CHECKPOINT` prints one line of JSON: {"predictions": [class, ...], "step":
that of the checkpoint} in the order of the files, or {"problem": why there are none, "stage": "loading" or "testing"}.
"""

import json
import os
import sys
from pathlib import Path

from labkit import recipe as recipes
from labkit.runtime import LabkitError


def predictions(recipe_file: str, checkpoint: str) -> dict:
    """What is printed. Whatever a damaged checkpoint makes MindSpore raise is a problem of that file."""
    import numpy as np

    from labkit import callbacks, runtime, training

    recipe = recipes.read_resolved(Path(recipe_file))
    runtime.setup(recipe.seed)
    try:
        net = training.create_network(recipe)
        place = callbacks.load_weights(Path(checkpoint), net)
    except LabkitError as error:
        return {"problem": str(error).replace(f"{checkpoint}: ", "").replace(checkpoint, "it"), "stage": "loading"}
    except Exception as error:
        return {"problem": f"damaged, or not of this recipe: {type(error).__name__}", "stage": "loading"}
    try:
        logits, _ = training.predict(net, training.test_dataset(recipe))
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}", "stage": "testing"}
    if not np.isfinite(logits).all():
        return {"problem": "the network's outputs are not numbers (NaN or infinite)", "stage": "loading"}
    return {"predictions": logits.argmax(axis=1).tolist(), "step": place.get("step")}


def main() -> None:
    """Print the result alone: what MindSpore prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump(predictions(*sys.argv[1:]), out)
    out.close()


if __name__ == "__main__":
    main()

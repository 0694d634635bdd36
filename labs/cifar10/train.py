"""Start file of a training job: the CIFAR-10 lab with the arguments that a job passes.

Example:  python train.py --data_url data/cifar-10-batches-bin --train_url out --num_epochs 90
"""

import argparse
import sys
from pathlib import Path

from labkit import recipe as recipes
from labkit import training
from labkit.runtime import LabkitError


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data_url", required=True, help="folder of the data, in CIFAR-10's binary layout")
    parser.add_argument("--train_url", required=True, help="folder for the Run; an unfinished one is gone on with")
    parser.add_argument("--num_epochs", type=int, help="epochs to train; default: the recipe's")
    parser.add_argument("--profile", default="full", help="profile of recipe.yaml: sample, laptop or full (default)")
    # A job adds arguments of its own, such as --init_method: they are not for this file.
    arguments, _ = parser.parse_known_args()

    settings = [f"data.folder={Path(arguments.data_url).resolve()}"]
    if arguments.num_epochs is not None:
        settings.append(f"epochs={arguments.num_epochs}")
    recipe = recipes.load(Path(__file__).with_name("recipe.yaml"), arguments.profile, tuple(settings))
    run = training.start(Path(arguments.train_url), recipe, ("lab", "profile", "data.folder", "epochs"))
    if run.complete:
        print(f"{run.path} is complete: nothing to train")
        return
    training.train(run, progress=False)


if __name__ == "__main__":
    try:
        main()
    except LabkitError as error:
        sys.exit(f"Error: {error}")

"""What a job starts: the start files of the labs (labs/*/train.py, eval.py, export.py) with the seeds' arguments."""

import argparse
import sys
from pathlib import Path

from labkit import recipe as recipes
from labkit import run as runs
from labkit import runtime
from labkit.runtime import LabkitError


def parser(description, data_required=True) -> argparse.ArgumentParser:
    """A parser with the arguments that all start files take. A job's own, such as --init_method, are ignored."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data_url", "--dataset_path", required=data_required, help="folder of the data")
    parser.add_argument("--profile", default="full", help="profile of recipe.yaml; default: full")
    parser.add_argument("--device_target", choices=["CPU", "GPU", "Ascend"], help="default: what there is")
    return parser


def start(main, *arguments) -> None:
    """Run a start file's `main`; labkit's own errors, and the file system's, are one line and exit status 1."""
    try:
        main(*arguments)
    except LabkitError as error:
        sys.exit(f"Error: {error}")
    except OSError as error:
        sys.exit(f"Error: {error.filename or 'file system'}: {error.strerror or error}")


def settings(arguments) -> tuple[str, ...]:
    """Settings of the recipe that the arguments ask for."""
    asked = {"data.folder": arguments.data_url and Path(arguments.data_url).resolve()}
    asked["epochs"] = getattr(arguments, "num_epochs", None)
    asked["data.route"] = getattr(arguments, "route", None)
    return tuple(f"{key}={value}" for key, value in asked.items() if value is not None)


def require_folder(recipe: recipes.Recipe) -> None:
    """LabkitError for the folder of one split, or of the seeds' two, where the folder with train/ and val/ is meant."""
    folder = recipe.data_folder()
    if recipe.data.format != "image_folder" or not folder.is_dir():
        return
    held = {path.name for path in folder.iterdir()}
    if not held & {"train", "mindrecord.json"} and {folder.name, *held} & {"train", "val", "ilsvrc", "ilsvrc_eval"}:
        hint = "train/ and val/ (the seeds' ilsvrc/ and ilsvrc_eval/ by other names; links will do)"
        raise LabkitError(f"{folder}: must be the folder that holds {hint}")


def train(recipe_file, description) -> None:
    """Train a lab's recipe into the Run at --train_url; an unfinished Run there is gone on with. Raises LabkitError."""
    options = parser(description)
    options.add_argument("--train_url", required=True, help="folder for the Run; an unfinished one is gone on with")
    options.add_argument("--num_epochs", type=int, help="epochs to train; default: the recipe's")
    options.add_argument("--run_distribute", choices=["True", "False"], help="True: this is one of several processes")
    arguments, _ = options.parse_known_args()
    recipe = recipes.load(recipe_file, arguments.profile, settings(arguments))
    require_folder(recipe)
    if arguments.run_distribute == "True" and runtime.ranks()[1] == 1:
        raise LabkitError("--run_distribute True, but this is the only process: start several with `labkit launch`")
    runtime.use_device(arguments.device_target)
    from labkit import training

    run = training.start(Path(arguments.train_url), recipe, ("lab", "profile", "data.folder", "epochs"))
    if run.complete:
        print(f"{run.path} is complete: nothing to train")
        return
    training.train(run, progress=False)


def checkpoint(path, recipe_file, arguments) -> tuple[recipes.Recipe, Path]:
    """Recipe and file of a checkpoint: of a Run, of a file in a Run, or of any file, for which the lab's recipe holds.

    --data_url goes before the recipe's folder. Raises LabkitError.
    """
    path = Path(path)
    in_run = path.parent.name == "checkpoints" and (path.parent.parent / "recipe.yaml").is_file()
    if not path.is_dir() and not in_run:
        return recipes.load(recipe_file, arguments.profile, settings(arguments)), path
    if getattr(arguments, "route", None):
        raise LabkitError(f"--route {arguments.route}: {path} is of a Run, whose recipe says the route")
    run = runs.open_run(path if path.is_dir() else path.parent.parent)
    recipe, file = run.recipe, run.checkpoint if path.is_dir() else path
    if arguments.data_url:
        data = recipe.data.model_copy(update={"folder": str(Path(arguments.data_url).resolve())})
        recipe = recipe.model_copy(update={"data": data})
    return recipe, file


def evaluate(recipe_file, description) -> None:
    """Print top-1 and top-5 accuracy of a checkpoint, of which THOR's state and momentum are left out."""
    options = parser(description, data_required=False)
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument(
        "--route", choices=["fast", "exact"],
        help="how images are resized, for a file that is not of a Run: exact for weights trained with torchvision",
    )  # fmt: skip
    arguments, _ = options.parse_known_args()
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    require_folder(recipe)
    runtime.use_device(arguments.device_target)
    from labkit import training

    names = training.check_data(recipe).classes
    found = training.score(*training.checkpoint_logits(recipe, file), names)
    result = {"top_5_accuracy": found.get("top_5_accuracy"), "top_1_accuracy": found["accuracy"]}
    print(f"result: {result} ckpt= {file}")


def export(recipe_file, description) -> None:
    """Write the network of a checkpoint as one file."""
    options = parser(description, data_required=False)
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument("--file_format", type=str.lower, choices=["mindir", "onnx", "air"], default="mindir")
    options.add_argument("--file_name", help="without the ending; default: the network's name")
    options.add_argument("--batch_size", type=int, default=1, help="images at a time; default: 1")
    options.add_argument("--image_size", type=int, help="height and width in pixels; default: the recipe's")
    arguments, _ = options.parse_known_args()
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    runtime.use_device(arguments.device_target)
    from labkit import export as exports

    ending = arguments.file_format
    out = Path(f"{arguments.file_name or recipe.network.name}.{ending}")
    exports.export(recipe, file, out, ending, batch_size=arguments.batch_size, image_size=arguments.image_size)
    print(out)

"""What the labs' start files do: train a recipe into a Run, evaluate a checkpoint, export its network."""

from pathlib import Path

from labkit.data.formats import format_of
from labkit.launch import start_files
from labkit.system import device
from labkit.system.errors import LabkitError
from labkit.training import recipes, runs


def train(recipe: recipes.Recipe, out: Path, here: start_files.JobContext) -> None:
    """Train a recipe into the Run at `out`; an unfinished Run there is resumed. Raises LabkitError.

    The Run may come from another machine, where the same data is in another folder.
    """
    format_of(recipe).require_folder()  # in every process: `start` checks in one, while the others wait for it
    run = runs.Run(out)
    if here.leads_host and not run.complete and (out / "recipe.yaml").exists():
        runs.relocate(run, recipe.data.folder)
    if here.start == "image":
        start_files.start_others(here, recipe.data.folder, out)
        return
    device.use_device(here.device)
    from labkit.training import loop

    run, info = start(recipe, out, here.leads_host)
    if run.complete:
        print(f"{run.path} is complete: nothing to train")
        return
    loop.train(run, info=info, progress=False)


def start(recipe: recipes.Recipe, out: Path, leads_host: bool):
    """The Run of a job at `out`, a new one or the existing one of this recipe, and its data, if it was checked.

    Each rank calls it. leads_host: this process makes the Run for those on its machine, if machines share no folder.
    """
    from labkit.training import build

    device.setup(recipe.seed, recipe.all_reduce_fusion)
    (rank, ranks), info = device.ranks(), None
    if rank == 0 and not (out / "recipe.yaml").exists():
        info = build.prepare_data(recipe, ranks)
        runs.create(out, recipe)
    device.wait_for_all()
    if leads_host and not (out / "recipe.yaml").exists():
        runs.create(out, recipe)
    device.wait_for_all()
    run = runs.open_run(out)
    recipes.require_same(run.recipe, recipe, out, ("lab", "profile", "epochs"))
    return run, info


def checkpoint(path, recipe_file, arguments) -> tuple[recipes.Recipe, Path]:
    """Recipe and file of a checkpoint; path: a Run, a file in a Run, or any file (then the lab's recipe is used).

    --data_url overrides the recipe's data folder. Raises LabkitError.
    """
    for place in filter(None, (path, arguments.data_url)):
        if start_files.is_url(place):
            raise LabkitError(f"{place}: a URL, which is not read here; copy it first with `labkit obs cp`")
    path = Path(path)
    in_run = path.parent.name == "checkpoints" and (path.parent.parent / "recipe.yaml").is_file()
    if not path.is_dir() and not in_run:
        return recipes.load(recipe_file, arguments.profile, start_files.settings(arguments)), path
    if getattr(arguments, "route", None):
        raise LabkitError(f"--route {arguments.route}: {path} is of a Run, whose recipe says the route")
    run = runs.open_run(path if path.is_dir() else path.parent.parent)
    recipe, file = run.recipe, run.checkpoint if path.is_dir() else path
    if arguments.data_url:
        recipe = recipes.with_folder(recipe, str(Path(arguments.data_url).resolve()))
    return recipe, file


def evaluate(recipe_file, description) -> None:
    """Print top-1 and top-5 accuracy of a checkpoint, ignoring its THOR state and momentum."""
    options = start_files.parser(description, data_required=False, data="folder of the data")
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument(
        "--route", choices=["fast", "exact"],
        help="how images are resized, for a file that is not of a Run: exact for weights trained with torchvision",
    )  # fmt: skip
    arguments = start_files.read(options)
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    device.use_device(arguments.device_target)
    from labkit.training import build, evaluation

    info = build.prepare_data(recipe)
    score = evaluation.score(*evaluation.checkpoint_logits(recipe, file, info), info.classes)
    result = {"top_5_accuracy": score.get("top_5_accuracy"), "top_1_accuracy": score["accuracy"]}
    print(f"result: {result} ckpt= {file}")


def export(recipe_file, description) -> None:
    """Write the network of a checkpoint as one file."""
    options = start_files.parser(description, data_required=False, data="folder of the data")
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument("--file_format", type=str.lower, choices=["mindir", "onnx", "air"], default="mindir")
    options.add_argument("--file_name", help="without the ending; default: the network's name")
    options.add_argument("--batch_size", type=int, default=1, help="images at a time; default: 1")
    options.add_argument("--image_size", type=int, help="height and width in pixels; default: the recipe's")
    arguments = start_files.read(options)
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    device.use_device(arguments.device_target)
    from labkit.training import export

    ending = arguments.file_format
    out = Path(f"{arguments.file_name or recipe.network.name}.{ending}")
    export.export(recipe, file, out, ending, batch_size=arguments.batch_size, image_size=arguments.image_size)
    print(out)

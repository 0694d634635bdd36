"""What a job starts: the labs' start files (labs/*/train.py, eval.py, export.py), with the original lab's arguments."""

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from labkit.launch.msrun import Hosts, launch
from labkit.modelarts.job_io import data_folder, is_url, run_folder
from labkit.system import device, interrupts
from labkit.system.errors import LabkitError, one_line_errors
from labkit.training import recipes, runs


@dataclass(frozen=True)
class JobContext:
    """Where a start file runs.

    job: "local"; "v1": arguments are URLs, and the start file copies; "v2": arguments are paths, and ModelArts copies.
    start: who started this process, and what it does.
    - "alone": it is the only process, and trains
    - "card": a preset engine started one process for each card; it trains
    - "msrun", "mpirun": that program started it with others; it trains
    - "scheduler": msrun started it, only to connect the others
    - "image": a custom image, with several cards or machines, started one process per machine; it starts one per card
    cards: processes on this machine.
    hosts: the machines, if there are several and this process has to start msrun.
    """

    job: str = "local"
    start: str = "alone"
    rank: int = 0
    cards: int = 1
    hosts: Hosts | None = None

    @property
    def leads_host(self) -> bool:
        """Whether this is its machine's first process; with start "image", it always is."""
        return self.start == "image" or (self.start != "scheduler" and self.rank % self.cards == 0)

    @property
    def leads(self) -> bool:
        """Whether this is the first process of all."""
        return self.leads_host and self.rank == 0


def context(*urls) -> JobContext:
    """Where this process is, by the URLs or paths it was given and its environment. Raises LabkitError."""
    env = os.environ
    job = "v1" if any(map(is_url, urls)) else "v2" if "MA_JOB_DIR" in env else "local"
    hosts, cards = max(1, _number("MA_NUM_HOSTS")), max(1, _number("MA_NUM_GPUS"))  # no GPU or NPU: 0
    if env.get("MS_ROLE") == "MS_SCHED":
        return JobContext(job, "scheduler")
    rank, size = device.ranks()
    if "MS_ROLE" in env or "RANK_ID" in env or "RANK_SIZE" in env or size > 1:  # a rank table alone starts nobody
        mpi = "OMPI_COMM_WORLD_RANK" in env and "RANK_SIZE" not in env
        by = "msrun" if "MS_ROLE" in env else "mpirun" if mpi else "card"
        if by == "card" and size == 1 and "RANK_TABLE_FILE" not in env:
            by = "alone"  # of `labkit launch -n 1`
        return JobContext(job, by, rank, max(1, size // hosts))
    if hosts * cards == 1:
        return JobContext(job)
    if hosts == 1:
        return JobContext(job, "image", 0, cards)
    number = _number("VC_TASK_INDEX", required=True)
    master = env.get("VC_WORKER_HOSTS", "").partition(",")[0].strip()
    if not master:
        raise LabkitError(f"VC_WORKER_HOSTS: missing, but MA_NUM_HOSTS is {hosts}: no host is known to be the first")
    return JobContext(job, "image", number * cards, cards, Hosts(hosts, number, master))


def _number(name, required=False):
    text = os.environ.get(name, "" if required else "0")
    if not text.isdecimal():
        raise LabkitError(f"{name}: {f'must be a number, not {text!r}' if text else 'missing on one of several hosts'}")
    return int(text)


def parser(description, data_required=True, data="folder or URL of the data") -> argparse.ArgumentParser:
    """A parser with the arguments that all start files take. A job's own, such as --init_method, are ignored."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data_url", "--dataset_path", required=data_required, help=data)
    parser.add_argument("--profile", default="full", help="profile of recipe.yaml; default: full")
    parser.add_argument("--device_target", choices=["CPU", "GPU", "Ascend"], help="default: what there is")
    return parser


def start(main, *arguments) -> None:
    """Run a start file's `main`; labkit's own errors, and the file system's, are one line and an exit status."""
    try:
        with one_line_errors():
            main(*arguments)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def settings(arguments) -> tuple[str, ...]:
    """Settings of the recipe that the arguments ask for."""
    folder = arguments.data_url
    asked = {"data.folder": folder and (folder if is_url(folder) else Path(folder).resolve())}
    asked["epochs"] = getattr(arguments, "num_epochs", None)
    asked["data.route"] = getattr(arguments, "route", None)
    return tuple(f"{key}={value}" for key, value in asked.items() if value is not None)


def train(recipe_file, description) -> None:
    """Train a lab's recipe into the Run at --train_url; resumes an unfinished Run found there. Raises LabkitError."""
    options = parser(description)
    options.add_argument("--train_url", required=True, help="folder or URL for the Run; an unfinished one is resumed")
    options.add_argument("--num_epochs", type=int, help="epochs to train; default: the recipe's")
    options.add_argument("--run_distribute", choices=["True", "False"], help="True: this is one of several processes")
    arguments, _ = options.parse_known_args()
    here = context(arguments.data_url, arguments.train_url)
    if here.start == "scheduler":  # copies nothing, and does not come back
        _train(recipe_file, arguments, here)
        return
    recipes.load(recipe_file, arguments.profile, settings(arguments))  # its errors come before anything is copied
    with interrupts.stopped_once(), ExitStack() as copies:  # SIGTERM is what a job is stopped with
        if is_url(arguments.train_url):
            folder = run_folder(arguments.train_url, here.leads_host, here.leads)
            arguments.train_url = copies.enter_context(folder)
        if is_url(arguments.data_url):
            arguments.data_url = data_folder(arguments.data_url)
        run = runs.Run(Path(arguments.train_url))
        moved = here.job != "local" and here.leads_host and (run.path / "recipe.yaml").exists()
        if moved and not (run.complete and here.job == "v2"):  # which ModelArts would copy back
            # another machine, where the same data is in another folder
            runs.relocate(run, str(Path(arguments.data_url).resolve()))
        if here.start == "image":
            _start_others(arguments, here)
        else:
            _train(recipe_file, arguments, here)


def _start_others(arguments, here):
    """msrun, for the cards of this machine; it is given folders: the last of an argument's two values counts."""
    folders = ["--data_url", str(arguments.data_url), "--train_url", str(arguments.train_url)]
    logs = os.environ.get("MA_LOG_DIR")
    log_dir = Path(logs, "workers") if logs else None
    launch([*sys.argv, *folders], here.cards, log_dir, device=arguments.device_target, hosts=here.hosts)


def _train(recipe_file, arguments, here):
    recipe = recipes.load(recipe_file, arguments.profile, settings(arguments))
    if arguments.run_distribute == "True" and device.ranks()[1] == 1:
        raise LabkitError("--run_distribute True, but this is the only process: start several with `labkit launch`")
    from labkit.data.formats import format_of

    format_of(recipe).require_folder()  # here in every process: `loop.start` checks in one, the others wait for it
    device.use_device(arguments.device_target)
    from labkit.training import loop

    keys = ("lab", "profile", "epochs") + (("data.folder",) if here.job == "local" else ())
    run = loop.start(Path(arguments.train_url), recipe, keys, here.leads_host)
    if run.complete:
        print(f"{run.path} is complete: nothing to train")
        return
    loop.train(run, progress=False)


def checkpoint(path, recipe_file, arguments) -> tuple[recipes.Recipe, Path]:
    """Recipe and file of a checkpoint; path: a Run, a file in a Run, or any file (then the lab's recipe is used).

    --data_url overrides the recipe's data folder. Raises LabkitError.
    """
    for place in filter(None, (path, arguments.data_url)):
        if is_url(place):
            raise LabkitError(f"{place}: a URL, which is not read here; copy it first with `labkit obs cp`")
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
    """Print top-1 and top-5 accuracy of a checkpoint, ignoring its THOR state and momentum."""
    options = parser(description, data_required=False)
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument(
        "--route", choices=["fast", "exact"],
        help="how images are resized, for a file that is not of a Run: exact for weights trained with torchvision",
    )  # fmt: skip
    arguments, _ = options.parse_known_args()
    if arguments.data_url and is_url(arguments.data_url):
        arguments.data_url = data_folder(arguments.data_url)
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    device.use_device(arguments.device_target)
    from labkit.training import build, evaluation

    names = build.check_data(recipe).classes
    found = evaluation.score(*evaluation.checkpoint_logits(recipe, file), names)
    result = {"top_5_accuracy": found.get("top_5_accuracy"), "top_1_accuracy": found["accuracy"]}
    print(f"result: {result} ckpt= {file}")


def export(recipe_file, description) -> None:
    """Write the network of a checkpoint as one file."""
    options = parser(description, data_required=False, data="folder of the data")
    options.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    options.add_argument("--file_format", type=str.lower, choices=["mindir", "onnx", "air"], default="mindir")
    options.add_argument("--file_name", help="without the ending; default: the network's name")
    options.add_argument("--batch_size", type=int, default=1, help="images at a time; default: 1")
    options.add_argument("--image_size", type=int, help="height and width in pixels; default: the recipe's")
    arguments, _ = options.parse_known_args()
    recipe, file = checkpoint(arguments.checkpoint_path, recipe_file, arguments)
    device.use_device(arguments.device_target)
    from labkit.training import export

    ending = arguments.file_format
    out = Path(f"{arguments.file_name or recipe.network.name}.{ending}")
    export.export(recipe, file, out, ending, batch_size=arguments.batch_size, image_size=arguments.image_size)
    print(out)

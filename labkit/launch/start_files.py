"""What the labs' start files (labs/*/train.py, eval.py, export.py) are given, and who starts whom in a job."""

import argparse
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.launch.msrun import Hosts, launch
from labkit.system import device, interrupts
from labkit.system.errors import LabkitError, one_line_errors


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
    device: "CPU", "GPU" or "Ascend", if the arguments name one.
    """

    job: str = "local"
    start: str = "alone"
    rank: int = 0
    cards: int = 1
    hosts: Hosts | None = None
    device: str | None = None

    @property
    def leads_host(self) -> bool:
        """Whether this is its machine's first process; with start "image", it always is."""
        return self.start == "image" or (self.start != "scheduler" and self.rank % self.cards == 0)

    @property
    def leads(self) -> bool:
        """Whether this is the first process of all."""
        return self.leads_host and self.rank == 0


def is_url(text) -> bool:
    """Whether this is obs://, s3:// or file://: what is there is copied. A path is used where it is."""
    return "://" in str(text)


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
    """A parser with the arguments that all start files take."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data_url", "--dataset_path", required=data_required, help=data)
    parser.add_argument("--profile", default="full", help="profile of recipe.yaml; default: full")
    parser.add_argument("--device_target", choices=["CPU", "GPU", "Ascend"], help="default: what there is")
    return parser


def read(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments of this process. A job's own, such as --init_method, are ignored."""
    return options.parse_known_args()[0]


def read_training(description) -> tuple[argparse.Namespace, JobContext]:
    """The arguments of a start file that trains, and where it runs. Raises LabkitError."""
    options = parser(description)
    options.add_argument("--train_url", required=True, help="folder or URL for the Run; an unfinished one is resumed")
    options.add_argument("--num_epochs", type=int, help="epochs to train; default: the recipe's")
    options.add_argument("--run_distribute", choices=["True", "False"], help="True: this is one of several processes")
    arguments = read(options)
    here = replace(context(arguments.data_url, arguments.train_url), device=arguments.device_target)
    if arguments.run_distribute == "True" and here.start == "alone":
        raise LabkitError("--run_distribute True, but this is the only process: start several with `labkit launch`")
    return arguments, here


def settings(arguments) -> tuple[str, ...]:
    """Settings of the recipe that the arguments ask for."""
    folder = arguments.data_url
    asked = {"data.folder": folder and (folder if is_url(folder) else Path(folder).resolve())}
    asked["epochs"] = getattr(arguments, "num_epochs", None)
    asked["data.route"] = getattr(arguments, "route", None)
    return tuple(f"{key}={value}" for key, value in asked.items() if value is not None)


def start(main, *arguments) -> None:
    """Run a start file's `main`; labkit's own errors, and the file system's, are one line and an exit status.

    SIGTERM, with which a job is stopped, and Ctrl-C raise KeyboardInterrupt once. Not in msrun's scheduler: it waits in
    MindSpore, where Python would not notice.
    """
    scheduler = os.environ.get("MS_ROLE") == "MS_SCHED"
    try:
        with one_line_errors(), nullcontext() if scheduler else interrupts.stopped_once():
            main(*arguments)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def start_others(here: JobContext, data, out) -> None:
    """Start msrun for the cards of this machine, whose processes get folders for data and Run. Raises LabkitError."""
    folders = ["--data_url", str(data), "--train_url", str(out)]  # the last of an argument's two values counts
    logs = os.environ.get("MA_LOG_DIR")
    log_dir = Path(logs, "workers") if logs else None
    launch([*sys.argv, *folders], here.cards, log_dir, device=here.device, hosts=here.hosts)

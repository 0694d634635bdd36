"""The arguments and environment of the labs' start files (labs/*/train.py, eval.py, export.py), locally and in jobs."""

import argparse
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.launch.msrun import Hosts, launch
from labkit.system import device, interrupts, streams
from labkit.system.errors import LabkitError, one_line_errors


@dataclass(frozen=True)
class JobContext:
    """Where a start file runs.

    job: "local"; "v1": arguments are URLs, and the start file copies; "v2": arguments are paths, and ModelArts copies.
    start: who started this process, and what it does.
    - "alone": it is the only process, and trains
    - "card": a preset engine started one process per card; it trains
    - "msrun", "mpirun": that program started it and others; it trains
    - "scheduler": msrun started it, only to connect the others
    - "image": a custom image, with several cards or machines, started one process per machine; it starts one per card
    cards: number of processes on this machine.
    hosts: the machines, if there are several and this process has to start msrun.
    device: "CPU", "GPU" or "Ascend", if the arguments specify it.
    """

    job: str = "local"
    start: str = "alone"
    rank: int = 0
    cards: int = 1
    hosts: Hosts | None = None
    device: str | None = None

    @property
    def leads_host(self) -> bool:
        """Whether this is the first process on its machine; always True if start is "image"."""
        return self.start == "image" or (self.start != "scheduler" and self.rank % self.cards == 0)

    @property
    def leads(self) -> bool:
        """Whether this is the first process on the first machine."""
        return self.leads_host and self.rank == 0


def is_url(text) -> bool:
    """Whether `text` is a URL (obs://, s3://, file://), whose contents are copied; paths are used in place."""
    return "://" in str(text)


def context(*urls) -> JobContext:
    """Where this process runs, according to its environment and its URLs or paths. Raises LabkitError."""
    env = os.environ
    job = "v1" if any(map(is_url, urls)) else "v2" if "MA_JOB_DIR" in env else "local"
    hosts, cards = max(1, _number("MA_NUM_HOSTS")), max(1, _number("MA_NUM_GPUS"))  # 0 without GPU or NPU
    if env.get("MS_ROLE") == "MS_SCHED":
        return JobContext(job, "scheduler")
    rank, size = device.ranks()
    if "MS_ROLE" in env or "RANK_ID" in env or "RANK_SIZE" in env or size > 1:  # a rank table alone starts nothing
        mpi = "OMPI_COMM_WORLD_RANK" in env and "RANK_SIZE" not in env
        start = "msrun" if "MS_ROLE" in env else "mpirun" if mpi else "card"
        if start == "card" and size == 1 and "RANK_TABLE_FILE" not in env:
            start = "alone"  # from `labkit launch -n 1`
        return JobContext(job, start, rank, max(1, size // hosts))
    if hosts * cards == 1:
        return JobContext(job)
    if hosts == 1:
        return JobContext(job, "image", 0, cards)
    number = _number("VC_TASK_INDEX", required=True)
    master = env.get("VC_WORKER_HOSTS", "").partition(",")[0].strip()
    if not master:
        raise LabkitError(f"VC_WORKER_HOSTS: missing, but MA_NUM_HOSTS is {hosts}, so the first host is unknown")
    return JobContext(job, "image", number * cards, cards, Hosts(hosts, number, master))


def _number(name, required=False):
    text = os.environ.get(name, "" if required else "0")
    if not text.isdecimal():
        raise LabkitError(f"{name}: {f'must be a number, not {text!r}' if text else 'missing; several hosts need it'}")
    return int(text)


def parser(description, data_required=True, data="folder or URL of the data") -> argparse.ArgumentParser:
    """A parser with the arguments that all start files have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data_url", "--dataset_path", required=data_required, help=data)
    parser.add_argument("--profile", default="full", help="profile of recipe.yaml; default: full")
    parser.add_argument("--device_target", choices=["CPU", "GPU", "Ascend"], help="default: MindSpore's choice")
    return parser


def read(options: argparse.ArgumentParser) -> argparse.Namespace:
    """This process's arguments. Those that ModelArts adds, such as --init_method, are ignored."""
    return options.parse_known_args()[0]


def read_training(description) -> tuple[argparse.Namespace, JobContext]:
    """The arguments of a training start file, and where it runs. Raises LabkitError."""
    options = parser(description)
    options.add_argument("--train_url", required=True, help="folder or URL for the Run; an unfinished one is resumed")
    options.add_argument("--num_epochs", type=int, help="epochs to train; default: the recipe's")
    options.add_argument("--run_distribute", choices=["True", "False"], help="True: this is one of several processes")
    arguments = read(options)
    job = replace(context(arguments.data_url, arguments.train_url), device=arguments.device_target)
    if arguments.run_distribute == "True" and job.start == "alone":
        raise LabkitError("--run_distribute True, but this is the only process: start several with `labkit launch`")
    return arguments, job


def settings(arguments) -> tuple[str, ...]:
    """The recipe settings, KEY=VALUE, that the arguments ask for."""
    folder = arguments.data_url
    values = {"data.folder": folder and (folder if is_url(folder) else Path(folder).resolve())}
    values |= {"epochs": getattr(arguments, "num_epochs", None), "data.route": getattr(arguments, "route", None)}
    return tuple(f"{key}={value}" for key, value in values.items() if value is not None)


def start(main, *arguments) -> None:
    """Run a start file's `main`; labkit's own errors and file system errors become one line and an exit status.

    SIGTERM, which stops a job, and Ctrl-C raise KeyboardInterrupt once, except in msrun's scheduler: it waits inside
    MindSpore, where Python would not notice.
    """
    streams.prepare()
    try:
        with one_line_errors(), interrupts.stopped_once() if os.environ.get("MS_ROLE") != "MS_SCHED" else nullcontext():
            main(*arguments)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def start_others(job: JobContext, data, out) -> None:
    """Start msrun for this machine's cards; the processes get the folders of data and Run. Raises LabkitError."""
    folders = ["--data_url", str(data), "--train_url", str(out)]  # if an argument is repeated, the last value counts
    log_dir = Path(logs, "workers") if (logs := os.environ.get("MA_LOG_DIR")) else None
    launch([*sys.argv, *folders], job.cards, log_dir, device=job.device, hosts=job.hosts)

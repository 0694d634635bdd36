"""Submission: a lab as a training job. It is packed, copied with its data, started and followed; its Run is fetched.

In the bucket:  jobs/NAME/code, jobs/NAME/run, jobs/NAME/log: of one job
                data/FOLDER: of all
"""

import datetime
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from labkit.modelarts.client import Client, Job
from labkit.modelarts.job import JobSpec, read_job
from labkit.modelarts.job_io import below
from labkit.obs import copying
from labkit.obs.place import CloudError, Local, parse
from labkit.system import environment
from labkit.training import provenance, recipes, runs

REHEARSAL = "obs://rehearsal..here"  # stands for a folder of this machine; no bucket's name has two dots in a row
BOOT_FILE = "train.py"
POLL = 10.0  # seconds between two looks at a job
KNOWN = 400  # characters of a log by which its shown part is found again
PERSISTENT = 3600.0  # seconds without an answer until a job is no longer followed: it goes on all the same
# What a start file imports beside MindSpore and what that brings; ModelArts installs them before it starts the code.
NEEDS = ("pydantic", "PyYAML", "psutil", "tqdm", "click", "filelock", "esdk-obs-python")
NEEDS_FILE = "pip-requirements.txt"


@dataclass(frozen=True)
class Submission:
    """A job that is ready to be copied and started.

    lab: folder of its code. data_here: the data's folder on this machine, to be copied; None where a URL was given.
    data_at_home: the folder that a fetched Run is to name.
    """

    spec: JobSpec
    recipe: recipes.Recipe
    lab: Path
    bucket: str
    data_here: Path | None
    data_at_home: str

    def place(self, name: str) -> str:
        """Where a place of the job (its code, an input, ...) really is: an obs:// URL, or below the bucket's folder."""
        url = self.spec.url(name)
        if not self.local or not url.startswith(f"{REHEARSAL}/"):
            return url
        return below(self.bucket, url.removeprefix(f"{REHEARSAL}/"))

    @property
    def local(self) -> bool:
        """Whether the bucket is a folder of this machine."""
        return isinstance(parse(self.bucket), Local)

    @property
    def data(self) -> str:
        """Where the data lies in the bucket."""
        return self.place(self.spec.inputs["data_url"])

    @property
    def run(self) -> str:
        """Where the job leaves its Run."""
        return self.place(self.spec.outputs["train_url"])


def prepare(lab, profile, bucket=None, data=None, settings=(), name=None, make_sample=True, **given) -> Submission:
    """The job of a lab: its recipe, its job.yaml, and what is given instead of that. Nothing is copied yet.

    bucket: obs://BUCKET[/FOLDER], or file://DIR for a rehearsal; default: job.yaml's. data: an obs:// URL, or a folder
    of this machine; default: job.yaml's, then the recipe's. make_sample: write the sample data where it is asked for
    and missing. Raises LabkitError.
    """
    file = recipes.find(lab)
    folder, recipe = file.parent, recipes.load(file, profile, tuple(settings))
    local = bucket is not None and isinstance(parse(bucket), Local)
    if local and "://" not in str(bucket):
        raise CloudError(f"{bucket}: no bucket: write obs://BUCKET, or file://DIR for a rehearsal on this machine")
    if not (folder / BOOT_FILE).is_file():
        raise CloudError(f"{folder}: no {BOOT_FILE}, which a job would start")
    name = name or f"{recipe.lab}-{recipe.profile}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    given |= {"name": name, "boot_file": BOOT_FILE, "code": f"jobs/{name}/code", "log": f"jobs/{name}/log"}
    given |= {} if bucket is None else {"bucket": REHEARSAL if local else str(bucket)}
    own = read_job(folder / "job.yaml", **given)  # what it says beside that is kept
    here, home = None, recipe.data.folder
    if data and "://" in str(data):
        if not str(data).startswith("obs://"):
            raise CloudError(f"{data}: no data: write obs://BUCKET/FOLDER, or a folder of this machine")
        place = str(data)
    elif data:
        here, home, place = Path(data), str(Path(data).resolve()), f"data/{_name(Path(data).resolve())}"
    elif "data_url" in own.inputs:
        place = own.inputs["data_url"]
    else:
        here, place = recipe.data_folder(), f"data/{_name(Path(home))}"
    if here:
        check_data(recipe, here, make_sample)
        copying.ls(here)  # links that are not followed are told now, and not when all else has been copied
    commit, changed = provenance.commit()  # a job has no git
    known = {provenance.COMMIT: commit + ("+" if changed else "")} if commit else {}
    spec = read_job(
        folder / "job.yaml", **given, inputs=own.inputs | {"data_url": place},
        outputs=own.outputs | {"train_url": f"jobs/{name}/run"}, parameters=own.parameters | {"profile": profile},
        environment=known | own.environment,
    )  # fmt: skip
    return Submission(spec, recipe, folder, str(bucket or own.bucket), here, home)


def _name(folder):
    """Name of a data folder in the bucket; the sample's is not that of the real data."""
    name = folder.name if folder.is_absolute() else "/".join(part for part in folder.parts if part != "..")
    return re.sub(r"[^A-Za-z0-9._/-]", "-", name)


def check_data(recipe, folder, make_sample=False) -> None:
    """What would stop the training is told before anything is copied or paid for. Raises LabkitError."""
    from labkit.data.formats import format_of

    own = folder == recipe.data_folder() and recipe.data.folder.startswith("sample/")
    info = format_of(recipe, folder).check(make_sample=make_sample and own)
    if len(info.classes) != recipe.network.num_classes:
        raise CloudError(f"network.num_classes: {recipe.network.num_classes}, but {folder} has {len(info.classes)}")


# -- Packing ---------------------------------------------------------------------------------------


def pack(submission: Submission, folder: Path) -> list[str]:
    """Write the job's code into an empty folder; returns the names of its files.

    What git tracks of the lab and of labkit, side by side, so that a start file finds labkit without being told. The
    recipe is the one that was asked for, with its settings, and names the data as it is called here: the job is given
    another folder, and a Run that is fetched is to name this one. Recorded Runs are no code and stay here.
    """
    package = environment.REPO / "labkit"
    wanted = {f"labkit/{name}": package / name for name in _tracked(package)}
    wanted |= {name: submission.lab / name for name in _tracked(submission.lab) if not name.startswith("runs/")}
    if BOOT_FILE not in wanted:
        file = submission.lab / BOOT_FILE
        raise CloudError(f"{file}: git does not track it; a job gets what git tracks: `git add` it")
    for name, source in wanted.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # of a link, the file that it leads to
    tree = submission.recipe.model_dump(exclude={"lab", "profile"})
    tree["data"]["folder"] = submission.data_at_home
    recipe = {"lab": submission.recipe.lab, "profiles": {submission.recipe.profile: tree}}
    (folder / "recipe.yaml").write_text(recipes.yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    (folder / NEEDS_FILE).write_text("".join(f"{line}\n" for line in needs()), encoding="utf-8")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def needs() -> list[str]:
    """What a job installs, in the versions of the project's requirements.txt where that is here."""
    file = environment.REPO / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pinned = {line.partition("==")[0].strip(): line.strip() for line in lines if "==" in line}
    return [pinned.get(name, name) for name in NEEDS]


def _tracked(folder):
    """Names of the files below a folder that git tracks and that are there; CloudError where git does not know it."""
    command = ["git", "-C", str(folder), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CloudError(f"{folder}: git is needed to tell what belongs to the code ({error})") from None
    names = [name for name in done.stdout.decode().split("\0") if name and (folder / name).is_file()]
    if done.returncode:
        top = environment.REPO if folder.is_relative_to(environment.REPO) else folder
        raise CloudError(f"{top}: no checkout of git; a job gets what git tracks: `git init`, then `git add .` there")
    if not names:
        raise CloudError(f"{folder}: git tracks nothing there; a job gets what git tracks: `git add` it")
    return names


# -- Copying and starting -----------------------------------------------------------------------------


def require_new(submission: Submission, code: Path, store=None) -> None:
    """CloudError where a job of this name has begun, or the bucket has other code or data under the same name.

    What an interrupted submission has copied is no obstacle: the next one goes on.
    """
    name, folder = submission.spec.name, submission.place(submission.spec.code)
    if copying.exists(submission.run, store=store) or copying.exists(
        submission.place(submission.spec.log), store=store
    ):
        raise CloudError(f"{name}: the bucket has files of a job of this name; choose another --name")
    if others := _names(folder, store) - _names(code):
        raise CloudError(f"{folder}: has {min(others)}, which is not in the code; choose another --name")
    here, there = submission.data_here, submission.data
    if not copying.exists(there, store=store):
        if here is None:
            raise CloudError(f"{there}: there is no data")
    elif here:
        others = sorted(_names(there, store) - _names(here))
        differing = copying.verify(here, there, unknown=[], store=store)  # size and name are all that some tools leave
        others += [line for line in differing if not line.endswith(": missing")]
        if others:
            raise CloudError(f"{there}: holds other data than {here} ({others[0]}); name one of them by --data")


def _names(place, store=None):
    """Names of the files in a folder; none where there is no such folder."""
    return {item.name for item in copying.ls(place, store=store)} if copying.exists(place, store=store) else set()


def upload(submission: Submission, code: Path, watched=lambda *part: nullcontext(), store=None) -> None:
    """Copy data and packed code to the bucket. watched: a context of each part of `copies`: `copy`'s progress."""
    for part in copies(submission, code):
        with watched(*part) as progress:
            copying.copy(part[1], part[2], progress=progress, store=store)


def copies(submission: Submission, code: Path) -> list[tuple[str, Path, str]]:
    """What is copied, from where, to where: data that lies in a folder here, which may take long, then the code."""
    data = [("data", submission.data_here, submission.data)] if submission.data_here else []
    return [*data, ("code", code, submission.place(submission.spec.code))]


def require_offered(spec: JobSpec, client: Client) -> None:
    """CloudError where ModelArts has no such machine or image; it names those that there are."""
    flavors = [flavor["flavor_id"] for flavor in client.flavors()]
    if spec.flavor not in flavors:
        raise CloudError(f"flavor: {spec.flavor}: not offered here; there are {', '.join(sorted(flavors)) or 'none'}")
    engines = [(engine["engine_name"], engine["engine_version"]) for engine in client.engines()]
    if (spec.engine.name, spec.engine.version) not in engines:
        same = sorted(version for name, version in engines if name == spec.engine.name)
        offered = same or sorted({name for name, _ in engines})
        raise CloudError(
            f"engine: {spec.engine.name}, {spec.engine.version}: not offered here; there are {', '.join(offered)}"
        )


# -- Following and fetching -----------------------------------------------------------------------------


def follow(client: Client, job: str, tell, task="worker-0", poll=None) -> Job:
    """Wait until a job has ended; tell: called with each new phase (a Job) and each new piece of its log (a text)."""
    phase, shown, answered, silent = None, "", time.monotonic(), False
    while True:
        try:
            found, answered = client.show(job), time.monotonic()
        except CloudError as error:
            refused = error.status is not None and error.status < 500 and error.status not in (408, 429)
            if refused or time.monotonic() - answered > PERSISTENT:
                raise
            time.sleep(POLL if poll is None else poll)
            continue
        if found.phase != phase and not found.ended:
            tell(found)
        phase = found.phase
        try:
            log = client.log(job, task) if phase not in ("Creating", "Pending") else ""
        except CloudError as error:  # not there yet, or not any more: the job goes on all the same
            if not silent:
                client.notice(f"no log: {error}")
            log, silent = "", True
        if added := _added(shown, log):
            tell(added)
        shown = log or shown
        if found.ended:  # told behind the last of its log
            tell(found)
            return found
        time.sleep(POLL if poll is None else poll)


def _added(shown, log):
    """What is new in the end of a log, of which an earlier end was shown."""
    if log.startswith(shown):
        return log[len(shown) :]
    known = shown[-KNOWN:]  # the beginning of the log has gone
    found = log.rfind(known)
    return log[found + len(known) :] if found >= 0 else log


def fetch(bucket: str, name: str, out: Path, progress=None, store=None) -> runs.Run | None:
    """Copy the Run of the job `name` to a folder of this machine, where it names the data as it was submitted.

    None where the job left no Run. Raises LabkitError, also for a Run that cannot be read. An interrupted fetch leaves
    a hidden folder beside `out`, from which the next one goes on.
    """
    runs.require_free(out)
    job = below(bucket, f"jobs/{name}")
    if not copying.exists(job, store=store):
        raise CloudError(f"{job}: there is no job of this name")
    if not copying.exists(below(job, "run/recipe.yaml"), store=store):
        return None
    whole = out.resolve()
    part = whole.with_name(f".{whole.name}.part")
    copying.copy(below(job, "run"), part, progress=progress, store=store)
    there = _names(below(job, "run"), store)
    for path in [path for path in part.rglob("*") if path.is_file()]:
        if path.relative_to(part).as_posix() not in there:  # of an interrupted fetch of another Run
            path.unlink()
    whole.mkdir(parents=True, exist_ok=True)
    for path in part.iterdir():
        path.rename(whole / path.name)
    part.rmdir()
    run = runs.open_run(out)
    with tempfile.TemporaryDirectory() as folder:
        submitted = Path(folder, "recipe.yaml")
        copying.copy(below(job, "code/recipe.yaml"), submitted, store=store)
        runs.relocate(run, recipes.load(submitted, run.recipe.profile).data.folder)
    runs.require_readable(run)
    return run

"""Submission: a lab as a training job. It is copied with its data, started and followed; its Run is fetched.

In the bucket:
- jobs/NAME/ has one job's code, run and log, and the claim that reserves its name
- data/FOLDER is shared by all jobs
"""

import datetime
import re
import secrets
import tempfile
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from labkit.modelarts.client import Client, Job
from labkit.modelarts.job import JobSpec, read_job
from labkit.modelarts.job_io import below
from labkit.modelarts.packing import BOOT_FILE
from labkit.obs import copying
from labkit.obs.place import CloudError, Local, parse
from labkit.system.files import locked
from labkit.training import provenance, recipes, runs

REHEARSAL = "obs://rehearsal..here"  # stands for a folder of this machine; no bucket's name has two dots in a row
POLL = 10.0  # seconds between two looks at a job
KNOWN = 400  # characters of a log by which the part already shown is found again
PERSISTENT = 3600.0  # seconds without an answer until a job is no longer followed: it runs all the same


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
        """Where the data is in the bucket."""
        return self.place(self.spec.inputs["data_url"])

    @property
    def folder(self) -> str:
        """Where all of the job is in the bucket."""
        return self.place(f"jobs/{self.spec.name}")

    @property
    def run(self) -> str:
        """Where the job leaves its Run."""
        return self.place(self.spec.outputs["train_url"])


def prepare(lab, profile, bucket=None, data=None, settings=(), name=None, make_sample=True, **given) -> Submission:
    """The job of a lab, from its recipe and job.yaml; the arguments override them. Nothing is copied yet.

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
    moment = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"  # two may begin in one second
    name = name or f"{recipe.lab}-{recipe.profile}-{moment}"
    given |= {"name": name, "boot_file": BOOT_FILE, "code": f"jobs/{name}/code", "log": f"jobs/{name}/log"}
    given |= {} if bucket is None else {"bucket": REHEARSAL if local else str(bucket)}
    own = read_job(folder / "job.yaml", **given)
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
        copying.ls(here)  # links that are not followed are reported now, and not when all else has been copied
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
    """LabkitError for data that would stop the training, before anything is copied or paid for."""
    from labkit.data.formats import format_of

    own = folder == recipe.data_folder() and recipe.data.folder.startswith("sample/")
    recipes.require_fit(recipe, format_of(recipe, folder).check(make_sample=make_sample and own))


# -- Copying and starting -----------------------------------------------------------------------------


def require_new(submission: Submission, code: Path, store=None) -> None:
    """CloudError where a job of this name has begun, or the bucket has other code or data under the same name.

    What an interrupted submission has copied is no obstacle: the next one resumes it.
    """
    name, folder = submission.spec.name, submission.place(submission.spec.code)
    if any(copying.exists(place, store=store) for place in (submission.run, submission.place(submission.spec.log))):
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
    """Copy data and packed code to the bucket.

    watched: called with (what, source, target) of each copy; returns a context manager with `copy`'s `progress`.
    """
    for part in copies(submission, code):
        with watched(*part) as progress:
            copying.copy(part[1], part[2], progress=progress, store=store)


def copies(submission: Submission, code: Path) -> list[tuple[str, Path, str]]:
    """(what, source, target) of each copy: first local data, which may take long, then the code."""
    data = [("data", submission.data_here, submission.data)] if submission.data_here else []
    return [*data, ("code", code, submission.place(submission.spec.code))]


def require_offered(spec: JobSpec, client: Client) -> None:
    """CloudError where ModelArts has no such machine or image; it names those that there are."""
    flavors = [flavor["flavor_id"] for flavor in client.flavors()]
    if spec.flavor not in flavors:
        raise CloudError(f"flavor: {spec.flavor}: not offered here; there are {', '.join(sorted(flavors)) or 'none'}")
    engines = [(engine["engine_name"], engine["engine_version"]) for engine in client.engines()]
    wanted = (spec.engine.name, spec.engine.version)
    if wanted not in engines:
        same = sorted(version for name, version in engines if name == spec.engine.name)
        offered = same or sorted({name for name, _ in engines})
        raise CloudError(f"engine: {', '.join(wanted)}: not offered here; there are {', '.join(offered)}")


# -- Following and fetching -----------------------------------------------------------------------------


def follow(client: Client, job: str, on_phase, on_log, task="worker-0") -> Job:
    """Wait until a job has ended. on_phase is called with the Job in each new phase, on_log with each new text."""
    phase, shown, answered, silent = None, "", time.monotonic(), False
    while True:
        try:
            found, answered = client.show(job), time.monotonic()
        except CloudError as error:
            refused = error.status is not None and error.status < 500 and error.status not in (408, 429)
            if refused or time.monotonic() - answered > PERSISTENT:
                raise
            time.sleep(POLL)
            continue
        if found.phase != phase and not found.ended:
            on_phase(found)
        phase = found.phase
        try:
            log = client.log(job, task) if phase not in ("Creating", "Pending") else ""
        except CloudError as error:  # not there yet, or no longer: the job runs all the same
            if not silent:
                client.notice(f"no log: {error}")
            log, silent = "", True
        if added := _added(shown, log):
            on_log(added)
        shown = log or shown
        if found.ended:  # after the last of its log
            on_phase(found)
            return found
        time.sleep(POLL)


def _added(shown, log):
    """What is new in the end of a log, of which an earlier end was shown."""
    if log.startswith(shown):
        return log[len(shown) :]
    known = shown[-KNOWN:]  # the beginning of the log has gone
    found = log.rfind(known)
    return log[found + len(known) :] if found >= 0 else log


def fetch(bucket: str, name: str, out: Path, progress=None, store=None) -> runs.Run | None:
    """Copy the Run of the job `name` to `out`; its recipe then has the data folder given at submission.

    None where the job left no Run. Raises LabkitError, also for a Run that cannot be read. An interrupted fetch leaves
    a hidden folder beside `out`, which the next one resumes.
    """
    runs.require_free(out)
    job = below(bucket, f"jobs/{name}")
    if not copying.exists(job, store=store):
        raise CloudError(f"{job}: there is no job of this name")
    if not copying.exists(below(job, "run/recipe.yaml"), store=store):
        return None
    whole = out.resolve()
    part = whole.with_name(f".{whole.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    with locked(part, CloudError(f"{out}: another fetch to this folder is under way")), ExitStack() as last:
        copying.copy(below(job, "run"), part, progress=progress, store=store)
        there = _names(below(job, "run"), store)
        for path in [path for path in part.rglob("*") if path.is_file()]:
            if path.relative_to(part).as_posix() not in there:  # of an interrupted fetch of another Run
                path.unlink()
        submitted = Path(last.enter_context(tempfile.TemporaryDirectory()), "recipe.yaml")
        copying.copy(below(job, "code/recipe.yaml"), submitted, store=store)  # after it no server is asked
        runs.require_free(out)
        whole.mkdir(parents=True, exist_ok=True)
        for path in part.iterdir():
            path.rename(whole / path.name)
        part.rmdir()
        run = runs.open_run(out)
        runs.relocate(run, recipes.load(submitted, run.recipe.profile).data.folder)
    runs.require_readable(run)
    return run

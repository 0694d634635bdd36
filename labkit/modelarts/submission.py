"""Submission: a lab as a training job. It is copied with its data; its Run is fetched.

In the bucket:
- jobs/NAME/ has one job's code, run and log
- data/FOLDER is shared by all jobs
"""

import datetime
import re
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from labkit.modelarts.client import Client
from labkit.modelarts.job import JobSpec, read_job
from labkit.modelarts.packing import BOOT_FILE
from labkit.obs import copying
from labkit.obs.place import CloudError, Local, parse
from labkit.system.files import locked
from labkit.training import provenance, recipes, runs


@dataclass(frozen=True)
class Submission:
    """A job that is ready to be copied and started.

    lab: folder of its code. data_here: the data's folder on this machine, to be copied; None where a URL was given.
    data_at_home: the folder that a fetched Run is to name.
    """

    spec: JobSpec
    recipe: recipes.Recipe
    lab: Path
    data_here: Path | None
    data_at_home: str

    @property
    def data(self) -> str:
        """Where the data is in the bucket."""
        return self.spec.url(self.spec.inputs["data_url"])

    @property
    def run(self) -> str:
        """Where the job leaves its Run."""
        return self.spec.url(self.spec.outputs["train_url"])


def prepare(lab, profile, bucket=None, data=None, settings=(), name=None, make_sample=True, **given) -> Submission:
    """The job of a lab, from its recipe and job.yaml; the arguments override them. Nothing is copied yet.

    bucket: obs://BUCKET[/FOLDER], or file://DIR for a rehearsal; default: job.yaml's. data: an obs:// URL, or a folder
    of this machine; default: job.yaml's, then the recipe's. make_sample: write the sample data where it is asked for
    and missing. Raises LabkitError.
    """
    from labkit.data.formats import format_of

    file = recipes.find(lab)
    folder, recipe = file.parent, recipes.load(file, profile, tuple(settings))
    moment = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"  # two may begin in one second
    name = name or f"{recipe.lab}-{recipe.profile}-{moment}"
    given |= {"name": name, "boot_file": BOOT_FILE, "code": f"jobs/{name}/code", "log": f"jobs/{name}/log"}
    given |= {"bucket": bucket} if bucket else {}
    own = read_job(folder / "job.yaml", **given)
    here, home, place = None, recipe.data.folder, own.inputs.get("data_url")
    if "://" in str(data):
        place = str(data)
    elif data:
        here, home = Path(data), str(Path(data).resolve())
    elif not place:
        here = recipe.data_folder()
    if here:
        place = f"data/{_name(Path(home))}"
        own_sample = here == recipe.data_folder() and recipe.data.folder.startswith("sample/")
        info = format_of(recipe, here).check(make_sample=make_sample and own_sample)
        recipes.require_fit(recipe, info)  # what would stop the training, before anything is copied or paid for
        copying.ls(here)  # links that are not followed are reported now, and not when all else has been copied
    commit, changed = provenance.commit()  # a job has no git
    known = {provenance.COMMIT: commit + ("+" if changed else "")} if commit else {}
    spec = read_job(
        folder / "job.yaml", **given, inputs=own.inputs | {"data_url": place},
        outputs=own.outputs | {"train_url": f"jobs/{name}/run"}, parameters=own.parameters | {"profile": profile},
        environment=known | own.environment,
    )  # fmt: skip
    return Submission(spec, recipe, folder, here, home)


def _name(folder):
    """Name of a data folder in the bucket; the sample's is not that of the real data."""
    name = folder.name if folder.is_absolute() else "/".join(part for part in folder.parts if part != "..")
    return re.sub(r"[^A-Za-z0-9._/-]", "-", name)


def require_new(submission: Submission, store=None) -> None:
    """CloudError where the bucket has anything of a job of this name, or other data under the same name.

    In a folder of this machine the name is taken at once, so of several submissions only one gets it.
    """
    spec = submission.spec
    taken = CloudError(f"{spec.name}: the bucket has files of a job of this name; choose another --name")
    job = spec.url(f"jobs/{spec.name}")
    if copying.exists(job, store=store):
        raise taken
    here, there = submission.data_here, submission.data
    if not copying.exists(there, store=store):
        if here is None:
            raise CloudError(f"{there}: there is no data")
    elif here:
        differing = copying.verify(here, there, unknown=[], store=store)  # size and name are all that some tools leave
        if others := [line for line in differing if not line.endswith(": missing")]:
            raise CloudError(f"{there}: holds other data than {here} ({others[0]}); name one of them by --data")
    if isinstance(place := parse(job), Local):
        try:
            place.path.mkdir(parents=True)
        except FileExistsError:
            raise taken from None


def copies(submission: Submission, code: Path) -> list[tuple[str, Path, str]]:
    """(what, source, target) of each copy: first the code, by which the name is taken, then local data."""
    data = [("data", submission.data_here, submission.data)] if submission.data_here else []
    return [("code", code, submission.spec.url(submission.spec.code)), *data]


def require_offered(spec: JobSpec, client: Client) -> None:
    """CloudError where ModelArts has no such machine or image; it names those that there are."""
    flavors = [flavor["flavor_id"] for flavor in client.flavors()]
    if spec.flavor not in flavors:
        raise CloudError(f"flavor: {spec.flavor}: not offered here; there are {', '.join(sorted(flavors)) or 'none'}")
    engines = [f"{engine['engine_name']}:{engine['engine_version']}" for engine in client.engines()]
    wanted = f"{spec.engine.name}:{spec.engine.version}"
    if wanted not in engines:
        raise CloudError(f"engine: {wanted}: not offered here; there are {', '.join(sorted(engines)) or 'none'}")


def fetch(bucket: str, name: str, out: Path, progress=None, store=None) -> runs.Run | None:
    """Copy the Run of the job `name` to `out`; its recipe then has the data folder given at submission.

    None where the job left no Run. Raises LabkitError. An interrupted fetch leaves a hidden folder beside `out`, which
    the next one resumes.
    """
    runs.require_free(out)
    job = f"{bucket.rstrip('/')}/jobs/{name}"
    if not copying.exists(f"{job}/run/recipe.yaml", store=store):
        return None
    out = out.resolve()
    part = out.with_name(f".{out.name}-{name}.part")
    part.mkdir(parents=True, exist_ok=True)
    with locked(part, CloudError(f"{out}: another fetch to this folder is under way")):
        copying.copy(f"{job}/run", part, progress=progress, store=store)
        with tempfile.TemporaryDirectory() as top:
            submitted = Path(top, "recipe.yaml")
            copying.copy(f"{job}/code/recipe.yaml", submitted, store=store)
            run = runs.Run(part)
            runs.relocate(run, recipes.load(submitted, run.recipe.profile).data.folder)
        part.replace(out)
    return runs.open_run(out)

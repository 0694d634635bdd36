"""Submission: run a lab as a training job. Copies code and data to a bucket, and fetches the Run.

In the bucket:
- jobs/NAME/ contains a job's code, run and log
- data/FOLDER is shared by all jobs
"""

import datetime
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from labkit.modelarts.client import Client
from labkit.modelarts.job import JobSpec, read_job
from labkit.modelarts.packing import BOOT_FILE
from labkit.obs import copying
from labkit.obs.place import CloudError, parse
from labkit.system.files import locked
from labkit.training import provenance, recipes, runs


@dataclass(frozen=True)
class Submission:
    """A job that is ready to be copied and started.

    lab: folder with its code. data_here: folder of the data on this machine, to be copied; None if a URL was given.
    data_at_home: the data folder that a fetched Run will name.
    """

    spec: JobSpec
    recipe: recipes.Recipe
    lab: Path
    data_here: Path | None
    data_at_home: str

    @property
    def data(self) -> str:
        """URL of the data in the bucket."""
        return self.spec.url(self.spec.inputs["data_url"])

    @property
    def run(self) -> str:
        """URL of the job's Run."""
        return self.spec.url(self.spec.outputs["train_url"])


def prepare(lab, profile, data=None, settings=(), name=None, make_sample=True, **given) -> Submission:
    """The job for a lab, from its recipe and job.yaml, which the arguments override. Copies nothing yet.

    bucket: obs://BUCKET[/FOLDER], or file://DIR for a rehearsal; default: job.yaml's. data: an obs:// URL, or a folder
    on this machine; default: job.yaml's, then the recipe's. make_sample: write the sample data if it is needed and
    missing. Raises LabkitError.
    """
    from labkit.data.formats import format_of

    file = recipes.find(lab)
    folder, recipe = file.parent, recipes.load(file, profile, tuple(settings))
    unique = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"  # two jobs may begin in one second
    name = name or f"{recipe.lab}-{recipe.profile}-{unique}"
    given |= {"name": name, "boot_file": BOOT_FILE, "code": f"jobs/{name}/code", "log": f"jobs/{name}/log"}
    job = read_job(folder / "job.yaml", **given)
    here, home, place = None, recipe.data.folder, job.inputs.get("data_url")
    if "://" in str(data):
        place = str(data)
    elif data:
        here, home = Path(data), str(Path(data).resolve())
    elif not place:
        here = recipe.data_folder()
    if here:
        place = f"data/{_name(Path(home))}"
        is_sample = here == recipe.data_folder() and recipe.data.folder.startswith("sample/")
        data_set = format_of(recipe, here)
        info = (data_set.make_sample() if make_sample and is_sample else data_set).check()
        recipes.require_fit(recipe, info)  # fail now, before anything is copied or paid for
        copying.ls(here)  # report links that cannot be followed now, before everything else has been copied
    commit, changed = provenance.commit()  # a job has no git
    variables = {provenance.COMMIT: commit + ("+" if changed else "")} if commit else {}
    spec = read_job(
        folder / "job.yaml", **given, inputs=job.inputs | {"data_url": place},
        outputs=job.outputs | {"train_url": f"jobs/{name}/run"}, parameters=job.parameters | {"profile": profile},
        environment=variables | job.environment,
    )  # fmt: skip
    return Submission(spec, recipe, folder, here, home)


def _name(folder):
    """Name of a data folder in the bucket, different for the sample and the real data."""
    name = folder.name if folder.is_absolute() else "/".join(part for part in folder.parts if part != "..")
    return re.sub(r"[^A-Za-z0-9._/-]", "-", name)


def require_new(submission: Submission, store=None) -> None:
    """Raise CloudError if the bucket has files of a job of this name, or other data under the same name.

    If the bucket is a folder on this machine, this creates the job's folder, so that only one submission gets the name.
    """
    spec = submission.spec
    taken = CloudError(f"{spec.name}: the bucket has files of a job of this name; choose another --name")
    if copying.exists(job := spec.url(f"jobs/{spec.name}"), store=store):
        raise taken
    source, target = submission.data_here, submission.data
    if not copying.exists(target, store=store):
        if source is None:
            raise CloudError(f"{target}: there is no data")
    elif source:
        differing = copying.verify(source, target, unknown=[], store=store)  # ignores missing checksums
        if others := [line for line in differing if not line.endswith(": missing")]:
            raise CloudError(f"{target}: differs from {source} ({others[0]}); choose one of them with --data")
    if isinstance(place := parse(job), Path):
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            raise taken from None


def copies(submission: Submission, code: Path) -> list[tuple[str, Path, str]]:
    """(name, source, target) of each copy: first the code, which takes the job's name, then local data."""
    data = [("data", submission.data_here, submission.data)] if submission.data_here else []
    return [("code", code, submission.spec.url(submission.spec.code)), *data]


def require_offered(spec: JobSpec, client: Client) -> None:
    """CloudError if ModelArts does not offer the job's machine or image; the message lists what it offers."""
    flavors = [flavor["flavor_id"] for flavor in client.flavors()]
    engines = [f"{engine['engine_name']}:{engine['engine_version']}" for engine in client.engines()]
    engine = f"{spec.engine.name}:{spec.engine.version}"
    for key, wanted, offered in (("flavor", spec.flavor, flavors), ("engine", engine, engines)):
        if wanted not in offered:
            raise CloudError(f"{key}: {wanted}: not offered here; there are {', '.join(sorted(offered)) or 'none'}")


def fetch(bucket: str, name: str, out: Path, progress=None, store=None) -> runs.Run | None:
    """Copy the Run of the job `name` to `out`; its recipe then has the data folder given at submission.

    None if the job left no Run. Raises LabkitError. An interrupted fetch leaves a hidden folder next to `out`, which
    the next one resumes.
    """
    runs.require_free(out)
    if not re.fullmatch(r"[\w-]+", name):
        raise CloudError(f"{name!r}: not the name of a job")
    job = f"{bucket.rstrip('/')}/jobs/{name}"
    if not copying.exists(f"{job}/run/recipe.yaml", store=store):
        return None
    out = out.resolve()
    part = out.with_name(f".{out.name}-{name}.part")
    part.mkdir(parents=True, exist_ok=True)
    with locked(part, CloudError(f"{out}: another fetch into this folder is running")):
        copying.copy(f"{job}/run", part, progress=progress, store=store)
        with tempfile.TemporaryDirectory() as top:
            submitted = Path(top, "recipe.yaml")
            copying.copy(f"{job}/code/recipe.yaml", submitted, store=store)
            run = runs.Run(part)
            try:
                runs.relocate(run, recipes.load(submitted, run.recipe.profile).data.folder)
            except recipes.RecipeError as error:
                shutil.rmtree(part)  # there is nothing to resume
                message = str(error).replace(str(part), f"{job}/run").replace(top, f"{job}/code")
                raise recipes.RecipeError(message) from None
        part.replace(out)
    return runs.open_run(out)

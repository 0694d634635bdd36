"""A training job of ModelArts: where its code, data and results are in OBS, and what runs it."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationError

from labkit.obs.place import CloudError, parse, why_no_file, why_outside
from labkit.system import yaml_files
from labkit.training.schema import Count, Part


def _place(text):
    text = text.removesuffix("/")
    try:
        key = parse(text).key if text.startswith("obs://") else text
    except CloudError as error:
        raise ValueError(error.message) from None
    if (key or key is text) and (reason := why_outside(key) or why_no_file(key)):  # a URL may name a whole bucket
        raise ValueError(reason)
    return text


def _bucket(text):
    if text.startswith("file://"):
        return str(text).removesuffix("/")
    if not text.startswith("obs://"):
        raise ValueError("must be obs://BUCKET, or for a rehearsal file://DIR")
    return _place(text)


def _text(value):
    return str(value) if isinstance(value, bool | int | float) else value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
NotEmpty = Annotated[str, StringConstraints(min_length=1)]
Place = Annotated[str, AfterValidator(_place)]  # an obs:// URL, or a path relative to the bucket
Text = Annotated[str, BeforeValidator(_text), StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")]


class Engine(Part):
    """A preset image of ModelArts."""

    name: NotEmpty  # as `labkit jobs engines` lists them
    version: NotEmpty


class JobSpec(Part):
    """A training job. Inputs and outputs are passed to the job as parameters: --NAME=FOLDER.

    bucket: obs://BUCKET[/FOLDER], or for a rehearsal file://DIR. boot_file: a path relative to the code folder.
    """

    name: Name
    bucket: Annotated[str, AfterValidator(_bucket)]
    code: Place
    boot_file: Place
    engine: Engine
    flavor: NotEmpty  # as `labkit jobs flavors` lists them
    nodes: Count = 1
    inputs: dict[Name, Place] = {}
    outputs: dict[Name, Place] = {}
    parameters: dict[Name, Text] = {}
    environment: Annotated[dict[Variable, Text], Field(max_length=100)] = {}
    log: Place | None = None

    def url(self, place: str) -> str:
        """URL of one of this job's places."""
        return place if "://" in place else f"{self.bucket}/{place}"

    def body(self) -> dict:
        """The request body that creates the job. It contains OBS folders as /bucket/path/."""

        def folder(place):
            return self.url(place).removeprefix("obs:/") + "/"

        algorithm = {
            "code_dir": folder(self.code),
            "boot_file": folder(self.code) + self.boot_file,
            "engine": {"engine_name": self.engine.name, "engine_version": self.engine.version},
            "parameters": [{"name": name, "value": value} for name, value in self.parameters.items()],
            "inputs": [{"name": k, "remote": {"obs": {"obs_url": folder(v)}}} for k, v in self.inputs.items()],
            "outputs": [{"name": k, "remote": {"obs": {"obs_url": folder(v)}}} for k, v in self.outputs.items()],
            "environments": self.environment,
        }
        spec = {"resource": {"flavor_id": self.flavor, "node_count": self.nodes}}
        if self.log:
            spec["log_export_path"] = {"obs_url": folder(self.log)}
        return {"kind": "job", "metadata": {"name": self.name}, "algorithm": algorithm, "spec": spec}


def read_job(path: Path, **given) -> JobSpec:
    """Read a job's YAML; given keys override those in the file.

    CloudError: one line that names the key and, unless the key was given, the file.
    """
    try:
        return JobSpec.model_validate(yaml_files.read(path, CloudError) | given)
    except ValidationError as error:
        first = error.errors()[0]
        source = "" if first["loc"][0] in given else f"{path}: "
        raise CloudError(source + _message(first)) from None


def _message(error):
    """'key: problem', without the values of variables and parameters, which may be secret."""
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    if error["type"] in ("missing", "extra_forbidden"):
        return f"{key}: {'missing' if error['type'] == 'missing' else 'unknown key'}"
    text = error["msg"].removeprefix("Value error, ").replace("Input should", "must").replace("String should", "must")
    return f"{key}: {text}" + ("" if key.startswith(("environment", "parameters")) else f", not {error['input']!r}")

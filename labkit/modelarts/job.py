"""What a training job of ModelArts is: where its code, data and results are in OBS, and what runs it."""

import difflib
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from labkit.obs.place import CloudError, Remote, parse, why_no_file, why_outside
from labkit.training.schema import Count, Part


def _refuse(reason):
    raise PydanticCustomError("job", "{reason}", {"reason": reason})


def _place(text):
    try:
        place = parse(text) if ":" in text else None
        if place and not (isinstance(place, Remote) and place.scheme == "obs"):
            _refuse(f"must be an obs:// URL or a path below the bucket's, not {text!r}")
    except CloudError as error:
        _refuse(error.message)
    key = (place.key if place else text).rstrip("/")
    reason = why_outside(key) or why_no_file(key) or (None if key.isprintable() else "has a control character")
    if reason and (key or not place):  # a URL may be a whole bucket's
        _refuse(f"{text!r}: {reason}")
    return text.rstrip("/")


def _bucket(text):
    if not text.startswith("obs://"):
        _refuse(f"must be an obs:// URL, not {text!r}")
    return _place(text)


def _text(value):
    return str(value) if isinstance(value, bool | int | float) else value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
NotEmpty = Annotated[str, StringConstraints(min_length=1)]
Place = Annotated[str, AfterValidator(_place)]  # an obs:// URL, or a path below the bucket's
Text = Annotated[str, BeforeValidator(_text), StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")]


class Engine(Part):
    """A preset image of ModelArts."""

    name: NotEmpty  # as `labkit jobs engines` lists them
    version: NotEmpty


class JobSpec(Part):
    """A training job. inputs and outputs arrive in the job as parameters: --NAME=FOLDER."""

    name: Name
    bucket: Annotated[str, AfterValidator(_bucket)]
    code: Place
    boot_file: str  # a path below the code folder, or an obs:// URL there
    engine: Engine
    flavor: NotEmpty  # as `labkit jobs flavors` lists them
    nodes: Count = 1
    inputs: dict[Name, Place] = {}
    outputs: dict[Name, Place] = {}
    parameters: dict[Name, Text] = {}
    environment: Annotated[dict[Variable, Text], Field(max_length=100)] = {}
    log: Place | None = None

    @field_validator("boot_file")
    @classmethod
    def _inside_code(cls, file, info):
        _place(file)
        if not {"bucket", "code"} <= info.data.keys():
            return file  # they have errors of their own
        code = _url(info.data["code"], info.data["bucket"])
        if not _url(file, code).startswith(f"{code}/"):
            _refuse(f"must be inside the code folder, {code}, not {file!r}")
        return file if file.endswith(".py") else _refuse(f"must be a Python file, not {file!r}")

    @model_validator(mode="after")
    def _apart(self):
        """What the job writes may not be written over by another of its copies."""
        places = {"code": self.code, **{f"inputs.{name}": place for name, place in self.inputs.items()}}
        taken = {name: f"{self.url(place)}/" for name, place in places.items()}
        written = {f"outputs.{name}": place for name, place in self.outputs.items()}
        for name, place in (written | ({"log": self.log} if self.log else {})).items():
            url = f"{self.url(place)}/"
            for other, there in taken.items():
                if url.startswith(there) or there.startswith(url):
                    _refuse(f"{name}: {place!r} overlaps {other}")
            taken[name] = url
        return self

    @field_validator("outputs", "parameters")
    @classmethod
    def _once(cls, given, info):
        taken = {*info.data.get("inputs", ()), *info.data.get("outputs", ())}
        for name in given.keys() & taken:
            _refuse(f"{name!r} is the name of an input or output already")
        return given

    def url(self, place: str) -> str:
        """obs:// URL of a place of this job."""
        return _url(place, self.bucket)

    def body(self) -> dict:
        """What is sent to create the job. Folders of OBS are written /bucket/path/."""

        def folder(place):
            return self.url(place).removeprefix("obs:/") + "/"

        algorithm = {
            "code_dir": folder(self.code),
            "boot_file": _url(self.boot_file, self.url(self.code)).removeprefix("obs:/"),
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


def _url(place, above):
    return place if place.startswith("obs://") else f"{above}/{place}"


def read_job(path: Path, **given) -> JobSpec:
    """Read a job's YAML; what is given wins over the file's.

    CloudError: one line that names the key and, unless the key was given, the file.
    """
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CloudError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise CloudError(f"{path}{line}: not valid YAML") from None
    if not isinstance(tree, dict):
        raise CloudError(f"{path}: a job holds keys and values, this file does not")
    try:
        return JobSpec.model_validate(tree | given)
    except ValidationError as error:
        first = error.errors()[0]
        blamed = "" if first["loc"] and first["loc"][0] in given else f"{path}: "
        raise CloudError(blamed + _message(first)) from None


def _message(error):
    """'key: what is wrong with it', without values of variables and parameters: one may be a secret."""
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    if not key:
        return error["msg"]  # of the whole; it names the keys itself
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, JobSpec.model_fields, n=1)
        return f"{key}: unknown key" + (f", did you mean {near[0]}?" if near else "")
    if error["type"] in ("missing", "job"):
        missing = "missing; give one by --bucket, or rehearse here: --target local" if key == "bucket" else "missing"
        return f"{key}: {missing if error['type'] == 'missing' else error['msg']}"
    what = error["msg"].replace("Input should be", "must be").replace("String should", "must")
    hidden = error["loc"][0] in ("environment", "parameters")
    return f"{key}: {what}" + ("" if hidden else f", not {error['input']!r}")

"""Recipe files: what to train, on what, how long. Read once, validated once against `labkit.training.schema`.

A `recipe.yaml` holds `lab`, `base` and `profiles`; a profile overrides keys of the base, `--set` overrides both.
"""

import difflib
import json
import reprlib
import typing
from pathlib import Path

from pydantic import ValidationError

from labkit.schedules import total_steps
from labkit.system import yaml_files
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.training.schema import Recipe, RecipeFile

LABS = REPO / "labs"


class RecipeError(LabkitError):
    """A recipe that cannot be used: one line that names the key and the file."""


def find(lab: str) -> Path:
    """Path of a lab's recipe: `lab` is a name under labs/, a folder or a file. Raises RecipeError."""
    for place in (Path(lab), Path(lab, "recipe.yaml"), Path("labs", lab, "recipe.yaml"), LABS / lab / "recipe.yaml"):
        if place.is_file():
            return place
    known = ", ".join(sorted(file.parent.name for file in LABS.glob("*/recipe.yaml")))
    raise RecipeError(f"no lab {lab!r}: neither a recipe nor a folder with a recipe.yaml; labs here: {known}")


def load(path: Path, profile: str, settings: tuple[str, ...] = ()) -> Recipe:
    """Read a lab's recipe.yaml, choose a profile, apply `key=value` settings, validate. Raises RecipeError."""
    file = _validate(RecipeFile, yaml_files.read(path, RecipeError), path)
    if profile not in file.profiles:
        raise RecipeError(f"{path}: no profile {profile!r}; it has {', '.join(file.profiles)}")
    tree = {"lab": file.lab, "profile": profile}
    for part in (file.base, file.profiles[profile] or {}, *map(_parse_setting, settings)):
        tree = _merge(tree, part)
    return _validate(Recipe, tree, path, settings)


def read_resolved(path: Path) -> Recipe:
    """Read the resolved recipe that a Run keeps. Raises RecipeError."""
    return _validate(Recipe, yaml_files.read(path, RecipeError), path)


def _merge(tree, part):
    """Deep merge: keys of `part` win. The polynomial schedule shares only lr_max with the others."""
    merged = dict(tree)
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(before := merged.get(key), dict):
            names = before.get("name"), value.get("name", before.get("name"))
            if key == "schedule" and len({name == "polynomial" for name in names}) == 2:
                before = {name: rate for name, rate in before.items() if name == "lr_max"}
            value = _merge(before, value)
        merged[key] = value
    return merged


def _parse_setting(setting):
    """'schedule.lr_max=0.2' -> {"schedule": {"lr_max": 0.2}}"""
    key, equals, text = setting.partition("=")
    if key in ("lab", "profile"):
        raise RecipeError(f"--set {setting}: {key} cannot be set; name another lab or --profile")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"--set {setting}: write it as key=value, such as schedule.lr_max=0.2")
    objects = []
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: objects.append(pairs) or dict(pairs))
    except ValueError:
        value = float(text) if yaml_files.FLOATS.fullmatch(text) else text  # .5e-1, or a bare word such as resnet50
    if any(len(dict(pairs)) < len(pairs) for pairs in objects):
        raise RecipeError(f"--set {setting}: a key occurs twice")
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def require_same(run_recipe: Recipe, asked: Recipe, path: Path, keys: tuple[str, ...]) -> None:
    """A resumed Run keeps its recipe: RecipeError names the first of `keys` for which `asked` has another value."""
    kept, wanted = flatten(run_recipe.model_dump()), flatten(asked.model_dump())
    for key, value in kept.items():
        other = wanted.get(key)  # None if the data has another format
        if value != other and any(key == name or key.startswith(f"{name}.") for name in keys):
            raise RecipeError(f"{path}: a resumed Run keeps its recipe: {key} is {value!r}, not {other!r}")


def require_fit(recipe: Recipe, info, ranks: int = 1) -> None:
    """RecipeError for checked data (`labkit.data.files.Info`) of other classes, or with too few images."""
    classes, batch_size = recipe.network.num_classes, recipe.data.batch_size
    if len(info.classes) != classes:
        raise RecipeError(f"network.num_classes: {classes}, but {info.folder} has {len(info.classes)}")
    shard = -(-info.train_images // ranks)  # images for each process
    if batch_size > shard:
        each = f", {shard} for each of {ranks} processes" if ranks > 1 else ""
        raise RecipeError(f"data.batch_size: {batch_size}, but {info.folder} has {info.train_images} images{each}")
    steps, warmup = shard // batch_size, recipe.schedule.warmup_epochs
    if round(warmup * steps) >= total_steps(recipe.epochs, steps):
        given = f"{recipe.epochs:g} epochs of {steps} steps, {warmup:g} of them warm-up"
        raise RecipeError(f"schedule.warmup_epochs: {given}, leave none to train; ask for fewer")


def with_folder(recipe: Recipe, folder: str) -> Recipe:
    """The recipe with another data folder."""
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"folder": folder})})


def flatten(tree, prefix=""):
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _validate(model, tree, path, settings=()):
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _refusal(error.errors()[0], path, settings) from None


def _refusal(error, path, settings):
    """RecipeError for the first of pydantic's errors: it names the setting that is wrong, or else the file."""
    place, kind, message = list(error["loc"]), error["type"], error["msg"].replace("valid list", "list like [A, B]")
    if place[:1] in (["data"], ["optimizer"], ["schedule"]):
        del place[1:2]  # the format or name, which chose the keys
    if kind.startswith("union_tag"):
        place.append("format" if place == ["data"] else "name")
    key = error["ctx"]["key"] if kind == "contradiction" else ".".join(map(str, place))
    if kind == "extra_forbidden":
        message = f"unknown key{_suggestion(key)}"
    elif kind in ("missing", "union_tag_not_found"):
        message = "missing"
    elif kind not in ("contradiction", "union_tag_invalid"):
        message = f"{message.replace('Input should be', 'must be')}, not {reprlib.repr(error['input'])}"
    wrong = [f"--set {setting}" for setting in settings if f"{key}.".startswith(f"{setting.partition('=')[0]}.")]
    return RecipeError(f"{[path, *wrong][-1]}: {key}: {message}")


def _suggestion(key):
    """What to add for a key that ends nearly like a known one, such as `, did you mean schedule.lr_max?`."""
    known = {name: name for name in Recipe.model_fields}
    for name, field in Recipe.model_fields.items():
        for part in typing.get_args(field.annotation) or [field.annotation]:
            known |= {inner: f"{name}.{inner}" for inner in getattr(part, "model_fields", {})}
    close = difflib.get_close_matches(key.rpartition(".")[2], [end for end in known if known[end] != key], 1, 0.8)
    return f", did you mean {known[close[0]]}?" if close else ""

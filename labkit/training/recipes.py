"""Recipe files: what to train, on what, how long. Read once, validated once against `labkit.training.schema`.

A `recipe.yaml` holds `lab`, `base` and `profiles`; a profile overrides keys of the base, `--set` overrides both.
"""

import difflib
import functools
import json
import sys
import typing
from pathlib import Path

import yaml
from pydantic import ValidationError

from labkit.system.environment import REPO
from labkit.system.errors import LabkitError
from labkit.training.schema import RENAMED, Part, Recipe, contradiction, with_new_names


class RecipeError(LabkitError):
    """A recipe that cannot be used: one line that names the key and the file."""


def find(lab: str) -> Path:
    """Path of a lab's recipe: `lab` is a name under labs/, a folder or a file. Raises RecipeError."""
    named = [Path("labs") / lab, REPO / "labs" / lab]
    for place in [Path(lab), *named]:
        if place.is_file():
            return place
        if (place / "recipe.yaml").is_file():
            return place / "recipe.yaml"
    known = sorted(p.parent.name for p in (REPO / "labs").glob("*/recipe.yaml"))
    raise RecipeError(
        f"no lab {lab!r}: neither a recipe nor a folder with a recipe.yaml; labs here: {', '.join(known)}"
    )


def lab_of(path: Path) -> str:
    """The lab that a recipe file names. Raises RecipeError."""
    return str(_read(path).get("lab"))


def load(path: Path, profile: str, settings: tuple[str, ...] = ()) -> Recipe:
    """Read a lab's recipe.yaml, choose a profile, apply `key=value` settings, validate. Raises RecipeError."""
    file = _read(path)
    unknown = set(file) - {"lab", "base", "profiles"}
    if unknown:
        raise RecipeError(f"{path}: unknown key {sorted(unknown, key=str)[0]!r}; a recipe has lab, base and profiles")
    profiles = file.get("profiles")
    if not isinstance(profiles, dict) or not profiles:
        raise RecipeError(f"{path}: profiles: missing or empty")
    if profile not in profiles:
        raise RecipeError(f"{path}: no profile {profile!r}; it has {', '.join(map(str, profiles))}")
    tree = {"lab": file.get("lab"), "profile": profile}
    for key, part in (("base", file.get("base") or {}), (f"profiles.{profile}", profiles[profile] or {})):
        if not isinstance(part, dict):
            raise RecipeError(f"{path}: {key}: must hold keys, not {part!r}")
        tree = _merge(tree, _renamed(part, path))
    for setting in settings:
        tree = _merge(tree, _renamed(_parse_setting(setting), f"--set {setting}"))
    return _validate(tree, path, settings)


def baseline_of(recipe: Recipe, path: Path) -> Recipe:
    """The recipe with the optimizer and schedule of its baseline, a profile of the recipe file; raises RecipeError.

    It also gets the baseline's epochs, unless the recipe's own were changed, as by `--set`. All else is equal.
    """
    own, baseline = load(path, recipe.profile), load(path, recipe.baseline)
    tree, other = recipe.model_dump(), baseline.model_dump()
    tree |= {key: other[key] for key in ("profile", "optimizer", "schedule")} | {"baseline": None}
    if recipe.epochs == own.epochs:
        tree["epochs"] = baseline.epochs
    return _validate(tree, path)


def read_resolved(path: Path) -> Recipe:
    """Read the resolved recipe that a Run keeps; older names are accepted silently. Raises RecipeError."""
    tree, _ = with_new_names(_read(path))
    return _validate(tree, path)


def _read(path):
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as error:  # ValueError: not text, or no valid date
        place = getattr(error, "problem_mark", None)
        line = f", line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RecipeError(f"{path}{line}: not valid YAML: {problem}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{path}: a recipe holds keys and values, this file does not")
    return tree


def _renamed(tree, place):
    """The tree under current names; each older name in a place (a file, a setting) is reported once."""
    tree, older = with_new_names(tree)
    for key in older:
        _report(f"{place}: {key} is now called {RENAMED[key]}")
    return tree


@functools.cache
def _report(line):
    print(line, file=sys.stderr)


def _merge(tree, part):
    """Deep merge: keys of `part` win."""
    merged = dict(tree)
    for key, value in part.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _parse_setting(setting):
    """'schedule.lr_max=0.2' -> {"schedule": {"lr_max": 0.2}}"""
    key, equals, text = setting.partition("=")
    if key in ("lab", "profile"):
        raise RecipeError(f"--set {setting}: {key} cannot be set; name another lab or --profile")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"--set {setting}: write it as key=value, such as schedule.lr_max=0.2")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text  # a bare word, such as network.name=resnet50
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def key_of(setting: str) -> str:
    """The key that a `key=value` setting changes, under its current name."""
    key = setting.partition("=")[0]
    return RENAMED.get(key, key)


def require_same(run_recipe: Recipe, asked: Recipe, path: Path, keys: tuple[str, ...]) -> None:
    """A resumed Run keeps its recipe: RecipeError names the first of `keys` for which `asked` has another value."""
    kept, wanted = flatten(run_recipe.model_dump()), flatten(asked.model_dump())
    for key, value in kept.items():
        other = wanted.get(key)  # None if the data has another format
        if value != other and any(key == name or key.startswith(f"{name}.") for name in keys):
            raise RecipeError(f"{path}: a resumed Run keeps its recipe: {key} is {value!r}, not {other!r}")


def require_fit(recipe: Recipe, info, ranks: int = 1) -> int:
    """Steps per epoch on checked data (`labkit.data.files.Info`).

    RecipeError if the number of classes is not the recipe's, or if a process has fewer images than a batch.
    """
    classes, batch_size = recipe.network.num_classes, recipe.data.batch_size
    if len(info.classes) != classes:
        raise RecipeError(f"network.num_classes: {classes}, but {info.folder} has {len(info.classes)}")
    shard = -(-info.train_images // ranks)  # images for each process
    if batch_size > shard:
        each = f", {shard} for each of {ranks} processes" if ranks > 1 else ""
        raise RecipeError(f"data.batch_size: {batch_size}, but {info.folder} has {info.train_images} images{each}")
    return shard // batch_size


def flatten(tree, prefix=""):
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _validate(tree, path, settings=()):
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        raise _refusal(error.errors()[0], path, settings) from None
    if wrong := contradiction(recipe):
        raise RecipeError(f"{path}: {wrong[0]}: {wrong[1]}")
    return recipe


def _refusal(error, path, settings):
    """RecipeError for the first of pydantic's errors: it names the setting that is wrong, or else the file."""
    place = error["loc"]
    if place[0] in ("data", "optimizer"):  # pydantic puts the format or name, which chose the keys, after it
        place = (place[0], *place[2:])
    key = ".".join(map(str, place))
    if error["type"] == "extra_forbidden":
        what = f"unknown key{_suggestion(key)}"
    elif error["type"] == "missing":
        what = "missing"
    else:
        what = f"{error['msg'].replace('Input should be', 'must be')}, not {error['input']!r}"
    wrong = [f"--set {setting}" for setting in settings if f"{key}.".startswith(f"{key_of(setting)}.")]
    return RecipeError(f"{next(iter(wrong), path)}: {key}: {what}")


def _suggestion(key):
    """", did you mean schedule.lr_max?" if a known key ends alike."""
    known = list(Recipe.model_fields)
    for name, field in Recipe.model_fields.items():
        for part in _parts(field.annotation):
            known += [f"{name}.{inner}" for inner in part.model_fields]
    by_end = {name.rpartition(".")[2]: name for name in known if name != key}  # `key` itself: of another data.format
    by_end |= {"lr": "schedule.lr_max", "learning_rate": "schedule.lr_max", "num_epochs": "epochs"}  # used elsewhere
    found = difflib.get_close_matches(key.rpartition(".")[2], by_end, n=1, cutoff=0.8)
    return f", did you mean {by_end[found[0]]}?" if found else ""


def _parts(annotation):
    """The kinds of Part that a key may hold: one, one of several by their format, or none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation]
    return [part for inner in typing.get_args(annotation) for part in _parts(inner)]

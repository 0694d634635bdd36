"""Recipe: what to train, on what, how long. Read once, validated once.

A `recipe.yaml` holds `lab`, `base` and `profiles`; a profile overrides keys of the base, `--set` overrides both.
"""

import difflib
import json
import re
import typing
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import PydanticCustomError

from labkit.system.environment import REPO, data_root
from labkit.system.errors import LabkitError


class RecipeError(LabkitError):
    """A recipe that cannot be used: one line that names the key and the file."""


def _exponent(value):
    """YAML 1.1 reads 1e-4 as text; take it for the number it is."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def _increasing(numbers):
    if not numbers or sorted(set(numbers)) != numbers:
        raise PydanticCustomError("increasing", "must be numbers that increase, such as [85, 160]")
    return numbers


Number = Annotated[float, BeforeValidator(_exponent)]
Count = Annotated[int, Field(ge=1)]
Probability = Annotated[Number, Field(ge=0, le=1)]
Share = Annotated[Number, Field(gt=0, le=1)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]


class Part(BaseModel):
    """Strict: an unknown key, a missing one or a wrong type is an error, never a guess."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _either(key, first, second):
    """Tells which of two kinds a part is, by one of its keys; an unknown kind is for the first one to refuse."""

    def kind(part):
        wanted = part.get(key) if isinstance(part, dict) else getattr(part, key, None)
        return second if wanted == second else first

    return Discriminator(kind)


CIFAR_ONLY = ("resnet8", "resnet20", "resnet32", "resnet56")


class Network(Part):
    """The network: its name, stem, classes and first weights."""

    name: Literal[
        "resnet8", "resnet20", "resnet32", "resnet56", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"
    ]  # fmt: skip
    stem: Literal["cifar", "imagenet"] = "cifar"
    num_classes: Annotated[int, Field(ge=2)] = 10  # must be the data's; CIFAR-10's layout has ten
    init: Literal["torchvision", "guide"] = "torchvision"  # first weights; see labkit.networks.initialise_as_guide
    fast_gradient: bool = False  # labkit's own gradient of 3x3 convolutions, for a CPU


class Data(Part):
    """Keys of every format; the format decides which others there are."""

    format: Literal["cifar10", "image_folder"] = "cifar10"
    folder: str  # relative to the data root ($LABKIT_DATA or data/), or absolute
    batch_size: Count
    eval_batch_size: Count = 250
    image_size: Count
    flip: Probability = 0.5
    workers: Count = 1  # no more start than there are cores; on the fast route of image_folder the stream depends on it


class Cifar10(Data):
    """CIFAR-10's binary layout: images of 32x32 pixels."""

    image_size: Count = 32
    crop_padding: Annotated[int, Field(ge=0)] = 4


class ImageFolder(Data):
    """Folders train/ and val/ with a folder of images for each class, as ImageNet has them."""

    image_size: Count = 224
    resize: Count = 256  # shorter side before the centre crop, in evaluation
    crop_scale: list[Share] = [0.08, 1.0]  # smallest and largest part of an image's area, in training
    route: Literal["fast", "exact"] = "fast"  # MindData's operations in C++, or torchvision's pixels
    bad_images: Literal["error", "skip"] = "error"


class Loss(Part):
    """Cross-entropy; see labkit.losses."""

    smoothing: Annotated[Number, Field(ge=0, lt=1)] = 0.0


class Momentum(Part):
    """`nn.Momentum` with decay groups; see labkit.optimizers."""

    name: Literal["momentum"] = "momentum"
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 1e-4
    clip_norm: Positive | None = None  # longest gradient, all parameters taken together


class Thor(Momentum):
    """Momentum on gradients that are preconditioned first; see labkit.thor."""

    name: Literal["thor"] = "thor"
    damping: NotNegative = 0.03  # lambda at the start
    damping_decay: Share = 0.87  # factor on it every ten epochs
    update_interval: Count = 100  # steps between two computations of the factors; the seed's `frequency`
    final_interval: Count | None = None  # what it grows to towards the end
    trace_rule: Literal["thor", "thor_stop", "thor_nt"] = "thor"
    block_size: Count = 128  # rows of the blocks that factors are cut into
    factor_average: Annotated[Number, Field(ge=0, lt=1)] = 0.0  # share of the old factor in the new one; 0 in the paper


class Schedule(Part):
    """Learning rates; see labkit.schedules."""

    name: Literal["quadratic", "cosine", "linear", "polynomial"] = "quadratic"
    lr_init: NotNegative
    lr_max: Positive
    lr_end: NotNegative = 0.0
    warmup_epochs: NotNegative = 0.0
    # polynomial only, which needs the first two
    power: Positive | None = None
    end_epoch: Positive | None = None  # where the rate would be lr_end
    halve_epochs: list[NotNegative] | None = None  # halved at the start of each of these


class Recipe(Part):
    """Everything that decides a training run. Epochs count from 1, steps from 1, sizes in pixels."""

    lab: str
    profile: str
    network: Network
    data: Annotated[
        Annotated[Cifar10, Tag("cifar10")] | Annotated[ImageFolder, Tag("image_folder")],
        _either("format", "cifar10", "image_folder"),
    ]
    loss: Loss = Loss()
    optimizer: Annotated[
        Annotated[Momentum, Tag("momentum")] | Annotated[Thor, Tag("thor")], _either("name", "momentum", "thor")
    ] = Momentum()
    schedule: Schedule
    epochs: Count
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    amp_level: Literal["O0", "O1", "O2", "O3"] = "O0"  # mixed precision: O0 is none, O2 all but batch norm in float16
    loss_scale: Annotated[Number, Field(ge=1)] = 1.0  # keeps small gradients above float16's smallest number
    all_reduce_fusion: Annotated[list[Count], AfterValidator(_increasing)] | None = None  # see labkit.system.device
    sink: bool = False  # feed whole epochs to the device (Ascend); on CPU MindSpore does without
    max_steps: Count | None = None  # end early (with sink: after that epoch) and evaluate; same schedule
    rival: str | None = None  # profile that `labkit train` trains afterwards, to compare with; see rival_of
    checkpoint_steps: Count | None = None  # also checkpoint every so many steps, not only after an epoch

    def data_folder(self) -> Path:
        """Folder of the data set."""
        return data_root() / self.data.folder

    def dump(self) -> str:
        """The recipe as YAML text, every key written out."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)


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
        tree = _merge(tree, part)
    for setting in settings:
        tree = _merge(tree, _parse_setting(setting))
    return _validate(tree, path, settings)


def rival_of(recipe: Recipe, path: Path) -> Recipe:
    """The recipe with the optimizer and schedule of its rival, a profile of the recipe file; raises RecipeError.

    The rival's epochs too, unless the recipe has other epochs than its own profile. All else is equal.
    """
    own, rival = load(path, recipe.profile), load(path, recipe.rival)
    tree, other = recipe.model_dump(), rival.model_dump()
    tree |= {key: other[key] for key in ("profile", "optimizer", "schedule")} | {"rival": None}
    if recipe.epochs == own.epochs:
        tree["epochs"] = rival.epochs
    return _validate(tree, path, ())


def read_resolved(path: Path) -> Recipe:
    """Read the resolved recipe that a Run keeps. Raises RecipeError."""
    return _validate(_read(path), path, ())


def _read(path):
    try:
        tree = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such file") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, KeyError) as error:  # ValueError: not text, or a date that is none
        place = getattr(error, "problem_mark", None)
        line = f", line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RecipeError(f"{path}{line}: not valid YAML: {problem}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{path}: a recipe holds keys and values, this file does not")
    return tree


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
        raise RecipeError(f"--set {setting}: {key} is not to be set; name another lab or --profile")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"--set {setting}: write it as key=value, such as schedule.lr_max=0.2")
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # a bare word, such as network.name=resnet50
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def require_same(run_recipe: Recipe, asked: Recipe, path: Path, keys: tuple[str, ...]) -> None:
    """A resumed Run keeps its recipe: RecipeError, naming the first of `keys` that was asked to differ."""
    kept, wanted = flatten(run_recipe.model_dump()), flatten(asked.model_dump())
    for key, value in kept.items():
        other = wanted.get(key)  # none where the data has another format
        if value != other and any(key == name or key.startswith(f"{name}.") for name in keys):
            raise RecipeError(f"{path}: a resumed Run keeps its recipe: {key} is {value!r}, not {other!r}")


def flatten(tree, prefix=""):
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _parts(annotation):
    """The kinds of Part that a key may hold: one, one of several by their format, or none."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation]
    return [part for inner in typing.get_args(annotation) for part in _parts(inner)]


def _suggestion(key):
    """", did you mean schedule.lr_max?" where a known key ends alike."""
    known = list(Recipe.model_fields)
    for name, field in Recipe.model_fields.items():
        for part in _parts(field.annotation):
            known += [f"{name}.{inner}" for inner in part.model_fields]
    by_end = {name.rpartition(".")[2]: name for name in known if name != key}  # `key` itself: of another data.format
    found = difflib.get_close_matches(key.rpartition(".")[2], by_end, n=1, cutoff=0.8)
    return f", did you mean {by_end[found[0]]}?" if found else ""


def _validate(tree, path, settings):
    try:
        recipe = Recipe.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = first["loc"]
        if place[0] in ("data", "optimizer"):  # pydantic puts the format or name, which chose the keys, behind it
            place = (place[0], *place[2:])
        key = ".".join(str(part) for part in place)
        what = {"extra_forbidden": "unknown key", "missing": "missing"}.get(
            first["type"], first["msg"].replace("Input should be", "must be")
        )
        given = "" if what in ("unknown key", "missing") else f", not {first['input']!r}"
        if what == "unknown key":
            given = _suggestion(key)
        for setting in settings:
            if f"{key}.".startswith(setting.partition("=")[0] + "."):
                raise RecipeError(f"--set {setting}: {key}: {what}{given}") from None
        raise RecipeError(f"{path}: {key}: {what}{given}") from None
    name, stem, warmup = recipe.network.name, recipe.network.stem, recipe.schedule.warmup_epochs
    if stem == "imagenet" and name in CIFAR_ONLY:
        raise RecipeError(f"{path}: network.stem: {name} has the cifar stem only")
    if warmup >= recipe.epochs:
        raise RecipeError(
            f"{path}: schedule.warmup_epochs: {warmup:g} epochs of warm-up do not fit into {recipe.epochs} of "
            "training; ask for fewer"
        )
    polynomial = recipe.schedule.name == "polynomial"
    for key in ("power", "end_epoch", "halve_epochs"):
        given = getattr(recipe.schedule, key) is not None
        if given and not polynomial:
            raise RecipeError(f"{path}: schedule.{key}: for the polynomial schedule, not {recipe.schedule.name}")
        if polynomial and not given and key != "halve_epochs":
            raise RecipeError(f"{path}: schedule.{key}: missing: the polynomial schedule needs it")
    if recipe.optimizer.name == "thor":
        first, final = recipe.optimizer.update_interval, recipe.optimizer.final_interval
        if final is not None and final < first:
            raise RecipeError(f"{path}: optimizer.final_interval: must be at least {first}, the first, not {final}")
        if recipe.sink:
            raise RecipeError(f"{path}: sink: must be false: THOR decides after each step what the next computes")
    if recipe.data.format == "image_folder":
        scale, resize, size = recipe.data.crop_scale, recipe.data.resize, recipe.data.image_size
        if len(scale) != 2 or scale[0] > scale[1]:
            raise RecipeError(f"{path}: data.crop_scale: must be a smallest and a largest share, not {scale}")
        if resize < size:
            raise RecipeError(f"{path}: data.resize: must be at least data.image_size, {size}, not {resize}")
    return recipe

"""The schema of a recipe: every key, its type, bounds and default, and which keys contradict each other."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from labkit import choices
from labkit.schedules import SCHEDULES
from labkit.system.environment import data_root


def _increasing(numbers):
    if not numbers or sorted(set(numbers)) != numbers:
        raise PydanticCustomError("increasing", "must be numbers that increase, such as [85, 160]")
    return numbers


def _number(value):
    return int(value) if value == int(value) else value


Count = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """Strict: an unknown key, a missing one or a wrong type is an error, never a guess."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def model_copy(self, *, update=None, deep=False):
        """A copy with other values, validated like any other."""
        return type(self).model_validate(dict(self) | (update or {}))


class Network(Part):
    """The network: its name, stem, classes and first weights."""

    name: Literal[choices.NETWORKS]
    stem: Literal[choices.STEMS] = "cifar"
    num_classes: Annotated[int, Field(ge=2)] = 10  # must be the data's; CIFAR-10's layout has ten
    init: Literal[choices.INITS] = "torchvision"  # first weights; see labkit.networks.resnet
    fast_gradient: bool = False  # labkit's own gradient of 3x3 convolutions, for a CPU


class Data(Part):
    """Keys of every format; each format adds its own."""

    format: str
    folder: str  # relative to the data root ($LABKIT_DATA or data/), or absolute
    batch_size: Count
    eval_batch_size: Count = 250
    image_size: Count
    flip: Probability = 0.5
    workers: Count = 1  # at most one per core; on the fast route of image_folder the stream depends on it


class Cifar10(Data):
    """CIFAR-10's binary layout: images of 32x32 pixels."""

    format: Literal["cifar10"]
    image_size: Count = 32
    crop_padding: Annotated[int, Field(ge=0, le=32)] = 4


class ImageFolder(Data):
    """Folders train/ and val/ with a folder of images for each class, as ImageNet has them."""

    format: Literal["image_folder"]
    image_size: Count = 224
    resize: Count = 256  # shorter side before the centre crop, in evaluation
    crop_scale: list[Share] = [0.08, 1.0]  # smallest and largest part of an image's area, in training
    route: Literal[choices.ROUTES] = "fast"  # MindData's operations in C++, or torchvision's pixels
    bad_images: Literal["error", "skip"] = "error"


class Loss(Part):
    """Cross-entropy; see labkit.losses."""

    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Momentum(Part):
    """`nn.Momentum` with decay groups; see labkit.optimizers."""

    name: Literal["momentum"]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 1e-4
    clip_norm: Positive | None = None  # largest norm of the gradient (THOR's: preconditioned) over all parameters


class AdamW(Part):
    """`nn.AdamWeightDecay`; see labkit.optimizers."""

    name: Literal["adamw"]
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    weight_decay: NotNegative = 0.01


class Muon(Part):
    """Muon for convolutions, momentum for everything else; see labkit.optimizers."""

    name: Literal["muon"]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: NotNegative = 0.0
    rest: Positive = 1.0  # learning rate of everything else, as a multiple of the convolutions'


class Thor(Momentum):
    """Momentum on gradients that are preconditioned first; see labkit.thor."""

    name: Literal["thor"]
    damping: Positive = 0.03  # lambda at the start
    damping_decay: Share = 0.87  # multiplies it every ten epochs
    factor_interval: Count = 100  # steps between two computations of the factors; the original tutorial's `frequency`
    final_interval: Count | None = None  # the interval at the end; it grows to this
    trace_rule: Literal[tuple(choices.TRACE_RULES)] = "thor"
    trace_threshold: Annotated[float, Field(ge=0.001)] | None = None  # w1 of the rule instead of the paper's 0.01
    block_size: Count = 128  # rows of the blocks that factors are cut into
    factor_ema: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the old factor in the new one; 0 in the paper
    factor_share: Share = 1.0  # how much of a batch factors are computed from; 1 in the paper
    clip_fisher_norm: Positive | None = None  # largest Fisher norm of the preconditioned gradient; none in the paper


class Schedule(Part):
    """Learning rates with a warm-up; see labkit.schedules."""

    name: Literal[tuple(name for name in SCHEDULES if name != "polynomial")]
    lr_init: NotNegative
    lr_max: Positive
    lr_end: NotNegative = 0.0
    warmup_epochs: NotNegative = 0.0


class Polynomial(Part):
    """Learning rates of the original THOR tutorial; see labkit.schedules."""

    name: Literal["polynomial"]
    lr_max: Positive
    power: Positive
    end_epoch: Positive  # where the rate would be 0
    halve_epochs: list[NotNegative] = []  # halved at the start of each of these
    warmup_epochs: ClassVar[float] = 0.0  # it has none


class Recipe(Part):
    """Everything that decides a training run. Epochs count from 1, steps from 1, sizes in pixels."""

    lab: str
    profile: str
    network: Network
    data: Annotated[Cifar10 | ImageFolder, Field(discriminator="format")]
    loss: Loss = Loss()
    optimizer: Annotated[Momentum | AdamW | Muon | Thor, Field(discriminator="name")] = Momentum(name="momentum")
    schedule: Annotated[Schedule | Polynomial, Field(discriminator="name")]
    epochs: Annotated[float, Field(gt=0, le=100_000), AfterValidator(_number)]  # 1.5: half of the second
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    amp_level: Literal["O0", "O1", "O2", "O3"] = "O0"  # mixed precision: O0 is none, O2 all but batch norm in float16
    loss_scale: Annotated[float, Field(ge=1)] = 1.0  # keeps small gradients above float16's smallest number
    all_reduce_fusion: Annotated[list[Count], AfterValidator(_increasing)] | None = None  # see labkit.system.device
    dataset_sink_mode: bool = False  # feed whole epochs to the device (Ascend); MindSpore does not use it on CPUs
    max_steps: Count | None = None  # end early (in sink mode: after that epoch) and evaluate; same schedule
    checkpoint_steps: Count | None = None  # also checkpoint every so many steps, not only after an epoch
    evaluation_steps: Count | None = None  # also evaluate every so many steps, not only after an epoch

    @model_validator(mode="after")
    def _fits_together(self):
        if wrong := _contradiction(self):
            raise PydanticCustomError("contradiction", "{reason}", dict(zip(("key", "reason"), wrong)))
        return self

    def data_folder(self) -> Path:
        """Folder of the data set."""
        return data_root() / self.data.folder

    def dump(self) -> str:
        """The recipe as YAML text, every key written out."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)


class RecipeFile(Part):
    """A recipe.yaml: a profile overrides keys of the base."""

    lab: str
    base: dict = {}
    profiles: Annotated[dict[str, dict | None], Field(min_length=1)]


def _contradiction(recipe):
    """The first key that does not fit the others, and why; None if all of them fit together."""
    network, data, optimizer, schedule = recipe.network, recipe.data, recipe.optimizer, recipe.schedule
    if network.stem == "imagenet" and network.name in choices.CIFAR_LAYOUTS:
        return "network.stem", f"{network.name} has the cifar stem only"
    if schedule.warmup_epochs >= recipe.epochs:
        given = f"{schedule.warmup_epochs:g} epochs of warm-up do not fit into {recipe.epochs} of training"
        return "schedule.warmup_epochs", f"{given}; ask for fewer"
    if recipe.dataset_sink_mode and recipe.epochs != int(recipe.epochs):
        return "epochs", "must be a whole number with dataset_sink_mode, which gives a whole epoch to the device"
    for key in ("checkpoint_steps", "evaluation_steps"):
        if recipe.dataset_sink_mode and getattr(recipe, key):
            return key, "not with dataset_sink_mode, which gives a whole epoch to the device"
    if isinstance(optimizer, Thor):
        first, final = optimizer.factor_interval, optimizer.final_interval
        if final is not None and final < first:
            return "optimizer.final_interval", f"must be at least {first}, the first, not {final}"
        if optimizer.trace_threshold is not None and optimizer.trace_rule == "thor_nt":
            return "optimizer.trace_threshold", "for the rules thor and thor_stop, not thor_nt, which has none"
        if recipe.dataset_sink_mode:
            return "dataset_sink_mode", "must be false: THOR decides after each step what the next computes"
    if isinstance(data, ImageFolder):
        scale = data.crop_scale
        if len(scale) != 2 or scale[0] > scale[1]:
            return "data.crop_scale", f"must be a smallest and a largest share, not {scale}"
        if data.resize < data.image_size:
            return "data.resize", f"must be at least data.image_size, {data.image_size}, not {data.resize}"
    return None

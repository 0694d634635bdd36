"""Build: from a recipe to its data, network, loss, optimizer and schedule."""

from contextlib import contextmanager

import mindspore as ms
import numpy as np
from mindspore.amp import FixedLossScaleManager
from mindspore.train import Model

from labkit.data.files import Info
from labkit.data.formats import format_of
from labkit.losses import CrossEntropySmooth
from labkit.networks import (
    create_resnet,
    initialise_as_guide,
    mixed_precision,
    use_fast_gradients,
    zero_residual_branches,
)
from labkit.optimizers import OPTIMIZERS, momentum
from labkit.schedules import SCHEDULES, total_steps
from labkit.training.recipes import Recipe, RecipeError, require_fit


def prepare_data(recipe: Recipe, ranks=1) -> Info:
    """Check the data that a recipe needs, after making a sample that is missing. Raises DataError, RecipeError."""
    data = format_of(recipe)
    info = (data.make_sample() if recipe.data.folder.startswith("sample/") else data).check()
    require_fit(recipe, info, ranks)
    return info


@contextmanager
def naming_damage(recipe: Recipe, info: Info | None):
    """Inside this context, MindSpore's error about an image that it cannot decode becomes a DataError with its name."""
    try:
        yield
    except RuntimeError as error:
        if "dataset" in str(error).partition("\n")[0]:  # MindData's errors begin so
            format_of(recipe).require_decodable(info or format_of(recipe).check())  # only rank 0 has one
        raise


def create_network(recipe: Recipe):
    """The recipe's network in its precision, initialised from MindSpore's global seed. Raises RecipeError."""
    net = create_resnet(recipe.network.name, recipe.network.num_classes, recipe.network.stem)
    last, count = (recipe.all_reduce_fusion or [0])[-1], len(net.trainable_params())
    if last >= count:
        raise RecipeError(f"all_reduce_fusion: {last}, but {recipe.network.name} has {count} parameters, from 0 on")
    if recipe.network.init == "guide":
        initialise_as_guide(net)
    elif recipe.network.init == "zero_residual":
        zero_residual_branches(net)
    # labkit's gradient is for float32 on a CPU; elsewhere MindSpore's own gives the same values.
    if recipe.network.fast_gradient and ms.get_context("device_target") == "CPU" and recipe.amp_level == "O0":
        use_fast_gradients(net)
    return mixed_precision(net, recipe.amp_level)


def train_dataset(recipe: Recipe, info: Info | None = None, shard=(0, 1)):
    """Batches to train on, shuffled and augmented; info: of `prepare_data`, which has read the data already.

    shard: (rank, ranks) of a process that trains on its share.
    """
    data = format_of(recipe)
    return data.create_dataset(data.images("train", info), recipe.data.batch_size, recipe.seed, shard)


def test_dataset(recipe: Recipe, info: Info | None = None):
    """Every test image once, in the order of the file; info: of `prepare_data`, which has read the data already."""
    data = format_of(recipe)
    return data.create_dataset(data.images("test", info), recipe.data.eval_batch_size)


def learning_rates(recipe: Recipe, steps_per_epoch: int) -> np.ndarray:
    """The recipe's schedule: a value per step."""
    schedule = recipe.schedule.model_dump()
    return SCHEDULES[schedule.pop("name")](recipe.epochs, steps_per_epoch, **schedule)


def create_model(recipe: Recipe, lr: np.ndarray, net=None) -> Model:
    """Network (a new one if not given), loss and optimizer, put together; lr has a value per step."""
    net = net or create_network(recipe)
    loss = CrossEntropySmooth(recipe.network.num_classes, recipe.loss.smoothing)
    options = recipe.optimizer.model_dump(exclude={"name"})
    if recipe.optimizer.name == "thor":
        from labkit.thor import ThorStep  # here, so that training without THOR does not depend on it

        options = {key: options[key] for key in ("momentum", "weight_decay", "clip_norm")}
        optimizer = momentum(net, lr, **options)  # over the plain network's parameters; gradients come unscaled
        return Model(ThorStep(net, loss, optimizer, create_thor(recipe, net, len(lr) / recipe.epochs)))
    optimizer = OPTIMIZERS[recipe.optimizer.name](net, lr, **options, loss_scale=recipe.loss_scale)
    scale = FixedLossScaleManager(recipe.loss_scale, drop_overflow_update=False)
    return Model(net, loss, optimizer, loss_scale_manager=scale)


def create_thor(recipe: Recipe, net, steps_per_epoch: float):
    """`labkit.thor.Preconditioner` with the recipe's settings, for a training of its epochs; changes the network."""
    from labkit.thor import TRACE_RULES, Preconditioner, damping, factor_steps

    thor = recipe.optimizer
    upper, lower = TRACE_RULES[thor.trace_rule]
    return Preconditioner(
        net,
        damping(recipe.epochs, steps_per_epoch, thor.damping, thor.damping_decay),
        factor_steps(total_steps(recipe.epochs, steps_per_epoch), thor.factor_interval, thor.final_interval),
        block_size=thor.block_size,
        thresholds=(thor.trace_threshold or upper, lower),
        factor_ema=thor.factor_ema,
        factor_share=thor.factor_share,
        clip_fisher_norm=thor.clip_fisher_norm,
        loss_scale=recipe.loss_scale,
    )

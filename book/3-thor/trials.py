"""The trials of thor-settings.md: short trainings of ResNet-8 with THOR on the digits, at 16 x 16 pixels."""

import time

import numpy as np
from mindspore import Tensor

from labkit import thor
from labkit.system import device
from labkit.training import build, recipes

SMALL = (
    "network.name=resnet8",
    "data.image_size=16",
    "optimizer.damping=0.03",
    "optimizer.factor_interval=5",
    "optimizer.factor_ema=0",
    "optimizer.factor_share=1",
    "schedule.lr_max=0.1",
    "schedule.warmup_epochs=0.5",
)


def load(*changes):
    """The lab's profile `sample` with a small network and small images, and with further changes."""
    recipe = recipes.load(recipes.find("thor"), "sample", (*SMALL, *changes))
    build.prepare_data(recipe)  # makes the sample if it is missing
    return recipe


def read_batches(recipe):
    """The batches of one epoch."""
    return list(build.train_dataset(recipe).create_tuple_iterator(num_epochs=1))


def create_step(recipe):
    """The recipe's training step with THOR, not compiled yet; its network is drawn from the recipe's seed."""
    lr = build.learning_rates(recipe, build.train_dataset(recipe).get_dataset_size())
    device.setup(recipe.seed)
    return build.create_model(recipe, lr).train_network.set_train()


class Trials:
    """Trainings that share a compiled step, the first weights and the batches."""

    def __init__(self, recipe):
        self.step, self.batches = create_step(recipe), read_batches(recipe)
        self.start = {parameter.name: parameter.asnumpy().copy() for parameter in self.step.get_parameters()}

    def train(self, damping, interval, steps=33):
        """Losses of a training from the first weights; fewer if a factor is too close to singular."""
        for parameter in self.step.get_parameters():
            parameter.set_data(Tensor(self.start[parameter.name]))
        self.step.preconditioner.damping = np.full(steps, damping)
        self.step.preconditioner.factor_steps = thor.factor_steps(steps, interval)
        losses = []
        try:
            for number in range(steps):
                batch = self.batches[number % len(self.batches)]
                losses.append(float(self.step(*batch).asnumpy()))
        except thor.ThorError as error:
            print(f"damping {damping:g}, step {len(losses) + 1}: {error}")
        return losses


def factors(step, batch):
    """[A, G] of each layer on a batch, in blocks."""
    return [[factor.asnumpy() for factor in pair] for pair in step.gradients_and_factors(*batch)[2]]


def relative_error(found, exact):
    """|F - F'| / |F'| of A and of G (2,), the mean over batches and layers; both are lists of `factors`."""
    errors = [
        [np.linalg.norm(f - e) / np.linalg.norm(e) for f, e in zip(*pairs)]
        for batches in zip(found, exact)
        for pairs in zip(*batches)
    ]
    return np.mean(errors, axis=0)


def milliseconds(functions, batch, rounds=5):
    """The best call of each function on a batch; in every round each is called once, after a round that compiles."""
    taken = []
    for _ in range(rounds + 1):
        taken.append([])
        for function in functions:
            start = time.perf_counter()
            result = function(*batch)
            while not isinstance(result, Tensor):
                result = result[-1]
            result.asnumpy()  # waits until it is computed
            taken[-1].append(1000 * (time.perf_counter() - start))
    return np.min(taken[1:], axis=0)

"""Wrong answers to the THOR lab: slips that learners make, other formulas, and cheats."""

import functools

from grader.lab import load
from tests.grader import mutants
from tests.grader.mutants import Mutant

LAB = load("thor")
slip = functools.partial(mutants.slip, LAB.solutions)

SLIPS = [
    slip("rounded down", "updates", "-(-stop // interval)", "stop // interval", "partly right", 1),
    slip("all epochs so far", "updates", " + (-start // interval)", "", "wrong", 0),
    slip("epochs from 1", "updates", "epoch * steps_per_epoch, (epoch + 1)", "(epoch - 1) * steps_per_epoch, epoch",
         "partly right", 1),
    slip("counted per epoch", "updates", "-(-stop // interval) + (-start // interval)",
         "-(-steps_per_epoch // interval)", "partly right", 1),
    slip("A: not divided by N", "factor_a", " / len(x)", "", "partly right", 2),
    slip("A: no root of T", "factor_a", " / positions**0.5", " / positions", "partly right", 2),
    slip("A: T of stride 1", "factor_a", "positions**0.5", "(x.shape[2] * x.shape[3]) ** 0.5", "partly right", 2),
    slip("A: position before channel", "factor_a", "(0, 2, 3, 1, 4, 5)", "(0, 2, 3, 4, 5, 1)", "partly right", 1),
    slip("A: stride forgotten", "factor_a", "[:, :, ::stride, ::stride]", "", "wrong", 0),
    slip("G: reshaped", "factor_g", "own.transpose(1, 0, 2, 3).reshape(", "own.reshape(", "wrong", 0),
    slip("G: of the mean loss", "factor_g", "(len(d) / loss_scale)", "(1 / loss_scale)", "wrong", 0),
    slip("G: not divided by N", "factor_g", "columns.T / len(d)", "columns.T", "wrong", 0),
    slip("G: loss scale left in", "factor_g", "(len(d) / loss_scale)", "len(d)", "partly right", 2),
    slip("G: T instead of its root", "factor_g", ") ** 0.5", ")", "wrong", 0),
    slip("G: squared in float16", "factor_g", "np.asarray(d, np.float64)", "d", "partly right", 4),
    slip("one block more", "direction", "-(-len(factor) // block_size)", "len(factor) // block_size + 1",
         "partly right", 3),
    slip("the undamped factors", "direction", "damping**0.5 * ", "0 * ", "wrong", 0),
    slip("damping, not its root", "direction", "damping**0.5 * ", "damping * ", "wrong", 0),
    slip("A and G swapped", "direction", "(factor_g, factor_a)", "(factor_a, factor_g)", "error", 0),
    slip("blocks as equal as possible", "direction", "np.arange(len(factor)) // -(-len(factor) // blocks)",
         "np.arange(len(factor)) * blocks // len(factor)", "partly right", 3),
    slip("no blocks", "direction", "np.where(block[:, None] == block, factor, 0)", "factor", "partly right", 3),
    slip("blocks of G forgotten", "direction", "block[:, None] == block",
         "(block[:, None] == block) | (factor is factor_g)", "partly right", 3),
    slip("not in the gradient's shape", "direction", ".T.reshape(gradient.shape)", ".T", "partly right", 4),
    slip("one factor's share", "limit", "1 / damping", "1 / damping**0.5", "wrong", 0),
    slip("inverses on the other sides", "step", "inverse_g @ (gradient / loss_scale) @ inverse_a",
         "inverse_a @ (gradient / loss_scale) @ inverse_g", "wrong", 0),
    slip("gradient forgotten", "step", " + natural", "", "wrong", 0),
    slip("loss scale left in", "step", "(gradient / loss_scale)", "gradient", "partly right", 2),
    slip("decay before the inverses", "step", "(gradient / loss_scale) @ inverse_a",
         "(gradient / loss_scale + weight_decay * weight) @ inverse_a - weight_decay * weight", "partly right", 1),
    slip("decay beside the momentum", "step", "lr * moved, moved", "lr * moved, moved - weight_decay * weight",
         "partly right", 1),
    slip("rate in the velocity", "step", "natural + weight_decay * weight\n    return weight - lr * moved, moved",
         "lr * (natural + weight_decay * weight)\n    return weight - moved, moved", "wrong", 0),
    slip("momentum forgotten", "step", "momentum * velocity + ", "", "wrong", 0),
    slip("plus for minus", "step", "weight - lr", "weight + lr", "wrong", 0),
    slip("new at exactly w1", "rule", "change > w1", "change >= w1", "partly right", 4),
    slip("absolute change", "rule", "abs(trace - in_use) / in_use", "abs(trace - in_use)", "wrong", 0),
    slip("divided by zero", "rule", ' if in_use else float("inf")', "", "error", 0),
    slip("in use from the start", "rule", "done, in_use, stopped = [], 0, False",
         "done, in_use, stopped = [], 1, False", "partly right", 4),
    slip("forgotten after a keep", "rule",
         'trace if done[-1] == "new" else in_use', 'trace if done[-1] == "new" else 0',
         "partly right", 4),
    slip("the last update's trace", "rule", 'trace if done[-1] == "new" else in_use', "trace", "partly right", 4),
    slip("stopped, and starts again", "rule", "stopped or change", "change", "partly right", 4),
    slip("what was spent", "saved", "return 1 - inverted / sum", "return inverted / sum", "wrong", 0),
    slip("every process alike", "defect", "np.asarray(images) / np.sum(images)",
         "np.full(len(images), 1 / len(images))", "partly right", 2),
    slip("two processes only", "defect", "np.tensordot(shares_of_all, np.asarray(factors), axes=1)",
         "(images[0] * factors[0] + images[1] * factors[1]) / (images[0] + images[1])", "wrong", 0),
    slip("damping, not its root", "defect", "damping**0.5 * np.eye(len(joint))",
         "damping * np.eye(len(joint))", "wrong", 0),
    slip("sum of the factors", "defect", " / np.sum(images)", "", "wrong", 0),
]  # fmt: skip

OTHERS = [
    Mutant("the lesson's patches", "factor_a", """\
def my_factor_a(x, kernel, stride, padding):
    rows = patches(x)
    return rows.T @ rows / (len(x) * x.shape[2] * x.shape[3]) * np.sqrt(x.shape[2] * x.shape[3])
""", "wrong", 0),
    Mutant("K-FAC's pi", "direction", """\
def direction_of(gradient, factor_a, factor_g, damping, block_size):
    n, m, root = len(factor_a), len(factor_g), damping**0.5
    pi = ((np.trace(factor_a) / n) / (np.trace(factor_g) / m)) ** 0.5
    left = np.linalg.inv(factor_g + root / pi * np.eye(m))
    return (left @ gradient.reshape(m, n) @ np.linalg.inv(factor_a + pi * root * np.eye(n))).reshape(gradient.shape)
""", "wrong", 0),
    Mutant("by labkit's schedule", "updates", """\
def count_updates(epoch, steps_per_epoch, interval):
    mask = schedules.update_mask((epoch + 1) * steps_per_epoch, interval)
    return mask[epoch * steps_per_epoch :].sum()
""", "right", 2),
    # Helpers with names that the master uses too.
    Mutant("names of probes: direction", "direction", """\
def scale(factor, damping):
    return factor + damping**0.5 * np.eye(len(factor))


def direction(matrix, factor, damping, block_size):
    size = -(-len(factor) // -(-len(factor) // block_size))
    pieces = [slice(place, place + size) for place in range(0, len(factor), size)]
    return np.concatenate([np.linalg.solve(scale(factor[one, one], damping), matrix[one]) for one in pieces])


def direction_of(gradient, factor_a, factor_g, damping, block_size):
    matrix = direction(gradient.reshape(len(gradient), -1), factor_g, damping, block_size)
    return direction(matrix.T, factor_a, damping, block_size).T.reshape(gradient.shape)
""", "right", 5),
    Mutant("weighted mean of inverses", "defect", """\
def shared_inverse(factors, images, damping):
    inverses = [np.linalg.inv(factor + damping**0.5 * np.eye(len(factor))) for factor in factors]
    return np.average(inverses, axis=0, weights=images)
""", "wrong", 0),
]  # fmt: skip

CHEATS = [
    Mutant("the same mark for all", "rule", "marks = lambda traces, w1, w2: ['new'] * len(traces)", "wrong", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *CHEATS]

"""Wrong answers to the THOR lab: slips that learners make, other formulas, and cheats."""

import functools

from grader.lab import load
from tests.grader import mutants
from tests.grader.mutants import Mutant

LAB = load("thor")
slip = functools.partial(mutants.slip, LAB.solutions)

SLIPS = [
    slip("rounded down", "factor_steps", "-(-stop // interval)", "stop // interval", "partly right", 1),
    slip("one more", "factor_steps", "(-start // interval)", "(-start // interval) + 1", "wrong", 0),
    slip("all epochs so far", "factor_steps", " + (-start // interval)", "", "wrong", 0),
    slip("epochs from 1", "factor_steps", "epoch * steps_per_epoch, (epoch + 1)",
         "(epoch - 1) * steps_per_epoch, epoch", "partly right", 1),
    slip("counted per epoch", "factor_steps", "-(-stop // interval) + (-start // interval)",
         "-(-steps_per_epoch // interval)", "partly right", 1),
    slip("A: not divided by N", "factor_a", " / len(x)", "", "partly right", 2),
    slip("A: no root of T", "factor_a", " / positions**0.5", " / positions", "partly right", 2),
    slip("A: T of stride 1", "factor_a", "positions**0.5", "(x.shape[2] * x.shape[3]) ** 0.5", "partly right", 2),
    slip("A: a side for the root of T", "factor_a", "positions**0.5", "windows.shape[2]", "partly right", 2),
    slip("A: padded on one side", "factor_a", "(padding, padding), (padding, padding)", "(padding, 0), (padding, 0)",
         "wrong", 0),
    slip("A: position before channel", "factor_a", "(0, 2, 3, 1, 4, 5)", "(0, 2, 3, 4, 5, 1)", "partly right", 1),
    slip("A: stride forgotten", "factor_a", "[:, :, ::stride, ::stride]", "", "wrong", 0),
    slip("G: reshaped", "factor_g", "own.transpose(1, 0, 2, 3).reshape(", "own.reshape(", "wrong", 0),
    slip("G: of the mean loss", "factor_g", "(len(d) / loss_scale)", "(1 / loss_scale)", "partly right", 3),
    slip("G: not divided by N", "factor_g", "columns.T / len(d)", "columns.T", "partly right", 3),
    slip("G: loss scale left in", "factor_g", "(len(d) / loss_scale)", "len(d)", "partly right", 4),
    slip("G: T instead of its root", "factor_g", ") ** 0.5", ")", "partly right", 3),
    slip("G: a side for the root of T", "factor_g", "(d.shape[2] * d.shape[3]) ** 0.5", "d.shape[3]",
         "partly right", 3),
    slip("G: squared in float16", "factor_g", "np.asarray(d, np.float64)", "d", "partly right", 4),
    slip("G: unscaled in float16", "factor_g", "np.asarray(d, np.float64) * (len(d) / loss_scale)",
         "np.asarray(d * d.dtype.type(len(d) / loss_scale), np.float64)", "partly right", 4),
    slip("one block more", "direction", "-(-len(factor) // block_size)", "len(factor) // block_size + 1",
         "partly right", 3),
    slip("the undamped factors", "direction", "damping**0.5 * ", "0 * ", "wrong", 0),
    slip("damping, not its root", "direction", "damping**0.5 * ", "damping * ", "wrong", 0),
    slip("A and G swapped", "direction", "(factor_g, factor_a)", "(factor_a, factor_g)", "error", 0),
    slip("full blocks, then a rest", "direction", "-(-len(factor) // blocks)", "block_size", "partly right", 3),
    slip("blocks as equal as possible", "direction", "np.arange(len(factor)) // -(-len(factor) // blocks)",
         "np.arange(len(factor)) * blocks // len(factor)", "partly right", 3),
    slip("ones outside the blocks", "direction", "factor, 0)", "factor, 1)", "partly right", 3),
    slip("no blocks", "direction", "np.where(block[:, None] == block, factor, 0)", "factor", "partly right", 3),
    slip("blocks of G forgotten", "direction", "block[:, None] == block",
         "(block[:, None] == block) | (factor is factor_g)", "partly right", 3),
    slip("not in the gradient's shape", "direction", ".T.reshape(gradient.shape)", ".T", "partly right", 4),
    slip("one factor's share", "limit", "1 / damping", "1 / damping**0.5", "wrong", 0),
    slip("inverses on the other sides", "step", "inverse_g @ (gradient / loss_scale) @ inverse_a",
         "inverse_a @ (gradient / loss_scale) @ inverse_g", "partly right", 2),
    slip("both inverses on the right", "step", "inverse_g @ (gradient / loss_scale) @",
         "(gradient / loss_scale) @ inverse_g @", "partly right", 2),
    slip("gradient forgotten", "step", " + natural", "", "wrong", 0),
    slip("loss scale left in", "step", "(gradient / loss_scale)", "gradient", "partly right", 3),
    slip("loss scale out of the decay too", "step", "weight_decay * weight", "weight_decay * weight / loss_scale",
         "partly right", 3),
    slip("decay before the inverses", "step", "(gradient / loss_scale) @ inverse_a",
         "(gradient / loss_scale + weight_decay * weight) @ inverse_a - weight_decay * weight", "partly right", 3),
    slip("decay beside the momentum", "step", "lr * moved, moved", "lr * moved, moved - weight_decay * weight",
         "partly right", 3),
    slip("rate in the velocity", "step", "natural + weight_decay * weight\n    return weight - lr * moved, moved",
         "lr * (natural + weight_decay * weight)\n    return weight - moved, moved",
         "partly right", 2),
    slip("momentum forgotten", "step", "momentum * velocity + ", "", "partly right", 2),
    slip("the average kind of momentum", "step", "+ natural", "+ (1 - momentum) * natural", "partly right", 2),
    slip("plus for minus", "step", "weight - lr", "weight + lr", "wrong", 0),
    slip("new at exactly w1", "rule", "change > w1", "change >= w1", "partly right", 4),
    slip("stops at exactly w2", "rule", "change < w2", "change <= w2", "partly right", 4),
    slip("absolute change", "rule", "abs(trace - in_use) / in_use", "abs(trace - in_use)", "wrong", 0),
    slip("only what grows", "rule", "abs(trace - in_use)", "(trace - in_use)", "partly right", 4),
    slip("divided by zero", "rule", ' if in_use else float("inf")', "", "error", 0),
    slip("1 for no inverse", "rule", '/ in_use if in_use else float("inf")', "/ (in_use or 1)", "partly right", 4),
    slip("in use from the start", "rule", "done, in_use, stopped = [], 0, False",
         "done, in_use, stopped = [], 1, False", "partly right", 4),
    slip("forgotten after a keep", "rule",
         'trace if done[-1] == "new" else in_use', 'trace if done[-1] == "new" else 0',
         "partly right", 4),
    slip("the trace seen last", "rule", 'trace if done[-1] == "new" else in_use', "trace", "partly right", 4),
    slip("stopped, and starts again", "rule", "stopped or change", "change", "partly right", 4),
    slip("what was spent", "saved", "return 1 - inverted / sum", "return inverted / sum", "wrong", 0),
    slip("two layers assumed", "saved", 'sum(len(record["trace"]) for record in records)', "(2 * len(records))",
         "wrong", 0),
    slip("a layer too few", "saved", "for record in records)\n    return", "for record in records[1:])\n    return",
         "wrong", 0),
    slip("every process alike", "defect", "np.asarray(images) / np.sum(images)",
         "np.full(len(images), 1 / len(images))", "partly right", 2),
    slip("two processes only", "defect", "np.tensordot(shares_of_all, np.asarray(factors), axes=1)",
         "(images[0] * factors[0] + images[1] * factors[1]) / (images[0] + images[1])", "wrong", 0),
    slip("damping, not its root", "defect", "damping**0.5 * np.eye(len(joint))",
         "damping * np.eye(len(joint))", "wrong", 0),
    slip("twice the damping", "defect", "damping**0.5 * np.eye(len(joint))", "2 * damping * np.eye(len(joint))",
         "wrong", 0),
    slip("damping of every entry", "defect", "damping**0.5 * np.eye(len(joint))", "damping**0.5", "wrong", 0),
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
    Mutant("the product damped", "direction", """\
def direction_of(gradient, factor_a, factor_g, damping, block_size):
    fisher = np.kron(factor_g, factor_a)
    return np.linalg.solve(fisher + damping * np.eye(len(fisher)), gradient.ravel()).reshape(gradient.shape)
""", "wrong", 0),
    Mutant("A on the left of a square", "direction", """\
def direction_of(gradient, factor_a, factor_g, damping, block_size):
    a, g = (np.linalg.inv(factor + damping**0.5 * np.eye(len(factor))) for factor in (factor_a, factor_g))
    matrix = gradient.reshape(len(factor_g), -1)
    return ((a @ matrix @ g) if len(a) == len(g) else (g @ matrix @ a)).reshape(gradient.shape)
""", "partly right", 1),
    Mutant("by labkit, whole", "direction", """\
def direction_of(gradient, factor_a, factor_g, damping, block_size):
    factors = (Tensor(factor[None].astype(np.float32)) for factor in (factor_a, factor_g))
    inverses = [thor.damped_inverse(factor, damping) for factor in factors]
    return thor.precondition(Tensor(gradient.astype(np.float32)), *inverses).asnumpy()
""", "partly right", 3),
    Mutant("by labkit's schedule", "factor_steps", """\
def count_factor_steps(epoch, steps_per_epoch, interval):
    mask = thor.factor_steps((epoch + 1) * steps_per_epoch, interval)
    return mask[epoch * steps_per_epoch :].sum()
""", "right", 2),
    # Helpers with names that the master uses too.
    Mutant("names of probes: G", "factor_g", """\
def scale(d, loss_scale):
    return np.float64(d) * len(d) / loss_scale


direction = handed = counts = factor = None


def my_factor_g(d, loss_scale):
    rows = scale(d, loss_scale).transpose(0, 2, 3, 1).reshape(-1, d.shape[1])
    return rows.T @ rows / len(d) / np.sqrt(len(rows) / len(d))
""", "right", 5),
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
    Mutant("the last record's names", "saved", """\
def saved_share(records):
    return 1 - len(records[-1]["inverted"]) / len(records[-1]["trace"])
""", "wrong", 0),
]  # fmt: skip

CHEATS = [
    Mutant("constants", "factor_steps", "count_factor_steps = lambda *given: 270", "wrong", 0),
    Mutant("the same mark for all", "rule", "marks = lambda traces, w1, w2: ['new'] * len(traces)", "wrong", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *CHEATS]

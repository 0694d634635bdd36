"""Wrong answers to the ImageNet lab: slips that learners make, answers to another question, and cheats."""

import functools

from grader.lab import load
from tests.grader import mutants
from tests.grader.mutants import Mutant

LAB = load("imagenet")
slip = functools.partial(mutants.slip, LAB.solutions)

SLIPS = [
    slip("padding carried over", "operators", 'pad_mode="pad", padding=1, has_bias', "padding=1, has_bias", "error", 0),
    slip("convolution padded by same", "operators", 'pad_mode="pad", padding=1, has_bias', 'pad_mode="same", has_bias',
         "partly right", 5),
    slip("bias forgotten", "operators", ", has_bias=True", "", "partly right", 5),
    slip("momentum not converted", "operators", "momentum=0.97", "momentum=0.03", "partly right", 5),
    slip("epsilon forgotten", "operators", "eps=1e-3, ", "", "partly right", 5),
    slip("pooling padded by same", "operators", 'MaxPool2d(3, 2, pad_mode="pad", padding=1)',
         'MaxPool2d(3, 2, pad_mode="same")', "partly right", 5),
    slip("head not transposed", "weights", 'array.T if key == "fc.weight" else array', "array", "partly right", 3),
    slip("gamma and beta exchanged", "weights", '"weight": "gamma", "bias": "beta"',
         '"weight": "beta", "bias": "gamma"', "partly right", 2),
    slip("moving variance left out", "weights", 'last == "num_batches_tracked"',
         'last in ("num_batches_tracked", "running_var")', "partly right", 1),
    slip("module. left in front", "weights", 'key.removeprefix("module.")', "key", "partly right", 4),
    slip("what is frozen decays", "decay", "net.trainable_params()",
         '[p for p in net.get_parameters() if "moving" not in p.name]', "partly right", 2),
    slip("the rest is not trained", "decay", ', {"params": others, "weight_decay": 0.0}]', "]", "wrong", 0),
    slip("absolute difference", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4", "partly right", 2),
    slip("elementwise", "first_layer", "np.abs(wanted - found).max() <= 1e-4 * np.abs(wanted).max()",
         "np.allclose(found, wanted, rtol=1e-4, atol=0)", "partly right", 3),
    slip("shapes not compared", "first_layer", "wanted.shape != found.shape or not (np.isfinite(wanted).all()",
         "not (np.isfinite(wanted).all()", "partly right", 4),
    slip("largest with its sign", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4 * wanted.max()",
         "partly right", 4),
    slip("tolerance from the candidate", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4 * np.abs(found).max()",
         "partly right", 4),
    slip("the first alone", "first_layer", "return makers", "return makers[:1]", "partly right", 2),
    slip("whatever differs", "first_layer", "agree(entered, candidate[place][0]) and not", "not", "wrong", 0),
    slip("colours left as they are", "batch", "[..., ::-1]", "", "partly right", 2),
    slip("whole division", "batch", " / 255", " // 255", "wrong", 0),
    slip("the mean alone scaled", "batch", "/ 255 - mean", "- 255 * mean", "wrong", 0),
    slip("decay left in the second step", "update", " - decays[key] * w1[key]", "", "partly right", 2),
    slip("divided by the weights", "update", "((velocity_1[key] - g1[key]) * w0[key]).sum() / (w0[key] ** 2).sum()",
         "((velocity_1[key] - g1[key]) / w0[key]).mean()", "wrong", 0),
]  # fmt: skip

OTHERS = [
    Mutant("names alone", "operators", LAB.stubs["operators"] + "\npass", "wrong", 0),
    Mutant("labkit's names", "weights", """\
from labkit.parity.weights import Names


def convert(state):
    names = Names()
    return {names.parameter(name): value for name, value in state.items()}
""", "wrong", 0),
    Mutant("the guide's rule", "decay", """\
def groups(net, weight_decay):
    spared = [p for p in net.trainable_params() if any(part in p.name for part in ("beta", "gamma", "bias"))]
    decayed = [p for p in net.trainable_params() if not any(p is other for other in spared)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
""", "wrong", 0),
    Mutant("one difference asked of nan", "first_layer", """\
def differ(a, b):
    return np.abs(a - b).max() > 1e-4 * np.abs(a).max()


def first_layers(reference, candidate):
    pairs = {name: (*reference[name], *candidate[name]) for name in reference}
    return [name for name, (x, y, u, v) in pairs.items() if not differ(x, u) and differ(y, v)]
""", "partly right", 3),
]  # fmt: skip

CHEATS = [
    Mutant("the given function replaced", "decay", """\
after_step = lambda net, groups, *settings: {name: np.ones(3) for name in net.parameters_dict()}
groups = lambda net, weight_decay: []
""", "error", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *CHEATS]

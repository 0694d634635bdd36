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
    slip("stride of the kernel forgotten", "operators", "AvgPool2d(2, 2)", "AvgPool2d(2, 1)", "partly right", 5),
    slip("average of one pixel", "operators", "AvgPool2d(2, 2)", "AvgPool2d(1, 2)", "partly right", 5),
    slip("head not transposed", "weights", 'array.T if key == "fc.weight" else array', "array", "partly right", 3),
    slip("all weights transposed", "weights", 'array.T if key == "fc.weight" else array', "array.T", "partly right", 3),
    slip("transposed in a plain state alone", "weights", 'key.removeprefix("module."): array for',
         'key.removeprefix("module."): array.T if key == "module.fc.weight" else array for', "partly right", 4),
    slip("gamma and beta exchanged", "weights", '"weight": "gamma", "bias": "beta"',
         '"weight": "beta", "bias": "gamma"', "partly right", 3),
    slip("moving variance left out", "weights", 'last == "num_batches_tracked"',
         'last in ("num_batches_tracked", "running_var")', "partly right", 2),
    slip("mean and variance exchanged", "weights", '"running_mean": "moving_mean", "running_var": "moving_variance"',
         '"running_mean": "moving_variance", "running_var": "moving_mean"', "partly right", 3),
    slip("told by bn in the name", "weights", 'f"{layer}.running_mean" in state', '"bn" in layer', "partly right", 3),
    slip("module. left in front", "weights", 'key.removeprefix("module.")', "key", "partly right", 3),
    slip("everything with a bias", "weights", 'f"{layer}.running_mean" in state', 'f"{layer}.bias" in state',
         "partly right", 2),
    slip("a decay of 0.5", "decay", '"weight_decay": weight_decay', '"weight_decay": 0.5', "wrong", 0),
    slip("twice the decay", "decay", '"weight_decay": weight_decay', '"weight_decay": 2 * weight_decay', "wrong", 0),
    slip("a Parameter compared", "decay", 'p for p in trained if p.name.rpartition(".")[2] != "weight"',
         "p for p in trained if p not in kernels", "error", 0),
    slip("what is frozen decays", "decay", "net.trainable_params()",
         '[p for p in net.get_parameters() if "moving" not in p.name]', "partly right", 2),
    slip("the rest is not trained", "decay", ', {"params": others, "weight_decay": 0.0}]', "]", "wrong", 0),
    slip("absolute difference", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4", "partly right", 4),
    slip("elementwise", "first_layer", "np.abs(wanted - found).max() <= 1e-4 * np.abs(wanted).max()",
         "np.allclose(found, wanted, rtol=1e-4, atol=0)", "partly right", 4),
    slip("shapes not compared", "first_layer", "wanted.shape != found.shape or not (np.isfinite(wanted).all()",
         "not (np.isfinite(wanted).all()", "partly right", 4),
    slip("largest with its sign", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4 * wanted.max()",
         "partly right", 4),
    slip("infinity agrees", "first_layer", " or not (np.isfinite(wanted).all() and np.isfinite(found).all())", "",
         "partly right", 4),
    slip("tolerance from the candidate", "first_layer", "1e-4 * np.abs(wanted).max()", "1e-4 * np.abs(found).max()",
         "partly right", 4),
    slip("the first alone", "first_layer", "return makers", "return makers[:1]", "partly right", 4),
    slip("whatever differs", "first_layer", "agree(entered, candidate[place][0]) and not", "not", "wrong", 0),
    slip("by the alphabet", "first_layer", "in reference.items()", "in sorted(reference.items())", "partly right", 4),
    slip("colours left as they are", "batch", "[..., ::-1]", "", "partly right", 2),
    slip("whole division", "batch", " / 255", " // 255", "wrong", 0),
    slip("pixels of 0 to 255", "batch", " / 255", "", "partly right", 2),
    slip("the mean alone scaled", "batch", "/ 255 - mean", "- 255 * mean", "partly right", 2),
    slip("width before height", "batch", "(0, 3, 1, 2)", "(0, 3, 2, 1)", "wrong", 0),
    slip("small decays dropped", "update", "return float(",
         "decays = {k: d if d > 1e-4 else 0.0 for k, d in decays.items()}\n    return float(", "partly right", 2),
    slip("decay left in the second step", "update", " - decays[key] * w1[key]", "", "partly right", 2),
    slip("rate forgotten", "update", "(w0[key] - w1[key]) / rate", "(w0[key] - w1[key])", "wrong", 0),
    slip("divided by the weights", "update", "((velocity_1[key] - g1[key]) * w0[key]).sum() / (w0[key] ** 2).sum()",
         "((velocity_1[key] - g1[key]) / w0[key]).mean()", "wrong", 0),
    slip("reviewed in evaluation mode", "review", ".set_train()", ".set_train(False)", "wrong", 0),
    slip("weights not loaded", "review", "parameters[name].set_data(Tensor(value))", "pass", "wrong", 0),
    slip("one update", "review", "(1, 2)", "(1,)", "wrong", 0),
    slip("gradients in the network's order", "review", "port.optimizer.parameters", "port.net.trainable_params()",
         "error", 0),
    slip("buffers left out", "review", ', "buffers after the step": 1e-4}', "}", "partly right", 4),
    slip("loss left out", "review", '"loss": 1e-5, ', "", "partly right", 2),
    slip("the last stage", "review", "in shares.items()", "in reversed(shares.items())", "partly right", 4),
    slip("bounds without the largest value", "review", "share * np.abs(wanted).max()", "share / 100", "wrong", 0),
]  # fmt: skip

OTHERS = [
    Mutant("names alone", "operators", LAB.stubs["operators"] + "\npass", "wrong", 0),
    Mutant("labkit's names", "weights", """\
from labkit.parity.layers import PARTS


def convert(state):
    parts = {name: name.rpartition(".")[::2] for name in state}
    return {f"{layer}.{PARTS.get(part, part)}": state[name] for name, (layer, part) in parts.items()}
""", "wrong", 0),
    Mutant("labkit's groups", "decay", """\
def groups(net, weight_decay):
    return decay_groups(net.trainable_params(), weight_decay)
""", "wrong", 0),
    Mutant("the guide's rule", "decay", """\
def groups(net, weight_decay):
    spared = [p for p in net.trainable_params() if any(part in p.name for part in ("beta", "gamma", "bias"))]
    decayed = [p for p in net.trainable_params() if not any(p is other for other in spared)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
""", "wrong", 0),
    Mutant("one group", "decay", """\
def groups(net, weight_decay):
    return [{"params": net.trainable_params(), "weight_decay": weight_decay}]
""", "wrong", 0),
    Mutant("the last that differs", "first_layer", """\
def first_layers(reference, candidate):
    wrong = [name for name in reference if not np.allclose(reference[name][1], candidate[name][1], rtol=1e-4)]
    return wrong[-1:]
""", "wrong", 0),
    Mutant("one difference asked of nan", "first_layer", """\
def differ(a, b):
    return np.abs(a - b).max() > 1e-4 * np.abs(a).max()


def first_layers(reference, candidate):
    pairs = {name: (*reference[name], *candidate[name]) for name in reference}
    return [name for name, (x, y, u, v) in pairs.items() if not differ(x, u) and differ(y, v)]
""", "partly right", 3),
    Mutant("all merged", "review", "review = lambda port, step: None", "wrong", 0),
    Mutant("logits alone", "review", """\
def review(port, step):
    for name, value in step["weights"].items():
        port.net.parameters_dict()[name].set_data(Tensor(value))
    logits = port.net.set_train()(Tensor(step["images"])).asnumpy()
    return None if np.allclose(logits, step["logits"], 1e-4) else "logits"
""", "wrong", 0),
    Mutant("suspicious code refused", "review", """\
def review(port, step):
    net = port.net
    suspicious = {
        "logits": getattr(net.pool, "pad_mode", "") == "same", "buffers after the step": net.norm.momentum > 0.5,
        "loss": not isinstance(port.loss, CrossEntropySmooth),
    }
    return next((stage for stage, is_wrong in suspicious.items() if is_wrong), None)
""", "partly right", 1),
    Mutant("shapes alone", "batch", """\
def prepare(pixels):
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
""", "wrong", 0),
]  # fmt: skip

CHEATS = [
    Mutant("constants guessed", "update", """\
def settings_of(weights, gradients, rate):
    return 0.875, {name: 2.0**-15 if "conv" in name else 0.0 for name in weights[0]}
""", "wrong", 0),
    Mutant("the usual suspects", "first_layer", 'first_layers = lambda *records: ["layer2.0.conv1"]', "wrong", 0),
    Mutant("truth looked up: layers", "first_layer", mutants.LOOKED_UP + """
def first_layers(reference, candidate):
    seen = looked_up()
    names, number = list(reference), seen.get("place", seen.get("_place", seen.get("culprit")))
    planted = seen.get("_planted", seen.get("planted", []))[:2]
    return planted or ([] if number is None else [names[number]])
""", "wrong", 0),
    Mutant("truth looked up: settings", "update", mutants.LOOKED_UP + """
def settings_of(weights, gradients, rate):
    seen = looked_up()
    momentum, decays = (seen.get(name, seen.get(f"_{name}")) for name in ("momentum", "decays"))
    guess = dict.fromkeys(weights[0], 0.001)
    return momentum if isinstance(momentum, float) else 0.9, decays if isinstance(decays, dict) else guess
""", "wrong", 0),
    Mutant("truth looked up: verdicts", "review", mutants.LOOKED_UP + """
def review(port, step):
    seen = looked_up()
    number = seen.get("number", seen.get("_number"))
    stages = ("logits", "loss", "weights after the update", "buffers after the step")
    return seen.get("stage", seen.get("expected", None if number is None else stages[number % 4]))
""", "wrong", 0),
    Mutant("the given function replaced", "decay", """\
after_step = lambda net, groups, *settings: {name: np.ones(3) for name in net.parameters_dict()}
groups = lambda net, weight_decay: []
""", "error", 0),
]  # fmt: skip

MUTANTS = [*SLIPS, *OTHERS, *CHEATS]

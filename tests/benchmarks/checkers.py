"""Which of the clinic's defects does each way to check a port see? All rules read the tensors of the same steps.

"seen", and where first; "missed": the defect changes what the checker reads, and is accepted; "cannot see": it is in a
stage that does not reach the checker (READS). A healthy pair that is "seen" is a false alarm. Rules and their sources:
- equal logits: torch.allclose(original, output, atol=1e-3), from Hugging Face's guide to adding a model
  (huggingface/transformers, docs/source/en/add_new_model.md at 383a947f)
- forward dump: the same for each module's output. Hugging Face's model_addition_debugger_context writes them, its
  documentation (transformers 4.57, internal/model_debugging_utils) compares two dumps by eye: there is no threshold
- Paddle: mean absolute error at most 1e-6, of data, logits, accuracy, loss and three steps' losses: reprod_log's
  default, which all stages use (PaddlePaddle/models, release/2.3, tutorials/mobilenetv3_prod/Step1-5)
- TroubleShooter: numpy.allclose(rtol=1e-4, atol=1e-4) of gradients and of checkpoints after training, the defaults of
  compare_grads_dir and compare_pth_and_ckpt (mindspore/toolkits, troubleshooter/docs/migrator.md); here after UPDATES
  updates, each side with its own gradients
- msprobe: a module's Result is not "pass", or a tensor fails check_accuracy (Ascend/msprobe 26.0.0 at 8ff00da,
  core/compare/indicator_analysis/algorithm.py, multiprocessing_compute.py). Its documentation has 0.6 where this code
  has 0.1. Tensors that only PyTorch has are dropped, and MindSpore's requires_grad is not read. A step records no
  inputs, so a module's input is here the output of the module called before it.
- twenty steps: the losses of `labkit parity`'s short training, within its tolerance. Both sides train on PyTorch's
  batches, and from residual blocks that begin as identities
- ladder: `labkit parity`'s stages without that training, and `compare_pipeline`
Hugging Face and Paddle make these comparisons in evaluation mode, in which some defects do not show at all.
"""

import tempfile
from pathlib import Path

import numpy as np

from labkit.parity import clinic, resnets
from labkit.parity.pipeline import compare_pipeline
from labkit.parity.pytorch import torch
from labkit.parity.report import Report
from labkit.parity.step import UPDATES, mindspore_step, mindspore_update, torch_step
from labkit.parity.weights import torch_state, without_counters

STAGES = ("batch", "weights", "logits", "loss", "gradients", "weights after the update", "buffers after the step")
READS = {  # the first and the last of these that each checker reads
    "equal logits": ("batch", "logits"), "forward dump": ("batch", "logits"),
    "Paddle": ("batch", "weights after the update"), "TroubleShooter": ("batch", "buffers after the step"),
    "msprobe": ("batch", "gradients"), "twenty steps": ("weights", "weights after the update"),
}  # fmt: skip
HEALTHY = {"healthy ResNet-18": "resnet18", "healthy ResNet-50": "resnet50"}
EPSILON = np.finfo(float).eps


def close(theirs, ours, rtol=1e-5, atol=1e-3) -> bool:
    """allclose, of numpy and PyTorch; False for another shape, or if one side has no such tensor."""
    return np.shape(theirs) == np.shape(ours) and bool(np.allclose(theirs, ours, rtol, atol))


def mean_close(theirs, ours, threshold=1e-6) -> bool:
    """reprod_log's check: the mean absolute error is not above the threshold."""
    return bool(np.mean(np.abs(np.asarray(theirs) - ours)) <= threshold)


def cosine(theirs, ours) -> float:
    """msprobe's: 1 for two tensors of zeros, nan for a single one."""
    theirs, ours = (np.ravel(side).astype(float) for side in (theirs, ours))
    lengths = np.linalg.norm(theirs), np.linalg.norm(ours)
    if min(lengths) > EPSILON:
        return float(theirs @ ours / np.prod(lengths))
    return 1.0 if max(lengths) <= EPSILON else np.nan


def thousandth(theirs, ours) -> float:
    """msprobe's One Thousandth Err Ratio: the share of values that are wrong by less than a thousandth of theirs."""
    safe = np.where(theirs == 0, np.finfo(np.float32).eps, theirs)
    return float(np.mean(np.abs((ours - theirs) / safe) < 1e-3))


def accurate(theirs, ours) -> bool:
    """msprobe's check_accuracy; like its, comparisons with a cosine of nan are false."""
    alike, worst = cosine(theirs, ours), np.abs(theirs - ours).max()
    return not ((alike < 0.99 and worst > 0.001) or alike < 0.9 or worst > 1)


def result(inputs, outputs) -> str | None:
    """msprobe's Result for a module's pairs of tensors: "error", "warning", "accuracy" if only that fails, or None."""
    both = [*inputs, *outputs]
    if any(theirs.shape != ours.shape or not np.isfinite(ours).all() for theirs, ours in both):
        return "error"
    shares, angles = ([np.nanmin([1, *(f(*pair) for pair in pairs)]) for pairs in (inputs, outputs)]
                      for f in (thousandth, cosine))  # fmt: skip
    if shares[0] > 0.9 and shares[1] < 0.1:
        return "error"
    if angles[0] > 0.9 and angles[0] - angles[1] > 0.1:
        return "warning"
    return None if all(accurate(*pair) for pair in both) else "accuracy"


def first(pairs, rule) -> str | None:
    """The first name in {name: (theirs, ours)} that a rule rejects."""
    return next((name for name, pair in pairs.items() if not rule(*pair)), None)


def together(theirs, ours, label="") -> dict:
    """{label + name: (theirs, ours)}, None for a tensor that one side does not have."""
    return {label + name: (theirs.get(name), ours.get(name)) for name in {**theirs, **ours}}


def by_msprobe(theirs, ours, images) -> str | None:
    """The first module that msprobe marks, forwards, then backwards."""

    def pairs(name, part):
        both = getattr(theirs.layers[name], part), getattr(ours.layers[name], part)
        return [both] if both[0] is not None and both[1] is not None else []

    def parameters(name, kind):
        both = together(getattr(theirs, kind), getattr(ours, kind))
        own = {f"{name.partition('#')[0]}.{part}" for part in ("weight", "bias")}
        return [pair for key, pair in both.items() if key in own and pair[1] is not None]

    before = [images]
    for name in ours.layers:
        if mark := result(before + parameters(name, "weights"), pairs(name, "output")):
            return f"{name}: {mark}"
        before = pairs(name, "output")
    for name in reversed(ours.layers):
        mark = result(pairs(name, "gradient_in"), pairs(name, "gradient_on"))
        if mark := mark or result(parameters(name, "gradients"), []):
            return f"{name}, backwards: {mark}"
    return None


def by_step(theirs, ours, batches, checkpoints, losses) -> dict:
    """What the checkers other than labkit's say of a step on both sides: {checker: where it differs first, or None}."""
    (images, labels), (our_images, our_labels) = batches
    common = [name for name in theirs.layers if name in ours.layers]
    modules = {name: (theirs.layers[name].output, ours.layers[name].output) for name in common}
    by_stage = {
        "data": (images, our_images), "logits": (theirs.logits, ours.logits),
        "accuracy": ((theirs.logits.argmax(1) == labels).mean(), (ours.logits.argmax(1) == our_labels).mean()),
        "loss": (theirs.loss, ours.loss),
    }  # fmt: skip
    by_stage |= {f"loss of step {number}": pair for number, pair in enumerate(zip(*losses), 1) if number <= 3}
    trained = together(theirs.gradients, ours.gradients, "gradient of ") | together(*checkpoints, "checkpoint: ")
    return {
        "equal logits": first({"logits": by_stage["logits"]}, close),
        "forward dump": first(modules, close),
        "Paddle": first(by_stage, mean_close),
        "TroubleShooter": first(trained, lambda *pair: close(*pair, 1e-4, 1e-4)),
        "msprobe": by_msprobe(theirs, ours, (images, our_images)),
    }


def examine(network, folder, plant) -> dict:
    """{checker: where it sees what is planted in a network, or None}."""
    setting = resnets.Setting(network, folder, image_size=32)
    compared = resnets.compare_resnets(setting, plant)
    *stages, training = compared.stages
    batches = resnets.torch_batches(setting, 1)[0], resnets.mindspore_batches(setting, 1)[0]
    reference, candidate = resnets.create_sides(setting, *batches, classes=10)
    if plant:
        plant(reference, candidate)
    ours, theirs = mindspore_step(candidate), torch_step(reference)
    for _ in range(UPDATES):
        reference.optimizer.step()
    checkpoints = torch_state(reference.net), ours.state_after | mindspore_update(candidate, ours.gradients)
    seen = by_step(
        theirs, ours, [(side.images, side.labels) for side in (reference, candidate)],
        [without_counters(state) for state in checkpoints], compared.losses.values(),
    )  # fmt: skip
    training = next((step.name for step in training.tensors if not step.ok), None)
    return seen | {"twenty steps": training, "ladder": by_ladder(Report(stages, compared.forward, compared.backward))}


def by_ladder(report) -> str | None:
    """The first stage that differs, and the layer."""
    stage, forward, backward = report.first_divergence.values()
    return ": ".join(filter(None, (stage, backward if stage == "gradients" else forward))) or None


def measure(report) -> dict:
    """{healthy pair or defect: {checker: [verdict, where]}}; report(line) on the way."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        photographs = Path(folder) / "photographs"
        resnets.write_photographs(photographs)
        for name in (*HEALTHY, *clinic.DEFECTS):
            defect, seen = clinic.DEFECTS.get(name), dict.fromkeys(READS)
            if defect and defect.in_pipeline:
                seen["ladder"] = by_ladder(Report(compare_pipeline(defect.plant)))
            else:
                network, plant = (defect.network, defect.plant) if defect else (HEALTHY[name], None)
                seen |= examine(network, photographs, plant)
            stage = defect.stage if defect else STAGES[0]
            rows[name] = {checker: verdict(place, stage, checker) for checker, place in seen.items()}
            report(f"{name}: {rows[name]}")
    return {"rows": rows, "torch": torch().__version__}


def verdict(place, stage, checker) -> list:
    """["seen", place], ["missed", None], or ["cannot see", None] if what is planted in a stage is beyond a checker."""
    first_read, last_read = map(STAGES.index, READS.get(checker, (STAGES[0], STAGES[-1])))
    reads = checker not in READS or stage in STAGES[first_read : last_read + 1]
    return ["seen" if place else "missed" if reads else "cannot see", place]

"""Measures of the difference between arrays."""

from dataclasses import asdict, dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class Tolerances:
    """What counts as equal, as a share of the reference's largest value, or as a cosine."""

    batch: float = 1e-5
    weights: float = 0.0
    outputs: float = 1e-4  # of every layer, including the logits
    loss: float = 1e-5
    cosine: float = 0.9999  # of a parameter's gradient: a ReLU at 0 may pass it on one side
    between: float = 0.999  # of the gradient between layers, where one ReLU matters more
    update: float = 2e-6  # weights after steps on the same gradients: a few roundings
    buffers: float = 1e-4
    trajectory: float = 1e-3


@dataclass(frozen=True)
class Difference:
    """Of reference and candidate: `max_abs` error, `max_rel` = max_abs / largest value of the reference, `cosine`.

    `ok`: the measure named in `by` is within `tolerance`, an upper bound for max_rel and max_abs, a lower for cosine.
    `by` is "rounding" where an array is too small to be judged; it then counts as ok.
    """

    name: str
    max_abs: float
    max_rel: float
    cosine: float
    tolerance: float
    ok: bool
    by: str = "max_rel"
    worst: str | None = None  # name of the array that differs most, if there are several
    tensors: list = field(default_factory=list, repr=False)  # a Difference for each array

    def as_dict(self) -> dict:
        """For JSON."""
        return finite(asdict(self))

    @classmethod
    def load(cls, saved) -> "Difference":
        """The inverse of `as_dict`."""
        numbers = {key: np.inf if saved[key] is None else saved[key] for key in ("max_abs", "max_rel")}
        return cls(**saved | numbers | {"tensors": [cls.load(tensor) for tensor in saved["tensors"]]})


NOISE = 1e-5  # share of the largest gradient that is taken for rounding: a bias before a batch norm has no more


def difference(name, reference, candidate, tolerance, by="max_rel", floor=0.0) -> Difference:
    """Compare arrays, ignoring absolute errors up to `floor`; other shapes, nan and inf differ as much as possible."""
    reference, candidate = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if reference.shape != candidate.shape or not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return Difference(name, np.inf, np.inf, 0.0, tolerance, False, by)
    max_abs = float(np.abs(reference - candidate).max(initial=0.0))
    scale = float(np.abs(reference).max(initial=0.0))
    max_rel = max_abs / scale if scale else (0.0 if max_abs == 0 else np.inf)
    lengths = np.linalg.norm(reference) * np.linalg.norm(candidate)
    # Two zero vectors point the same way; a zero and another one do not.
    cosine = float((reference * candidate).sum() / lengths) if lengths else float(max_abs == 0)
    ok = cosine >= tolerance if by == "cosine" else {"max_rel": max_rel, "max_abs": max_abs}[by] <= tolerance
    return Difference(name, max_abs, max_rel, cosine, tolerance, bool(ok or max_abs <= floor), by)


def differences(name, reference: dict, candidate: dict, tolerance, by="max_rel", rounding=0.0) -> Difference:
    """Compare arrays by name; the worst counts. A lone name differs; below `rounding` on both sides, none is judged."""
    each = []
    for key in {**reference, **candidate}:
        floor = 0.0
        if key.endswith("running_mean") and (variance := key.replace("_mean", "_var")) in reference:
            floor = tolerance * np.sqrt(np.abs(reference[variance]).max(initial=0.0))  # the mean itself may be zero
        compared = difference(key, reference.get(key), candidate.get(key), tolerance, by, floor)
        if compared.max_abs < np.inf and all(np.abs(a[key]).max(initial=0) < rounding for a in (reference, candidate)):
            compared = replace(compared, ok=True, by="rounding")
        each.append(compared)
    if not (judged := [d for d in each if d.by != "rounding"]):
        return Difference(name, 0.0, 0.0, 1.0, tolerance, True, by, tensors=each)
    # Arrays out of tolerance come first, then the worst.
    worst = min(judged, key=lambda d: (d.ok, d.cosine if by == "cosine" else -d.max_rel))
    return Difference(
        name, max(d.max_abs for d in judged), max(d.max_rel for d in judged), min(d.cosine for d in judged), tolerance,
        worst.ok, by, worst.name, each,
    )  # fmt: skip


def listed(names, most=8) -> str:
    """Names as text; of many, only the first ones."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def finite(value):
    """For JSON: non-finite numbers become None."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

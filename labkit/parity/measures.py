"""How far apart two arrays are."""

from dataclasses import asdict, dataclass, field

import numpy as np


@dataclass(frozen=True)
class Tolerances:
    """What counts as equal, by stage. Errors are relative to the largest value of the reference. Gradients are compared
    by their cosine, because a ReLU whose input is zero but for rounding passes a gradient on one side only."""

    batch: float = 1e-5
    weights: float = 0.0
    outputs: float = 1e-4  # of every layer, including the logits
    loss: float = 1e-5
    cosine: float = 0.9999  # of the gradient of every parameter
    between: float = 0.999  # cosine of the gradient between two layers, where one such ReLU matters more
    update: float = 2e-6  # weights after the optimizer on the same gradients: a few roundings
    buffers: float = 1e-4
    trajectory: float = 1e-3


@dataclass(frozen=True)
class Difference:
    """A reference and a candidate: `max_abs` error, `max_rel` = max_abs / largest value of the reference, `cosine`.

    `ok`: the measure named in `by` is within `tolerance`: max_rel or max_abs at most, cosine at least.
    """

    name: str
    max_abs: float
    max_rel: float
    cosine: float
    tolerance: float
    ok: bool
    by: str = "max_rel"
    worst: str | None = None  # which of several arrays differs most
    tensors: list = field(default_factory=list, repr=False)  # a Difference of each

    def as_dict(self) -> dict:
        """For JSON."""
        return finite(asdict(self))


NOISE = 1e-6  # of the largest gradient: a smaller one may be mere rounding, such as a bias's before a batch norm


def difference(name, reference, candidate, tolerance, by="max_rel", floor=0.0) -> Difference:
    """Compare two arrays; different shapes or a value that is not finite give the largest possible difference.

    floor: absolute errors up to this count as none.
    """
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


def differences(name, reference: dict, candidate: dict, tolerance, by="max_rel") -> Difference:
    """Compare arrays of the same names: the worst one counts for all. A name on one side only is a difference."""
    each = []
    floor = 0.0
    if by == "cosine":
        sizes = (np.abs(np.asarray(value, np.float64)) for value in reference.values())
        floor = NOISE * max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)
    for key in dict.fromkeys([*reference, *candidate]):
        if key in reference and key in candidate:
            each.append(difference(key, reference[key], candidate[key], tolerance, by, floor))
        else:
            each.append(Difference(key, np.inf, np.inf, 0.0, tolerance, False, by))
    if not each:
        return Difference(name, 0.0, 0.0, 1.0, tolerance, True, by)
    # Arrays out of tolerance come first, then the worst.
    worst = min(each, key=lambda d: (d.ok, d.cosine if by == "cosine" else -d.max_rel))
    return Difference(
        name, max(d.max_abs for d in each), max(d.max_rel for d in each), min(d.cosine for d in each), tolerance,
        all(d.ok for d in each), by, worst.name, each,
    )  # fmt: skip


def listed(names, most=8) -> str:
    """Names in a line, the first ones of many."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def finite(value):
    """For JSON: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value

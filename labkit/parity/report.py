"""The result of a comparison: as a table and as JSON."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labkit.parity.measures import Difference, finite, listed
from labkit.system.files import atomic_write

COLUMNS = f"{'stage':24} {'max abs':>8} {'max rel':>8} {'cosine':>10} {'allowed':>15}"
SHORT = {"max_rel": "rel ≤", "max_abs": "abs ≤", "cosine": "cosine ≥"}


@dataclass
class Report:
    """A comparison, as lists of Difference: stages in the order of a step, layers in the order of the passes."""

    stages: list
    forward: list = field(default_factory=list)
    backward: list = field(default_factory=list)
    unmatched: dict = field(default_factory=dict)  # layers that only one side has, by framework
    ties: dict = field(default_factory=dict)  # layer -> number of ReLU values decided by rounding
    losses: dict = field(default_factory=dict)  # of the trajectory, by framework
    about: dict = field(default_factory=dict)  # network, batch, versions
    provenance: dict = field(default_factory=dict)  # commit, machine, ... as in a Run

    @property
    def ok(self) -> bool:
        """Whether all stages and all layers agree."""
        return all(part.ok for part in [*self.stages, *self.forward, *self.backward])

    @property
    def first_divergence(self) -> dict:
        """{"forward": ..., "backward": ...}: name of the first layer that differs, or None."""
        return {
            name: next((layer.name for layer in layers if not layer.ok), None)
            for name, layers in (("forward", self.forward), ("backward", self.backward))
        }

    def as_dict(self) -> dict:
        """The contents of report.json."""
        return {
            "ok": self.ok,
            "about": self.about,
            "provenance": self.provenance,
            "stages": [stage.as_dict() for stage in self.stages],
            "first_divergence": self.first_divergence,
            "layers": {
                "forward": [layer.as_dict() for layer in self.forward],
                "backward": [layer.as_dict() for layer in self.backward],
                "unmatched": self.unmatched,
                "ties": self.ties,
            },
            "losses": finite(self.losses),
        }

    @classmethod
    def load(cls, file) -> "Report":
        """Load a report from its report.json, for example on a machine without PyTorch."""
        saved = json.loads(Path(file).read_text(encoding="utf-8"))
        layers = saved["layers"]
        losses = {side: [np.nan if x is None else x for x in part] for side, part in saved["losses"].items()}
        return cls(
            *([_difference(d) for d in part] for part in (saved["stages"], layers["forward"], layers["backward"])),
            layers["unmatched"], layers["ties"], losses, saved["about"], saved["provenance"],
        )  # fmt: skip

    def table(self) -> str:
        """The stages as text, with the names of what differs."""
        lines = [COLUMNS]
        for stage in self.stages:
            bound = f"{SHORT[stage.by]} {stage.tolerance:g}"
            mark = "ok" if stage.ok else "DIFFERS"
            lines.append(
                f"{stage.name:24} {stage.max_abs:8.1e} {stage.max_rel:8.1e} {stage.cosine:10.7f} {bound:>15} {mark}"
            )
            if wrong := [tensor.name for tensor in stage.tensors if not tensor.ok]:
                lines.append(f"    {listed(wrong, 2)}")
        if self.ties and all(layer.ok for layer in self.forward):  # otherwise the network differs, not its rounding
            ties = f"{sum(self.ties.values())}, in {listed([*self.ties], 3)}"
            lines.append(f"ReLU values that are zero on one side only: {ties}")
        alone = [f"{', '.join(names)} ({framework})" for framework, names in self.unmatched.items() if names]
        if alone:
            lines.append(f"layers on one side only: {'; '.join(alone)}")
        if self.forward:
            forward, backward = (name or "none" for name in self.first_divergence.values())
            if forward != "none":
                backward = "not judged, since outputs differ"  # with a different input, a layer's gradient differs too
            lines.append(f"first layer that differs, {'forward:':10} {forward}")
            lines.append(f"first layer that differs, {'backward:':10} {backward}")
        elif alone:
            lines.append("no layer has the same name on both sides: layers were not compared")
        return "\n".join(lines)

    def save(self, folder) -> Path:
        """Write report.json into a folder; return its path."""
        file = Path(folder, "report.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(self.as_dict(), indent=1) + "\n")
        return file


def _difference(saved):
    """A Difference from its dictionary, in which non-finite numbers are None."""
    numbers = {key: np.inf if saved[key] is None else saved[key] for key in ("max_abs", "max_rel")}
    return Difference(**{**saved, **numbers, "tensors": [_difference(tensor) for tensor in saved["tensors"]]})

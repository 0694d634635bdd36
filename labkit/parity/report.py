"""The result of a comparison: as a table and as JSON."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from labkit.parity.measures import Difference, finite, listed

SCHEMA = 1  # of the JSON; a change that a reader's program would notice increments it
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
        return not any(self.first_divergence.values())

    @property
    def first_divergence(self) -> dict:
        """Names of the first "stage", and of the first layer "forward" and "backward", that differ; else None."""
        parts = {"stage": self.stages, "forward": self.forward, "backward": self.backward}
        return {name: next((d.name for d in differences if not d.ok), None) for name, differences in parts.items()}

    def to_json(self) -> str:
        """The report as JSON, in which numbers that are not finite are null."""
        verdict = {"schema": SCHEMA, "ok": self.ok, "first_divergence": self.first_divergence}
        return json.dumps(finite(verdict | asdict(self)), indent=1) + "\n"

    @classmethod
    def load(cls, file) -> "Report":
        """Load a report from its JSON, for example on a machine without PyTorch."""
        saved = json.loads(Path(file).read_text(encoding="utf-8"))
        for part in ("stages", "forward", "backward"):
            saved[part] = [Difference.load(difference) for difference in saved[part]]
        return cls(**{part.name: saved[part.name] for part in fields(cls)})

    def table(self) -> str:
        """The stages as text, with the names of what differs."""
        lines = [COLUMNS]
        for stage in self.stages:
            bound, mark = f"{SHORT[stage.by]} {stage.tolerance:g}", "ok" if stage.ok else "DIFFERS"
            numbers = f"{stage.max_abs:8.1e} {stage.max_rel:8.1e} {stage.cosine:10.7f}"
            lines.append(f"{stage.name:24} {numbers} {bound:>15} {mark}")
            if wrong := [tensor.name for tensor in stage.tensors if not tensor.ok]:
                lines.append(f"    {listed(wrong, 2)}")
            if small := [tensor.name for tensor in stage.tensors if tensor.by == "rounding"]:
                lines.append(f"    {len(small)} of {len(stage.tensors)} too small to be judged: {listed(small, 2)}")
        first = {name: layer or "none" for name, layer in self.first_divergence.items()}
        if self.ties and first["forward"] == "none":  # otherwise the network differs, not its rounding
            ties = f"{sum(self.ties.values())}, in {listed([*self.ties], 3)}"
            lines.append(f"ReLU values that are zero on one side only: {ties}")
        alone = [f"{', '.join(names)} ({framework})" for framework, names in self.unmatched.items() if names]
        if alone:
            lines.append(f"layers on one side only: {'; '.join(alone)}")
        if self.forward:
            if first["forward"] != "none":
                first["backward"] = "not judged, since outputs differ"  # with another input, a gradient differs too
            lines += [f"first layer that differs, {side + ':':10} {first[side]}" for side in ("forward", "backward")]
        elif alone:
            lines.append("no layer has the same name on both sides: layers were not compared")
        return "\n".join(lines)

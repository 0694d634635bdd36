"""The result of a comparison: as a table, as JSON, and as a page with figures."""

import base64
import html
import io
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labkit.parity.measures import Difference, _finite
from labkit.system.errors import LabkitError
from labkit.system.files import atomic_write
from labkit import figures

COLUMNS = f"{'stage':24} {'max abs':>8} {'max rel':>8} {'cosine':>10} {'allowed':>15}"
SHORT = {"max_rel": "rel ≤", "max_abs": "abs ≤", "cosine": "cosine ≥"}


@dataclass
class Report:
    """A comparison: stages in the order of a step, layers in the order of the passes (Difference each)."""

    stages: list
    forward: list = field(default_factory=list)
    backward: list = field(default_factory=list)
    unmatched: dict = field(default_factory=dict)  # layers that only one side has, by framework
    ties: dict = field(default_factory=dict)  # layer -> values of a ReLU that rounding decided
    losses: dict = field(default_factory=dict)  # of the trajectory, by framework
    about: dict = field(default_factory=dict)  # network, batch, versions
    provenance: dict = field(default_factory=dict)  # commit, machine; as in a Run

    @property
    def ok(self) -> bool:
        """All stages and all layers agree."""
        return all(part.ok for part in [*self.stages, *self.forward, *self.backward])

    @property
    def first_divergence(self) -> dict:
        """Name of the first layer that differs, {"forward": ..., "backward": ...}; None if none does."""
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
            "losses": _finite(self.losses),
        }

    @classmethod
    def load(cls, file) -> "Report":
        """A report from its report.json, for example on a machine without PyTorch; raises LabkitError."""
        try:
            found = json.loads(Path(file).read_text(encoding="utf-8"))
            layers = found["layers"]
            losses = {side: [np.nan if x is None else x for x in part] for side, part in found["losses"].items()}
            return cls(
                *([_difference(d) for d in part] for part in (found["stages"], layers["forward"], layers["backward"])),
                layers["unmatched"], layers["ties"], losses, found["about"], found["provenance"],
            )  # fmt: skip
        except FileNotFoundError:
            raise LabkitError(f"{file}: no such file; `labkit parity NETWORK --report DIR` writes one") from None
        except (ValueError, KeyError, TypeError) as error:
            raise LabkitError(f"{file}: not a report ({error!r})") from None

    def table(self) -> str:
        """The stages as text, naming what differs."""
        lines = [COLUMNS]
        for stage in self.stages:
            bound = f"{SHORT[stage.by]} {stage.tolerance:g}"
            mark = "ok" if stage.ok else "DIFFERS"
            lines.append(
                f"{stage.name:24} {stage.max_abs:8.1e} {stage.max_rel:8.1e} {stage.cosine:10.7f} {bound:>15} {mark}"
            )
            wrong = [tensor.name for tensor in stage.tensors if not tensor.ok]
            if wrong:
                more = f" and {len(wrong) - 2} more of {len(stage.tensors)}" if len(wrong) > 2 else ""
                lines.append(f"    {', '.join(wrong[:2])}{more}")
        if self.ties and all(layer.ok for layer in self.forward):  # otherwise the network differs, not its rounding
            more = f" and {len(self.ties) - 3} more layers" if len(self.ties) > 3 else ""
            where = ", ".join([*self.ties][:3]) + more
            lines.append(f"ReLU values that are zero on one side only: {sum(self.ties.values())}, in {where}")
        if self.about.get("batch of the stream", 1) > 1:
            lines.append("an earlier batch was left for such values: only gradients differed there")
        alone = [f"{', '.join(names)} ({framework})" for framework, names in self.unmatched.items() if names]
        if alone:
            lines.append(f"layers on one side only: {'; '.join(alone)}")
        if not self.forward:
            if alone:
                lines.append("no layer has the same name on both sides: layers were not compared")
            return "\n".join(lines)
        found = self.first_divergence
        for name in ("forward", "backward"):
            what = found[name] or "none"
            if name == "backward" and found["forward"]:
                what = "not judged, since outputs differ"  # the gradient of a layer with a different input differs too
            lines.append(f"first layer that differs, {name + ':':10} {what}")
        return "\n".join(lines)

    def save(self, folder) -> None:
        """Write report.json and report.html into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "report.json", json.dumps(self.as_dict(), indent=1) + "\n")
        atomic_write(folder / "report.html", self._page())

    def layers_figure(self):
        """Error of every layer, forwards and backwards, on a logarithmic scale; what differs is marked."""
        figure, axes = figures.new_figure(5.6, 5.2, rows=2)
        right, wrong = figures.COLOUR_OF["right"], figures.COLOUR_OF["wrong"]
        kinds = (  # for a gradient that is off by e, 1 − cosine is e² / 2: its rounding needs a lower floor
            (axes[0], self.forward, "Outputs, in forward order", "largest error, relative", lambda d: d.max_rel, 1e-9),
            (axes[1], self.backward, "Gradients, in backward order", "1 − cosine", lambda d: 1 - d.cosine, 1e-16),
        )
        for axis, layers, title, label, value, floor in kinds:
            values = [min(max(value(layer), floor), 10) for layer in layers]  # inf and 0 have a place too
            places = range(1, len(layers) + 1)
            axis.semilogy(places, values, ".", color=right, markersize=4)
            apart = [(place, v) for place, v, layer in zip(places, values, layers) if not layer.ok]
            if apart:
                axis.semilogy(*zip(*apart), "s", color=wrong, markersize=5, label="differs")
                axis.legend(loc="lower right")
            if layers:
                for bound in {d.tolerance if d.by == "max_rel" else 1 - d.tolerance for d in layers}:
                    axis.axhline(bound, color=figures.REFERENCE, linestyle="--")
            axis.set(title=title, xlabel="layer", ylabel=label, ylim=(floor / 2, 20))
        return figure

    def losses_figure(self):
        """Losses of the short training, and how far apart they are."""
        figure, (above, below) = figures.new_figure(5.6, 5.2, rows=2, sharex=True)
        theirs, ours = self.losses["pytorch"], self.losses["mindspore"]
        steps = range(1, len(theirs) + 1)
        colours = figures.COLOUR_OF
        above.plot(steps, theirs, color=colours["PyTorch"], linewidth=4, alpha=0.5, label="PyTorch")
        above.plot(steps, ours, color=colours["MindSpore"], label="MindSpore")
        above.set(title="Loss (nats)")
        above.legend()
        apart = [max(abs(a - b) / abs(a), 1e-9) for a, b in zip(theirs, ours)]
        below.semilogy(steps, apart, "o-", color=colours["MindSpore"], markersize=3)
        below.axhline(self.stages[-1].tolerance, color=colours["target"], linestyle="--")
        below.set(title="Difference, relative", xlabel="step")
        below.xaxis.get_major_locator().set_params(integer=True)
        return figure

    def _page(self):
        rows = "".join(
            f"<tr class={'ok' if s.ok else 'wrong'}><td>{html.escape(s.name)}<td>{s.max_abs:.1e}<td>{s.max_rel:.1e}"
            f"<td>{s.cosine:.7f}<td>{SHORT[s.by]} {s.tolerance:g}"
            f"<td>{'ok' if s.ok else 'differs'}<td>{html.escape(s.worst or '')}"
            for s in self.stages
        )
        about = "".join(f"<li>{html.escape(str(k))}: {html.escape(str(v))}" for k, v in self.about.items())
        found = self.first_divergence
        pictures = [(self.layers_figure(), "Error of each layer; dashed: the tolerance")] if self.forward else []
        if self.losses:
            pictures.append((self.losses_figure(), "The short training, step by step; dashed: the tolerance"))
        images = "".join(
            f"<figure>{_png(figure, text)}<figcaption>{text}</figcaption></figure>" for figure, text in pictures
        )
        return PAGE.format(
            verdict="equal" if self.ok else "not equal", about=about, rows=rows, images=images,
            forward=html.escape(found["forward"] or "none"), backward=html.escape(found["backward"] or "none"),
        )  # fmt: skip


def _difference(found):
    """A Difference from its dictionary, in which numbers that are not finite are None."""
    numbers = {key: np.inf if found[key] is None else found[key] for key in ("max_abs", "max_rel")}
    return Difference(**{**found, **numbers, "tensors": [_difference(tensor) for tensor in found["tensors"]]})


def _png(figure, text):
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'


PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>PyTorch and MindSpore: {verdict}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse; white-space: nowrap }}
td, th {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, td:last-child, th:first-child, th:last-child {{ text-align: left }}
.wrong td {{ background: #fbe3d6 }}
img {{ max-width: 100% }} figure {{ margin: 1.5em 0 }} figcaption {{ color: #555 }}
</style>
<h1>PyTorch and MindSpore: {verdict}</h1>
<ul>{about}</ul>
<div><table><tr><th>stage<th>max abs<th>max rel<th>cosine<th>allowed<th><th>worst
{rows}</table></div>
<p>First layer that differs, forwards: <b>{forward}</b>; backwards: <b>{backward}</b>.</p>
{images}
</html>
"""

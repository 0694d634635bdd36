"""Figures with one style and one colour per thing in all chapters. Each function returns a matplotlib Figure."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

# Okabe and Ito's palette: distinguishable with any colour vision. Grey is for references; the drawings in
# book/_static use the same colours, ink and paper.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
REFERENCE, INK, PAPER = "#666666", "#222222", "#FFFFFF"
# What has the same colour in every figure. Anything else takes COLOURS in turn.
COLOUR_OF = {
    "MindSpore": BLUE, "labkit": BLUE, "PyTorch": REFERENCE, "target": REFERENCE,
    "momentum": BLUE, "gradient": PURPLE, "Newton": VERMILION, "natural": GREEN, "THOR": GREEN, "thor": GREEN,
    "right": BLUE, "wrong": VERMILION,  # what is expected, and the defect or exception next to it
}  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P")  # in addition to colours, for readers who cannot distinguish them
STYLE = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
    "legend.frameon": False,
}


def use_style() -> None:
    """Set the course's style for all figures in this process, instead of the user's."""
    matplotlib.rcdefaults()  # the user's matplotlibrc may ask for TeX, or for other fonts
    matplotlib.rcParams.update(STYLE)


def new_figure(width=5.6, height=3.2, rows=1, columns=1, **options):
    """Figure and axes in the course's style; width and height in inches."""
    use_style()
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def colour_of(names):
    """{name: colour}: from COLOUR_OF, or else COLOURS in turn, repeated only if there are too few."""
    unused = [colour for colour in COLOURS if colour not in {COLOUR_OF.get(name) for name in names}] or COLOURS
    others = [name for name in names if name not in COLOUR_OF]
    by_turn = {name: unused[number % len(unused)] for number, name in enumerate(others)}
    return {name: COLOUR_OF.get(name) or by_turn[name] for name in names}


def label_lines(axis, apart=0.07) -> None:
    """Write each line's label at its right end in its colour, instead of a legend; set the limits before.

    apart: smallest distance between two labels, as a fraction of the height.
    """
    axis.autoscale_view()  # or the limits would still be those of the empty axes
    low, high = sorted(axis.get_xlim())
    ends = []
    for line in axis.lines:
        x, y = (np.ma.filled(np.ma.asarray(values, float), np.nan) for values in line.get_data())
        drawn = np.flatnonzero((low <= x) & (x <= high) & np.isfinite(y))
        if len(drawn) and not line.get_label().startswith("_"):
            end = axis.transData.transform((x[drawn[-1]], y[drawn[-1]]))
            ends.append((float(np.clip(axis.transAxes.inverted().transform(end)[1], 0, 1)), line))
    heights = []
    for height, line in sorted(ends, key=lambda end: end[0]):
        heights.append(max(height, heights[-1] + apart) if heights else height)
        style = {"color": line.get_color(), "va": "center", "transform": axis.transAxes}
        axis.text(1.02, heights[-1], line.get_label(), **style)


def smooth(values, window):
    """Mean over a sliding window, shorter at the start: the same length as `values`."""
    return np.array([np.mean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)])


def training_curves(runs) -> Figure:
    """Loss, learning rate and test accuracy of Runs over epochs, with a colour and a marker per Run."""
    figure, (loss, rate, accuracy) = new_figure(5.6, 6.4, rows=3, sharex=True, height_ratios=[3, 2, 3])
    colours = colour_of([run.path.name for run in runs])
    for number, run in enumerate(runs):
        name = run.path.name
        colour, dashes = colours[name], ("-", "--")[number % 2]
        steps, evaluations = run.steps(), run.evaluations()
        images = -(-run.provenance["dataset"]["train_images"] // run.processes)
        epochs = [record["step"] / (images // run.recipe.data.batch_size) for record in steps]
        losses = [record["loss"] for record in steps]
        loss.plot(epochs, losses, color=colour, alpha=0.2, linewidth=0.7)
        loss.plot(epochs, smooth(losses, max(1, sum(epoch <= 1 for epoch in epochs) // 4)), color=colour, label=name)
        rate.plot(epochs, [record["lr"] for record in steps], dashes, color=colour)
        accuracy.plot(
            [record["epoch"] for record in evaluations],
            [100 * record["accuracy"] for record in evaluations],
            color=colour, marker=MARKERS[number % len(MARKERS)], markersize=4, label=name,
        )  # fmt: skip
    loss.set(title="Training loss (nats)", xlim=(0, None), ylim=(0, None))
    rate.set(title="Learning rate", ylim=(0, None))
    accuracy.set(title="Test accuracy (%)", xlabel="epoch", ylim=(None, 102))
    accuracy.xaxis.get_major_locator().set_params(integer=True)
    accuracy.legend(loc="lower right")
    return figure


def comparison(curves, target) -> Figure:
    """Test accuracy of settings (`compare.settings`) over steps and seconds; a line per Run, the target dashed."""
    figure, (steps, seconds) = new_figure(5.6, 5.6, rows=2)
    colours = colour_of(list(curves))
    for number, (name, runs) in enumerate(curves.items()):
        colour = colours[name]
        for curve in runs:
            label = name if curve is runs[0] else None
            percent = [100 * accuracy for accuracy in curve.accuracies]
            marker = MARKERS[number % len(MARKERS)]
            style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2, "label": label}
            steps.plot(curve.steps, percent, **style)
            seconds.plot(curve.seconds, percent, **style)
    for axes in (steps, seconds):
        axes.axhline(100 * target, color=REFERENCE, linestyle="--", linewidth=1, label=f"target, {target:.2%}")
        axes.set_xlim(0, None)
        axes.set_ylabel("test accuracy (%)")
    steps.set(xlabel="steps")
    seconds.set(xlabel="seconds of training")
    steps.legend(loc="lower right")
    return figure


def image_grid(images, titles=(), columns=8, size=1.0) -> Figure:
    """Images (N, H, W, 3), uint8 or floats in 0..1, in rows, with titles above them; size of an image in inches."""
    rows = -(-len(images) // columns)
    height = size * (1.25 if len(titles) else 1.05)
    figure, axes = new_figure(columns * size, rows * height, rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for number, image in enumerate(images):
        axes.flat[number].imshow(image)
        if len(titles):
            axes.flat[number].set_title(titles[number], fontsize="medium", loc="center")
    return figure

"""Figures of a comparison with PyTorch (`labkit.parity.report.Report`)."""

from labkit import figures

MARKS = {  # of a grid: shape, size, colour
    "first": ("s", 9, figures.VERMILION),
    "later": ("o", 7, figures.BLUE),
    "equal": (".", 3, figures.REFERENCE),
    "seen": ("o", 7, figures.BLUE),
    "missed": ("x", 7, figures.VERMILION),
    "cannot see": (".", 3, figures.REFERENCE),
    "false alarm": ("^", 8, figures.ORANGE),
    "quiet": ("", 0, figures.REFERENCE),
}


def layers(report):
    """Error of every layer, forwards and backwards, on a logarithmic scale; layers that differ are marked."""
    figure, axes = figures.new_figure(5.6, 5.2, rows=2)
    right, wrong = figures.COLOUR_OF["right"], figures.COLOUR_OF["wrong"]
    panels = (  # if a gradient is off by e, 1 − cosine is e² / 2, so its rounding needs a lower floor
        (axes[0], report.forward, "Outputs, in forward order", "largest error, relative", lambda d: d.max_rel, 1e-9),
        (axes[1], report.backward, "Gradients, in backward order", "1 − cosine", lambda d: 1 - d.cosine, 1e-16),
    )
    for axis, differences, title, label, value, floor in panels:
        values = [min(max(value(layer), floor), 10) for layer in differences]  # inf and 0 are drawn at the limits
        numbers = range(1, len(differences) + 1)
        axis.semilogy(numbers, values, ".", color=right, markersize=4)
        different = [(number, v) for number, v, layer in zip(numbers, values, differences) if not layer.ok]
        if different:
            axis.semilogy(*zip(*different), "s", color=wrong, markersize=5, label="differs")
            axis.legend(loc="lower right")
        for bound in {d.tolerance if d.by == "max_rel" else 1 - d.tolerance for d in differences}:
            axis.axhline(bound, color=figures.REFERENCE, linestyle="--")
        axis.set(title=title, xlabel="layer", ylabel=label, ylim=(floor / 2, 20))
    return figure


def losses(report):
    """Losses of the short training, and their differences."""
    figure, (above, below) = figures.new_figure(5.6, 5.2, rows=2, sharex=True)
    theirs, ours = report.losses["pytorch"], report.losses["mindspore"]
    steps = range(1, len(theirs) + 1)
    colours = figures.COLOUR_OF
    above.plot(steps, theirs, color=colours["PyTorch"], linewidth=4, alpha=0.5, label="PyTorch")
    above.plot(steps, ours, color=colours["MindSpore"], label="MindSpore")
    above.set(title="Loss (nats)")
    above.legend()
    errors = [max(abs(a - b) / abs(a), 1e-9) for a, b in zip(theirs, ours)]
    below.semilogy(steps, errors, "o-", color=colours["MindSpore"], markersize=3)
    below.axhline(report.stages[-1].tolerance, color=colours["target"], linestyle="--")
    below.set(title="Difference, relative", xlabel="step")
    below.xaxis.get_major_locator().set_params(integer=True)
    return figure


def grid(rows, columns, height):
    """A grid with a mark of MARKS for each of the columns; rows: {label: marks}; height in inches."""
    figure, axes = figures.new_figure(5.6, height)
    for row, marks in enumerate(rows.values()):
        for column, mark in enumerate(marks):
            shape, size, colour = MARKS[mark]
            axes.plot(column, row, shape, markersize=size, color=colour)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set(ylim=(len(rows) - 0.4, -0.6))
    axes.grid(False)
    return figure

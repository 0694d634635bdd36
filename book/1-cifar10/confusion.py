"""Draws a confusion matrix."""

import numpy as np

from labkit import figures


def matrix(counts, classes):
    """Counts (K, K), true class by row, predicted class by column; errors are shaded, the diagonal stays white."""
    errors = np.array(counts, float)
    np.fill_diagonal(errors, np.nan)
    figure, axis = figures.new_figure(5.6, 5.2)
    darkest = max(np.nanmax(errors), 1)
    axis.imshow(errors, cmap="Oranges", vmin=0, vmax=darkest)
    for row, column in np.ndindex(*errors.shape):
        if counts[row][column]:
            weight = "bold" if row == column else "normal"
            colour = "white" if errors[row, column] > 0.6 * darkest else "black"  # the diagonal is nan: black
            text = f"{counts[row][column]:,}"
            axis.text(column, row, text, ha="center", va="center", weight=weight, color=colour)
    axis.set_xticks(range(len(classes)), classes, rotation=45, ha="right")
    axis.set_yticks(range(len(classes)), classes)
    axis.set(xlabel="predicted", ylabel="true")
    axis.grid(False)
    return figure

"""Plots in 256 colours look the same at a third of the size. Photographs have more colours, and keep them."""

import os
from pathlib import Path

from PIL import Image

PLOT_COLOURS = 8192  # of a plot, edges smoothed, at most


def lighten(file: Path) -> None:
    """Rewrite a PNG picture with a palette, unless it has one, or too many colours for one."""
    with Image.open(file) as picture:
        if picture.mode == "P" or picture.convert("RGBA").getextrema()[3][0] < 255:  # transparency would be lost
            return
        plot = picture.convert("RGB")
    if plot.getcolors(PLOT_COLOURS):
        written = file.stat()
        plot.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))  # or the next build reads its page again


def _lighten_all(app, env):
    for file in Path(app.outdir).parent.joinpath("jupyter_execute").rglob("*.png"):
        lighten(file)


def setup(app):
    app.connect("env-updated", _lighten_all)  # after MyST-NB has written them, before they are copied
    return {"parallel_read_safe": True, "parallel_write_safe": True}

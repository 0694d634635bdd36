"""Pictures of the pages: plots lose weight and nothing that one sees, photographs stay as they are."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "book" / "_ext"))
import light_pictures


def test_a_plot_is_lighter_and_no_younger(tmp_path):
    """A page whose picture is younger than its reading would be read again by each build."""
    file = tmp_path / "plot.png"
    figure = Figure()
    figure.subplots().plot(np.sin(np.linspace(0, 9, 99)))
    figure.savefig(file)
    os.utime(file, ns=(10**18, 10**18))
    before, weight = np.asarray(Image.open(file).convert("RGB"), int), file.stat().st_size
    light_pictures.lighten(file)
    after = np.asarray(Image.open(file).convert("RGB"), int)
    assert file.stat().st_size < weight / 2
    assert abs(after - before).max() < 16
    assert file.stat().st_mtime_ns == 10**18


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_photographs_and_transparent_pictures_stay(tmp_path, mode):
    file = tmp_path / "picture.png"
    pixels = np.random.default_rng(0).integers(0, 256, (120, 120, len(mode)), dtype=np.uint8)
    Image.fromarray(pixels if mode == "RGB" else pixels // 200 * 60, mode).save(file)
    before = file.read_bytes()
    light_pictures.lighten(file)
    assert file.read_bytes() == before

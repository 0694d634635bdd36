"""tests/benchmarks/jpeg.py: what the second compression does to images, and to a data set."""

from io import BytesIO

import numpy as np
from PIL import Image

from labkit.data import cifar10_files
from tests.benchmarks import jpeg


def test_an_image_stays_recognisable():
    """Same shape, other pixels, near the old ones: noise less so than a slope."""
    slope = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[:, None, None], (32, 32, 3))
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    changes = []
    for image in (slope, noise):
        found = jpeg.compressed(image)
        assert (found.shape, found.dtype) == (image.shape, np.uint8)
        changes.append(np.sqrt(np.mean((found.astype(float) - image) ** 2)))
    assert 0 < changes[0] < 3 < changes[1] < 80


def test_the_second_compression_has_blocks_of_its_own():
    """On the first one's grid it would find its own coefficients again, and change little."""
    grey = np.random.default_rng(0).integers(0, 256, (32, 32, 1), dtype=np.uint8)  # colour is stored more coarsely
    noise = Image.fromarray(grey.repeat(3, axis=2))

    def saved(image):
        image.save(file := BytesIO(), "JPEG", quality=jpeg.QUALITY)
        return Image.open(file)

    once = saved(noise)
    before, again = (np.asarray(image, float) for image in (once, saved(once)))
    shifted = jpeg.compressed(np.asarray(once))
    same_grid, other_grid = (np.sqrt(np.mean((each - before) ** 2)) for each in (again, shifted))
    assert other_grid > 5 * same_grid


def test_a_data_set_keeps_its_labels(tmp_path, write_noise):
    """And its order; its SOURCE.txt says what was done."""
    write_noise(tmp_path / "one")
    (tmp_path / "one" / "batches.meta.txt").write_text("".join(f"class {n}\n" for n in range(10)))
    jpeg.write_compressed(tmp_path / "one", tmp_path / "two")
    for split in ("train", "test"):
        (before, labels), (after, kept) = (cifar10_files.read(tmp_path / name, split) for name in ("one", "two"))
        np.testing.assert_array_equal(kept, labels)
        np.testing.assert_array_equal(after[-1], jpeg.compressed(before[-1]))
    assert "compressed once more" in cifar10_files.check(tmp_path / "two").dataset["name"]

"""What the parity tests share: a small image folder, and one comparison of each ResNet."""

import pytest

from labkit.data import imagenet_files
from labkit.parity import Setting, compare_resnets


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The sample image folder."""
    folder = tmp_path_factory.mktemp("digits") / "imagenet"
    imagenet_files.write_sample(folder)
    return folder


@pytest.fixture(scope="session")
def compare(digits):
    """Function: the report of a setting, with what is planted; 32 x 32 pixels, 8 images, no training unless told."""

    def compare(network, plant=None, **options):
        return compare_resnets(Setting(network, digits, **{"image_size": 32, "steps": 0, **options}), plant)

    return compare

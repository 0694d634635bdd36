"""What the parity tests share: a small image folder, one comparison of each ResNet, the code of the chapters."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_limits

from labkit.cli import main
from labkit.parity.resnets import Setting, compare_resnets, write_photographs

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "book" / "2-migration"))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For PyTorch and numpy: where test processes have all cores, more threads of each wait for one another."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """Tiles of two photographs as an image folder."""
    folder = tmp_path_factory.mktemp("photographs") / "tiles"
    write_photographs(folder)
    return folder


@pytest.fixture(scope="session")
def compare(photographs):
    """Function: the report of a setting, with what is planted; 32 x 32 pixels, 8 images, no training unless told."""

    def compare(network, plant=None, **options):
        return compare_resnets(Setting(network, photographs, **{"image_size": 32, "steps": 0, **options}), plant)

    return compare


@pytest.fixture(scope="session")
def invoke():
    """Function: the result of a command, in this process, where MindSpore and PyTorch are imported once."""
    return lambda *arguments: CliRunner().invoke(main, [*map(str, arguments)])

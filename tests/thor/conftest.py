"""THOR on tiny networks, in both modes."""

import mindspore as ms
import numpy as np
import pytest

from labkit.system.device import in_mode

pytest.register_assert_rewrite("small")

MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


@pytest.fixture(autouse=True)
def pynative():
    """PyNative for all that does not ask for a mode: nothing to compile."""
    with in_mode(ms.PYNATIVE_MODE):
        yield


@pytest.fixture(params=MODES)
def mode(request):
    with in_mode(MODES[request.param]):
        yield request.param


@pytest.fixture
def rng():
    return np.random.default_rng(0)

"""What the tests of the data pipelines share."""

import pytest

pytest.register_assert_rewrite("data_script", "streams", "cifar10_archive", "imagenet_archives", "imagenet_streams")


@pytest.fixture(scope="module")
def settings_of_mindspore():
    """Graph mode for who comes next; the pipeline changes MindData's seed and recovery."""
    import mindspore as ms
    import mindspore.dataset as ds

    before = ds.config.get_seed(), ds.config.get_fast_recovery()
    yield
    ds.config.set_seed(before[0])
    ds.config.set_fast_recovery(before[1])
    ms.set_context(mode=ms.GRAPH_MODE)

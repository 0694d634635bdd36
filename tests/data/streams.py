"""Streams of batches: what the tests of the pipelines read, and how they compare."""

import mindspore.dataset as ds
import numpy as np


def stream(dataset, epochs=1):
    """Epochs of a data set: a list of (images, labels) batches for each."""
    iterator = dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    return [list(iterator) for _ in range(epochs)]


def rest_of_stream(dataset, step, epochs):
    """Batches after `step`, of a data set of four steps an epoch, as a resumed training reads them."""
    ds.config.set_fast_recovery(False)
    dataset.set_init_step(step)
    iterator = dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    return [batch for _ in range(epochs - step // 4) for batch in iterator]


def images_of(epoch):
    return np.concatenate([images for images, _ in epoch])


def labels_of(epoch):
    return np.concatenate([labels for _, labels in epoch])


def equal(first, second):
    return len(first) == len(second) and all(
        np.array_equal(a, b) and np.array_equal(k, m) for (a, k), (b, m) in zip(first, second)
    )


def denormalized(images, mean, std):
    """Pixels 0..255 of a normalised batch; they must be whole numbers."""
    values = (np.asarray(images, np.float64) * std[:, None, None] + mean[:, None, None]) * 255
    assert np.abs(values - values.round()).max() < 1e-2
    return values.round().astype(int)

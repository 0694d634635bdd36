"""The CIFAR-10 pipeline: records on disk -> batches of (N, 3, H, W) float32 images and (N,) int32 labels."""

import mindspore as ms
import mindspore.dataset as ds
from mindspore.dataset import transforms, vision

from labkit.data import rank_seed
from labkit.data.cifar10_files import MEAN, STD
from labkit.system.environment import workers


def normalize_transforms(image_size):
    """uint8 (H, W, 3) -> float32 (3, image_size, image_size), each channel with mean about 0 and deviation near 1."""
    resize = [] if image_size == 32 else [vision.Resize((image_size, image_size))]
    # Normalize takes pixels of 0..255, so mean and deviation are scaled instead of every pixel.
    return [*resize, vision.Normalize([255 * m for m in MEAN], [255 * s for s in STD]), vision.HWC2CHW()]


def train_transforms(image_size=32, crop_padding=4, flip=0.5):
    """Random crop from the image padded by `crop_padding` zeros, flip with probability `flip`, normalise."""
    augment = []
    if crop_padding:
        augment.append(vision.RandomCrop((32, 32), (crop_padding,) * 4))
    if flip:
        # MindData gives all random operations one seed, so crop and flip would draw in step: a window moved up would
        # always be mirrored. With a choice of two flips, each draws fewer numbers than the crop and falls behind it.
        augment.append(transforms.RandomChoice([vision.RandomHorizontalFlip(flip)] * 2))
    return augment + normalize_transforms(image_size)


def create_dataset(images, batch_size, image_transforms, *, seed=None, shard=(0, 1), num_workers=1):
    """Batches of (images (N, 32, 32, 3) uint8, labels (N,)), as `cifar10_files.read` returns them.

    With a seed, to train on: shuffled, and a short last batch is dropped. Without, to test on: in order, every image.
    shard: (rank, ranks): each rank reads its own images; all shards are equally long, so up to ranks - 1 images repeat.
    The stream depends only on seed and shard: a pipeline with the same values repeats it bit for bit, whatever the
    number of workers, as long as every random step is one of MindData's own operations (their names begin with Random).
    MindData's seed is global, and used when reading begins: until then, make no pipeline with another seed.
    """
    training, (rank, ranks), parallel = seed is not None, shard, workers(num_workers)
    if training:  # for the sampler, which shuffles alike on all ranks; a test set must not change the seed
        ds.config.set_seed(seed)
    # `ds.Cifar10Dataset` would read the files itself, but only files of exactly 10,000; the sample's are smaller.
    data = ds.NumpySlicesDataset(
        images,
        ["image", "label"],
        shuffle=training,
        num_shards=ranks if ranks > 1 else None,
        shard_id=rank if ranks > 1 else None,
        num_parallel_workers=1,
    )
    if training:  # for the random operations, which read it when iteration begins, each rank its own
        ds.config.set_seed(rank_seed(seed, rank))
    # Each worker has its own random numbers, so a single one runs the random steps; they are the quick part.
    is_random = [type(step).__name__.startswith("Random") for step in image_transforms]
    behind = len(is_random) - is_random[::-1].index(True) if True in is_random else 0
    for steps, count in ((image_transforms[:behind], 1), (image_transforms[behind:], parallel)):
        if steps:
            data = data.map(steps, "image", num_parallel_workers=count)
    data = data.map(transforms.TypeCast(ms.int32), "label", num_parallel_workers=parallel)
    return data.batch(batch_size, drop_remainder=training, num_parallel_workers=parallel)

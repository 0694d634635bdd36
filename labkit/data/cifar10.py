"""The CIFAR-10 pipeline: records on disk -> batches of (N, 3, H, W) float32 images and (N,) int32 labels."""

import mindspore as ms
import mindspore.dataset as ds
from mindspore.dataset import transforms, vision

from labkit.data import cifar10_files, rank_seed
from labkit.data.cifar10_files import MEAN, STD
from labkit.system.environment import workers


def normalize_transforms(image_size):
    """uint8 (H, W, 3) -> float32 (3, image_size, image_size), each channel with mean about 0 and deviation near 1."""
    resize = [] if image_size == 32 else [vision.Resize((image_size, image_size))]
    # Normalize takes pixels of 0..255, so mean and deviation are scaled instead of every pixel.
    scale = vision.Normalize([255 * m for m in MEAN], [255 * s for s in STD])
    return [*resize, scale, vision.HWC2CHW()]


def train_transforms(image_size=32, crop_padding=4, flip=0.5):
    """Random crop from the image padded by `crop_padding` zeros, flip with probability `flip`, normalise."""
    augment = []
    if crop_padding:
        augment.append(vision.RandomCrop((32, 32), (crop_padding,) * 4))
    if flip:
        # MindData gives all random operations one seed, so crop and flip would draw in step: a window moved up would
        # always be mirrored. A choice between two equal flips draws once more and brings them out of step.
        augment.append(transforms.RandomChoice([vision.RandomHorizontalFlip(flip)] * 2))
    return augment + normalize_transforms(image_size)


def create_dataset(folder, split, batch_size, *, image_transforms, seed=0, rank=0, ranks=1, num_workers=1):
    """Batches of `split` ("train" or "test") of a folder in CIFAR-10's binary layout.

    Training batches are shuffled, and a short last batch is dropped. Test batches keep the order and every image.
    With several ranks, each reads its own shard; all shards are equally long, so up to ranks - 1 images repeat.
    The stream depends only on seed, rank and ranks: a pipeline with the same three repeats it bit for bit, whatever the
    number of workers, as long as every random step is one of MindData's own operations (their names begin with Random).
    MindData's seed is global: read one training pipeline before you make the next with another seed.
    """
    training = split == "train"
    if training:  # a test set must not change the seed of a training set that has not begun to read
        ds.config.set_seed(seed)
    parallel = workers(num_workers)
    # `ds.Cifar10Dataset` would read the files itself, but only in batches of exactly 10,000; the sample's are smaller.
    data = ds.NumpySlicesDataset(
        cifar10_files.read(folder, split),
        ["image", "label"],
        shuffle=training,
        num_shards=ranks if ranks > 1 else None,
        shard_id=rank if ranks > 1 else None,
        num_parallel_workers=1,
    )
    if training:  # the sampler has the seed, the same on all ranks; operations read theirs when iteration begins
        ds.config.set_seed(rank_seed(seed, rank))
    # Each worker has its own random numbers, so a single one runs the random steps; they are the quick part.
    is_random = [type(step).__name__.startswith("Random") for step in image_transforms]
    behind = len(is_random) - is_random[::-1].index(True) if True in is_random else 0
    for steps, count in ((image_transforms[:behind], 1), (image_transforms[behind:], parallel)):
        if steps:
            data = data.map(steps, "image", num_parallel_workers=count)
    data = data.map(transforms.TypeCast(ms.int32), "label", num_parallel_workers=parallel)
    return data.batch(batch_size, drop_remainder=training, num_parallel_workers=parallel)

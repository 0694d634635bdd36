"""The ImageNet pipeline: image files -> batches of (N, 3, H, W) float32 images and (N,) int32 labels.

There are two routes. `fast` uses MindData's own C++ operations, as the original documents do. `exact` decodes, crops
and resizes with Pillow and gives torchvision's pixels. book/2-migration/routes.py measures where they differ.
"""

import io
import math

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore.dataset import transforms, vision
from PIL import Image

from labkit.data import rank_seed
from labkit.system.environment import workers

# Per channel (R, G, B) over ImageNet, in units of 0..1 (the original documents', and torchvision's).
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
BILINEAR = Image.Resampling.BILINEAR
RATIO = (0.75, 1.333)  # width / height of a random crop (the original THOR tutorial)


def normalize_transforms():
    """uint8 (H, W, 3) -> float32 (3, H, W), each channel with mean about 0 and deviation near 1."""
    # Normalize takes pixels of 0..255, so mean and deviation are scaled instead of every pixel.
    return [vision.Normalize([255 * m for m in MEAN], [255 * s for s in STD]), vision.HWC2CHW()]


def train_transforms(image_size=224, route="fast", crop_scale=(0.08, 1.0), flip=0.5):
    """Random part of the image (as in the original THOR tutorial), resized; flip with probability `flip`; normalise."""
    if route == "exact":
        return [RandomCropResizeFlip(image_size, crop_scale, flip), *normalize_transforms()]
    augment = [vision.RandomCropDecodeResize(image_size, tuple(crop_scale), RATIO)]
    if flip:
        augment.append(vision.RandomHorizontalFlip(flip))
    return augment + normalize_transforms()


def evaluation_transforms(image_size=224, resize=256, route="fast"):
    """Shorter side to `resize` pixels, the middle image_size x image_size, normalise."""
    if route == "exact":

        def decode_resize_crop(image):
            return np.array(center_crop(resize_short(decode(image), resize), image_size))

        return [decode_resize_crop, *normalize_transforms()]
    steps = vision.Decode(), vision.Resize(resize), vision.CenterCrop(image_size)
    return [*steps, *normalize_transforms()]


# -- The exact route: torchvision's rounding, with Pillow ------------------------------------------


def decode(image):
    """Bytes of a JPEG or PNG file, (N,) uint8 -> RGB image, as torchvision's ImageFolder loads it."""
    return Image.open(io.BytesIO(image)).convert("RGB")


def resize_short(image, size):
    """Shorter side to `size`, the longer in proportion and rounded down (torchvision's Resize).

    MindData's own Resize of Pillow images divides first: 128x186 becomes 256x371 there, 256x372 here.
    """
    width, height = image.size
    short, long = min(width, height), max(width, height)
    long = int(size * long / short)
    return image.resize((size, long) if width <= height else (long, size), BILINEAR)


def center_crop(image, size):
    """The middle size x size; half a pixel rounds to the even number (torchvision's CenterCrop)."""
    left, top = (round((side - size) / 2) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def random_box(width, height, scale, ratio, random):
    """(left, top, width, height) of a random part of an image (torchvision's RandomResizedCrop.get_params).

    Its share of the area is uniform within `scale`, log(width / height) within the logarithms of `ratio`. If none fits
    in ten tries, it is the largest part in the middle that keeps to `ratio`.
    """
    for _ in range(10):
        area = width * height * random.uniform(*scale)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            return int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h
    w, h = min(width, round(height * ratio[1])), min(height, round(width / ratio[0]))
    return (width - w) // 2, (height - h) // 2, w, h


class RandomCropResizeFlip:
    """(bytes, draw) -> uint8 (size, size, 3): RandomResizedCrop and RandomHorizontalFlip of torchvision, with Pillow.

    All randomness comes from the number `draw`, so the result does not depend on which thread works when.
    """

    def __init__(self, size, scale, flip):
        self.size, self.scale, self.flip = size, scale, flip

    def __call__(self, image, draw):
        random = np.random.default_rng(int(draw))
        image = decode(image)
        left, top, width, height = random_box(*image.size, self.scale, RATIO, random)
        image = image.crop((left, top, left + width, top + height)).resize((self.size, self.size), BILINEAR)
        if random.random() < self.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.array(image)


# -- The data set ---------------------------------------------------------------------------------


def read(path):
    """Bytes of a file, (N,) uint8."""
    return np.fromfile(str(path), np.uint8)


class EpochOrder(ds.Sampler):
    """A new order of all images in each epoch, the same on every rank; each rank takes every ranks-th image of it."""

    def __init__(self, images, seed, rank, ranks):
        super().__init__(num_samples=-(-images // ranks))
        self.images, self.seed, self.rank, self.ranks, self.epoch = images, seed, rank, ranks, 0

    def __iter__(self):
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.images)
        self.epoch += 1  # MindData copies its samplers for every iterator: each begins at 0
        order = np.resize(order, self.num_samples * self.ranks)
        return iter(order[self.rank :: self.ranks].tolist())


def create_dataset(images, batch_size, image_transforms, *, seed=None, shard=(0, 1), num_workers=1):
    """Batches of (paths, labels (N,)), as `imagenet_files.read` returns them.

    With a seed, to train on: complete batches, shuffled anew each epoch; without, to test on: in order, every image.
    shard: (rank, ranks): over all ranks together an epoch has every image once; shards are equally long, so up to
    ranks - 1 images repeat. The stream depends only on seed, shard and, on the fast route, the number of workers
    started, which is at most the number of cores: a pipeline with the same values repeats it bit for bit.
    MindData's seed is global, and used when reading begins: until then, make no pipeline with another seed.
    """
    training, parallel = seed is not None, workers(num_workers)
    if training:  # for the random operations; they must not do the same on every rank
        ds.config.set_seed(rank_seed(seed, shard[0]))
    images = list(zip(*images))
    sampler = EpochOrder(len(images), seed, *shard) if training else ds.SequentialSampler()
    data = ds.GeneratorDataset(images, ["image", "label"], sampler=sampler, num_parallel_workers=1)
    # Files are read here, several at once: GeneratorDataset's own threads halve the speed of the whole pipeline.
    data = data.map(read, "image", num_parallel_workers=parallel)
    columns = ["image"]
    if any(isinstance(step, RandomCropResizeFlip) for step in image_transforms):
        # MindData cannot seed a function in Python, so each image travels with a random number of its own. It is from
        # MindData's own generator, which starts anew with each iterator.
        numbers = ds.RandomSampler(replacement=True, num_samples=data.get_dataset_size())
        data = ds.zip((data, ds.GeneratorDataset(range(2**31), ["draw"], sampler=numbers, num_parallel_workers=1)))
        columns = ["image", "draw"]
    data = data.map(image_transforms, columns, ["image"], num_parallel_workers=parallel)
    data = data.map(transforms.TypeCast(ms.int32), "label", num_parallel_workers=parallel)
    return data.project(["image", "label"]).batch(batch_size, drop_remainder=training, num_parallel_workers=parallel)

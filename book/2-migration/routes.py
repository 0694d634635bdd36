"""Compare MindData's operations with Pillow's, step by step from a file to pixels."""

import numpy as np
from mindspore.dataset import vision
from PIL import Image

from labkit.data import imagenet


def compare(image, image_size=224, resize=256):
    """Mean and largest difference between the fast route and the exact one in each step, in pixel values (0..255).

    `image`: bytes of a file, (N,) uint8. Returns {step: (mean, largest)}. Each step starts from the same pixels in both
    routes; "all" compares the complete routes. The resize steps name MindData's filter; `exact` is Pillow's bilinear
    filter, which averages all pixels that contribute to a new one.
    """
    decoded = imagenet.decode(image)
    pixels, resized = np.asarray(decoded), np.asarray(imagenet.resize_short(decoded, resize))
    cropped = np.asarray(imagenet.center_crop(Image.fromarray(resized), image_size))
    pairs = {"decode": (vision.Decode()(image), pixels)}
    for name in ("LINEAR", "AREA", "PILCUBIC"):
        pairs[f"resize, {name}"] = vision.Resize(resize, vision.Inter[name])(pixels), resized
    cubic = np.asarray(decoded.resize(resized.shape[1::-1], Image.Resampling.BICUBIC))
    pairs["resize, PILCUBIC and Pillow's bicubic"] = pairs["resize, PILCUBIC"][0], cubic
    pairs["center crop"] = vision.CenterCrop(image_size)(resized), cropped
    result = image
    for step in imagenet.evaluation_transforms(image_size, resize)[:3]:
        result = step(result)
    pairs["all"] = result, cropped
    return {step: _difference(*pair) for step, pair in pairs.items()}


def _difference(first, second):
    error = np.abs(np.subtract(first, second, dtype=np.float64))
    return float(error.mean()), float(error.max())

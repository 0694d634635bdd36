"""Where MindData's operations and Pillow's part on the way from a file to pixels, step by step."""

import numpy as np
from mindspore.dataset import vision
from PIL import Image

from labkit.data import imagenet


def compare(image, image_size=224, resize=256):
    """Mean and largest difference of the fast route from the exact one, step by step, in units of a pixel (0..255).

    `image`: bytes of a file, (N,) uint8. Returns {step: (mean, largest)}. In each step both begin with the same pixels;
    in the last, each goes its own whole way. The resize lines name the filter that MindData uses; `exact` is Pillow's
    bilinear, which averages all the pixels that fall on a new one.
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
    whole = image
    for step in imagenet.evaluation_transforms(image_size, resize)[:3]:
        whole = step(whole)
    pairs["all"] = whole, cropped
    return {step: _difference(*pair) for step, pair in pairs.items()}


def _difference(first, second):
    apart = np.abs(np.subtract(first, second, dtype=np.float64))
    return float(apart.mean()), float(apart.max())

"""Image folders of photographs and of numbered colours, and the pipelines of them."""

import image_files
import numpy as np
import streams
from PIL import Image
from streams import images_of, labels_of

from labkit.data import imagenet_files
from labkit.data.imagenet import create_dataset, evaluation_transforms, train_transforms

MEAN = np.array([0.485, 0.456, 0.406])  # both seeds, and torchvision's
STD = np.array([0.229, 0.224, 0.225])


def encoded(image, form="JPEG", **options):
    return np.frombuffer(image_files.encoded(image, form, **options), np.uint8)


def photographs():
    """The two photographs in landscape and portrait, and the files that are not plain RGB JPEG, by name."""
    made = {}
    for path in imagenet_files.photographs():
        made[path.stem] = np.fromfile(path, np.uint8)
        made[f"{path.stem} upright"] = encoded(Image.open(path).transpose(Image.Transpose.ROTATE_90))
    flower = Image.open(imagenet_files.photographs()[1])
    made["grey"] = encoded(flower.convert("L"))
    made["cmyk"] = encoded(flower.convert("CMYK"))
    made["progressive"] = encoded(flower, progressive=True)
    made["png"] = encoded(flower, "PNG")
    made["grey png"] = encoded(flower.convert("L"), "PNG")
    made["palette png"] = encoded(flower.convert("P"), "PNG")
    alpha = flower.convert("RGBA")
    alpha.putalpha(flower.convert("L"))
    made["png with alpha"] = encoded(alpha, "PNG")
    turned = Image.Exif()
    turned[274] = 6  # to be shown turned by 90 degrees; neither torchvision nor MindData does
    made["turned by exif"] = encoded(flower, exif=turned)
    return made


PHOTOGRAPHS = photographs()


def write_photographs(folder, repeat=1):
    """An image folder of the photographs, all of them in both splits; so many times in train."""
    for split, times in (("train", repeat), ("val", 1)):
        for number, content in enumerate([*PHOTOGRAPHS.values()] * times):
            place = folder / split / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            content.tofile(place / f"{number:03}.JPEG")
    return folder


def numbered(folder, train, val):
    """A folder of 32x32 PNG images, each of one colour that is its number: red, and 10 * class in green."""
    for split, count in (("train", train), ("val", val)):
        for number in range(count):
            label = number * 3 // count
            place = folder / split / "abc"[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (number, 10 * label, 0)).save(place / f"{number:03}.png")
    return folder


def training(folder, batch_size=20, *, route="fast", scale=(0.08, 1.0), flip=0.5, seed=0, **options):
    images = imagenet_files.read(folder, "train")
    return create_dataset(images, batch_size, train_transforms(16, route, scale, flip), seed=seed, **options)


def evaluation(folder, batch_size=10, *, size=16, resize=16, route="fast", **options):
    images = imagenet_files.read(folder, "test")
    return create_dataset(images, batch_size, evaluation_transforms(size, resize, route), **options)


def raw(images):
    return streams.denormalized(images, MEAN, STD)


def which(epoch):
    """Numbers of the images of one colour, whose labels must fit."""
    pixels = raw(images_of(epoch))
    assert (pixels == pixels[:, :, :1, :1]).all()
    np.testing.assert_array_equal(pixels[:, 1, 0, 0], 10 * labels_of(epoch))
    return pixels[:, 0, 0, 0].tolist()

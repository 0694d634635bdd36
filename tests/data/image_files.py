"""Image files, good and bad, and folders of them, for the tests of what looks at them."""

import io

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


def encoded(image=None, form="JPEG", **options):
    """An image file's bytes; without an image 40x30 random colours."""
    image = image or Image.fromarray(RNG.integers(0, 256, (30, 40, 3), np.uint8))
    raw = io.BytesIO()
    image.save(raw, form, **options)
    return raw.getvalue()


JPEG, PNG = encoded(), encoded(form="PNG")
THUMBNAIL = b"\xff\xe1" + (len(JPEG) + 8).to_bytes(2, "big") + b"Exif\0\0" + JPEG  # a camera's, before the pixels
CUT = (JPEG[:2] + THUMBNAIL + JPEG[2:])[: 2 + len(THUMBNAIL) + JPEG.rindex(b"\xff\xda") + 40]
GREY, CMYK = Image.open(io.BytesIO(PNG)).convert("L"), Image.open(io.BytesIO(PNG)).convert("CMYK")
BAD = {  # a bad file's content -> what is said of it
    "empty": (b"", "empty"),
    "text": (b"not an image, but long enough to be one", "not a JPEG or PNG image"),
    "gif": (encoded(form="GIF"), "not a JPEG or PNG image"),
    "half a jpeg": (JPEG[: len(JPEG) // 2], "truncated"),
    "jpeg without its end marker": (JPEG[:-2], "truncated"),
    "jpeg cut behind its thumbnail": (CUT, "truncated"),
    "jpeg header alone": (JPEG[:100], "Truncated"),
    "png without its end": (PNG[:-12], "truncated: no end marker"),
    "png without its end, but with the name": (PNG[:-12] + b"\0\0\0\4tEXtIEND", "truncated: no end marker"),
    "half a png": (PNG[: len(PNG) // 2], "truncated"),
    "16 bits": (encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)), "PNG"), "16 bits"),
}


def write(folder, contents):
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def small_folder(folder):
    """Two classes; b's name sorts before a's in train, as written, and JPEG and PNG are mixed."""
    return write(folder, {
        "train/b/2.JPEG": JPEG, "train/b/1.png": PNG, "train/a/x.jpg": encoded(), "train/a/10.jpg": encoded(),
        "train/a/9.jpg": encoded(), "val/b/v.JPEG": JPEG, "val/a/v.JPEG": encoded(),
    })  # fmt: skip


def change_a_byte(file):
    """Change one byte in the middle of a file, which keeps its size and looks as good as before."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

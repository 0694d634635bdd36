"""CIFAR-10's archive with small batches, and the data script that takes it."""

import hashlib
import io
import zipfile

import numpy as np
from data_script import runner, tar

from data_scripts import cifar10 as script
from labkit.data import cifar10_files as files

ALL = (*files.TRAIN_FILES, files.TEST_FILE)
run = runner(script)


def batches(images=30, seed=0):
    """{file: bytes} of random records, which gzip cannot shrink; 553,140 bytes with 30 images."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in ALL:
        records = rng.integers(0, 256, (images, files.RECORD_BYTES), dtype=np.uint8)
        records[:, 0] = rng.integers(0, 10, images)
        made[name] = records.tobytes()
    made["batches.meta.txt"] = "\n".join(files.CLASSES).encode()
    return made


def tar_bytes(contents, prefix=files.FOLDER + "/", mode="w:gz"):
    return tar(contents, mode, prefix)


def zip_bytes(contents, prefix=""):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(prefix + name, content)
    return raw.getvalue()


CONTENTS = batches()
ARCHIVE = tar_bytes(CONTENTS)
MD5 = hashlib.md5(ARCHIVE).hexdigest()


def good(out, contents=CONTENTS):
    """`out` holds exactly the data, and nothing else is left beside it."""
    for name, content in contents.items():
        assert (out / files.FOLDER / name).read_bytes() == content
    assert sorted(path.name for path in out.iterdir()) == [files.FOLDER]
    return files.check(out / files.FOLDER)


def nothing(out):
    """No data, and nothing that could be mistaken for it: no batch under any folder."""
    assert not (out / files.FOLDER).exists()
    assert not list(out.rglob("*.bin"))

"""CIFAR-10's archive with small batches, and the data script that takes it."""

import hashlib
import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from labkit.data import cifar10_files as files

SCRIPT = Path(files.__file__).resolve().parents[2] / "data_scripts" / "cifar10.py"
ALL = (*files.TRAIN_FILES, files.TEST_FILE)
_spec = importlib.util.spec_from_file_location("cifar10_script", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


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
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def zip_bytes(contents, prefix=""):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(prefix + name, content)
    return raw.getvalue()


CONTENTS = batches()
ARCHIVE = tar_bytes(CONTENTS)
MD5 = hashlib.md5(ARCHIVE).hexdigest()


def run(*args):
    """Run the command in this process; returns its result (exit_code, stdout, stderr)."""
    return CliRunner().invoke(script.main, [str(arg) for arg in args])


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

"""ImageNet2012's archives, tiny ones in their true layout, and the data script that arranges them."""

import io

import numpy as np
from data_script import runner, tar
from image_files import encoded
from scipy.io import savemat

from data_scripts import ilsvrc2012 as archives_module
from data_scripts import imagenet as script
from labkit.data import imagenet_files as files

run = runner(script)

DEVKIT, TRAIN, VAL = archives_module.DEVKIT, archives_module.TRAIN, archives_module.VAL
# ILSVRC2012_ID, WNID, words: not in the order of the WNIDs, as in ImageNet. The fourth groups the others.
SYNSETS = [
    (1, "n02119789", "kit fox, Vulpes macrotis", 0),
    (2, "n01440764", "tench, Tinca tinca", 0),
    (3, "n02100735", "English setter", 0),
    (4, "n00001740", "entity", 3),
]
WNIDS = [row[1] for row in SYNSETS[:3]]
TRUTH = [2, 3, 1, 1, 2]  # class of validation images 1 to 5


IMAGES = {wnid: {f"{wnid}_{number}.JPEG": encoded() for number in (18, 7, 10026)} for wnid in WNIDS}
VALIDATION = {f"ILSVRC2012_val_{number:08}.JPEG": encoded() for number in range(1, 6)}


def devkit(synsets=SYNSETS, truth=TRUTH, **replaced):
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = np.array([(number, wnid, words, "a gloss", n) for number, wnid, words, n in synsets], dtype=kinds)
    meta = io.BytesIO()
    savemat(meta, {"synsets": rows.reshape(-1, 1)})
    contents = {
        "readme.txt": b"read me",
        "data/meta.mat": meta.getvalue(),
        "data/ILSVRC2012_validation_ground_truth.txt": "".join(f"{number}\n" for number in truth).encode(),
        **replaced,
    }
    contents = {f"ILSVRC2012_devkit_t12/{name}": content for name, content in contents.items() if content is not None}
    return tar(contents, "w:gz")


def train_tar(images=IMAGES):
    return tar({f"{wnid}.tar": tar(content) for wnid, content in images.items()})


def write_archives(folder):
    folder.mkdir()
    for name, content in ((DEVKIT, devkit()), (TRAIN, train_tar()), (VAL, tar(VALIDATION))):
        (folder / name).write_bytes(content)
    return folder


def arrange(archives, out, *options):
    return run("arrange", archives, "--out", out, "--no-verify", *options)


def good(out, images=IMAGES):
    """The folder holds exactly the archives' images, each in its class, and nothing is left beside it."""
    folder = out / files.FOLDER
    wanted = {f"train/{wnid}/{name}": content for wnid in WNIDS for name, content in images[wnid].items()}
    for (name, content), number in zip(VALIDATION.items(), TRUTH):
        wanted[f"val/{WNIDS[number - 1]}/{name}"] = content
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.JPEG")}
    assert found == wanted
    assert sorted(path.name for path in folder.iterdir()) == ["SOURCE.txt", "classes.txt", "train", "val"]
    assert [path.name for path in out.iterdir()] == [files.FOLDER]
    return files.check(folder)

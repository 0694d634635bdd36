"""What a JPEG compression of CIFAR-10 costs in accuracy: python -m tests.benchmarks.jpeg OUT

The recorded Runs use a copy of CIFAR-10 whose images were JPEG files. This compresses them once more, as strongly, and
trains ResNet-20 on both sets (labs/cifar10, profile laptop, a shorter schedule), with two seeds. Each network is tested
on both. OUT gets the second set, the Runs and the result, jpeg.json; a second call resumes.
"""

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import click
import numpy as np
from PIL import Image

from labkit.data import cifar10_files, files
from labkit.system import environment
from labkit.system.files import atomic_write
from labkit.training import evaluation, runs
from tests.benchmarks.arena import commit_and_data

QUALITY = 75  # the copy's, by the tables in its files; Pillow halves the resolution of colour at it, as the copy does
# On the first compression's grid a second one would change little: half a block of brightness, a quarter of colour.
MARGIN = 4
EPOCHS, SEEDS = 5, (1, 2)


def compressed(image):
    """An image (32, 32, 3), uint8, after a JPEG compression whose blocks begin within the first one's."""
    framed = np.pad(image, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), "reflect")
    file = BytesIO()
    Image.fromarray(framed).save(file, "JPEG", quality=QUALITY)
    return np.asarray(Image.open(file))[MARGIN:-MARGIN, MARGIN:-MARGIN]


def write_compressed(source, folder):
    """Write the data set at `source` to `folder`, its images compressed once more."""
    with files.staging(folder) as staged:
        for name in (*cifar10_files.TRAIN_FILES, cifar10_files.TEST_FILE):
            records = np.fromfile(source / name, np.uint8).reshape(-1, cifar10_files.RECORD_BYTES)
            for record in records:
                image = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
                record[1:] = compressed(image).transpose(2, 0, 1).reshape(-1)
            records.tofile(staged / name)
        (staged / cifar10_files.META_FILE).write_bytes((source / cifar10_files.META_FILE).read_bytes())
        files.write_source(staged, f"{files.source_of(source, cifar10_files.UNKNOWN_SOURCE)}, compressed once more")
        files.publish(staged, folder, cifar10_files.check, False)


def train(data, out, seed, epochs):
    """The finished Run at `out`, trained or resumed if need be."""
    if not (out / "recipe.yaml").exists():
        settings = {"data.folder": str(data), "seed": seed, "epochs": epochs}
        options = ["--profile", "laptop"]
        options += [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    else:
        options = ["--resume"]
    if not ((out / "recipe.yaml").exists() and runs.open_run(out).complete):
        subprocess.run([sys.executable, "-m", "labkit", "train", "cifar10", *options, "--out", str(out)], check=True)
    return runs.open_run(out)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
def main(out):
    """Make the second set, train what is missing under OUT, and write OUT/jpeg.json."""
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    sets = {"copy": environment.data_root() / cifar10_files.FOLDER, "compressed again": out / "again"}
    made_by = commit_and_data(cifar10_files.check(sets["copy"]).dataset)
    if not sets["compressed again"].exists():
        write_compressed(sets["copy"], sets["compressed again"])
    pixels = [cifar10_files.read(folder, "test")[0].astype(float) for folder in sets.values()]
    accuracies = {trained: {tested: [] for tested in sets} for trained in sets}
    for seed in SEEDS:
        for trained, folder in sets.items():
            run = train(folder, out / f"{trained.replace(' ', '-')}-seed{seed}", seed, EPOCHS)
            for tested, other in sets.items():
                data = run.recipe.data.model_copy(update={"folder": str(other)})
                recipe = run.recipe.model_copy(update={"data": data})
                logits, labels = evaluation.checkpoint_logits(recipe, run.checkpoint)
                accuracy = float((logits.argmax(axis=1) == labels).mean())
                accuracies[trained][tested].append(accuracy)
                click.echo(f"seed {seed}: trained on {trained}, tested on {tested}: {accuracy:.2%}")
    result = {
        "network": run.recipe.network.name,
        "quality": QUALITY,
        "epochs": EPOCHS,
        "pixel_rms": float(np.sqrt(np.mean((pixels[0] - pixels[1]) ** 2))),  # of 0 to 255
        "accuracies": accuracies,
        "provenance": made_by,
    }
    atomic_write(out / "jpeg.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

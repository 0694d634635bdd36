#!/usr/bin/env python
"""Arrange ImageNet2012 from its archives, make the offline sample, convert to MindRecord, and check it.

    python data_scripts/imagenet.py arrange|sample|mindrecord|check

ImageNet's terms let nobody else hand it out: log in at https://image-net.org/download and download
the three archives of ILSVRC2012. Data appears in its folder whole and checked, or not at all.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import click
import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # works before labkit is installed
from data_scripts import ilsvrc2012
from data_scripts.shared import (
    Commands,
    Failure,
    alone,
    already_there,
    force_option,
    out_option,
    require_space,
    summary,
)
from labkit.data import imagenet_files as files
from labkit.data.files import SOURCE_FILE, publish, real, staging, write_source
from labkit.system.environment import data_root
from labkit.system.files import atomic_write

SOURCE = "ImageNet2012 (ILSVRC2012), arranged from its archives"
SHARD_BYTES = 1 << 30  # of images in a MindRecord file, about
BATCH = 64  # images handed to MindRecord's writer at a time, which takes as long for one


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """ImageNet2012: arrange its archives, make a small offline sample, convert to MindRecord.

    \b
    Example: python data_scripts/imagenet.py sample
    """


bad_images_option = click.option(
    "--bad-images", default="error", show_default=True, type=click.Choice(["error", "skip"]),
    help="Stop at images that cannot be read, or leave them out.",
)  # fmt: skip


@main.command()
@click.argument("archives", type=click.Path(exists=True, file_okay=False, path_type=Path))
@out_option
@click.option("--no-verify", is_flag=True, help="Do not compare the archives' MD5 with the published ones.")
@force_option
def arrange(archives, out, no_verify, force):
    """Unpack the three archives in the folder ARCHIVES into train/<wnid>/ and val/<wnid>/ (155 GB more).

    The validation images get their classes from the development kit. Interrupt it at any time: the same command goes on
    with the class where it stopped.

    \b
    Example: python data_scripts/imagenet.py arrange ~/Downloads
    """
    folder = real((out or data_root()) / files.FOLDER)
    look = partial(files.check, bad_images="skip")  # whether bad images are an error, the recipe says
    if already_there(folder, look, force):
        return
    ilsvrc2012.require_archives(archives)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f".{folder.name}.arranging")  # stays when interrupted
    with alone(folder.parent, "data script"):
        if not work.exists():
            require_space(folder.parent, sum((archives / name).stat().st_size for name in ilsvrc2012.MD5))
        work.mkdir(exist_ok=True)
        if not no_verify:
            ilsvrc2012.verify(archives, work)
        classes = ilsvrc2012.arrange(archives, work)
        names = "".join(f"{wnid}\t{name}\n" for wnid, name in sorted(classes.items()))
        atomic_write(work / files.CLASSES_FILE, names)
        write_source(work, SOURCE)
        if not publish(work, folder, look, force):
            shutil.rmtree(work)  # the same data was there
    summary("ready", look(folder))


@main.command()
@out_option
@force_option
def sample(out, force):
    """Make the sample: 500 of scikit-learn's handwritten digits as an image folder. Needs no download.

    \b
    Example: python data_scripts/imagenet.py sample
    """
    folder = (out or data_root()) / "sample" / files.FOLDER
    if not already_there(folder, files.check, force):
        summary("ready", files.write_sample(folder, force))


@main.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="[default: PATH-mindrecord]")
@click.option("--shard-bytes", default=SHARD_BYTES, show_default=True, type=click.IntRange(1), help="Size of a file.")
@bad_images_option
@force_option
def mindrecord(path, out, shard_bytes, bad_images, force):
    """Convert the image folder PATH to MindRecord files, which read faster where many small files are slow.

    The images keep their bytes, order and classes. A pipeline takes either folder.

    \b
    Example: python data_scripts/imagenet.py mindrecord data/sample/imagenet
    """
    if files.records(path):
        raise Failure(f"{path}: holds MindRecord files already")
    out = out or path.resolve().with_name(f"{path.resolve().name}-mindrecord")
    info = files.check(path, bad_images)
    if already_there(out, files.check, force):
        return
    with staging(out) as staged:
        require_space(staged, sum(item.stat().st_size for item in path.rglob("*") if item.is_file()))
        held = {"sha256": info.sha256, "contents": info.contents}
        for split, name in files.SPLITS.items():
            paths, labels = files.listing(path, split, bad_images)
            if split == "train":  # every class has an image there
                held["classes"] = sorted({Path(image).parent.name for image in paths})
            held[split] = {"images": len(paths), "files": write_records(paths, labels, staged, name, shard_bytes)}
        held["digests"], _ = files.digests(staged, [row[0] for split in files.SPLITS for row in held[split]["files"]])
        for name in (files.CLASSES_FILE, SOURCE_FILE):
            if (path / name).exists():
                shutil.copyfile(path / name, staged / name)
        atomic_write(staged / files.RECORDS_FILE, json.dumps(held, indent=1) + "\n")
        publish(staged, out, files.check, force)
    summary("ready", files.check(out))
    if info.note:
        click.echo(f"note: {info.note}", err=True)


@main.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--decode", is_flag=True, help="Decode every image, not only its beginning and end (2 ms each).")
@bad_images_option
def check(path, decode, bad_images):
    """Look at every image and print what there is: images, classes, checksum; and each bad image.

    Without PATH: the data and the sample in $LABKIT_DATA, or in data/ of the repository.

    \b
    Example: python data_scripts/imagenet.py check data/sample/imagenet
    """
    places = [data_root() / files.FOLDER, data_root() / "sample" / files.FOLDER]
    folders = [path] if path else [place for place in places if place.exists()] or places[:1]
    bad = 0
    for folder in folders:
        info = files.check(folder, "skip", decode)
        click.echo(f"{folder}: {info.name}")
        for name, count in info.files:
            click.echo(f"  {name:<24}{count:>10,} images")
        shown = ", ".join(info.classes[:10]) + (", ..." if len(info.classes) > 10 else "")
        click.echo(f"  {len(info.classes):,} classes: {shown}")
        click.echo(f"  sha256 {info.sha256} of paths and sizes")
        if info.contents:  # unless converted by an older labkit
            click.echo(f"  sha256 {info.contents} of all contents")
        if info.note:
            click.echo(f"  note: {info.note}")
        for name, what in info.skipped:
            click.echo(f"  bad: {folder / name}: {what}")
        bad += len(info.skipped)
    if bad and bad_images == "error":
        raise Failure(f"{', '.join(map(str, folders))}: {bad:,} bad images, listed above")


# -- MindRecord ----------------------------------------------------------------------------------


def write_records(paths, labels, folder: Path, name: str, shard_bytes: int) -> list[tuple[str, int, int]]:
    """Images in order into folder/<name>.mindrecord<k>; returns (file, images, bytes) of each."""
    from mindspore.mindrecord import FileWriter

    sizes = np.array([Path(path).stat().st_size for path in paths])
    shards = np.array_split(np.arange(len(paths)), max(1, min(len(paths), round(sizes.sum() / shard_bytes))))
    written = []
    with tqdm(total=len(paths), unit=" images", desc=f"  {name}") as bar:
        for number, rows in enumerate(shards):
            shard = folder / f"{name}.mindrecord{number:0{len(str(len(shards) - 1))}}"
            writer = FileWriter(str(shard))
            writer.add_schema({"image": {"type": "bytes"}, "label": {"type": "int32"}, "file": {"type": "string"}})
            for start in range(0, len(rows), BATCH):
                batch = [(Path(paths[row]), int(labels[row])) for row in rows[start : start + BATCH]]
                content = [
                    {"image": path.read_bytes(), "label": label, "file": "/".join(path.parts[-2:])}
                    for path, label in batch
                ]
                try:
                    writer.write_raw_data(content)
                except RuntimeError as error:  # a report of many lines, such as for an image of more than 32 MB
                    found = re.search(r"\[ERROR\] (.*)", str(error))
                    reason = found[1] if found else str(error).splitlines()[0]
                    raise Failure(f"{batch[0][0]} and the {len(batch) - 1} after it: {reason}") from None
                bar.update(len(batch))
            writer.commit()
            written.append((shard.name, len(rows), shard.stat().st_size))
    return written


if __name__ == "__main__":
    main()

#!/usr/bin/env python
"""Arrange ImageNet2012 from its archives, make the offline sample, and check it.

    python data_scripts/imagenet.py arrange|sample|check

ImageNet's terms do not allow redistribution: log in at https://image-net.org/download and download
the three archives of ILSVRC2012. The data folder appears only once it is complete and checked.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import click

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
from labkit.data.files import publish, real, write_source
from labkit.system.environment import data_root
from labkit.system.files import atomic_write

SOURCE = "ImageNet2012 (ILSVRC2012), arranged from its archives"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """ImageNet2012: arrange its archives, make a small offline sample, check a folder.

    \b
    Example: python data_scripts/imagenet.py sample
    """


@main.command()
@click.argument("archives", type=click.Path(exists=True, file_okay=False, path_type=Path))
@out_option
@click.option("--no-verify", is_flag=True, help="Do not compare the archives' MD5 with the published ones.")
@force_option
def arrange(archives, out, no_verify, force):
    """Unpack the three archives in the folder ARCHIVES into train/<wnid>/ and val/<wnid>/ (another 155 GB).

    The validation images get their classes from the development kit. You can interrupt it at any time: the same command
    resumes with the current class.

    \b
    Example: python data_scripts/imagenet.py arrange ~/Downloads
    """
    folder = real((out or data_root()) / files.FOLDER)
    check_folder = partial(files.check, bad_images="skip")  # the recipe decides whether bad images are an error
    if already_there(folder, check_folder, force):
        return
    ilsvrc2012.require_archives(archives)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f".{folder.name}.arranging")  # kept if this is interrupted
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
        if not publish(work, folder, check_folder, force):
            shutil.rmtree(work)  # the same data was already there
    summary("ready", check_folder(folder))


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
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--decode", is_flag=True, help="Decode each image, not only its beginning and end (2 ms per image).")
def check(path, decode):
    """Check every image and print images, classes, the checksum, and each bad image.

    Exit status 1 if one is bad. Without PATH: the data and the sample in $LABKIT_DATA, or in data/ of the repository.

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
        click.echo(f"  sha256 {info.contents} of all contents")
        if info.note:
            click.echo(f"  note: {info.note}")
        for name, problem in info.skipped:
            click.echo(f"  bad: {folder / name}: {problem}")
        bad += len(info.skipped)
    if bad:
        raise Failure(f"{', '.join(map(str, folders))}: {bad:,} bad images, listed above")


if __name__ == "__main__":
    main()

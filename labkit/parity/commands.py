"""The commands that compare with PyTorch: parity, clinic, convert. MindSpore is imported only when one is called."""

import json
import sys
import tempfile
from pathlib import Path

import click


@click.command()
@click.argument("network")
@click.option("--data", type=click.Path(path_type=Path), help="Image folder. Default: tiles of two photographs.")
@click.option("--image-size", type=click.IntRange(32), default=64, show_default=True, help="In pixels.")
@click.option("--batch", type=click.IntRange(2), default=8, show_default=True, help="Images per step.")
@click.option("--steps", type=click.IntRange(0), default=20, show_default=True, help="Steps of the short training.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of weights and image order.")
@click.option("--report", type=click.Path(path_type=Path, file_okay=False), help="Folder for report.json.")
def parity(network, data, image_size, batch, steps, seed, report):
    """Compare torchvision's NETWORK (resnet18, 34, 50, 101 or 152) with labkit's, stage by stage.

    Exit status 1 if they differ. Needs PyTorch and torchvision.

    \b
    Example:  labkit parity resnet50 --report runs/parity
    """
    from labkit.parity.resnets import Setting, compare_resnets

    folder = data or _photographs()
    setting = Setting(network, folder, image_size=image_size, batch_size=batch, steps=steps, seed=seed)
    comparison = compare_resnets(setting)
    versions = f"PyTorch {comparison.about['PyTorch']}, MindSpore {comparison.about['MindSpore']}"
    click.echo(f"{network}, {batch} images of {image_size} pixels, seed {seed}; {versions}")
    click.echo(comparison.table())
    if report:
        click.echo(comparison.save(report))
    sys.exit(0 if comparison.ok else 1)


@click.command()
@click.argument("defect", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="List the defects and their sources.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="JSON file for the results.")
def clinic(defect, listing, report):
    """Plant defects from real migrations in a ResNet, one at a time, and find them by comparing with PyTorch.

    Without DEFECT, plants all of them and prints one line each; otherwise also prints the reports. Exit status 1 if a
    defect is not found where it was planted.

    \b
    Example:  labkit clinic same_padding decay_everywhere
    """
    from labkit.parity.clinic import DEFECTS, examine
    from labkit.system.files import atomic_write

    width = max(map(len, DEFECTS))
    if listing:
        for name, listed in DEFECTS.items():
            click.echo(f"{name:{width}}  {listed.description} ({listed.source})")
        return
    results = {}
    for planted, comparison, result in examine(defect or DEFECTS, _photographs()):
        mark = "" if result["located"] else f"   EXPECTED {planted.stage}, {planted.layer or '-'}"
        if not results:  # after the first comparison, so that an error has no header above it
            click.echo(f"{'defect':{width}}  {'first stage that differs':24}  first layer")
        click.echo(f"{planted.name:{width}}  {result['stage'] or 'none':24}  {result['layer'] or '-'}{mark}")
        if defect:
            click.echo(f"\n{comparison.table()}\n")
        stages = [{**stage.as_dict(), "tensors": None} for stage in comparison.stages]
        results[planted.name] = {**result, "table": comparison.table(), "stages": stages, "about": comparison.about}
    if report:
        report.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(report, json.dumps(results, indent=1) + "\n")
        click.echo(report)
    sys.exit(0 if all(result["located"] for result in results.values()) else 1)


def _photographs():
    """A folder with tiles of two photographs, removed when this command ends."""
    from labkit.parity.resnets import write_photographs

    folder = Path(click.get_current_context().with_resource(tempfile.TemporaryDirectory()), "photographs")
    write_photographs(folder)
    return folder


@click.command()
@click.argument("network")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--num-classes", type=click.IntRange(2), default=1000, show_default=True, help="Number of classes.")
@click.option("--stem", type=click.Choice(["imagenet", "cifar"]), default="imagenet", show_default=True)
def convert(network, source, target, num_classes, stem):
    """Convert NETWORK's weights between a PyTorch file (.pth, .pt) and a MindSpore checkpoint (.ckpt).

    \b
    Example:  labkit convert resnet50 resnet50.pth resnet50.ckpt
    """
    from labkit.parity import files

    files.convert(network, source, target, num_classes, stem)
    click.echo(target)

"""The commands that compare with PyTorch: parity, clinic, convert. MindSpore is imported only when one is called."""

import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import click
from click.core import ParameterSource

from labkit.system.errors import LabkitError, of_file_system


@click.command()
@click.argument("network", required=False)
@click.option("--pair", type=click.Path(path_type=Path), help="File that builds two networks, instead of NETWORK.")
@click.option("--data", type=click.Path(path_type=Path), help="Image folder. Default: tiles of two photographs.")
@click.option("--image-size", type=click.IntRange(32), default=64, show_default=True, help="In pixels.")
@click.option("--batch", type=click.IntRange(2), default=8, show_default=True, help="Images per step.")
@click.option("--steps", type=click.IntRange(0), help="Steps of the short training.  [default: 20; with --pair 0]")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of weights and images.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, with all tensors and layers.")
@click.pass_context
def parity(context, network, pair, data, image_size, batch, steps, seed, as_json):
    """Compare a network in PyTorch with one in MindSpore, stage by stage.

    NETWORK is torchvision's and labkit's resnet18, 34, 50, 101 or 152; FILE has functions reference() and candidate().
    Exit status 0 if they are equal, 1 if they differ, 2 if they cannot be compared. Needs PyTorch and torchvision.

    \b
    Example:  labkit parity resnet50
              labkit parity --pair pair.py --json > report.json
    """
    if bool(network) == bool(pair):
        raise click.UsageError("name either a NETWORK or a file with --pair")
    for name in ("data", "image_size", "batch"):
        if pair and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a NETWORK; a pair's file has its own batch")
    try:
        with redirect_stdout(sys.stderr):  # what a file prints is no part of the report
            if pair:
                from labkit.parity.pair import compare_pair, read_pair

                comparison = compare_pair(read_pair(pair), seed, steps or 0)
            else:
                from labkit.parity.resnets import Setting, compare_resnets

                steps = 20 if steps is None else steps
                comparison = compare_resnets(Setting(network, data or _photographs(), image_size, batch, steps, seed))
    except (LabkitError, OSError, ImportError) as error:
        not_compared = click.ClickException(of_file_system(error) if isinstance(error, OSError) else str(error))
        not_compared.exit_code = 2
        raise not_compared from None
    about = "{images}, seed {seed}; PyTorch {PyTorch}, MindSpore {MindSpore}".format(**comparison.about)
    table = f"{network or pair}, {about}\n{comparison.table()}\n"
    click.echo(comparison.to_json() if as_json else table, nl=False)
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
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[NETWORK] SOURCE TARGET")
@click.option("--pair", type=click.Path(path_type=Path), help="File that builds two networks, instead of NETWORK.")
@click.option("--num-classes", type=click.IntRange(2), default=1000, show_default=True, help="Of NETWORK.")
@click.option("--stem", type=click.Choice(["imagenet", "cifar"]), default="imagenet", show_default=True)
def convert(paths, pair, num_classes, stem):
    """Convert a network's weights between a PyTorch file (.pth, .pt) and a MindSpore checkpoint (.ckpt).

    NETWORK is one of labkit's. With --pair, the names of layers come from the two networks of a file.

    \b
    Example:  labkit convert resnet50 resnet50.pth resnet50.ckpt
              labkit convert --pair pair.py trained.ckpt trained.pth
    """
    from labkit.parity import weights

    if len(paths) != (2 if pair else 3):
        raise click.UsageError("name NETWORK, SOURCE and TARGET, or --pair FILE, SOURCE and TARGET")
    *network, source, target = paths
    if pair:
        from labkit.parity.pair import create_networks, located, read_pair

        networks = read_pair(pair)
        with located(networks):
            _, *names, _, _ = create_networks(networks)
        weights.convert(source, target, *names)
    else:
        from labkit.networks import create_resnet

        try:
            net = create_resnet(str(*network), num_classes, stem)
        except ValueError as error:
            raise LabkitError(str(error)) from None
        weights.convert(source, target, net)
    click.echo(target)

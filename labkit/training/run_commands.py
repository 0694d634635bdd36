"""Commands that read Runs: labkit eval, export, plot, compare. MindSpore and matplotlib are imported when needed."""

from pathlib import Path

import click

from labkit.system.errors import LabkitError

FORMATS = ("mindir", "onnx", "air")


@click.command("eval")
@click.argument("run", type=click.Path(path_type=Path))
def evaluate(run):
    """Evaluate the checkpoint of RUN on its test images, overall and by class; writes RUN/evaluation.json.

    \b
    Example:  labkit eval runs/cifar10-sample
    """
    from labkit.training import runs

    opened = runs.open_run(run)
    from labkit.training import evaluation

    result = evaluation.evaluate(opened)
    if not opened.complete:
        click.echo(f"{run}: not complete; this is its last checkpoint", err=True)
    rows = [*result["classes"], {"name": "all", **result}]
    if "top_5_accuracy" in result:
        share, images = result["top_5_accuracy"], result["images"]
        rows.append({"name": "top 5", "accuracy": share, "correct": round(share * images), "images": images})
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        click.echo(f"{row['name']:{width}}  {row['correct']:6,} of {row['images']:6,}  {accuracy:>7}")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Default: by the FILE's ending, or mindir.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="FILE. Default: NETWORK.FORMAT in RUN.")
@click.option("--batch-size", type=click.IntRange(min=1), default=1, help="Images at a time. Default: 1.")
@click.option("--image-size", type=click.IntRange(min=1), help="Height and width in pixels. Default: the recipe's.")
def export(run, file_format, out, batch_size, image_size):
    """Write the network of RUN's checkpoint as one file for other programs: MINDIR, ONNX, or AIR (on Ascend).

    \b
    Example:  labkit export runs/imagenet-sample --format onnx
    """
    from labkit.training import runs

    opened = runs.open_run(run)
    recipe = opened.recipe
    from labkit.training import export

    file_format = file_format or next((name for name in FORMATS if str(out).lower().endswith(f".{name}")), FORMATS[0])
    out = out or opened.path / f"{recipe.network.name}.{file_format}"
    export.export(recipe, opened.checkpoint, out, file_format, batch_size=batch_size, image_size=image_size)
    click.echo(out)


@click.command()
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False),
    help="Image file. Default: curves.png, in the RUN's folder or, for several, in the current one.",
)  # fmt: skip
def plot(run, out):
    """Draw loss, learning rate and accuracy of one or more Runs.

    \b
    Example:  labkit plot runs/cifar10-sample runs/mine --out compare.png
    """
    from labkit.training import runs

    opened = [runs.open_run(path) for path in run]
    from labkit import figures

    out = out or (opened[0].path if len(opened) == 1 else Path()) / "curves.png"
    _save(figures.training_curves(opened), out)


def _save(figure, out):
    """Save the figure, as PNG if the name has no ending, and print the file's name."""
    out = out if out.suffix else out.with_name(f"{out.name}.png")
    try:
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise LabkitError(f"{out}: {getattr(error, 'strerror', None) or error}") from None
    click.echo(out)


@click.command()
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", type=click.FloatRange(0, 1), help="Accuracy, 0 to 1. Default: the first RUN's final one.")
@click.option("--any-data", is_flag=True, help="Compare Runs that were trained on different data, too.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Image file to draw the curves into.")
def compare(run, target, any_data, out):
    """Print how many steps and seconds each RUN took to a target accuracy, compared with the first one.

    Runs whose recipes differ only in the seed are grouped: their median is shown, in which a Run that misses the target
    took infinitely long.
    Seconds count training alone, without compilation; they mean little if the machine was busy.

    \b
    Example:  labkit compare runs/thor-sample-momentum runs/thor-sample
              labkit compare runs/momentum-* runs/thor-* --target 0.7 --out compare.png
    """
    from labkit.training import compare, runs

    curves = compare.settings([runs.open_run(path) for path in run], any_data)
    target = compare.default_target(curves) if target is None else target
    click.echo(compare.table(compare.summary(curves, target), target))
    if out:
        from labkit import figures

        _save(figures.comparison(curves, target), out)

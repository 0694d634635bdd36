"""Start file of an export: the network of a checkpoint as one file, MINDIR, ONNX or (on Ascend) AIR.

Example:  python export.py --checkpoint_path out --file_format ONNX --file_name resnet50
"""

from pathlib import Path

from labkit import jobs, runtime


def main():
    parser = jobs.parser(__doc__, data_required=False)
    parser.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    parser.add_argument("--file_format", type=str.lower, choices=["mindir", "onnx", "air"], default="mindir")
    parser.add_argument("--file_name", help="without the ending; default: the network's name")
    parser.add_argument("--batch_size", type=int, default=1, help="images at a time; default: 1")
    parser.add_argument("--image_size", type=int, help="height and width in pixels; default: the recipe's")
    arguments, _ = parser.parse_known_args()
    recipe, file = jobs.checkpoint(arguments.checkpoint_path, Path(__file__).with_name("recipe.yaml"), arguments)
    runtime.use_device(arguments.device_target)
    from labkit.export import export

    ending = arguments.file_format
    out = Path(f"{arguments.file_name or recipe.network.name}.{ending}")
    export(recipe, file, out, ending, batch_size=arguments.batch_size, image_size=arguments.image_size)
    print(out)


if __name__ == "__main__":
    jobs.start(main)

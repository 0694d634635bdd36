"""Start file of an evaluation: top-1 and top-5 accuracy of a checkpoint on the test images.

Example:  python eval.py --checkpoint_path out --data_url data/imagenet
"""

from pathlib import Path

from labkit import jobs, runtime


def main():
    parser = jobs.parser(__doc__, data_required=False)
    parser.add_argument("--checkpoint_path", required=True, help="a Run, a checkpoint of one, or any checkpoint file")
    parser.add_argument(
        "--route", choices=["fast", "exact"],
        help="how images are resized, for a file that is not of a Run: exact for weights trained with torchvision",
    )  # fmt: skip
    arguments, _ = parser.parse_known_args()
    recipe, file = jobs.checkpoint(arguments.checkpoint_path, Path(__file__).with_name("recipe.yaml"), arguments)
    runtime.use_device(arguments.device_target)
    from labkit import training

    names = training.check_data(recipe).classes
    found = training.score(*training.checkpoint_logits(recipe, file), names)
    result = {"top_5_accuracy": found.get("top_5_accuracy"), "top_1_accuracy": found["accuracy"]}
    print(f"result: {result} ckpt= {file}")


if __name__ == "__main__":
    jobs.start(main)

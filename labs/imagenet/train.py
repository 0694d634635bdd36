"""Start file of a training job: ResNet-50 on ImageNet with the arguments that a job passes.

To see what a training is made of, read labs/cifar10/plain.py: a whole one on one page, in MindSpore's own calls.

Example:  python train.py --data_url data/imagenet --train_url out --device_target Ascend
          python train.py --data_url obs://my-bucket/imagenet --train_url obs://my-bucket/out
"""

from pathlib import Path

from labkit.launch import start_files
from labkit.training import jobs, recipes

RECIPE = Path(__file__).with_name("recipe.yaml")


def main():
    """Train the recipe with the job's arguments into the Run at --train_url; an unfinished Run there is resumed."""
    arguments, here = start_files.read_training(__doc__)
    recipe = recipes.load(RECIPE, arguments.profile, start_files.settings(arguments))
    if here.job == "v1":  # the arguments are URLs
        from labkit.modelarts import job_io

        job_io.train(recipe, arguments.train_url, here)
    else:
        jobs.train(recipe, Path(arguments.train_url), here)


if __name__ == "__main__":
    start_files.start(main)

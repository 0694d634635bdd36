"""Start file of a training job: ResNet-50 on ImageNet with THOR, by the arguments that a job passes.

Example:  python train.py --data_url data/imagenet --train_url out --device_target Ascend
          python train.py --data_url obs://my-bucket/imagenet --train_url obs://my-bucket/out
"""

from pathlib import Path

from labkit.modelarts import start_files

if __name__ == "__main__":
    start_files.start(start_files.train, Path(__file__).with_name("recipe.yaml"), __doc__)

"""Start file of a training job: the CIFAR-10 lab with the arguments that a job passes.

Example:  python train.py --data_url data/cifar-10-batches-bin --train_url out --num_epochs 90
          python train.py --data_url obs://my-bucket/cifar-10-batches-bin --train_url obs://my-bucket/out
"""

from pathlib import Path

from labkit.modelarts import start_files

if __name__ == "__main__":
    start_files.start(start_files.train, Path(__file__).with_name("recipe.yaml"), __doc__)

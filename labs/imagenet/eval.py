"""Start file of an evaluation: top-1 and top-5 accuracy of a checkpoint on the test images.

Example:  python eval.py --checkpoint_path out --data_url data/imagenet
"""

from pathlib import Path

from labkit.launch import start_files
from labkit.training import jobs

if __name__ == "__main__":
    start_files.start(jobs.evaluate, Path(__file__).with_name("recipe.yaml"), __doc__)

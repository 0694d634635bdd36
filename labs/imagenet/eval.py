"""Start file of an evaluation: top-1 and top-5 accuracy of a checkpoint on the test images.

Example:  python eval.py --checkpoint_path out --data_url data/imagenet
"""

from pathlib import Path

from labkit.modelarts import start_files

if __name__ == "__main__":
    start_files.start(start_files.evaluate, Path(__file__).with_name("recipe.yaml"), __doc__)

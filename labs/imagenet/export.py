"""Start file of an export: the network of a checkpoint as one file, MINDIR, ONNX or (on Ascend) AIR.

Example:  python export.py --checkpoint_path out --file_format ONNX --file_name resnet50
"""

from pathlib import Path

from labkit.launch import start_files
from labkit.training import jobs

if __name__ == "__main__":
    start_files.start(jobs.export, Path(__file__).with_name("recipe.yaml"), __doc__)

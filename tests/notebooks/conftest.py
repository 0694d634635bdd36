"""nbval starts kernels beside the executed copy; a chapter expects its own folder, as in Jupyter and in the book."""

import sys
from pathlib import Path

import nbval.plugin

sys.path.insert(0, str(Path(__file__).parent))

from chapters import EXECUTED, REPO

_start = nbval.plugin.RunningKernel


def _start_beside_source(kernel_name, cwd=None, **options):
    if cwd and Path(cwd).is_relative_to(EXECUTED):
        cwd = str(REPO / Path(cwd).relative_to(EXECUTED))
    return _start(kernel_name, cwd=cwd, **options)


nbval.plugin.RunningKernel = _start_beside_source

"""nbval starts kernels beside the executed copy; a chapter expects its own folder and the book's environment."""

import os
import sys
from pathlib import Path
from unittest import mock

import nbval.plugin

sys.path.insert(0, str(Path(__file__).parent))

from chapters import EXECUTED, REPO, kernel_environment

_start = nbval.plugin.RunningKernel


def _start_beside_source(kernel_name, cwd=None, **options):
    if cwd and Path(cwd).is_relative_to(EXECUTED):
        cwd = str(REPO / Path(cwd).relative_to(EXECUTED))
    with mock.patch.dict(os.environ, kernel_environment(), clear=True):
        return _start(kernel_name, cwd=cwd, **options)


nbval.plugin.RunningKernel = _start_beside_source

"""nbval starts kernels beside the executed copy; a chapter expects its own folder and the book's environment."""

import os
import sys
from pathlib import Path
from unittest import mock

import nbval.plugin

sys.path.insert(0, str(Path(__file__).parent))

from chapters import REPO, execution

_start, _get = nbval.plugin.RunningKernel, nbval.plugin.IPyNbFile.get_kernel_message


def _start_beside_source(kernel_name, cwd=None, **options):
    if cwd and Path(cwd).is_relative_to(execution.EXECUTED):
        cwd = str(REPO / Path(cwd).relative_to(execution.EXECUTED))
    with mock.patch.dict(os.environ, execution.kernel_environment(), clear=True):
        return _start(kernel_name, cwd=cwd, **options)


def _get_on_a_busy_machine(self, timeout=None, stream="iopub"):
    """nbval waits 5 seconds for output, which is little where several kernels share two cores."""
    return _get(self, timeout and max(timeout, 60), stream)


nbval.plugin.RunningKernel = _start_beside_source
nbval.plugin.IPyNbFile.get_kernel_message = _get_on_a_busy_machine

"""`labkit` itself, of which one rank is killed after a step.

python job.py RANK STEP ARGUMENT ...
"""

import os
import signal
import sys

from labkit import cli
from labkit.system import device
from labkit.training import callbacks

rank, step = map(int, sys.argv[1:3])
measured = callbacks.HistoryCallback.measured


def measured_then_killed(self, run_context, *arguments):
    measured(self, run_context, *arguments)
    if (device.ranks()[0], run_context.original_args().cur_step_num) == (rank, step):
        os.kill(os.getpid(), signal.SIGKILL)


callbacks.HistoryCallback.measured = measured_then_killed
cli.main(sys.argv[3:], prog_name="labkit")

"""`python -m labkit.training RUN`: one of the processes of `labkit launch train`; errors take one line."""

import sys
from pathlib import Path

from labkit.system import device
from labkit.system.errors import one_line_errors
from labkit.training import loop, runs

with one_line_errors():
    if device.ranks()[1] == 1:  # several agree on their devices when they join
        device.use_device()
    loop.train(runs.open_run(Path(sys.argv[1])))

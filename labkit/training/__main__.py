"""`python -m labkit.training RUN`: one of the processes of `labkit launch train`."""

import sys
from pathlib import Path

from labkit.training import loop, runs

loop.train(runs.open_run(Path(sys.argv[1])))

"""`python -m labkit.training RUN`: one of the processes of `labkit launch train`; what goes wrong is one line."""

import sys
from pathlib import Path

from labkit.system import device
from labkit.system.errors import LabkitError
from labkit.training import loop, runs

try:
    if device.ranks()[1] == 1:  # several agree on their devices when they meet
        device.use_device()
    loop.train(runs.open_run(Path(sys.argv[1])))
except LabkitError as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_status)
except OSError as error:
    sys.exit(f"Error: {error.filename or 'file system'}: {error.strerror or error}")

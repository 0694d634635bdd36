"""The servers that the tests of object storage talk to."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from object_servers import account, certificates, server, store, swift  # noqa: F401

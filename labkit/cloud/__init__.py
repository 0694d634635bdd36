"""Object storage and training jobs in the cloud: OBS (or any S3 server), and ModelArts. Imports no MindSpore."""

from labkit.cloud.copying import CopyError, RemoveError, Report, copy, copy_parallel, exists, ls, rm, stat, verify
from labkit.cloud.once import copy_once_per_node
from labkit.cloud.place import CloudError

__all__ = [
    "CloudError", "CopyError", "RemoveError", "Report", "copy", "copy_once_per_node", "copy_parallel", "exists", "ls",
    "rm", "stat", "verify",
]  # fmt: skip

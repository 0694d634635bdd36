"""Object storage: copies between this machine and a bucket of OBS, or of any S3 server. Imports no MindSpore."""

from labkit.obs.copying import CopyError, RemoveError, Report, copy, copy_parallel, exists, ls, rm, stat, verify
from labkit.obs.place import CloudError

__all__ = [
    "CloudError", "CopyError", "RemoveError", "Report", "copy", "copy_parallel", "exists", "ls",
    "rm", "stat", "verify",
]  # fmt: skip

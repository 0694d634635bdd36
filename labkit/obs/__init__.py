"""Object storage: copies between this machine and a bucket of OBS, or of any S3 server. Imports no MindSpore."""

from labkit.obs.copying import CopyError, Report, copy, exists, ls, rm, verify
from labkit.obs.place import CloudError

__all__ = ["CloudError", "CopyError", "Report", "copy", "exists", "ls", "rm", "verify"]

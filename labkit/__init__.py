"""labkit: the parts that the book and the labs of this course share.

Importing it imports no MindSpore. It does one thing: it prepares for that import, as `prepare_mindspore` says.
"""

from labkit.system.environment import prepare_mindspore

__version__ = "0.1.0"

prepare_mindspore()

"""labkit: the parts that the book and the labs of this course share.

Importing it does not import MindSpore, but prepares for that import, as `prepare_mindspore` describes.
"""

from labkit.system.environment import prepare_mindspore

__version__ = "0.1.0"

prepare_mindspore()

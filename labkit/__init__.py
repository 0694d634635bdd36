"""labkit: the parts that the book and the labs of this course share.

Importing it imports no MindSpore, but settles what has to be settled before MindSpore is imported.
"""

from labkit.runtime import prepare_environment

__version__ = "0.1.0"

prepare_environment()

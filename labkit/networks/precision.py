"""Mixed precision: most of a network computes in float16; its parameters and logits stay float32."""

import os
import sys
import tempfile
import weakref

from mindspore import amp


def mixed_precision(net, level):
    """`amp.auto_mixed_precision` at "O0" (none) to "O3" (all in float16); use the returned cell.

    At O1 MindSpore writes the changed network to a Python file in the working directory and reads it again to compile,
    so it gets a folder that lasts as long as the network. It also adds the layers' folders to sys.path. We remove them:
    MindSpore 2.10 would import `conv.py` again, and the next network's layers would not be instances of nn.Conv2d.
    """
    if level != "O1":
        return amp.auto_mixed_precision(net, level)
    directory, path, folder = os.getcwd(), sys.path[:], tempfile.TemporaryDirectory()
    os.chdir(folder.name)
    try:
        net = amp.auto_mixed_precision(net, level)
    finally:
        os.chdir(directory)
        sys.path[:] = path
    weakref.finalize(net, folder.cleanup)
    return net

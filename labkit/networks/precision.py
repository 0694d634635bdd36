"""Mixed precision: most of a network computes in float16, its parameters and its logits stay float32."""

import os
import tempfile
import weakref

from mindspore import amp


def mixed_precision(net, level):
    """`amp.auto_mixed_precision` at "O0" (none) to "O3" (all in float16); use the cell that comes back.

    At O1 MindSpore writes the changed network as a Python file into the working directory and reads it again when it
    compiles: it gets a folder that lasts as long as the network.
    """
    if level != "O1":
        return amp.auto_mixed_precision(net, level)
    here, folder = os.getcwd(), tempfile.TemporaryDirectory()
    os.chdir(folder.name)
    try:
        net = amp.auto_mixed_precision(net, level)
    finally:
        os.chdir(here)
    weakref.finalize(net, folder.cleanup)
    return net

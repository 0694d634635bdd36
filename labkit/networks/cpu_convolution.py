"""You can skip this file: it makes the gradients of 3x3 convolutions faster on a CPU, and changes nothing else.

MindSpore 2.8 passes each convolution to oneDNN in plain NCHW layout. For a 3x3 layer this means:

- the gradient with respect to the input is slow if there are few channels. At stride 1 it equals a forward
  convolution of the output's gradient with the rotated weight (by 180 degrees, channels swapped), which is fast;
- the gradient with respect to the weight is slow if a channel's plane fills whole memory pages (32x32 floats).
  Appending a row of zeros to the output's gradient does not change the sum and breaks that alignment.
"""

from mindspore import nn, ops

WIDEST = 128  # channels; above this, oneDNN's own gradient with respect to the input is faster
PAGE = 4096 // 4  # float32 values in a memory page


class Conv3x3(nn.Cell):
    """3x3 convolution of stride 1 and padding 1 with a gradient of its own: (x, weight) -> output."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.forward_conv = ops.Conv2D(out_channels, 3, pad_mode="pad", pad=1)
        self.backward_conv = ops.Conv2D(in_channels, 3, pad_mode="pad", pad=1)
        self.input_gradient = ops.Conv2DBackpropInput(out_channels, 3, pad_mode="pad", pad=1)
        self.weight_gradient = self._weight_gradient(out_channels, (1, 1, 1, 1))
        self.weight_gradient_padded = self._weight_gradient(out_channels, (1, 2, 1, 1))
        self.rotate_180 = ops.ReverseV2((2, 3))
        self.use_forward_conv = max(in_channels, out_channels) <= WIDEST

    @staticmethod
    def _weight_gradient(out_channels, padding):
        from mindspore.ops.operations import _grad_ops  # internal to MindSpore: another version may lack it

        gradient = _grad_ops.Conv2DBackpropFilter(out_channels, 3, pad_mode="pad", pad=padding)
        gradient.add_prim_attr("pad_list", padding)  # the attribute that the CPU kernel reads
        return gradient

    def construct(self, x, weight):
        return self.forward_conv(x, weight)

    def bprop(self, x, weight, out, dout):
        if self.use_forward_conv:
            dx = self.backward_conv(dout, self.rotate_180(weight).transpose((1, 0, 2, 3)))
        else:
            dx = self.input_gradient(dout, weight, x.shape)
        batch, channels, height, width = dout.shape
        if height * width % PAGE == 0:
            zeros = ops.zeros((batch, channels, 1, width), dout.dtype)
            dweight = self.weight_gradient_padded(ops.concat((dout, zeros), axis=2), x, weight.shape)
        else:
            dweight = self.weight_gradient(dout, x, weight.shape)
        return dx, dweight


class FastGradientConv2d(nn.Conv2d):
    """A 3x3 `nn.Conv2d` with stride 1, padding 1 and no bias: same parameters and values, faster gradients."""

    def __init__(self, in_channels, out_channels, **options):
        super().__init__(in_channels, out_channels, 3, 1, pad_mode="pad", padding=1, **options)
        self.conv3x3 = Conv3x3(in_channels, out_channels)

    def construct(self, x):
        return self.conv3x3(x, self.weight)


def use_fast_gradients(net):
    """Replace a network's plain 3x3 convolutions of stride 1 and padding 1; parameters keep their names and values."""
    for name, cell in net.name_cells().items():
        use_fast_gradients(cell)
        shape = (cell.kernel_size, cell.stride, cell.padding) if type(cell) is nn.Conv2d else None
        if shape == ((3, 3), (1, 1), 1) and cell.group == 1 and cell.dilation == (1, 1) and not cell.has_bias:
            fast = FastGradientConv2d(cell.in_channels, cell.out_channels)
            setattr(net, name, fast)
            fast.weight = cell.weight  # after setattr, which would prefix its name a second time

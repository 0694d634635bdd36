"""Losses."""

from mindspore import nn, ops


class CrossEntropySmooth(nn.Cell):
    """Cross-entropy with label smoothing: logits (N, K), labels (N,) int32 -> mean loss, a scalar.

    The true class keeps 1 - smoothing; the rest is spread over the K - 1 other classes, as in the original documents.
    PyTorch's `label_smoothing=s` spreads s over all K classes, which equals smoothing = s (K - 1) / K here.
    """

    def __init__(self, num_classes, smoothing=0.0):
        super().__init__()
        if num_classes < 2 or not 0.0 <= smoothing < 1.0:
            raise ValueError(f"needs two classes and a smoothing from 0 to below 1, not {num_classes} and {smoothing}")
        self.num_classes = num_classes
        self.on_value = 1.0 - smoothing
        self.off_value = smoothing / (num_classes - 1)
        self.cross_entropy = nn.SoftmaxCrossEntropyWithLogits(reduction="mean")

    def construct(self, logits, labels):
        targets = ops.one_hot(labels, self.num_classes, self.on_value, self.off_value)
        return self.cross_entropy(logits, targets.astype(logits.dtype))

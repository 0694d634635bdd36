"""What a recipe chooses by name: networks, stems, first weights, routes, trace rules. Nothing here needs MindSpore."""

# Table 1 of He et al. 2015: kind of block, and blocks per stage.
IMAGENET_LAYOUTS = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
    "resnet101": ("bottleneck", (3, 4, 23, 3)),
    "resnet152": ("bottleneck", (3, 8, 36, 3)),
}
# Section 4.2 of the paper: 6n + 2 layers, three stages of 16, 32 and 64 channels; n = 1 is smaller than any of theirs.
CIFAR_LAYOUTS = {"resnet8": 1, "resnet20": 3, "resnet32": 5, "resnet56": 9}
NETWORKS = (*CIFAR_LAYOUTS, *IMAGENET_LAYOUTS)
STEMS = ("imagenet", "cifar")
INITS = ("torchvision", "guide", "zero_residual")  # first weights; see labkit.networks.resnet
ROUTES = ("fast", "exact")  # how images are resized; see labkit.data.imagenet
# (w1, w2) of THOR's trace rule: recompute an inverse above w1, keep it down to w2, never recompute it below w2.
TRACE_RULES = {"thor": (0.01, 0.0), "thor_stop": (0.01, 0.001), "thor_nt": (0.0, 0.0)}

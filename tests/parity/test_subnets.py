"""Each part of a ResNet alone, against torchvision's; a wrong part is found before there is a network."""

import pytest
import subnets
from mindspore import nn, ops


@pytest.mark.parametrize("name", subnets.SUBNETS)
def test_subnet(pytorch, name):
    report = subnets.compare_subnet(name)
    assert report.ok, report.table()
    assert report.unmatched == {"pytorch": [], "mindspore": []}


def wrong_epsilon(reference, candidate):
    norm = candidate.net.downsample[1]
    norm.bn_train = ops.BatchNorm(is_training=True, epsilon=1e-3, momentum=0.1)


def forgotten_relu(reference, candidate):
    candidate.net.relu = nn.Identity()


LAYERS = {
    subnets.same_padding: "conv2",
    wrong_epsilon: "downsample.1",
    forgotten_relu: "relu",
}


@pytest.mark.parametrize("plant, layer", LAYERS.items())
def test_a_defect_of_a_subnet_is_located(pytorch, plant, layer):
    report = subnets.compare_subnet("Bottleneck, stride 2", plant)
    assert not report.ok and report.first_divergence["forward"] == layer


def test_what_is_recorded_is_whole():
    found = subnets.recorded()
    assert list(found["subnets"]) == list(subnets.SUBNETS)
    assert all(part["ok"] for part in found["subnets"].values())
    assert {"date", "PyTorch", "MindSpore", "machine"} <= set(found["about"])

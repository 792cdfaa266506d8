"""ResNet (He et al. 2016, arXiv:1512.03385) with Conv, BatchNormalization and Relu as separate nodes.

The stride of a bottleneck sits on its 3x3 convolution ("v1.5"), as in the models everyone measures: 4.09 GMAC for
ResNet-50 at 224 x 224.
"""

from __future__ import annotations

import math

from aaco.runner.zoo.builder import GraphBuilder

STAGES_18 = (2, 2, 2, 2)
STAGES_50 = (3, 4, 6, 3)
# The last normalisation of a block starts small, so that sixteen residual sums do not blow up the activations.
RESIDUAL_SCALE = 0.2


def resnet18() -> GraphBuilder:
    """Return ResNet-18: 11,689,512 parameters."""
    return _resnet("resnet18", STAGES_18, bottleneck=False)


def resnet50() -> GraphBuilder:
    """Return ResNet-50: 25,557,032 parameters."""
    return _resnet("resnet50", STAGES_50, bottleneck=True)


def convolution(graph: GraphBuilder, x: str, channels: tuple[int, int], kernel: int, name: str, *, stride: int = 1,
                groups: int = 1, scale: float = 1.0) -> str:
    """Add Conv without bias, then BatchNormalization; weights after He et al. 2015, `scale` is the normalisation's
    mean.
    """
    inward, outward = channels
    fan_in = inward // groups * kernel * kernel
    weight = graph.weight(f"{name}.weight", outward, inward // groups, kernel, kernel, std=math.sqrt(2 / fan_in))
    x = graph.op("Conv", x, weight, name=f"{name}/Conv", kernel_shape=[kernel, kernel], strides=[stride, stride],
                 pads=[kernel // 2] * 4, group=groups)
    gamma = graph.weight(f"{name}.bn.weight", outward, std=0.02 * scale, mean=scale)
    beta = graph.weight(f"{name}.bn.bias", outward, std=0.02)
    mean = graph.weight(f"{name}.bn.running_mean", outward, std=0.02)
    variance = graph.weight(f"{name}.bn.running_var", outward, std=0.0, mean=1.0)
    return graph.op("BatchNormalization", x, gamma, beta, mean, variance, name=f"{name}/BatchNormalization")


def classifier(graph: GraphBuilder, x: str, width: int, classes: int = 1000) -> None:
    """Add global average pooling and a fully connected layer to the output `logits`."""
    x = graph.op("GlobalAveragePool", x, name="pool/GlobalAveragePool")
    x = graph.op("Flatten", x, name="pool/Flatten")
    weight = graph.weight("fc.weight", classes, width, std=width**-0.5)
    bias = graph.weight("fc.bias", classes, std=0.02)
    graph.op("Gemm", x, weight, bias, name="fc/Gemm", out="logits", transB=1)
    graph.output("logits", ["batch", classes])


def _resnet(name: str, stages: tuple[int, ...], bottleneck: bool) -> GraphBuilder:
    graph = GraphBuilder(name)
    x = graph.input("input", ["batch", 3, 224, 224])
    x = _activated(graph, convolution(graph, x, (3, 64), 7, "stem", stride=2), "stem")
    x = graph.op("MaxPool", x, name="stem/MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x, channels = _block(graph, x, channels, 64 << stage, stride, f"layer{stage + 1}.{block}", bottleneck)
    classifier(graph, x, channels)
    return graph


def _block(graph: GraphBuilder, x: str, channels: int, width: int, stride: int, name: str,
           bottleneck: bool) -> tuple[str, int]:
    outward = 4 * width if bottleneck else width
    branch = (_bottleneck if bottleneck else _basic)(graph, x, channels, width, stride, name)
    if stride != 1 or channels != outward:
        x = convolution(graph, x, (channels, outward), 1, f"{name}.downsample", stride=stride)
    return _activated(graph, graph.op("Add", branch, x, name=f"{name}/Add"), name), outward


def _bottleneck(graph: GraphBuilder, x: str, channels: int, width: int, stride: int, name: str) -> str:
    x = _activated(graph, convolution(graph, x, (channels, width), 1, f"{name}.conv1"), f"{name}.conv1")
    x = _activated(graph, convolution(graph, x, (width, width), 3, f"{name}.conv2", stride=stride), f"{name}.conv2")
    return convolution(graph, x, (width, 4 * width), 1, f"{name}.conv3", scale=RESIDUAL_SCALE)


def _basic(graph: GraphBuilder, x: str, channels: int, width: int, stride: int, name: str) -> str:
    x = _activated(graph, convolution(graph, x, (channels, width), 3, f"{name}.conv1", stride=stride), f"{name}.conv1")
    return convolution(graph, x, (width, width), 3, f"{name}.conv2", scale=RESIDUAL_SCALE)


def _activated(graph: GraphBuilder, x: str, name: str) -> str:
    return graph.op("Relu", x, name=f"{name}/Relu")

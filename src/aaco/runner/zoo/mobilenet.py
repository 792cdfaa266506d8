"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381): inverted residuals around depthwise convolutions."""

from __future__ import annotations

from aaco.runner.zoo.builder import GraphBuilder
from aaco.runner.zoo.resnet import classifier, convolution

# Table 2 of the paper: expansion, output channels, blocks, stride of the first block.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2() -> GraphBuilder:
    """Return MobileNetV2 at width 1.0: 3,504,872 parameters, 301 MMAC at 224 x 224."""
    graph = GraphBuilder("mobilenet-v2")
    x = graph.input("input", ["batch", 3, 224, 224])
    x = _relu6(graph, convolution(graph, x, (3, 32), 3, "stem", stride=2), "stem")
    channels = 32
    for stage, (expansion, outward, blocks, first_stride) in enumerate(STAGES):
        for block in range(blocks):
            stride = 1 if block else first_stride
            x = _inverted_residual(graph, x, (channels, outward), expansion, stride, f"stage{stage}.{block}")
            channels = outward
    x = _relu6(graph, convolution(graph, x, (channels, 1280), 1, "head"), "head")
    classifier(graph, x, 1280)
    return graph


def _inverted_residual(graph: GraphBuilder, x: str, channels: tuple[int, int], expansion: int, stride: int,
                       name: str) -> str:
    inward, outward = channels
    wide = inward * expansion
    y = x
    if expansion != 1:
        y = _relu6(graph, convolution(graph, y, (inward, wide), 1, f"{name}.expand"), f"{name}.expand")
    y = convolution(graph, y, (wide, wide), 3, f"{name}.depthwise", stride=stride, groups=wide)
    y = convolution(graph, _relu6(graph, y, f"{name}.depthwise"), (wide, outward), 1, f"{name}.project")
    return graph.op("Add", x, y, name=f"{name}/Add") if stride == 1 and inward == outward else y


def _relu6(graph: GraphBuilder, x: str, name: str) -> str:
    return graph.op("Clip", x, graph.number(0.0), graph.number(6.0), name=f"{name}/Clip")

"""PyTorch operators that read an image at other places, and what is added back: rows of the operator table.

Source: native_functions.yaml of PyTorch, torch.nn's documentation; torchvision/csrc/ops for its own. Places are values,
so that of the image no more is read than the samples can reach.
"""

from __future__ import annotations

import math

from aaco.analytics.costs import conv
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape, everything, nothing, reading
from aaco.analytics.costs.torch import movement
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known
from aaco.analytics.costs.torch.model import VALUES, Model, Row
from aaco.analytics.costs.torch.reductions import per_gradient
from aaco.analytics.costs.torch.windows import adaptive

PLACES = "what the gradient by places costs depends on values that are not recorded"
REGIONS = "how much of the image the regions cover is a value that is not recorded"
SCALED = "how many neighbours are read depends on a scale that is not always recorded"
LEAST_AXES = 3  # of images with rows of samples and channels before the others
MODES = ("linear", "nearest", "cubic")
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # per axis


def grid(args: OperatorArguments) -> OperatorCall:
    """grid_sampler (image, places, mode, ...): each place has as many coordinates as the image has axes."""
    image, places = args.tensor(0), args.tensor(1)
    mode = MODES[args.integer(2, 0)]
    if len(known(places)) != len(known(image)) or len(known(image)) < LEAST_AXES:
        raise UnknownShape("an image and places of as many axes")
    shape = (*known(image)[:2], *known(places)[1:-1])
    return form((image, places), TensorType(image.dtype, shape), mode=mode)


def reached(call: OperatorCall) -> int:
    """Bytes of the places and of the result, and of the image what the samples reach."""
    return reading(call, call.made() * TAPS[call.attributes["mode"]] ** (len(call.shape()) - 2))


def grid_backward(args: OperatorArguments) -> OperatorCall:
    """grid_sampler_backward (gradient, image, places, ..., which gradients): of the image and of the places."""
    gradient, image, places = (args.tensor(index) for index in range(3))
    return form((gradient, image, places), image, places)


def columns(args: OperatorArguments) -> OperatorCall:
    """im2col (image, window, dilation, padding, stride): a column per place of the window."""
    image, window = args.tensor(0), args.numbers(1)
    *batch, channels, height, width = known(image)
    slid = [(size + 2 * edge - wide * (taps - 1) - 1) // step + 1 for size, taps, wide, edge, step in zip(
        (height, width), window, *(args.numbers(index) for index in (2, 3, 4)), strict=True)]
    return form((image,), TensorType(image.dtype, (*batch, channels * math.prod(window), math.prod(slid))))


def from_columns(args: OperatorArguments) -> OperatorCall:
    """col2im (columns, size of the image, window, ...): what lies upon each other is added."""
    operand, size, window = args.tensor(0), args.numbers(1), args.numbers(2)
    *batch, rows, _ = known(operand)
    return form((operand,), TensorType(operand.dtype, (*batch, rows // math.prod(window), *size)))


def spread(args: OperatorArguments) -> OperatorCall:
    """unfold_backward (gradient, size of the result, ...): each element is added to its place."""
    gradient = args.tensor(0)
    return form((gradient,), TensorType(gradient.dtype, tuple(args.numbers(1))))


def resampled_backward(mode: str) -> Form:
    """upsample_backward (gradient, its size, size of the result, ...) in this mode."""
    def made(args: OperatorArguments) -> OperatorCall:
        gradient, shape = args.tensor(0), tuple(args.numbers(2))
        return form((gradient,), TensorType(gradient.dtype, shape), mode=mode)

    return made


def resampled_backward_flops(call: OperatorCall) -> int:
    """Each gradient is added to as many neighbours as were read, times its weight where there is one."""
    taps = TAPS[call.attributes["mode"]]
    changed = sum(before != after for before, after in zip(call.shape(), call.result(), strict=True))
    return call.count() * int(taps**changed) * (1 if taps == 1 else 2)


def unpadded(args: OperatorArguments) -> OperatorCall:
    """reflection_pad_backward, replication_pad_backward (gradient, input, ...): each is added to where it came from."""
    return form((args.tensor(0),), args.tensor(1))


def shuffled(args: OperatorArguments) -> OperatorCall:
    """pixel_shuffle (input, factor): channels become places."""
    *batch, channels, height, width = known(args.tensor(0))
    factor = args.integer(1)
    return form((args.tensor(0),), TensorType(args.tensor(0).dtype, (*batch, channels // factor**2, height * factor,
                                                                     width * factor)))


def unshuffled(args: OperatorArguments) -> OperatorCall:
    """pixel_unshuffle (input, factor): places become channels."""
    *batch, channels, height, width = known(args.tensor(0))
    factor = args.integer(1)
    return form((args.tensor(0),), TensorType(args.tensor(0).dtype, (*batch, channels * factor**2, height // factor,
                                                                     width // factor)))


def channels_shuffled(args: OperatorArguments) -> OperatorCall:
    """native_channel_shuffle (input, groups)."""
    return form((args.tensor(0),), args.tensor(0))


def largest_of_areas(args: OperatorArguments) -> OperatorCall:
    """adaptive_max_pool (input, size of the result): the values and their places."""
    call = adaptive(args)
    return form(call.inputs, *call.outputs[:1], TensorType("int64", call.result()))  # type: ignore[arg-type]


def areas_flops(call: OperatorCall) -> int:
    """A comparison per element of a window but the first; windows i of m over n read n + m - gcd(n, m) elements."""
    read = math.prod(size + made - math.gcd(size, made) for size, made in zip(call.shape(), call.result(), strict=True))
    return read - call.made()


def regions(args: OperatorArguments) -> OperatorCall:
    """torchvision::roi_align (image, regions, scale, height, width, samples per axis, ...)."""
    image, boxes = args.tensor(0), args.tensor(1)
    shape = (known(boxes)[0], known(image)[1], args.integer(3), args.integer(4))
    return form((image, boxes), TensorType(image.dtype, shape), sampling_ratio=max(0, args.integer(5)))


ROWS: tuple[Row, ...] = (
    (Model("sampling", "pooling", grid, conv.grid_sample, reached),
     "aten::grid_sampler_2d aten::grid_sampler_3d aten::cudnn_grid_sampler"),
    (Model("sampling backward", "pooling", grid_backward, None, None, PLACES),
     "aten::grid_sampler_2d_backward aten::grid_sampler_3d_backward aten::cudnn_grid_sampler_backward"),
    (Model("sampling of regions", "pooling", regions, conv.roi_align, None, REGIONS), "torchvision::roi_align"),
    (Model("choice of regions", "sort", movement.nothing, None, None, VALUES), "torchvision::nms"),
    (Model("columns of an image", "conv", columns, nothing), "aten::im2col"),
    (Model("image of columns", "conv", from_columns, per_gradient), "aten::col2im"),
    (Model("windows backward", "pooling", spread, per_gradient), "aten::unfold_backward"),
    *((Model("resampling backward", "pooling", resampled_backward(mode), resampled_backward_flops), names)
      for mode, names in (
        ("nearest", "aten::upsample_nearest1d_backward aten::upsample_nearest2d_backward "
                    "aten::upsample_nearest3d_backward aten::_upsample_nearest_exact2d_backward"),
        ("linear", "aten::upsample_linear1d_backward aten::upsample_bilinear2d_backward "
                   "aten::upsample_trilinear3d_backward"),
        ("cubic", "aten::upsample_bicubic2d_backward"))),
    (Model("resampling", "pooling", adaptive, None, everything, SCALED),
     "aten::_upsample_bilinear2d_aa aten::_upsample_bicubic2d_aa"),
    (Model("adaptive maximum pooling", "pooling", largest_of_areas, areas_flops),
     "aten::adaptive_max_pool2d aten::adaptive_max_pool3d"),
    (Model("padding backward", "copy", unpadded, per_gradient),
     "aten::reflection_pad1d_backward aten::reflection_pad2d_backward aten::reflection_pad3d_backward "
     "aten::replication_pad1d_backward aten::replication_pad2d_backward aten::replication_pad3d_backward"),
    (Model("pixels in another order", "transpose", shuffled, nothing), "aten::pixel_shuffle"),
    (Model("pixels in another order", "transpose", unshuffled, nothing), "aten::pixel_unshuffle"),
    (Model("pixels in another order", "transpose", channels_shuffled, nothing), "aten::native_channel_shuffle"),
)

"""Normalisations and softmax of PyTorch, vLLM and AITER, forward and backward, in the terms of `operators.norm`.

Backward counts what the chain rule leaves when mean and reciprocal deviation are kept from the forward pass: with
x' = (x - mean) rstd and g' = g weight, the gradient is rstd (g' - (sum(g') + x' sum(g' x')) / n). Source:
native_functions.yaml of PyTorch; Ba et al., Layer Normalization (2016); Ioffe and Szegedy, Batch Normalization (2015).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from aaco.analytics.costs.norm import rows_norm
from aaco.analytics.costs.terms import OperatorCall, TensorType
from aaco.analytics.costs.torch.arguments import OperatorArguments, form, known

NORM_OPERATORS = ("aten::rsqrt", "aten::var", "aten::var_mean", "aten::std", "aten::std_mean")  # norms are written of
NORM_BY_ROOT = ("aten::mean", "aten::sqrt", "aten::div")  # all three of them are
OPTIMIZER_ROOT = "aten::addcdiv_"  # follows a root that is an optimizer's, of one parameter: torch/optim/adam.py


def written_norms(calls: Mapping[str, int]) -> int:
    """Return how many calls, by name, are of operators that norms are written of; roots of optimizers are of none."""
    means, roots, quotients = (calls.get(name, 0) for name in NORM_BY_ROOT)
    by_root = min(means, max(0, roots - calls.get(OPTIMIZER_ROOT, 0)), quotients)
    return sum(calls.get(name, 0) for name in NORM_OPERATORS) + by_root


def softmax(args: OperatorArguments) -> OperatorCall:
    """softmax, _softmax and their logarithms (input, axis, type or whether half becomes float)."""
    operand = args.tensor(0)
    return form((operand,), TensorType(_soft_type(args, operand), operand.shape), axis=args.integer(1))


def softmax_backward(args: OperatorArguments) -> OperatorCall:
    """_softmax_backward_data, _log_softmax_backward_data (gradient, result, axis, type)."""
    gradient, result = args.tensor(0), args.tensor(1)
    return form((gradient, result), TensorType(args.dtype(3, gradient.dtype), gradient.shape), axis=args.integer(2))


def softmax_backward_flops(call: OperatorCall) -> int:
    """y (g - sum(g y)), or g - exp(y) sum(g): per element 4, less an addition per row."""
    return 4 * call.count() - call.count() // call.shape(0)[call.number("axis")]


def layer_norm(args: OperatorArguments) -> OperatorCall:
    """layer_norm, native_layer_norm (input, shape that is normalised, weight, bias, ...)."""
    operand = args.tensor(0)
    return form((operand, args.optional(2), args.optional(3)), operand,
                rows=math.prod(known(operand)[:-len(args.numbers(1))]))


def layer_norm_backward(args: OperatorArguments) -> OperatorCall:
    """native_layer_norm_backward (gradient, input, shape, mean, rstd, weight, bias, which gradients)."""
    return _backward(args, 0, 1, (3, 4), weight=5, asked=args.numbers(7))


def batch_norm(args: OperatorArguments) -> OperatorCall:
    """batch_norm and those of vendors (input, weight, bias, running mean, running variance, training, ...)."""
    operand = args.tensor(0)
    return form((operand, *(args.optional(index) for index in range(1, 5))), operand, training=args.flag(5),
                rows=known(operand)[1])


def batch_norm_flops(call: OperatorCall) -> int:
    """In training as any other norm; else the means and variances are known: 2 n, 2 per channel, weight and bias."""
    if call.attributes["training"]:
        return rows_norm_flops(call)
    return (2 + call.has(1) + call.has(2)) * call.count() + 2 * call.number("rows")


def cudnn_batch_norm_backward(args: OperatorArguments) -> OperatorCall:
    """cudnn_batch_norm_backward, miopen_batch_norm_backward (input, gradient, weight, running mean, running variance,
    saved mean, saved variance, ...): all three gradients."""
    return _backward(args, 1, 0, (5, 6), weight=2, asked=[1, 1, 1])


def batch_norm_backward(args: OperatorArguments) -> OperatorCall:
    """native_batch_norm_backward (gradient, input, weight, running mean and variance, saved mean and reciprocal
    deviation, training, eps, which gradients)."""
    return _backward(args, 0, 1, (5, 6), weight=2, asked=args.numbers(9))


def group_norm(args: OperatorArguments) -> OperatorCall:
    """group_norm (input, groups, weight, bias, ...)."""
    operand = args.tensor(0)
    return form((operand, args.optional(2), args.optional(3)), operand, rows=known(operand)[0] * args.integer(1))


def native_group_norm(args: OperatorArguments) -> OperatorCall:
    """native_group_norm (input, weight, bias, N, C, HxW, groups, eps)."""
    operand = args.tensor(0)
    return form((operand, args.optional(1), args.optional(2)), operand, rows=args.integer(3) * args.integer(6))


def instance_norm(args: OperatorArguments) -> OperatorCall:
    """instance_norm (input, weight, bias, ...): every channel of every sample by itself."""
    operand = args.tensor(0)
    return form((operand, args.optional(1), args.optional(2)), operand, rows=math.prod(known(operand)[:2]))


def rows_norm_flops(call: OperatorCall) -> int:
    """Mean and variance of each row, their use, the weight and the bias."""
    return rows_norm(call.count(), call.number("rows"), call.has(1) + call.has(2))


def group_norm_backward(args: OperatorArguments) -> OperatorCall:
    """native_group_norm_backward (gradient, input, mean, rstd, weight, N, C, HxW, groups, which gradients)."""
    return _backward(args, 0, 1, (2, 3), weight=4, asked=args.numbers(9))


def rms_norm(args: OperatorArguments) -> OperatorCall:
    """rms_norm, _fused_rms_norm (input, shape that is normalised, weight, eps)."""
    operand = args.tensor(0)
    return form((operand, args.optional(2)), operand, axis=-len(args.numbers(1)))


def rms_norm_into(args: OperatorArguments) -> OperatorCall:
    """rms_norm of vLLM and AITER (result, input, weight, eps), over the last axis."""
    return form((args.tensor(1), args.optional(2)), args.tensor(0), axis=-1)


def plain_rms_norm(args: OperatorArguments) -> OperatorCall:
    """RMSNorm (input, weight), over the last axis."""
    return form((args.tensor(0), args.optional(1)), args.tensor(0), axis=-1)


def add_rms_norm(args: OperatorArguments) -> OperatorCall:
    """fused_add_rms_norm of vLLM (input, residual, weight, eps): both are overwritten, by the result and the sum."""
    operand, residual = args.tensor(0), args.tensor(1)
    return form((operand, residual, args.optional(2)), operand, residual, axis=-1)


def add_rms_norm_into(args: OperatorArguments) -> OperatorCall:
    """add_rmsnorm of AITER (result, input, residual, sum, weight, eps)."""
    return form((args.tensor(1), args.tensor(2), args.optional(4)), args.tensor(0), args.tensor(3), axis=-1)


def rms_norm_backward(args: OperatorArguments) -> OperatorCall:
    """_fused_rms_norm_backward (gradient, input, shape, rstd, weight, which gradients)."""
    return _backward(args, 0, 1, (3,), weight=4, asked=args.numbers(5), centred=False)


def weight_norm(args: OperatorArguments) -> OperatorCall:
    """_weight_norm_interface (directions, lengths, axis): the weight, and the norm of each direction."""
    direction, length = args.tensor(0), args.tensor(1)
    return form((direction, length), direction, length)


def weight_norm_flops(call: OperatorCall) -> int:
    """g v / |v|: squares, their sums and roots, a quotient per norm, a product per element."""
    return 3 * call.count() + call.count(1)


def weight_norm_backward(args: OperatorArguments) -> OperatorCall:
    """_weight_norm_interface_backward (gradient, directions, lengths, norms, axis)."""
    tensors = [args.tensor(index) for index in range(4)]
    return form(tensors, tensors[1], tensors[2])


def weight_norm_backward_flops(call: OperatorCall) -> int:
    """With d the sum of w' v, that of a length is d / |v|; that of a direction (w' - v (d / |v|) / |v|) (g / |v|).
    """
    return 5 * call.count() + 2 * call.count(2)


def backward_flops(call: OperatorCall) -> int:
    """Per element x' (2, without a mean 1), its gradient (the weight 1; two means 3; their use 4; without a mean 2 and
    3), the weight's gradient (2) and the bias's (1), less the first addition of each of their elements."""
    has, count = call.attributes, call.count()
    normal = 1 + has["centred"]
    spread = has["by_input"] * ((7 if has["centred"] else 5) + call.has(has["scale"]))
    sums = has["by_weight"] + has["by_bias"]
    added = (2 * has["by_weight"] + has["by_bias"]) * count - (sums * call.count(has["scale"]) if sums else 0)
    return (normal + spread) * count + added


def _backward(args: OperatorArguments, gradient: int, operand: int, saved: tuple[int, ...], weight: int,
              asked: list[int],
              centred: bool = True) -> OperatorCall:
    """`saved`: positions of what the forward pass kept; `asked`: whether input, weight and bias need a gradient."""
    out, source, scale = args.tensor(gradient), args.tensor(operand), args.optional(weight)
    kept = [args.optional(index) for index in saved]
    by_input, by_weight, by_bias = [*asked, 0, 0, 0][:3]
    is_computed = (by_input, by_weight and scale is not None, by_bias and scale is not None)
    outputs = [tensor for tensor, wants in zip((source, scale, scale), is_computed, strict=True) if wants and tensor]
    return form((out, source, *kept, scale), *outputs, centred=centred, scale=2 + len(kept), by_input=bool(by_input),
                by_weight=bool(is_computed[1]), by_bias=bool(is_computed[2]))


def _soft_type(args: OperatorArguments, operand: TensorType) -> str:
    """_softmax says whether half becomes float (True, False), softmax a type by its number."""
    if (to_single := args.value(2)) in ("True", "False"):
        return "float32" if to_single == "True" else operand.dtype
    return args.dtype(2, operand.dtype)

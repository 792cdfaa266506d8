"""FLOPs of normalisations and softmax, counted as the function bodies of the ONNX specification write them.

For n elements in r rows, a mean over each row takes n operations (n - r additions, r divisions) and a variance as
E[x^2] - E[x]^2 takes 2 n + 2 r. BatchNormalization is its inference formula (x - mean) / sqrt(var + eps) scale + bias.
Source: github.com/onnx/onnx docs/Operators.md; ONNX Runtime's ContribOperators.md for the Skip and Embed forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aaco.analytics.costs.elementwise import SILU
from aaco.analytics.costs.terms import OperatorCall


def softmax(call: OperatorCall) -> int:
    """Softmax: row maximum, subtract, exp, row sum, divide: 5 n - 2 r."""
    return 5 * call.count() - 2 * _rows(call)


def log_softmax(call: OperatorCall) -> int:
    """LogSoftmax: row maximum, subtract, exp, row sum, log of it, subtract: 5 n - r."""
    return 5 * call.count() - _rows(call)


def bias_softmax(call: OperatorCall) -> int:
    """BiasSoftmax: an addition, then softmax over the last axes."""
    return 6 * call.count() - 2 * _rows(call)


def layer_norm(call: OperatorCall) -> int:
    """LayerNormalization: 6 n + 4 r, and n for a bias."""
    return rows_norm(call.count(), math.prod(call.shape(0)[:call.number("axis", -1)]), 1 + call.has(2))


def skip_layer_norm(call: OperatorCall) -> int:
    """SkipLayerNormalization: input + skip (+ bias, input 4), then LayerNormalization with beta at input 3."""
    return (1 + call.has(4)) * call.count() + rows_norm(call.count(), math.prod(call.shape(0)[:-1]), 1 + call.has(3))


def embed_layer_norm(call: OperatorCall) -> int:
    """EmbedLayerNormalization: word + position (+ segment) embedding, then LayerNormalization."""
    rows = call.result()[:-1]
    return (1 + call.has(4)) * call.made() + rows_norm(call.made(), math.prod(rows), 2)


def embed_traffic(call: OperatorCall) -> int:
    """Bytes of EmbedLayerNormalization: a row of each table per token, and everything else whole."""
    width = call.shape(2)[-1]
    tables = [index for index in (2, 3, 4) if call.has(index)]
    rows = sum(min(call.size(index), call.made() // width * call.size(index) // call.shape(index)[0])
               for index in tables)
    return call.read() - sum(map(call.size, tables)) + rows + call.written()


def rms_norm(call: OperatorCall) -> int:
    """RMSNormalization: square, mean, divide, scale: 4 n, and 2 r for epsilon and root."""
    return (3 + call.has(1)) * call.count() + 2 * math.prod(call.shape(0)[:call.number("axis", -1)])


def skip_rms_norm(call: OperatorCall) -> int:
    """SkipSimplifiedLayerNormalization: input + skip (+ bias, input 3), then RMSNormalization."""
    return (5 + call.has(3)) * call.count() + 2 * math.prod(call.shape(0)[:-1])


def batch_norm(call: OperatorCall) -> int:
    """BatchNormalization: 4 n, and 2 per channel for epsilon and root."""
    return 4 * call.count() + 2 * call.count(1)


def instance_norm(call: OperatorCall) -> int:
    """InstanceNormalization: LayerNormalization of each channel of each sample."""
    return rows_norm(call.count(), call.shape(0)[0] * call.count(1), 2)


def group_norm(call: OperatorCall) -> int:
    """GroupNormalization, and ONNX Runtime's GroupNorm and SkipGroupNorm (skip, bias, then perhaps SiLU)."""
    groups = call.number("num_groups", 0) or call.number("groups")
    after = call.has(3) + call.has(4) + SILU * call.number("activation", 0)
    return rows_norm(call.count(), call.shape(0)[0] * groups, 2 + after)


def mean_variance_norm(call: OperatorCall) -> int:
    """MeanVarianceNormalization: 5 n + 4 r over the given axes (batch and space by default)."""
    shape = call.shape(0)
    axes: Sequence[int] = call.attributes.get("axes", (0, 2, 3))
    row = math.prod(shape[axis] for axis in axes)
    return rows_norm(call.count(), call.count() // row, 0)


def lp_norm(call: OperatorCall) -> int:
    """LpNormalization: a power (or absolute value), a row sum, a root, a division."""
    return 3 * call.count()


def local_response_norm(call: OperatorCall) -> int:
    """LRN: square, sum over `size` channels, scale, offset, power, divide."""
    return (call.number("size") + 4) * call.count()


def rows_norm(count: int, rows: int, after: int) -> int:
    """Mean (n), variance (2 n + 2 r), their use (2 n) and epsilon and root (2 r), then `after` operations per element.
    """
    return (5 + after) * count + 4 * rows


def _rows(call: OperatorCall) -> int:
    shape = call.shape(0)
    return call.count() // shape[call.number("axis", -1)]

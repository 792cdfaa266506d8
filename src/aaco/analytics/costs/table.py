"""The one table of operators: per operator set and name, its kernel family, its FLOPs and its traffic.

A row without a FLOP formula is an operator with work that depends on values (or on an implementation) that a graph does
not show: its family is known, its cost is not. Families are those of terms.FAMILIES.
"""

from __future__ import annotations

from collections.abc import Iterable

from aaco.analytics.costs import attention, conv, elementwise, linear, norm, quantized, recurrent
from aaco.analytics.costs.elementwise import PER_ELEMENT, REDUCTIONS, per_output, reduction
from aaco.analytics.costs.quantized import qlinear
from aaco.analytics.costs.terms import (
    FAMILIES,
    CostRule,
    Formula,
    OperatorCall,
    everything,
    first_only,
    nothing,
    output_only,
    selected,
)

ONNX, MICROSOFT, NCHWC, NHWC = "", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"
Row = tuple[str, Formula | None, Formula, str]


def top_k(call: OperatorCall) -> int:
    """TopK: a heap of k, so log2(k) comparisons (at least one) per element."""
    kept = call.result()[call.number("axis", -1)]
    return call.count() * max(1, (kept - 1).bit_length())


_ONNX: tuple[Row, ...] = (
    ("gemm", linear.matmul, everything, "MatMul"),
    ("gemm", linear.gemm, everything, "Gemm"),
    ("gemm", linear.einsum, everything, "Einsum"),
    ("gemm", linear.matmul_integer, everything, "MatMulInteger"),
    ("gemm", qlinear(linear.matmul, 0, 3), everything, "QLinearMatMul"),
    ("conv", conv.conv, everything, "Conv"),
    ("conv", conv.conv_integer, everything, "ConvInteger"),
    ("conv", qlinear(quantized.qlinear_conv, 0, 3), everything, "QLinearConv"),
    ("conv", conv.conv_transpose, everything, "ConvTranspose"),
    ("conv", conv.deform_conv, everything, "DeformConv"),
    ("conv", conv.causal_conv, everything, "CausalConvWithState"),
    ("attention", attention.attention, everything, "Attention"),
    ("attention", None, everything, "LinearAttention"),
    *(("elementwise", per_output(count), everything, name) for name, count in PER_ELEMENT.items()),
    ("elementwise", elementwise.fold, everything, "Max Min Sum"),
    ("elementwise", elementwise.mean, everything, "Mean"),
    ("elementwise", elementwise.clip, everything, "Clip"),
    ("elementwise", elementwise.gelu, everything, "Gelu"),
    ("elementwise", per_output(0), first_only, "CastLike"),
    ("elementwise", attention.rotary, attention.with_tables(1, 2), "RotaryEmbedding"),
    *(("reduction", reduction(*counts), everything, name) for name, counts in REDUCTIONS.items()),
    ("softmax", norm.softmax, everything, "Softmax"),
    ("softmax", norm.log_softmax, everything, "LogSoftmax"),
    ("softmax", reduction(1, 0), everything, "Hardmax"),
    ("norm", norm.layer_norm, everything, "LayerNormalization"),
    ("norm", norm.rms_norm, everything, "RMSNormalization SimplifiedLayerNormalization"),
    ("norm", norm.batch_norm, everything, "BatchNormalization"),
    ("norm", norm.instance_norm, everything, "InstanceNormalization"),
    ("norm", norm.group_norm, everything, "GroupNormalization"),
    ("norm", norm.mean_variance_norm, everything, "MeanVarianceNormalization"),
    ("norm", norm.lp_norm, everything, "LpNormalization"),
    ("norm", norm.local_response_norm, everything, "LRN"),
    ("pooling", conv.max_pool, everything, "MaxPool"),
    ("pooling", conv.average_pool, everything, "AveragePool"),
    ("pooling", conv.lp_pool, everything, "LpPool"),
    ("pooling", reduction(1, 0), everything, "GlobalAveragePool"),
    ("pooling", reduction(1, -1), everything, "GlobalMaxPool"),
    ("pooling", reduction(2, 0), everything, "GlobalLpPool"),
    ("pooling", conv.resize, everything, "Resize Upsample"),
    ("pooling", conv.grid_sample, everything, "GridSample"),
    ("pooling", conv.roi_align, everything, "RoiAlign"),
    ("pooling", reduction(1, 0), everything, "Col2Im"),
    ("pooling", nothing, everything, "MaxUnpool"),
    ("pooling", None, everything, "MaxRoiPool"),
    # A runtime gives these the memory of their input (Dropout does nothing outside training).
    ("copy", nothing, nothing, "Reshape Flatten Squeeze Unsqueeze Identity Dropout BitCast"),
    ("copy", nothing, output_only, "Shape Size"),
    ("copy", nothing, everything, "Concat Split ReverseSequence Trilu MemcpyFromHost MemcpyToHost"),
    ("copy", nothing, selected, "Slice Expand Tile Pad Compress CenterCropPad"),
    ("transpose", nothing, everything, "Transpose DepthToSpace SpaceToDepth"),
    ("embedding", nothing, selected, "Gather GatherElements GatherND"),
    ("embedding", nothing, everything, "TensorScatter"),
    ("embedding", elementwise.scatter, everything, "ScatterElements ScatterND Scatter"),
    ("sort", top_k, everything, "TopK"),
    ("sort", None, everything, "NonZero Unique NonMaxSuppression"),
    ("fill", nothing, nothing, "Constant"),
    ("fill", nothing, output_only, "ConstantOfShape EyeLike"),
    ("fill", nothing, everything, "OneHot"),
    ("fill", per_output(2), everything, "Range"),
    ("fill", None, everything, "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial"),
    ("recurrent", recurrent.lstm, everything, "LSTM"),
    ("recurrent", recurrent.gru, everything, "GRU"),
    ("recurrent", recurrent.rnn, everything, "RNN"),
    ("quantize", quantized.quantize, everything, "QuantizeLinear"),
    ("quantize", quantized.dequantize, everything, "DequantizeLinear"),
    ("quantize", quantized.dynamic_quantize, everything, "DynamicQuantizeLinear"),
    ("control", nothing, nothing, "If Loop Scan SequenceMap"),
)
_MICROSOFT: tuple[Row, ...] = (
    ("gemm", linear.fused_matmul, everything, "FusedMatMul FusedMatMulActivation TransposeMatMul"),
    ("gemm", linear.gemm, everything, "FusedGemm GemmFloat8"),
    ("gemm", linear.gemm_fast_gelu, everything, "GemmFastGelu"),
    ("gemm", linear.matmul_nbits, everything, "MatMulNBits"),
    ("gemm", linear.matmul_bnb4, everything, "MatMulBnb4"),
    ("gemm", linear.matmul, everything, "MatMulInteger16"),
    ("gemm", linear.matmul_integer_to_float, everything, "MatMulIntegerToFloat"),
    ("gemm", quantized.dynamic_matmul, everything, "DynamicQuantizeMatMul"),
    ("gemm", quantized.qgemm, everything, "QGemm"),
    ("gemm", linear.mixture_of_experts, linear.mixture_traffic, "MoE"),
    ("gemm", None, everything, "QMoE MatMulFpQ4 QOrderedMatMul MatMulNBitsMlp MatMulNBitsQkv SparseToDenseMatMul"),
    ("conv", conv.conv, everything, "FusedConv NhwcConv NhwcFusedConv"),
    ("conv", conv.conv_transpose_dynamic, everything, "ConvTransposeWithDynamicPads"),
    ("conv", qlinear(quantized.qlinear_conv, 0, 3), everything, "QLinearConv"),
    ("attention", attention.projected, everything, "Attention"),
    ("attention", attention.quantized, everything, "QAttention"),
    ("attention", attention.multi_head, everything, "MultiHeadAttention"),
    ("attention", attention.grouped_query, attention.with_tables(7, 8), "GroupQueryAttention"),
    ("attention", None, everything, "PackedAttention PackedMultiHeadAttention PagedAttention DecoderAttention"),
    ("attention", None, everything, "DecoderMaskedSelfAttention DecoderMaskedMultiHeadAttention LinearAttention"),
    ("attention", None, everything, "LongformerAttention SparseAttention QOrderedAttention"),
    ("elementwise", elementwise.bias_gelu, everything, "BiasGelu"),
    ("elementwise", elementwise.fast_gelu, everything, "FastGelu"),
    ("elementwise", elementwise.gelu, everything, "Gelu"),
    ("elementwise", per_output(PER_ELEMENT["Swish"]), everything, "QuickGelu"),
    ("elementwise", elementwise.fold, everything, "BiasAdd"),
    ("elementwise", elementwise.split_gelu, everything, "BiasSplitGelu"),
    ("elementwise", qlinear(per_output(1), 0, 3), everything, "QLinearAdd QLinearMul"),
    ("elementwise", qlinear(per_output(1), 1, 4), everything, "QLinearWhere"),
    ("elementwise", qlinear(per_output(PER_ELEMENT["Sigmoid"]), 0), everything, "QLinearSigmoid"),
    ("elementwise", qlinear(per_output(PER_ELEMENT["LeakyRelu"]), 0), everything, "QLinearLeakyRelu"),
    ("elementwise", attention.rotary, attention.with_tables(2, 3), "RotaryEmbedding"),
    ("reduction", qlinear(reduction(1, 0), 0), everything, "QLinearReduceMean"),
    ("softmax", norm.bias_softmax, everything, "BiasSoftmax"),
    ("softmax", qlinear(norm.softmax, 0), everything, "QLinearSoftmax"),
    ("norm", norm.skip_layer_norm, everything, "SkipLayerNormalization"),
    ("norm", norm.skip_rms_norm, everything, "SkipSimplifiedLayerNormalization"),
    ("norm", norm.group_norm, everything, "GroupNorm SkipGroupNorm"),
    ("pooling", conv.max_pool, everything, "NhwcMaxPool"),
    ("pooling", qlinear(conv.average_pool, 0), everything, "QLinearAveragePool"),
    ("pooling", qlinear(reduction(1, 0), 0), everything, "QLinearGlobalAveragePool"),
    ("pooling", conv.grid_sample, everything, "GridSample"),
    ("pooling", None, everything, "CropAndResize"),
    ("copy", nothing, everything, "Trilu"),
    ("copy", nothing, selected, "Pad"),
    ("copy", nothing, nothing, "ExpandDims"),
    ("copy", per_output(quantized.DEQUANTIZE + quantized.QUANTIZE), everything, "QLinearConcat"),
    ("embedding", norm.embed_layer_norm, norm.embed_traffic, "EmbedLayerNormalization"),
    ("embedding", per_output(quantized.DEQUANTIZE), quantized.gather_block_traffic, "GatherBlockQuantized"),
    ("embedding", nothing, selected, "GatherND"),
    ("fill", per_output(2), everything, "Range"),
    ("sort", None, everything, "Unique"),
    ("collective", None, everything, "AllReduce AllGather AllToAll"),
    ("recurrent", None, everything, "DynamicQuantizeLSTM AttnLSTM"),
    ("quantize", quantized.quantize, everything, "QuantizeLinear"),
    ("quantize", quantized.dequantize, everything, "DequantizeLinear"),
    ("control", nothing, nothing, "BeamSearch GreedySearch Sampling WhisperBeamSearch"),
)
# Layouts ONNX Runtime makes for itself. The formulas read shapes, so blocked and channels-last tensors need no others.
_NCHWC: tuple[Row, ...] = (
    ("conv", conv.conv, everything, "Conv"),
    ("pooling", conv.max_pool, everything, "MaxPool"),
    ("pooling", conv.average_pool, everything, "AveragePool"),
    ("pooling", reduction(1, 0), everything, "GlobalAveragePool"),
    ("pooling", reduction(1, -1), everything, "GlobalMaxPool"),
    ("pooling", conv.resize, everything, "Upsample"),
    ("transpose", nothing, everything, "ReorderInput ReorderOutput"),
)
_NHWC: tuple[Row, ...] = (
    ("conv", conv.conv, everything, "Conv"),
    ("conv", conv.conv_transpose, everything, "ConvTranspose"),
    ("conv", qlinear(quantized.qlinear_conv, 0, 3), everything, "QLinearConv"),
    ("pooling", conv.max_pool, everything, "MaxPool"),
    ("pooling", conv.average_pool, everything, "AveragePool"),
    ("pooling", qlinear(conv.average_pool, 0), everything, "QLinearAveragePool"),
    ("pooling", reduction(1, 0), everything, "GlobalAveragePool"),
    ("pooling", reduction(1, -1), everything, "GlobalMaxPool"),
    ("pooling", conv.resize, everything, "Resize"),
    ("pooling", conv.grid_sample, everything, "GridSample"),
    ("norm", norm.batch_norm, everything, "BatchNormalization"),
    ("norm", norm.instance_norm, everything, "InstanceNormalization"),
    ("norm", norm.local_response_norm, everything, "LRN"),
    ("transpose", nothing, everything, "DepthToSpace SpaceToDepth"),
)


def _index(sets: dict[str, tuple[Row, ...]]) -> dict[tuple[str, str], CostRule]:
    table: dict[tuple[str, str], CostRule] = {}
    for domain, rows in sets.items():
        for key, rule in _entries(domain, rows):
            if key in table:
                raise TypeError(f"operator {key} is declared twice")
            table[key] = rule
    return table


def _entries(domain: str, rows: tuple[Row, ...]) -> Iterable[tuple[tuple[str, str], CostRule]]:
    for family, flops, traffic, names in rows:
        if family not in FAMILIES:
            raise TypeError(f"operators {names} are of no family: {family}")
        for name in names.split():
            yield (domain, name), CostRule(family, flops, traffic)


TABLE = _index({ONNX: _ONNX, MICROSOFT: _MICROSOFT, NCHWC: _NCHWC, NHWC: _NHWC})

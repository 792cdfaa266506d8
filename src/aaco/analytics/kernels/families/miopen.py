"""MIOpen: kernels of AMD's library for convolution, normalisation and pooling."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_TILE = re.compile(r"_bt(\d+)x(\d+)x(\d+)")


def _read(symbol: ParsedSymbol) -> Fields:
    properties: Fields = {}
    if tile := _TILE.search(symbol.base):
        properties["tile"] = "x".join(tile.groups())
    if layout := re.search(r"nhwc|nchw|ndhwc|ncdhw", symbol.base, re.IGNORECASE):
        properties["layout"] = layout[0].lower()
    return properties


LIBRARY = KernelLibrary(
    "miopen", r"[Mm][Ii][Oo]pen|gfx\d+_f\dx\d|naive_conv_|igemm_|gridwise_convolution|batched_transpose_\d|SubTensorOp"
              r"|Op\d?d?Tensor|OpTensor|Im[23]d2?Col|Col2Im|general_tensor_reorder|gcnAsm|cvt_bf16|ScaleTensor|SetTensor"
              r"|CastTensor|BatchNorm|Op2dTensor|transpose_(?:NCHW|CNHW)|MlirConv|sp3Asm|xdlops_|LayernormFwd|T5Layer"
              r"|GroupnormFwd", read=_read, rules=(
        ("transpose", r"batched_transpose|transpose_|tensor_reorder"),
        ("norm", r"BatchNorm|batch_?norm|LayerNorm|Layernorm|Groupnorm|LRN|T5Layer|AddLayerNorm"),
        ("conv", r"[Cc]onv|^gfx|igemm|Winograd|Im[23]d2?Col|Col2Im|AsmBwdWrW|xdlops"),
        ("pooling", r"[Pp]ool"),
        ("softmax", r"[Ss]oftmax"),
        ("recurrent", r"LSTM|GRU|RNN"),
        ("fill", r"SubTensorOpWithScalar|SetTensor"),
        ("elementwise", r"SubTensorOp|Op[1-5]?d?Tensor|OpTensor|ScaleTensor|Activ|Neuron|Dropout|BiasBwd|GLU|Glu"),
        ("copy", r"CastTensor|SubTensorCopy|cvt_|Copy"),
        ("reduction", r"[Rr]educe|Sum|Loss|Arg(?:max|min)"),
        ("embedding", r"Embedding|Getitem"),
    ))

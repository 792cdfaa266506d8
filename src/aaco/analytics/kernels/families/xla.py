"""XLA, which JAX and TensorFlow compile with: fusions are named after the operators in them."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families import words
from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_NUMBER = re.compile(r"(?:[._]\d+)+$")
_KIND = re.compile(r"^(?:loop|input|wrapped|fused|command_buffer|triton|gemm|cudnn)_|_?fusion")


def _read(symbol: ParsedSymbol) -> Fields:
    text = _NUMBER.sub("", symbol.base)
    ops = words.operators(_KIND.sub("_", text).strip("_"))
    if re.search(r"gemm_fusion|gemm", text):
        return {"ops": ops, "family": "gemm"}
    if re.search(r"softmax", text):
        return {"ops": ops, "family": "softmax"}
    family = words.dominating(ops)
    if family == "unknown":
        family = "reduction" if "reduce" in text else "elementwise" if text.startswith(("loop_", "fusion")) else family
    return {"ops": ops, "family": family}


def _normalise(symbol: ParsedSymbol) -> str:
    return _NUMBER.sub("", symbol.base)


LIBRARY = KernelLibrary("xla", r"(?:loop|input|wrapped|gemm_fusion|triton_(?:softmax|gemm|dot))_\w+|xla::"
                               r"|(?:\w+_)?fusion(?:[._]\d+)*$|stream_executor|(?:dynamic_update_slice|copy|concatenate|transpose)_fusion",
                        read=_read, normalise=_normalise)

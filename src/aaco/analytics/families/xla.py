"""XLA, which JAX and TensorFlow compile with: fusions are named after the operators in them."""

from __future__ import annotations

import re

from aaco.analytics.families import words
from aaco.analytics.families.terms import Fields, Library, Symbol

_NUMBER = re.compile(r"(?:[._]\d+)+$")
_KIND = re.compile(r"^(?:loop|input|wrapped|fused|command_buffer|triton|gemm|cudnn)_|_?fusion")


def _read(symbol: Symbol) -> Fields:
    text = _NUMBER.sub("", symbol.base)
    ops = words.operators(_KIND.sub("_", text).strip("_"))
    if re.search(r"gemm_fusion|gemm", text):
        return {"ops": ops, "family": "gemm"}
    if re.search(r"softmax", text):
        return {"ops": ops, "family": "softmax"}
    found = words.dominating(ops)
    if found == "unknown":
        found = "reduction" if "reduce" in text else "elementwise" if text.startswith(("loop_", "fusion")) else found
    return {"ops": ops, "family": found}


def _normalise(symbol: Symbol) -> str:
    return _NUMBER.sub("", symbol.base)


LIBRARY = Library("xla", r"(?:loop|input|wrapped|gemm_fusion|triton_(?:softmax|gemm|dot))_\w+|xla::"
                         r"|(?:\w+_)?fusion(?:[._]\d+)*$|stream_executor|(?:dynamic_update_slice|copy|concatenate|transpose)_fusion",
                  read=_read, normalise=_normalise)

"""The element type an operator computes in, from the types of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from aaco.analytics.costs.table import TABLE

UNKNOWN_HERE = "what element type it computes in is not known"
FLOATS = ("float16", "bfloat16", "float32", "float64")
BYTES = ("int8", "uint8")
# Floating-point data in, an 8-bit product inside.
_QUANTIZES = {"DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}
# Weights of few bits: whether they are multiplied as they are or made floating-point first is up to the runtime.
_UP_TO_THE_RUNTIME = {"MatMulNBits", "MatMulBnb4", "MatMulFpQ4", "GatherBlockQuantized", "QMoE", "MatMulNBitsMlp",
                      "MatMulNBitsQkv"}
# Their 8-bit operand is data that is converted; the arithmetic is in the type of the scale.
_CONVERTS = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}


def computes_in(op_type: str, domain: str, inputs: Sequence[str]) -> str | None:
    """Return the type (numpy's name; both 8-bit integers are int8) of an operator's arithmetic; None if it is not
    known.

    inputs: element types of the inputs that it is handed, in order, the first of which is data. An operator with an
    8-bit first operand computes in that; any other in its first floating-point operand's type or, without one, its
    first operand's. Nothing is known of operators outside the table, such as subgraphs that a provider compiled.
    """
    is_modelled = ("" if domain == "ai.onnx" else domain, op_type) in TABLE
    if not is_modelled or not inputs or op_type in _UP_TO_THE_RUNTIME:
        return None
    if op_type in _QUANTIZES:
        return "int8"
    if inputs[0] in BYTES and op_type not in _CONVERTS:
        return "int8"
    return next((dtype for dtype in inputs if dtype in FLOATS), inputs[0])

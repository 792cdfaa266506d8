"""What a compiler's text says: the functions of LLVM IR, MLIR (Triton, ROCm's rock and gpu dialects) and MIGraphX
programs, and what its passes did and cost.

The readers go line by line and know how these texts are printed, not their whole grammar: a line they do not know is
no operation. `functions` and `passes` say which reader took the text; every figure that a text does not state is None.
"""

from __future__ import annotations

from typing import Any

from aaco.analytics.compiler import llvm, migraphx, mlir, passes
from aaco.analytics.compiler.terms import CompiledFunction

__all__ = ["CompiledFunction", "document", "functions"]

SCHEMA_VERSION = 1
_DIALECTS = {"llvm": llvm, "migraphx": migraphx, "mlir": mlir}


def functions(text: str) -> tuple[str, list[CompiledFunction]]:
    """Return the language of a text and its functions; an empty name where it is of none."""
    for name, reader in _DIALECTS.items():
        if reader.recognises(text):
            return name, reader.functions(text)
    return "", []


def document(text: str) -> dict[str, Any] | None:
    """Return the JSON form: the `kind` is "passes" for a log of passes, "functions" for a program; None of neither."""
    if (runs := passes.read(text)) is not None:
        return {"schema_version": SCHEMA_VERSION, "kind": "passes", **passes.summed(runs)}
    language, parsed = functions(text)
    if not language:
        return None
    return {"schema_version": SCHEMA_VERSION, "kind": "functions", "language": language,
            "functions": [function.document() for function in parsed]}

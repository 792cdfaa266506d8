"""MIGraphX: mlir_<op>_<op>... compiled by rocMLIR, and its own <op>_<op>_kernel."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families import words
from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_OWN = re.compile(r"(?:mlir_)?(.*?)(?:_kernel)?(?:_\d+)?$")


def _read(symbol: ParsedSymbol) -> Fields:
    match = _OWN.match(symbol.base)
    ops = words.operators(match[1] if match else symbol.base)
    return {"ops": ops, "family": words.dominating(ops)}


LIBRARY = KernelLibrary("migraphx",
                        r"mlir_|migraphx|(?:" + "|".join(words.MIGRAPHX) + r")(?:_(?:" + "|".join(words.MIGRAPHX)
                        + r"))*_kernel$", read=_read)

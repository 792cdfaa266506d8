"""MIGraphX: mlir_<op>_<op>... compiled by rocMLIR, and its own <op>_<op>_kernel."""

from __future__ import annotations

import re

from aaco.analytics.families import words
from aaco.analytics.families.terms import Fields, Library, Symbol

_OWN = re.compile(r"(?:mlir_)?(.*?)(?:_kernel)?(?:_\d+)?$")


def _read(symbol: Symbol) -> Fields:
    found = _OWN.match(symbol.base)
    ops = words.operators(found[1] if found else symbol.base)
    return {"ops": ops, "family": words.dominating(ops)}


LIBRARY = Library("migraphx", r"mlir_|migraphx|(?:" + "|".join(words.MIGRAPHX) + r")(?:_(?:" + "|".join(words.MIGRAPHX)
                  + r"))*_kernel$", read=_read)

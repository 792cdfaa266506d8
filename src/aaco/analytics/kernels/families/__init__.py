"""What a kernel computes, by its name: the family, the library, and what else the name says.

One file per library holds that library's grammar as data; LIBRARIES is their order. A name is parsed once (`symbols`).
Unless it is a graph operator's, the first library with symbols that begin like it takes it; there the first matching
rule decides. Names of no library are judged by their words; a name that says nothing is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import pyarrow as pa

from aaco.analytics import costs
from aaco.analytics.kernels.families import (
    aiter,
    aten,
    ck,
    cublas,
    cudnn,
    dtypes,
    flash,
    llamacpp,
    migraphx,
    miopen,
    nccl,
    onnxruntime,
    rocclr,
    rocprim,
    serving,
    symbols,
    tensile,
    triton,
    words,
    xla,
)
from aaco.analytics.kernels.families.terms import UNKNOWN, Fields, KernelLibrary, KernelName, ParsedSymbol, Rules
from aaco.core.tables import KERNEL_NAMES

__all__ = ["LIBRARIES", "POINTWISE", "UNKNOWN", "KernelName", "decode", "families_of", "of_names"]

# Of two that could begin a symbol the first takes it: the narrower grammar precedes the wider.
LIBRARIES: tuple[KernelLibrary, ...] = (
    tensile.LIBRARY, nccl.LIBRARY, rocclr.LIBRARY, rocprim.ROCPRIM, rocprim.CUB, ck.LIBRARY, xla.LIBRARY,
    triton.INDUCTOR, aiter.LIBRARY, miopen.LIBRARY, llamacpp.LIBRARY, onnxruntime.LIBRARY, aten.LIBRARY,
    cublas.CUTLASS, cudnn.LIBRARY, cublas.CUDNN, serving.VLLM, serving.SGLANG, serving.TENSORRT_LLM, serving.DEEP_GEMM,
    flash.LIBRARY, cublas.CUBLAS, migraphx.LIBRARY, triton.AUTHORED,
)
# Kernels that only pass over memory, and can be part of another that passes over the same data.
POINTWISE = ("elementwise", "norm", "reduction", "softmax", "copy", "fill", "quantize", "transpose")
# Words of a direction, in lower case.
_BACKWARD = ("backward", "bwd", "grad", "bprop", "wrw", "dot_do_o", "convert_dq")
_FORWARD = ("forward", "fwd", "fprop", "_fw_")
# The gradient of a convolution's input: a transposed convolution is the same, on the way forward.
# In any other case of its letters "dgrad" is the end of a word, as in SigmoidGrad.
_DATA_GRADIENT = re.compile(r"[Dd]grad|igemm_bwd|(?i:naive_conv(_ab)?(_(non)?packed)?_bwd"
                            r"|conv(olution|\dd|nd)?_?(bwd|backward)_?data)")
_ARGUMENTS_READ = 400  # characters: the functor comes first
_DIRECTION_READ = 160
_Compiled = tuple[tuple[str, re.Pattern[str]], ...]


def _compiled(rules: Rules) -> _Compiled:
    return tuple((family, re.compile(pattern)) for family, pattern in rules)


# Compiled where the first name is read: it takes longer than to import all else that most commands need.
@cache
def _begins() -> re.Pattern[str]:
    """Return one expression with branches that are tried in order, numbered as the libraries are."""
    return re.compile("|".join(f"(?:{library.begins})(?P<n{number}>)" for number, library in enumerate(LIBRARIES)))


@cache
def _rules(number: int) -> _Compiled:
    return _compiled(LIBRARIES[number].rules)


@cache
def _inner(number: int) -> _Compiled:
    return _compiled(LIBRARIES[number].inner)


def decode(name: str) -> KernelName:
    """Return what the name of a kernel says. Any text has an answer; of hostile ones the first 8 KiB are looked at."""
    symbol = symbols.read(name)
    if not symbol.base:
        return KernelName(name, symbols.cut(name.strip()))
    properties = _properties(symbol)
    stated = {"dtypes": dtypes.of(symbol), "direction": _direction(symbol)} | {
        key: value for key, value in properties.items() if value}
    normalise = stated.pop("normalise", symbols.short)
    return KernelName(name, symbols.cut(normalise(symbol)), **stated)


def of_names(names: Iterable[str]) -> pa.Table:
    """Return the kernel_names table of distinct names, a row each, in their order."""
    kernel_names = [decode(name) for name in names]
    columns = {field: [getattr(kernel_name, field) for kernel_name in kernel_names]
               for field in KernelName.__struct_fields__}
    return KERNEL_NAMES.build(kernel_name=columns.pop("name"), **columns)


def families_of(names: pa.Array) -> pa.Array:
    """Return the family of each name of a dictionary; null if there is no name."""
    return pa.array([None if name is None else _properties(symbols.read(name)).get("family", UNKNOWN)
                     for name in names.to_pylist()], pa.string())


def _properties(symbol: ParsedSymbol) -> Fields:
    return _by_operator(symbol) or _by_library(symbol) or _by_words(symbol)


def _by_library(symbol: ParsedSymbol) -> Fields | None:
    """Return the properties by the first library that owns the name."""
    begins = _begins().match(symbol.text)
    if not begins:
        return None
    number = int(str(begins.lastgroup)[1:])
    library = LIBRARIES[number]
    family, rule = (_first(_rules(number), symbol.base) or _launched(library, _inner(number), symbol)
                    or (library.otherwise, ""))
    read = library.read(symbol) if library.read else {}
    decided = f"{library.name}: {rule}" if rule else library.name
    return {"family": family, "library": library.name, "rule": decided, "normalise": library.normalise, **read}


def _launched(library: KernelLibrary, rules: _Compiled, symbol: ParsedSymbol) -> tuple[str, str] | None:
    """Return the family and rule of what a generic launcher runs."""
    if not rules or not re.search(library.launchers, symbol.base):
        return None
    return _first(rules, symbol.arguments[:_ARGUMENTS_READ])


def _first(rules: _Compiled, text: str) -> tuple[str, str] | None:
    """Return the first rule that is found in the text: its family and expression."""
    for family, pattern in rules:
        if pattern.search(text):
            return family, pattern.pattern
    return None


def _by_operator(symbol: ParsedSymbol) -> Fields | None:
    """Return a name that is an operator of ONNX or ONNX Runtime, as profiles of its CPU provider have them."""
    family = costs.family_of_any(symbol.base) if symbol.is_plain else UNKNOWN
    if family == UNKNOWN:
        return None
    return {"family": family, "library": "onnxruntime", "ops": (symbol.base,), "rule": "operator"}


def _by_words(symbol: ParsedSymbol) -> Fields:
    rule = _first(words.spoken(), symbol.base) or _first(words.spoken(), symbol.arguments[:_ARGUMENTS_READ])
    return {"family": rule[0], "rule": f"words: {rule[1]}"} if rule else {}


def _direction(symbol: ParsedSymbol) -> str | None:
    text = _DATA_GRADIENT.sub("", symbol.text[:_DIRECTION_READ]).lower()
    if any(word in text for word in _BACKWARD):
        return "backward"
    return "forward" if any(word in text for word in _FORWARD) else None

"""Tensile and hipBLASLt: Cijk_A<ilk|lik>_B<jlk|ljk>_<types>_..._MT<M>x<N>x<K>_..._GSU<n>_..._SK<n>_...

The letters are Tensile's indices: l is summed, i and j are the rows and columns of the result. Ailk stores i fastest
(not transposed), Alik l; Bljk stores l fastest (not transposed), Bjlk j. (Tensile, Contractions.py and Naming.)
"""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_TYPES = {"S": "float32", "D": "float64", "C": "complex64", "Z": "complex128", "H": "float16", "B": "bfloat16",
          "I8": "int8", "I": "int32", "4xi8": "int8", "X": "tfloat32", "F8": "float8e4m3", "B8": "float8e5m2",
          "F8N": "float8e4m3fnuz", "B8N": "float8e5m2fnuz", "F6": "float6e2m3", "B6": "float6e3m2",
          "F4": "float4e2m1"}
_TYPE = re.compile("|".join(sorted(_TYPES, key=len, reverse=True)))
_HEAD = re.compile(r"Cijk_A([ikl]{3})C?_B([jkl]{3})C?_((?:[A-Z0-9]|4xi8)+)((?:_[A-Z0-9]{1,4})*?)"
                   r"(?=_BH?(?:_|$)|_(?:MT|Bias|HA|Post)|$)")
_TILE = re.compile(r"_MT(\d+)x(\d+)x(\d+)")
_SPLIT = re.compile(r"_GSU(\d+)(?=_|$)")
_STREAM = re.compile(r"_SK(\d+)(?=_|$)")
_KEPT = re.compile(r"_((?:MT|MI|MIWT|GSU|SK|WG|TT)(?=\d)[0-9x]*(?:_\d+)*|GSUAMB(?:SK)?|PostGSU\d*)(?=_|$)")
_TRANSPOSED = {"ilk": "N", "lik": "T", "ljk": "N", "jlk": "T"}


def _read(symbol: ParsedSymbol) -> Fields:
    text = symbol.base
    properties: Fields = {}
    head = _HEAD.search(text)
    if head:
        first, second = (_TRANSPOSED.get(letters) for letters in head.group(1, 2))
        if first and second:
            properties["layout"] = first + second
        properties["dtypes"] = _dtypes(head[3], head[4])
    if tile := _TILE.search(text):
        properties["tile"] = "x".join(tile.groups())
    stream, split = _STREAM.search(text), _SPLIT.search(text)
    if stream and int(stream[1][:6]):
        properties["split"] = "stream_k"
    elif split:
        count = int(split[1][:6])
        properties |= {"split": "split_k" if count > 1 else "none", "split_count": count}
    return properties


def _dtypes(first: str, compute: str) -> tuple[str, ...]:
    """Return the operand, result and compute type, each once. `B` (beta) and `H` (high-precision accumulation) close
    the older form, where no `_BH` follows: SB, HBH."""
    letters = first + compute.replace("_", "")
    if not compute and len(first) > 1 and re.fullmatch(r"(?:[SDCZHB]|4xi8|I8)BH?", first):
        letters = re.sub(r"BH?$", "", first)
    return tuple(dict.fromkeys(_TYPES[letter] for letter in _TYPE.findall(letters)))


def _normalise(symbol: ParsedSymbol) -> str:
    """Return the problem, the tiles and how the sum is split; the other of some fifty parameters change between builds.
    """
    text = symbol.base
    cut = text.find("_MT")
    head = text if cut < 0 else text[:cut]
    return head if cut < 0 else "_".join([head, *_KEPT.findall(text[cut:])])


LIBRARY = KernelLibrary(
    "tensile", r"(?:Custom_)?Cijk_", read=_read, normalise=_normalise, otherwise="gemm", rules=(
        ("reduction", r"_PostGSU\d*"),
        ("reduction", r"Cijk_[A-Z0-9]+_Bias|_BiasGrad|_GradS_"),
        ("elementwise", r"^Cijk_[A-Z0-9]{1,3}(?:_G[AB])?$"),  # scales or clears the result before partial sums
    ))

"""Which unit a kernel's arithmetic runs on, and in which type: the rate that is its compute roof.

Libraries name the unit. cuBLAS and cuDNN write `ffma` or one letter before `gemm` for the vector unit and an
instruction's shape (s16816, s1688) for the matrix unit, CUTLASS `simt` and `tensorop`, Tensile and CK the matrix
instruction (MI, xdl). Products with a vector run on the vector unit. Where the name does not say, products of 16 bits
and less run on the matrix unit, those of 32 and 64 bits on the slowest unit that can have done them in their time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from aaco.analytics.kernels import families

MATRIX_FAMILIES = ("gemm", "conv", "attention")
KINDS = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8",
         **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"), "f8")}
_MATRIX = re.compile(r"tensorop|wmma|mfma|xdl|gtcx|[hi]mma|gmma|warpgroup|nvjet|tensor\d"
                     r"|(?:16816|1688|161616|884|16832)(?:gemm|cudnn|fprop)|_MI\d+x\d+")
_VECTOR = re.compile(r"ffma|simt|(?<![a-z])[sdh]gemm|scudnn|convolve_sgemm|gemmSN|gemmk1|winograd|naive_conv"
                     r"|Sp3AsmConv|dot_kernel|_dl_")
_MATVEC = re.compile(r"gemv|mul_mat_vec|mat_?vec(?![a-z])|wvSplitK|LLMM1|skinny_gemm", re.IGNORECASE)
_DECODING = re.compile(r"paged_?attention|decode_?att|att\w*_decode|flash_?decod|fwd_splitkv|mmha", re.IGNORECASE)
KIND = {**KINDS, "tfloat32": "tf32", "float8e4m3": "f8", "float8e5m2": "f8", "float4e2m1": "f6f4",
        "float6e2m3": "f6f4", "float6e3m2": "f6f4"}
_NARROW = ("f16", "bf16", "i8", "f8", "f6f4", "tf32")
_LOOKED_AT = 4096  # letters of a name


@lru_cache(1 << 16)
def named(name: str) -> tuple[str | None, str | None]:
    """Return the unit (matrix, vector) and the type, as rates name it, that a kernel's name says; None if it does
    not.
    """
    decoded = families.decode(name)
    kinds = [KIND[dtype] for dtype in decoded.dtypes if dtype in KIND]
    kind = "tf32" if "tf32" in kinds else kinds[0] if kinds else None
    text = name[:_LOOKED_AT]
    if is_matvec(name) or (_VECTOR.search(text) and not _MATRIX.search(text)):
        return "vector", kind
    if _MATRIX.search(text) or (kind in _NARROW and decoded.family in MATRIX_FAMILIES):
        return "matrix", kind
    of_tensile = decoded.library == "tensile" and "_MT" in text  # without a matrix instruction
    return ("vector" if of_tensile else None), kind


def is_matvec(name: str) -> bool:
    """Return whether the name is that of a product with a vector, or with the few rows of decoding."""
    return _MATVEC.search(name[:_LOOKED_AT]) is not None


def reads_a_cache(name: str) -> bool:
    """Return whether the name is that of attention with one query a request, as in decoding."""
    return _DECODING.search(name[:_LOOKED_AT]) is not None


def rate_used(name: str | None, family: str | None, dtype: str | None, rates: Mapping[str, float],
              flops_per_s: float = 0.0) -> str | None:
    """Return the rate that this kernel's arithmetic runs at; None where its type or the device's peak is not known.

    name: of the kernel, None if unknown. dtype: of the operator's first operand. flops_per_s: what it achieved.
    """
    unit, kind = named(name) if name else (None, None)
    kind = kind or KIND.get(dtype or "")
    if kind is None:
        return None
    peaks = [rate for rate in _candidates(unit, kind, family) if rate in rates]
    able = [rate for rate in peaks if rates[rate] >= flops_per_s]
    return min(able, key=lambda rate: rates[rate]) if able else max(peaks, key=lambda rate: rates[rate], default=None)


def _candidates(unit: str | None, kind: str, family: str | None) -> tuple[str, ...]:
    """Return the rates that it may run at."""
    vector = f"vector_{'f32' if kind in ('bf16', 'tf32', 'f8', 'f6f4') else kind}"  # no vector unit has these types
    matrix = (f"matrix_{kind}", "matrix_tf32") if kind == "f32" else (f"matrix_{kind}",)
    if unit == "vector" or (unit is None and family not in MATRIX_FAMILIES):
        return (vector,)
    if unit == "matrix" or kind in _NARROW:
        return matrix
    return (vector, *matrix)

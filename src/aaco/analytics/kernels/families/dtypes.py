"""Element types as names of kernels spell them, and the one spelling that operators.terms.TensorType has for each."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import ParsedSymbol

_SPELLINGS = {
    "float32": "float f32 fp32 float32", "float64": "double f64 fp64 float64",
    "float16": "f16 fp16 half __half half_t Half _Float16 half2 __half2 float16",
    "bfloat16": "bf16 BFloat16 __nv_bfloat16 __hip_bfloat16 hip_bfloat16 bfloat16_t __bf16 bfloat16 bhalf_t",
    "float8e4m3": "fp8 e4m3 E4m3 MxE4m3 fp8_e4m3 F8", "float8e5m2": "bf8 e5m2 E5m2 Float8_e5m2 __nv_fp8_e5m2",
    "float8e4m3fn": "Float8_e4m3fn __nv_fp8_e4m3 e4m3fn", "float8e4m3fnuz": "Float8_e4m3fnuz e4m3fnuz",
    "float4e2m1": "fp4 mxfp4 nvfp4 e2m1 E2m1 MxE2m1 afp4 wfp4 mxfp4x2", "int8": "i8 int8 int8_t s8 u8s8",
    "int4": "i4 int4 w4a16 w4a8 uint4b8", "tfloat32": "tf32 xf32", "complex64": "cf32 cf32cf32",
}
BY_SPELLING = {spelling: dtype for dtype, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_WORD = re.compile("(?<![A-Za-z0-9_])(?:" + "|".join(sorted(map(re.escape, BY_SPELLING), key=len, reverse=True))
                   + ")(?![A-Za-z0-9_])")
_LOOKED_AT = 400  # characters of the template's arguments: types come first


def of(symbol: ParsedSymbol) -> tuple[str, ...]:
    """Return the floating-point types that the template's arguments name; of a plain name those among its words."""
    if symbol.is_plain:
        words = re.split(r"[_.\-]|x(?=bf16|f16|fp16|mxfp4|fp8)", symbol.base[:_LOOKED_AT])
        return tuple(dict.fromkeys(BY_SPELLING[word] for word in words if word in BY_SPELLING))
    return tuple(dict.fromkeys(BY_SPELLING[word] for word in _WORD.findall(symbol.arguments[:_LOOKED_AT])))

"""NVIDIA's matrix products: cuBLAS, cuBLASLt, nvjet, CUTLASS and TensorRT-LLM's generated kernels.

nvjet_<types>_<tile>_<step>x<stages>_..._<transposes>: two letters before the last say how the operands are stored.
cutlass_<arch>_<op class>_<types and instruction>_<tile>_<step>x<stages>_<transposes>_align<n>.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from aaco.analytics.kernels.families import dtypes
from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_TILE = (re.compile(r"_(\d{1,4})x(\d{1,4})_(\d{1,4})x\d{1,2}(?=_|$)"), re.compile(r"tilesize(\d+)x(\d+)x(\d+)"),
         re.compile(r"_t(\d+)x(\d+)x(\d+)"))
_LAYOUT = re.compile(r"_([nt])([nt])(?:_|$)|_([NT])([NT])[NT](?:_|$)")
_SPATIAL = re.compile(r"nhwc|nchw|ndhwc")
_NVJET = {"h": "float16", "t": "bfloat16", "s": "float32", "q": "float8e4m3", "d": "float64", "o": "float4e2m1"}
_ONE_LETTER = re.compile(r"_([hsdcz])(?:16816|1688|884)?gemm_|(?:^|_)([hsdcz])gemm_")
_LETTERS = {"h": "float16", "s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}


def _read(symbol: ParsedSymbol) -> Fields:
    text = symbol.text[:400]
    properties: Fields = {}
    tile = next((match for pattern in _TILE if (match := pattern.search(text))), None)
    if tile:
        properties["tile"] = "x".join(tile.groups())
    layout, spatial = _LAYOUT.search(text), _SPATIAL.search(text)
    if spatial:
        properties["layout"] = spatial[0]
    elif layout:
        properties["layout"] = "".join(letter for letter in layout.groups() if letter).upper()
    if re.search(r"split_?k", text, re.IGNORECASE):
        properties["split"] = "split_k"
    elif re.search(r"stream_?k", text, re.IGNORECASE):
        properties["split"] = "stream_k"
    properties["dtypes"] = _dtypes(symbol, text)
    return properties


def _dtypes(symbol: ParsedSymbol, text: str) -> tuple[str, ...]:
    if nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]{3,5})_", text):
        return tuple(dict.fromkeys(_NVJET[letter] for letter in nvjet[1] if letter in _NVJET))
    pieces = re.findall(r"bf16|tf32|cf32|f16|f32|f64|fp16|e4m3|e5m2", text.lower())
    named = tuple(dict.fromkeys(dtypes.BY_SPELLING[piece] for piece in pieces if piece in dtypes.BY_SPELLING))
    letter = _ONE_LETTER.search(text)
    return named or dtypes.of(symbol) or ((_LETTERS[letter[1] or letter[2]],) if letter else ())


_CONV = r"scudnn|fprop|dgrad|wgrad|implicit_gemm|implicit_convolve|convolve|conv[123]d"
_ARCH = r"(?:sm\d+|ampere|turing|volta|maxwell|hopper|ada)_"
CUBLAS = KernelLibrary(
    "cublas", rf"nvjet_|cublas|{_ARCH}\w*(?:gemm|s884|h884|cublas|trsm|syrk)|transpose_readWrite|"
              r"gemv\w*_kernel|gemv2|gemvNSP|gemmSN"
              r"|gemmk1|gemm_kernel|internal::gemvx|internal::|dot_kernel|reduce_1Block|asum_kernel|scal_kernel"
              r"|axpy_kernel|splitKreduce|cask|kernel_trsm|trsm_|batch_gemm", read=_read, rules=(
        ("reduction", r"split_?[Kk]_?[Rr]educe|reduce_1Block|asum_kernel|nrm2"),
        ("elementwise", r"epilogue::|scal_kernel|axpy_kernel|swizzle_scal"),
        ("attention", r"fmha|[Aa]ttention|flash"),
        ("conv", _CONV),
        ("transpose", r"nchwToNhwc|nhwcToNchw|transpose"),
        ("gemm", r"nvjet|gemm|gemv|dot_kernel|bmm_|trsm|syrk|herk|symm|trmm|ger"),
    ), inner=(
        ("attention", r"fmha|[Ff]lash|[Aa]ttention|[Mm]la"),
        ("conv", _CONV + r"|conv::|Conv"),
        ("gemm", r"gem[mv]|Gem[mv]|GEMM|collective::"),
    ))
CUTLASS = replace(CUBLAS, name="cutlass", begins=r"cutlass\w*::|cutlass_")
# cuDNN's engines of the same make: the suffix says whose they are.
CUDNN = replace(CUBLAS, name="cudnn", begins=rf"{_ARCH}\w*(?:cudnn|fprop|dgrad|wgrad|conv)")

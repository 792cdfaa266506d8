"""Triton: what PyTorch's Inductor generates, and kernels that are known by their authors' names.

Inductor names a kernel triton_<kind>_fused_<operators joined by _>_<number> (torch/_inductor/codegen/triton.py): poi is
pointwise, red and per are reductions, tem is a template (matrix product, convolution, attention). The operators are
those that the kernel's code comes from: a pointwise kernel that lists addmm or convolution adds what an external call
left over, such as its bias, and does no product.
"""

from __future__ import annotations

import re

from aaco.analytics.kernels.families import words
from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol, tile_by

_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|mm|bmm|foreach|for|split_scan|sort|unk|convolution2?d?|flex_\w+?)"
                       r"(?:_fused)?(?:_(.*?))?(?:_(\d+))?$")
_PRODUCTS = ("gemm", "conv", "attention")
_OF_KIND = {"tem": "gemm", "mm": "gemm", "bmm": "gemm", "convolution": "conv", "convolution2d": "conv",
            "red": "reduction", "per": "reduction", "split_scan": "reduction", "sort": "sort", "foreach": "elementwise",
            "poi": "elementwise", "for": "elementwise"}
_SIGNATURE = re.compile(r"_0(?=\w*d)(?:de|d|c)?(?:\d+(?:de|d|c)?)+$")  # specialised arguments: _0d1d2de
_NUMBERED = re.compile(r"_\d+$")


def _inductor(symbol: ParsedSymbol) -> Fields:
    match = _INDUCTOR.match(symbol.base)
    if not match:
        return {}
    kind, listed = match[1], match[2] or ""
    ops = words.operators(listed)
    return {"ops": ops, "family": _family(kind, ops)}


def _family(kind: str, ops: tuple[str, ...]) -> str:
    if kind.startswith("flex"):
        return "attention"
    does_products = kind in ("tem", "mm", "bmm") or kind.startswith("convolution")
    counted = [op for op in ops if does_products or words.FAMILY_OF[op] not in _PRODUCTS]
    if does_products:
        family = words.dominating(counted)
        return family if family in _PRODUCTS else _OF_KIND[kind]
    if kind in ("red", "per"):
        return _reduced(ops, counted)
    if kind == "poi":  # it may finish a reduction, and does none
        counted = ["norm"] if _is_norm(set(ops)) else [op for op in counted if words.FAMILY_OF[op] != "reduction"]
    return words.dominating(counted) if counted else _OF_KIND.get(kind, "elementwise")


def _reduced(ops: tuple[str, ...], counted: list[str]) -> str:
    """Return a reduction: of a norm or softmax by name or by the operators that these decompose into; a product that
    Inductor wrote out as multiply and sum (mm, bmm: they have no epilogue to leave over)."""
    has = set(ops)
    if has & {"mm", "bmm", "mv"}:
        return "gemm"
    family = words.dominating(counted)
    if family in ("softmax", "norm", "sort"):
        return family
    if {"amax", "exp", "sum"} <= has:
        return "softmax"
    return "norm" if _is_norm(has) else "reduction"


def _is_norm(has: set[str]) -> bool:
    """Return the operators that a norm decomposes into."""
    return "rsqrt" in has and bool(has & {"mean", "var_mean", "var"})


def _normalise(symbol: ParsedSymbol) -> str:
    return _NUMBERED.sub("", symbol.base)


def _bare(symbol: ParsedSymbol) -> str:
    return _SIGNATURE.sub("", symbol.base)


INDUCTOR = KernelLibrary("triton",
                         r"triton_(?:poi|red|per|tem|mm|bmm|foreach|for|split_scan|sort|unk|convolution|flex)_",
                         read=_inductor, normalise=_normalise)
AUTHORED = KernelLibrary(
    "triton", r"_?(?:matmul_ogs|finalize_matmul_scatter|combined_routing|sum_bitmatrix_rows|topk_forward|reduce_grouped"
              r"|kernel_unified_attention|kernel_paged_attention|_attn_fwd|attn_fwd|attn_bwd|bwd_kernel|sage_|bwd_preprocess"
              r"|reduce_segments|fwd_grouped_kernel|fwd_kernel_stage|_fwd_kernel|gemm_a\w+_w\w+_kernel|fused_moe_kernel"
              r"|w8a8_|per_token_group_quant|copy_page_indices|create_flashinfer|chunk_\w+_fwd|fused_recurrent_\w+"
              r"|layer_norm_fwd|rms_norm_kernel|_quant_|get_num_kv_splits|write_req_to_token)",
    rules=(
        ("fill", r"_memset$"),
        ("reduction", r"finalize_matmul_scatter"),
        ("gemm", r"matmul_ogs|gemm|fused_moe|w8a8_"),
        ("recurrent", r"chunk_(?:scan|state|cumsum)"),  # of Mamba 2
        ("attention", r"attn|attention|sage_|bwd_(?:kernel|preprocess)|fwd_(?:grouped_)?kernel|reduce_segments|chunk_"
                      r"|fused_recurrent"),
        ("sort", r"routing|topk"),
        ("quantize", r"quant"),
        ("norm", r"norm"),
        ("reduction", r"sum_bitmatrix|reduce_grouped"),
        ("embedding", r"create_flashinfer|write_req"),
        ("copy", r"copy_page"),
        ("elementwise", r"num_kv_splits"),
    ), read=tile_by(r"_(\d{1,4})x(\d{1,4})x(\d{1,4})x\d{1,3}(?=_|$)"), normalise=_bare)

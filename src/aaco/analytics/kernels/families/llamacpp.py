"""llama.cpp: the CUDA backend of ggml, which HIP compiles too (ggml/src/ggml-cuda)."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import Fields, KernelLibrary, ParsedSymbol

_TYPES = {0: "float32", 1: "float16", 30: "bfloat16"}  # enum ggml_type in ggml.h
_QUANTS = {2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_K", 11: "q3_K", 12: "q4_K",
           13: "q5_K", 14: "q6_K", 15: "q8_K", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl",
           21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 39: "mxfp4"}
_TYPE = re.compile(r"\(ggml_type\)(\d{1,3})")


def _read(symbol: ParsedSymbol) -> Fields:
    named = [_TYPES.get(int(number)) or _QUANTS.get(int(number)) for number in _TYPE.findall(symbol.arguments)]
    spelled = re.search(r"_(q\d_[\dK]|iq\d_\w+|mxfp4)\b", symbol.base)
    dtypes = [name for name in (*named, spelled[1] if spelled else None) if name]
    return {"dtypes": tuple(dict.fromkeys(dtypes))} if dtypes else {}


LIBRARY = KernelLibrary(
    "llama.cpp", r"mul_mat_|mul_mat|dequantize_|quantize_q8|quantize_mmq|quantize_mmvq|soft_max_|rms_norm_f|norm_f32"
                 r"|l2_norm_f|group_norm_f|rope_(?:norm|neox|multi|vision)|k_bin_bcast|unary_(?:gated_)?op_kernel"
                 r"|cpy_|k_[gs]et_rows|flash_attn_|convert_unary|scale_f32|concat_|ssm_|gated_delta_net|rwkv_"
                 r"|argsort_|sum_rows|reduce_rows|im2col_kernel|pool2d_nchw|pad_f32|upscale_f|timestep_embedding|arange_f"
                 r"|diag_mask|clamp_f32|argmax_f32|gated_linear_attn|k_repeat|k_sum_rows|cross_entropy_loss|conv_transpose"
                 r"|conv2d_(?:\w+_)?kernel|mmid|mm_ids|topk_moe|k_compute_batched|fused_mul_mat|acc_f32|silu_|gelu_|swiglu"
                 r"|geglu|add_id|fattn_|mul_mat_id|opt_step_|set_rows|sqr_f32|k_argsort|leaky_relu|count_equal|cumsum_|top_k",
    read=_read, rules=(
        ("elementwise", r"^rope_"),  # rope_norm is the plain rotary embedding: `norm` there is a mode
        ("attention", r"flash_attn|fattn|gated_delta_net|gated_linear_attn"),
        ("gemm", r"^(?:fused_|dequantize_)?mul_mat"),
        ("quantize", r"quantize"),
        ("softmax", r"soft_max|topk_moe|cross_entropy"),
        ("norm", r"norm"),
        ("recurrent", r"ssm_scan|wkv"),
        ("conv", r"conv(?!ert)|im2col"),
        ("embedding", r"[gs]et_rows"),
        ("sort", r"argsort|top_k|mmid|mm_ids"),
        ("reduction", r"sum_rows|reduce_rows|argmax|cumsum|count_equal"),
        ("pooling", r"pool2d|upscale"),
        ("copy", r"cpy_|concat_|pad_|k_repeat|diag_mask"),
        ("fill", r"arange|k_compute_batched"),
        ("elementwise", r"k_bin_bcast|unary_|convert_|scale_|clamp|timestep|acc_|silu|gelu|swiglu|geglu|add_id|opt_step"
                        r"|sqr|relu"),
    ))

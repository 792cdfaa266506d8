"""AITER, AMD's kernels for language models: hand-written assembly with names of their own, and C++ in `aiter::`."""

from aaco.analytics.kernels.families.terms import KernelLibrary, tile_by

LIBRARY = KernelLibrary(
    "aiter", r"aiter::|fmoe_|fmha_(?:fwd|bwd)|bwd_hd\d|fwd_hd\d|pa_(?:bf16|fp16|fp8|noquant|a16w|ps_|decode_)|mla_"
             r"|[a-z]*f[48]gemm_|b?f16gemm_|i8gemm_|f8_block_scale_mi|f4gemm",
    read=tile_by(r"_(\d+)x(\d+)(?:x(\d+))?(?=_|$|E)"), rules=(
        ("collective", r"cross_device_reduce|allreduce|allgather|reduce_scatter"),
        ("gemm", r"fmoe_|moe_stage|ck_moe|[^a-z]gemm|wv_?[Ss]plit|^[a-z0-9]*gemm_|block_scale|LLGemm|LLMM"),
        ("attention", r"fmha|(?:bwd|fwd)_hd\d|paged_attention|pa_(?!d)|pa_decode|mla_(?!.*(?:cache|rope))|attention"),
        ("sort", r"moe_?sort|moe_align|MoeSorting|biased_grouped_topk|grouped_topk|topk(?!.*[Ss]oftmax)"),
        ("softmax", r"[Ss]oftmax"),
        ("norm", r"norm"),
        ("elementwise", r"act_and_mul|rope|rotary|gelu|silu|swiglu|sigmoid|tanh|binary|unary|add_|operator|activation"),
        ("embedding", r"cache|gather|scatter|embedding"),
        ("quantize", r"quant"),
        ("reduction", r"moe_sum|reduce|sum"),
        ("fill", r"init|fill|zero|random|sample"),
        ("transpose", r"transpose|shuffle|permute"),
        ("copy", r"copy|cat|pad"),
    ))

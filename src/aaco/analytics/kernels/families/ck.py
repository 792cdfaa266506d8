"""AMD's Composable Kernel, the template library and its tile form."""

from aaco.analytics.kernels.families.terms import KernelLibrary

_RULES = (
    ("attention", r"Fmha|fmha|Attention|Unified_?Attn"),
    ("conv", r"grouped_conv|conv(?:olution)?(?:Nd|2d|3d)?_?(?:[Ff]wd|[Bb]wd)|Conv|ImageToColumn|ImplicitGemm"),
    ("gemm", r"[Gg]emm|Moe(?!Sort|Smooth)|XdlCShuffle|Wmma(?:CShuffle)?|FlatMM|Contraction"),
    ("sort", r"MoeSort|[Tt]opk"),
    ("softmax", r"[Ss]oftmax"),
    ("norm", r"[Rr]msnorm|[Ll]ayer_?[Nn]orm|[Nn]ormalization|[Bb]atch_?[Nn]orm|Welford"),
    ("quantize", r"[Ss]moothquant|Quant"),
    ("pooling", r"[Pp]ool"),
    ("transpose", r"[Tt]ranspose|[Pp]ermute"),
    ("reduction", r"[Rr]educe|[Rr]eduction"),
    ("embedding", r"[Ee]mbed|[Gg]ather|[Ss]catter"),
    ("fill", r"SetBufferValue|MemsetBuffer|set_buffer"),
    ("elementwise", r"[Ee]lementwise|[Ee]ltwise|CGridDesc_?Elementwise"),
    ("copy", r"[Cc]opy|Cast"),
)
LIBRARY = KernelLibrary("ck",
                        r"ck_tile::|ck::|kernel_gemm_xdl|kernel_grouped_conv|kernel_batched_gemm|kernel_contraction",
                        rules=_RULES, inner=_RULES)

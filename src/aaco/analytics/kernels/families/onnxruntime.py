"""ONNX Runtime: its CUDA and ROCm kernels; on other providers a kernel's name is the operator itself."""

from aaco.analytics.kernels.families.terms import KernelLibrary

_FUNCTORS = ("elementwise", r"OP_\w+|Elementwise|ElementWise|ElementwiseGrad")
LIBRARY = KernelLibrary(
    "onnxruntime", r"onnxruntime::", rules=(
        ("gemm", r"MatMul|Gemm|MoE|gemm|[Mm]oe|GemmFloat8"),
        ("attention", r"[Aa]ttention|QKV|Qkv|Qk|Kv|PastPresent|AddBiasTrans"),
        ("norm", r"[Ll]ayer_?[Nn]orm|LayerNorm|GroupNorm|BatchNorm|InstanceNorm|LRN|[Nn]ormal"),
        ("softmax", r"[Ss]oft_?[Mm]ax"),
        ("embedding", r"Gather|Scatter|Embed|embed"),
        ("quantize", r"Quantize|quantize"),
        ("pooling", r"Pool|Resize|Upsample|GridSample|RoiAlign"),
        ("transpose", r"Transpose|transpose|DepthToSpace|SpaceToDepth"),
        ("sort", r"TopK|Sort|NonZero|NonMax|Unique|bitonic|Radix"),
        ("fill", r"Fill|OneHot|Range|EyeLike|Random|ConstantOfShape|Fill"),
        ("copy", r"Concat|Split|Slice|Pad|Tile|Expand|Copy|Trilu|Compress|ReverseSequence|Cast|Identity|Where_copy"),
        ("reduction", r"[Rr]educe|ArgM|CumSum|Reduction"),
        ("conv", r"Conv|Im2[Cc]ol|Col2[Ii]m"),
        ("recurrent", r"RNN|LSTM|GRU"),
        ("elementwise", r"Unary|Binary|Ternary|Elementwise|ElementWise|Bias|Gelu|Where|Clip|Rotary|Variadic|Dropout"
                        r"|OP_|_Add|Mul|Add"),
    ), inner=(_FUNCTORS,))

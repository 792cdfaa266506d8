"""Serving engines: vLLM, SGLang and TensorRT-LLM write kernels by the same conventions, in namespaces of their own."""

from msgspec.structs import replace

from aaco.analytics.kernels.families.terms import KernelLibrary, tile_by

_RULES = (
    ("collective", r"cross_device_reduce|all_?reduce|allgather"),
    ("attention", r"attention|mla|fmha|merge_attn"),
    ("softmax", r"[Ss]oftmax"),
    ("sort", r"routing|[Tt]op[Kk](?!.*[Ss]oft)|moe_align|align_block|[Ss]ort|expert_(?:map|offset)|expandInputRows"
             r"|compute_(?:arg|expert)|count_and_sort"),
    ("reduction", r"finalize|moe_sum|combine"),
    ("transpose", r"repack"),
    ("gemm", r"gemm|^bmm_|wvSpl|LLGemm|LLMM|[Mm]arlin|matmul|gemv|gptq_(?!shuffle)|awq_gemm"),
    ("norm", r"norm"),
    ("elementwise", r"act_and_mul|rotary|[Rr]ope|gelu|silu|activation|swiglu|doActivation"),
    ("embedding", r"cache|gather|scatter|embedding|lookup|resolve_future_token"),
    ("quantize", r"quant|dequantize|to_fp8|convert_fp8"),
    ("fill", r"memset|init|zero"),
    ("transpose", r"permute|shuffle|transpose"),
    ("copy", r"copy|swap_blocks"),
    ("reduction", r"reduce|sum|cumsum|penalt"),
)
VLLM = KernelLibrary("vllm",
                     r"vllm::|wvSpl|LLGemm|LLMM|(?:vllm::)?paged_attention_(?:v\d|ll4mi|kernel)|moe_align|topkGating|top_k_per_row|marlin"
                     r"|Marlin|gptq|awq|exllama", rules=_RULES)
SGLANG = replace(VLLM, name="sglang", begins=r"sgl|resolve_future_token")
DEEP_GEMM = KernelLibrary("deep_gemm", r"deep_gemm::", rules=(("transpose", r"transpose|transform"),), otherwise="gemm")
TENSORRT_LLM = replace(VLLM, name="tensorrt_llm", begins=r"_?moe::|tensorrt_llm::|trtllm|fmhaSm\d|bmm_[A-Z]",
                       read=tile_by(r"_t(\d{1,4})x(\d{1,4})x(\d{1,4})(?!\d)"))

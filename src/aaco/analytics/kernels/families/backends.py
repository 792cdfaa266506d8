"""Which implementation of a matrix product or of attention a kernel is of, by its name.

A library's grammar says what a kernel computes; a serving engine chooses between several of them, and reports say which
it took. The tile and the split of a product are `KernelName.tile` and `KernelName.split`.
"""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import Rules

_READ = 600  # characters of a name: templates of CUTLASS name the algorithm far inside
GEMM: Rules = (
    ("DeepGEMM", r"deep_gemm"),
    ("FlashInfer", r"flashinfer::"),
    ("hipBLASLt", r"Cijk_\w*(?:_UserArgs|_Bias_|_HA_S_|_SAV)"),
    ("Tensile", r"Cijk_"),
    ("cuBLASLt nvjet", r"^nvjet_"),
    ("cuBLASLt", r"cublasLt"),
    ("Marlin", r"[Mm]arlin"),
    ("Machete", r"[Mm]achete"),
    ("GPTQ", r"gptq|exllama"),
    ("AWQ", r"(?:^|[^a-z])awq"),
    ("vLLM skinny GEMM", r"wvSpl|LLGemm|LLMM"),
    ("AITER", r"aiter::|^fmoe_|^[a-z]*f[48]gemm_|^b?f16gemm_|^i8gemm_|^f8_block_scale|^f4gemm|^_ZN5aiter"),
    ("Composable Kernel", r"ck_tile::|(?:^|[^a-z_])ck::|kernel_gemm_xdl|kernel_batched_gemm|kernel_grouped_gemm"),
    ("TensorRT-LLM", r"tensorrt_llm::|trtllm|^bmm_[A-Z]|^_?moe::"),
    ("Triton matmul_ogs", r"^_?(?:p_)?matmul_ogs"),
    ("Triton fused MoE", r"fused_moe_kernel"),
    ("Triton by Inductor", r"^triton_(?:tem|mm|bmm|red|per|poi)_"),
    ("Triton", r"^_?(?:gemm_a\w+_w\w+_kernel|w8a8_|_?batched_gemm_a|_gemm_)"),
    ("CUTLASS", r"cutlass"),
    ("cuBLAS", r"cublas|gemv|gemm|^(?:sm\d+|ampere|turing|volta|maxwell|hopper|ada)_"),
)
ATTENTION: Rules = (
    ("ROCm paged attention", r"paged_attention_ll4mi"),  # its arguments name ck_tile
    ("FlashMLA", r"mla_(?:kernel|combine)|splitkv_mla|[Ff]lash_?[Mm][Ll][Aa]|sparse_attn_\w*kernel"),
    ("FlashInfer", r"flashinfer|Batch(?:Prefill|Decode)With|SinglePrefill|SingleDecode"),
    ("TensorRT-LLM", r"fmhaSm\d|tensorrt_llm::|masked_multihead|kernel_mha|xqa"),
    ("FlashAttention 4", r"FlashAttention\w*Sm1\d\d|flash_attn_cute|cutlass_flash_attn"),
    ("FlashAttention 3", r"FlashAttn\w*Sm\d\d|flash::enable_sm\d\d|hopper::\w*flash|flash::CollectiveMainloop"),
    ("FlashAttention 2", r"flash::flash_(?:fwd|bwd)|flash::compute_attn"
                         r"|(?:^|_)flash_(?:fwd|bwd)_(?:splitkv_)?(?:kernel|combine|convert|dot|dq)"),
    ("cuDNN", r"cudnn|sdpa_sm\d"),
    ("CUTLASS memory-efficient", r"fmha_cutlass|PyTorchMemEff|AttentionKernel<|attention_kernel_batched"),
    ("Triton unified attention", r"^_?kernel_unified_attention|^reduce_segments"),
    ("Triton paged attention", r"^_?kernel_paged_attention|^_paged_attn"),
    ("Triton split-KV decode", r"^_?_?fwd_(?:grouped_)?kernel_stage|^_decode_(?:att|grouped)"),
    ("Triton", r"^_?(?:attn_fwd|attn_bwd|fwd_kernel|bwd_kernel|chunk_\w+_fwd|fused_recurrent)|^triton_"),
    ("Composable Kernel", r"ck_tile::|Fmha(?:Fwd|Bwd)"),
    ("AITER", r"aiter::|^_ZN5aiter|^fmha_(?:fwd|bwd)|^(?:bwd|fwd)_hd\d|^mla_"
              r"|^pa_(?:bf16|fp16|fp8|noquant|a16w|ps_|decode_)"),
    ("vLLM paged attention", r"paged_attention_v[12]|paged_attention_kernel"),
)
_BACKENDS = {family: tuple((backend, re.compile(pattern)) for backend, pattern in rules)
             for family, rules in (("gemm", GEMM), ("attention", ATTENTION))}


def backend_of(family: str, text: str) -> str | None:
    """Return the implementation of a kernel of this family with this function and template arguments; None of
    another family, or where the name does not say."""
    text = text[:_READ]
    return next((backend for backend, pattern in _BACKENDS.get(family, ()) if pattern.search(text)), None)

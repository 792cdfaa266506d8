"""Attention by libraries of its own: FlashAttention, FlashInfer, FlashMLA, memory-efficient attention."""

from aaco.analytics.kernels.families.terms import KernelLibrary

LIBRARY = KernelLibrary(
    "flash", r"(?:pytorch_)?flash(?:_attn|::|_|infer::)|fmha|batch_(?:prefill|decode)|merge_attn|MultiTokenAttention"
             r"|masked_multihead|BatchPrefill|BatchDecode|PyTorchMemEff|attention_kernel_batched|gemm_attention"
             r"|kn_\w*mla", rules=(
        ("norm", r"norm"),
        ("softmax", r"sampling|[Ss]oftmax(?!.*attn)"),
        ("elementwise", r"[Rr]otary|rope|act_and_mul|prepare_varlen"),
        ("sort", r"topk|TopK"),
        ("embedding", r"append_paged|AppendPaged"),
        ("quantize", r"quant"),
        ("attention", r"."),
    ))

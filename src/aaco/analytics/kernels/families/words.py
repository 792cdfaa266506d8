"""Operators by the words that names of kernels are made of: lists of fused operators, and names no library owns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from aaco.analytics.kernels.families.terms import UNKNOWN

# What a fused kernel is called after: the first of these that it has. Copies and fills carry no work of their own.
DOMINANCE = ("gemm", "conv", "attention", "recurrent", "collective", "softmax", "norm", "sort", "reduction", "pooling",
             "embedding", "quantize", "elementwise", "transpose", "copy", "fill")
# Operators as ATen, MIGraphX and XLA call them; a word that is one operator in all of them occurs once.
OPERATORS = {
    "gemm": "mm addmm bmm baddbmm addbmm matmul linear dot quant_dot einsum gemm dot_general addmv mv addr "
            "scaled_mm grouped_mm int_mm",
    "conv": "convolution conv conv1d conv2d conv3d quant_convolution convolution_backwards convolution_backward "
            "conv_transpose2d im2col",
    "attention": "attention scaled_dot_product_attention flash_attention efficient_attention flex_attention "
                 "scaled_dot_product_flash_attention scaled_dot_product_efficient_attention paged_attention sdpa",
    "recurrent": "lstm gru rnn",
    "collective": "all_reduce all_gather reduce_scatter all_to_all broadcast_collective",
    "softmax": "softmax _softmax log_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data logsoftmax "
               "prepare_softmax_online",
    "norm": "native_layer_norm layer_norm layernorm native_layer_norm_backward native_group_norm group_norm groupnorm "
            "native_group_norm_backward batch_norm native_batch_norm _native_batch_norm_legit rms_norm rmsnorm "
            "_native_batch_norm_legit_no_training _native_batch_norm_legit_functional native_batch_norm_backward "
            "_fused_rms_norm instance_norm cudnn_batch_norm miopen_batch_norm batchnorm l2_norm renorm norm",
    "sort": "sort topk argsort nonzero unique unique_consecutive searchsorted msort kthvalue",
    "reduction": "sum mean amax amin prod var var_mean std std_mean any all argmax argmin cumsum cumprod logcumsumexp "
                 "logsumexp max_reduce min_reduce aminmax count_nonzero nll_loss_forward reduce_sum reduce_mean "
                 "reduce_max reduce_min reduce_prod reduce linalg_vector_norm vector_norm reduce_window scan "
                 "reduce_all reduce_any prefix_scan_sum cummax cummin _euclidean_dist cdist",
    "pooling": "max_pool2d_with_indices max_pool2d avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d pooling "
               "max_pool2d_with_indices_backward _low_memory_max_pool2d_with_offsets avg_pool2d_backward resize "
               "_low_memory_max_pool_with_offsets _adaptive_avg_pool2d_backward upsample_nearest2d "
               "upsample_bilinear2d upsample_bicubic2d grid_sampler_2d roialign",
    "embedding": "embedding index index_put index_select gather scatter scatter_add embedding_dense_backward slot "
                 "index_add take index_copy _unsafe_index _unsafe_index_put scatter_reduce scatter_none gathernd "
                 "embedding_bag scatternd_none select_scatter slice_scatter dynamic_slice dynamic_update_slice "
                 "_unsafe_masked_index _unsafe_masked_index_put_accumulate",
    "quantize": "quantize dequantize quantizelinear dequantizelinear quantize_per_tensor dequantize_per_tensor "
                "quantize_per_channel dequantize_per_channel scaled_quant dynamic_scaled_quant pack_fp8 unpack_fp8 "
                "unpack_int4 pack_int4",
    "elementwise": "add sub mul div neg abs exp exp2 expm1 log log1p log2 log10 sqrt rsqrt pow square reciprocal sin "
                   "cos tan sinh cosh tanh asin acos atan atan2 erf erfc erfinv sigmoid relu relu6 leaky_relu "
                   "gelu silu elu selu celu mish hardtanh hardswish hardsigmoid softplus threshold threshold_backward "
                   "gelu_backward silu_backward tanh_backward sigmoid_backward hardswish_backward clamp clamp_min "
                   "clamp_max clip where eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and "
                   "bitwise_or bitwise_not bitwise_xor minimum maximum max min floor ceil round trunc sign sgn fmod "
                   "remainder floor_divide masked_fill lerp addcmul addcdiv rsub nan_to_num isnan isinf native_dropout "
                   "dropout native_dropout_backward bernoulli rotary_embedding rope _to_dtype mod equal less greater "
                   "logistic log_plus_one exponential_minus_one power negate subtract multiply divide compare select "
                   "exponential cosine sine convert convert_element_type bias_add swiglu swish mse_loss "
                   "binary_cross_entropy smooth_l1_loss nll_loss_backward mse_loss_backward quickgelu recip not "
                   "isfinite and or xor complex real imag prelu bitshift fma tril_mask _to_copy_scale",
    "transpose": "transpose permute t transpose_copy layout pixel_shuffle pixel_unshuffle flip roll",
    "copy": "copy copy_ clone _to_copy cat concat concatenate concat_past_present slice pad constant_pad_nd "
            "reflection_pad2d replication_pad2d contiguous expand view _unsafe_view unsqueeze squeeze stack repeat "
            "split split_with_sizes unbind reshape as_strided broadcast multibroadcast detach alias narrow tile "
            "select_copy slice_copy triu tril lift_fresh unfold reverse bitcast step flatten step_slice",
    "fill": "zeros zeros_like full full_like ones ones_like empty empty_like arange iota fill constant scalar_tensor "
            "new_zeros new_ones new_full eye rand randn rand_like randint random inductor_random inductor_seeds "
            "inductor_randint new_empty_strided",
}
FAMILY_OF = {operator: family for family, operators in OPERATORS.items() for operator in operators.split()}
_RANK = {family: rank for rank, family in enumerate(DOMINANCE)}
_WORD = re.compile(r"_*([^_]+)")

# Words of names that belong to no library's grammar, in this order: the first that is found decides.
SPOKEN = (
    ("collective", r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|(?:^|_)a2a(?:_|$)|cross_device_reduce|nccl"),
    ("attention", r"attention|attn|fmha|flash_|(?:^|[_:])f?mla(?:_|$)|sdpa|gated_delta|delta_rule"
                  r"|paged_decode|(?:^|_)xqa(?:_|$)|^kernel_mha$"),
    ("recurrent", r"lstm|(?:^|_)gru(?:_|$)|rnn|selective_(?:scan|state)|ssm_scan|wkv|ssd_|chunk_scan|state_passing"),
    ("conv", r"conv(?!ert)|implicit_gemm|im2col|col2im|winograd|wgrad|dgrad"),
    ("gemm", r"gemm|matmul|mul_?mat|gemv|(?:^|_)b?mm(?:_|$)|(?:^|_)dot(?:_|$)|fused_moe|fmoe|ck_moe"
             r"|splitk(?!_?reduce)"),
    ("quantize", r"^(?!.*norm)(?!.*act)(?:.*_)?(?:de)?quant"),
    ("softmax", r"soft_?max|cross_entropy"),
    ("norm", r"layer_?norm|rms_?norm|batch_?norm|group_?norm|instance_?norm|(?:^|_)norm(?:_|$)|l2_?norm|_bn_|welford"),
    ("sort", r"(?:^|_)sort|argsort|radix|top_?k|bitonic|routing|align_block|nonzero|unique"),
    ("pooling", r"pool|upsample|interpolat|resize|grid_sampl|roi_align"),
    ("elementwise", r"rotary|(?:^|_)rope|activation|_and_mul|sw?i_?glu|gelu|(?:^|_)relu|silu|sigmoid|swish|dropout"),
    ("transpose", r"transpose|permute|nchw_?to|nhwc_?to|swizzle|shuffle"),
    ("embedding", r"embedding|gather|scatter|index|lookup|reshape_and_cache|kv_?cache|slot_mapping"),
    ("reduction", r"reduce|reduction|(?:^|_)sum(?:_|$)|argmax|argmin|cumsum|prefix|(?:^|_)scan|histogram|(?:^|_)mean"),
    ("copy", r"copy|memcpy|memmove|(?:^|_)cat(?:_|$)|concat|(?:^|_)pad|slice|(?<!broad)cast"),
    ("fill", r"(?:^|_)fill|memset|zero|init|arange|random|philox|iota"),
    ("elementwise", r"elementwise|element_wise|pointwise|broadcast|binary|unary|addition"
                    r"|(?:^|_)(?:add|sub|mul|div)(?:_|$|[a-z]*_kernel)|subtract|multiply|divide|(?:^|_)scal(?:e|_)|saxpy|axpy|triad|clamp|bias|convert"),
)


@cache
def spoken() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the rules of such words, compiled where the first name is read."""
    return tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in SPOKEN)


@cache
def _operator() -> re.Pattern[str]:
    """Return the expression of any operator's name, compiled where the first name is read."""
    return re.compile("_?(" + "|".join(sorted(FAMILY_OF, key=len, reverse=True)) + ")(?=_|$)")


def operators(text: str) -> tuple[str, ...]:
    """Return the operators that a list joined by `_` names, in order; a word that is none is left out."""
    names, at, operator = [], 0, _operator()
    while at < len(text):
        word = operator.match(text, at) or _WORD.match(text, at)
        if word is None:
            break
        if word.re is operator:
            names.append(word[1])
        at = word.end()
    return tuple(names)


def dominating(operators: Iterable[str]) -> str:
    """Return the family of the operator that makes most of the work of a fused kernel."""
    families = {FAMILY_OF[operator] for operator in operators if operator in FAMILY_OF}
    return min(families, key=_RANK.__getitem__, default=UNKNOWN)


# Operators that MIGraphX writes its own kernels for, as in add_relu_kernel; longer ones first.
_MIGRAPHX = """add mul sub div relu tanh sigmoid exp erf pow sqrt rsqrt neg abs log max min clip where convert
    equal less greater contiguous concat pad gather scatter_none reduce_sum reduce_mean reduce_max reduce_min softmax
    layernorm fused_reduce transpose pooling topk argmax argmin slice multibroadcast quantizelinear dequantizelinear
    noop fill nonzero gathernd scatternd_none roialign reshape unsqueeze squeeze broadcast not ceil floor round
    logical_and logical_or logsoftmax channelwise_conv resize prefix_scan_sum"""
MIGRAPHX = sorted(_MIGRAPHX.split(), key=len, reverse=True)

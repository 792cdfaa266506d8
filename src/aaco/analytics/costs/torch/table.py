"""The one table of framework operators: what each is, its kernel family, and how its arguments become a cost.

A row is (kind, family, form, FLOPs, bytes, names): the form puts the recorded arguments into the terms of the formulas,
which are those of the ONNX operators (operators.table) wherever the mathematics is the same. Without a FLOP formula the
work depends on values that are not recorded, or the operator does none of its own: the last text says which. One that
changes its argument in place has the other's name plus "_", and the same row.
"""

from __future__ import annotations

from collections.abc import Iterable

from aaco.analytics.costs import conv, linear, norm
from aaco.analytics.costs.elementwise import GELU, GELU_TANH, SILU, per_output, reduction
from aaco.analytics.costs.table import top_k
from aaco.analytics.costs.terms import everything, nothing, output_only, selected
from aaco.analytics.costs.torch import (
    attention,
    lookups,
    losses,
    movement,
    norms,
    pointwise,
    products,
    quantised,
    recurrent,
    reductions,
    sampling,
    serving_rows,
    solvers,
    transforms,
    windows,
)
from aaco.analytics.costs.torch.model import (
    BACKWARD_OF_LAYERS,
    EXPERTS,
    FUSED,
    RANDOM,
    RANKS,
    VALUES,
    Model,
    Row,
)

COMPILED = "triton_*"  # kernels that PyTorch's compiler fused: each is an operator of its own, by its own name

_ROWS: tuple[Row, ...] = (
    # Products
    (Model("matrix product", "gemm", products.matmul, linear.matmul),
     "aten::mm aten::matmul aten::mv aten::dot aten::vdot aten::inner"),
    (Model("batched matrix product", "gemm", products.matmul, linear.matmul), "aten::bmm"),
    (Model("matrix product with addition", "gemm", products.addmm, linear.gemm),
     "aten::addmm aten::addmv aten::_addmm_activation"),
    (Model("batched matrix product with addition", "gemm", products.addmm, linear.gemm), "aten::baddbmm"),
    (Model("linear layer", "gemm", products.linear_layer, linear.gemm),
     "aten::linear aten::mkldnn_linear aten::_nnpack_linear vllm::rocm_unquantized_gemm vllm::cpu_unquantized_gemm"),
    (Model("linear layer", "gemm", products.aiter_gemm, linear.gemm), "aiter::gemm_a16w16"),
    (Model("8-bit matrix product", "gemm", products.int_matmul, linear.matmul), "aten::_int_mm"),
    (Model("scaled matrix product", "gemm", products.scaled_mm, linear.matmul_integer_to_float), "aten::_scaled_mm"),
    (Model("scaled matrix product", "gemm", products.vllm_scaled_mm, linear.matmul_integer_to_float),
     "_C::cutlass_scaled_mm sgl_kernel::fp8_scaled_mm_out"),
    (Model("scaled matrix product", "gemm", products.aiter_scaled_mm, linear.matmul_integer_to_float),
     "aiter::gemm_a8w8_ck"),
    (Model("grouped matrix product", "gemm", products.grouped_mm, products.grouped_flops), "aten::_grouped_mm"),
    (Model("mixture of experts", "gemm", products.fused_experts, products.fused_experts_flops,
           products.fused_experts_traffic),
     "vllm::fused_experts vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts "
     "sglang::outplace_fused_experts vllm::rocm_aiter_fused_moe aiter::fused_moe aiter::ck_moe aiter::asm_moe"),
    (Model("mixture of experts", "gemm", movement.nothing, None, None, EXPERTS),
     "vllm::moe_forward vllm::moe_forward_shared"),
    # Convolutions and windows
    (Model("convolution", "conv", windows.convolution(3, 4, 5), windows.flops),
     "aten::conv1d aten::conv2d aten::conv3d aten::mkldnn_convolution aten::cudnn_convolution_relu "
     "aten::miopen_convolution_relu"),
    (Model("convolution", "conv", windows.convolution_any, windows.flops),
     "aten::convolution aten::_convolution aten::convolution_overrideable"),
    (Model("convolution", "conv", windows.convolution(3, 2, 4, None), windows.flops), "aten::cudnn_convolution"),
    (Model("convolution", "conv", windows.convolution(4, 3, 5), windows.flops),
     "aten::miopen_convolution aten::miopen_depthwise_convolution"),
    (Model("convolution", "conv", windows.convolution(4, 5, 6, 3), windows.flops),
     "aten::_conv_depthwise2d aten::conv_depthwise3d"),
    (Model("transposed convolution", "conv", windows.convolution_transposed(3, 4, 7, 5, 6), windows.flops),
     "aten::conv_transpose1d aten::conv_transpose2d aten::conv_transpose3d"),
    (Model("transposed convolution", "conv", windows.convolution_transposed(4, 2, 5, 3, 6), windows.flops),
     "aten::cudnn_convolution_transpose"),
    (Model("transposed convolution", "conv", windows.convolution_transposed(5, 3, 6, 4, 7), windows.flops),
     "aten::miopen_convolution_transpose"),
    (Model("convolution backward", "conv", windows.convolution_backward, windows.backward_flops),
     "aten::convolution_backward aten::convolution_backward_overrideable"),
    (Model("maximum pooling", "pooling", windows.pooling(2, 3, 4, 5), conv.max_pool),
     "aten::max_pool1d aten::max_pool2d aten::max_pool3d"),
    (Model("maximum pooling", "pooling", windows.pooling(2, 3, 4, 5, True), conv.max_pool),
     "aten::max_pool2d_with_indices aten::max_pool3d_with_indices"),
    (Model("average pooling", "pooling", windows.pooling(2, 3, None, 4), conv.average_pool),
     "aten::avg_pool1d aten::avg_pool2d aten::avg_pool3d"),
    (Model("adaptive average pooling", "pooling", windows.adaptive, windows.adaptive_flops),
     "aten::adaptive_avg_pool1d aten::adaptive_avg_pool2d aten::_adaptive_avg_pool2d aten::adaptive_avg_pool3d "
     "aten::_adaptive_avg_pool3d aten::mkldnn_adaptive_avg_pool2d"),
    (Model("pooling backward", "pooling", windows.pooling_backward, reductions.per_gradient),
     "aten::max_pool2d_with_indices_backward aten::_adaptive_avg_pool2d_backward aten::avg_pool2d_backward "
     "aten::max_pool3d_with_indices_backward aten::_adaptive_avg_pool3d_backward aten::avg_pool3d_backward "
     "aten::adaptive_max_pool2d_backward aten::adaptive_max_pool3d_backward"),
    *((Model("resampling", "pooling", windows.resampled(mode), conv.resize), names) for mode, names in (
        ("nearest", "aten::upsample_nearest1d aten::upsample_nearest2d aten::upsample_nearest3d "
                    "aten::_upsample_nearest_exact2d"),
        ("linear", "aten::upsample_linear1d aten::upsample_bilinear2d aten::upsample_trilinear3d"),
        ("cubic", "aten::upsample_bicubic2d"))),
    # Attention
    (Model("attention", "attention", attention.dot_product(5, mask=3), attention.flops),
     "aten::scaled_dot_product_attention aten::_scaled_dot_product_attention_math "
     "aten::_scaled_dot_product_fused_attention_overrideable"),
    (Model("attention", "attention", attention.dot_product(4), attention.flops),
     "aten::_scaled_dot_product_flash_attention aten::_scaled_dot_product_flash_attention_for_cpu"),
    (Model("attention", "attention", attention.dot_product(6, mask=3), attention.flops),
     "aten::_scaled_dot_product_efficient_attention aten::_scaled_dot_product_cudnn_attention"),
    (Model("attention", "attention", attention.dot_product(8, heads=2, packed=(3, 4)), attention.flops),
     "aten::_flash_attention_forward"),
    (Model("attention", "attention", attention.dot_product(10, mask=3, packed=(4, 5)), attention.flops),
     "aten::_cudnn_attention_forward"),
    (Model("attention", "attention", attention.dot_product(9, mask=3, heads=2, packed=(4, 5)), attention.flops),
     "aten::_efficient_attention_forward"),
    (Model("attention", "attention", attention.dot_product(5, heads=2, last=True), attention.flops),
     "flash_attn::_flash_attn_forward aiter::mha_fwd"),
    (Model("attention backward", "attention", attention.dot_product_backward(11, packed=(6, 7)),
           attention.backward_flops), "aten::_scaled_dot_product_flash_attention_backward"),
    (Model("attention backward", "attention", attention.dot_product_backward(11, heads=2, packed=(6, 7)),
           attention.backward_flops), "aten::_flash_attention_backward"),
    (Model("attention backward", "attention", attention.dot_product_backward(11, bias=4), attention.backward_flops),
     "aten::_scaled_dot_product_efficient_attention_backward"),
    (Model("attention backward", "attention", attention.dot_product_backward(14, heads=2, bias=4, packed=(6, 7)),
           attention.backward_flops), "aten::_efficient_attention_backward"),
    (Model("attention backward", "attention", attention.dot_product_backward(14, bias=8, packed=(9, 10)),
           attention.backward_flops),
     "aten::_scaled_dot_product_cudnn_attention_backward aten::_cudnn_attention_backward"),
    (Model("attention over a cache", "attention", movement.nothing, None, None, attention.CACHED),
     "vllm::unified_attention vllm::unified_attention_with_output _C::paged_attention_v1 _C::paged_attention_v2 "
     "_rocm_C::paged_attention aiter::paged_attention_rocm aiter::paged_attention_ragged aiter::mla_decode_fwd "
     "sgl_kernel::fwd sglang::unified_attention_with_output"),
    (Model("heads with a bias", "attention", attention.heads, attention.heads_flops),
     "aten::_transform_bias_rescale_qkv"),
    (Model("rotary embedding", "elementwise", attention.rotary, attention.rotary_flops),
     "_C::rotary_embedding sgl_kernel::rotary_embedding"),
    (Model("keys and values into a cache", "embedding", attention.store_cache, nothing),
     "_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache sglang::store_cache"),
    # Norms and softmax
    (Model("layer norm", "norm", norms.layer_norm, norms.rows_norm_flops), "aten::layer_norm aten::native_layer_norm"),
    (Model("layer norm backward", "norm", norms.layer_norm_backward, norms.backward_flops),
     "aten::native_layer_norm_backward"),
    (Model("batch norm", "norm", norms.batch_norm, norms.batch_norm_flops),
     "aten::batch_norm aten::_batch_norm_impl_index aten::native_batch_norm aten::cudnn_batch_norm "
     "aten::miopen_batch_norm aten::_native_batch_norm_legit"),
    (Model("batch norm backward", "norm", norms.batch_norm_backward, norms.backward_flops),
     "aten::native_batch_norm_backward"),
    (Model("batch norm backward", "norm", norms.cudnn_batch_norm_backward, norms.backward_flops),
     "aten::cudnn_batch_norm_backward aten::miopen_batch_norm_backward"),
    (Model("group norm", "norm", norms.group_norm, norms.rows_norm_flops), "aten::group_norm"),
    (Model("group norm", "norm", norms.native_group_norm, norms.rows_norm_flops), "aten::native_group_norm"),
    (Model("group norm backward", "norm", norms.group_norm_backward, norms.backward_flops),
     "aten::native_group_norm_backward"),
    (Model("instance norm", "norm", norms.instance_norm, norms.rows_norm_flops), "aten::instance_norm"),
    (Model("RMS norm", "norm", norms.rms_norm, norm.rms_norm), "aten::rms_norm aten::_fused_rms_norm"),
    (Model("RMS norm", "norm", norms.rms_norm_into, norm.rms_norm), "_C::rms_norm aiter::rmsnorm sgl_kernel::rmsnorm"),
    (Model("RMS norm", "norm", norms.plain_rms_norm, norm.rms_norm), "aiter::rmsnorm2d_fwd aiter::rms_norm"),
    (Model("sum and RMS norm", "norm", norms.add_rms_norm, norm.skip_rms_norm),
     "_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm"),
    (Model("sum and RMS norm", "norm", norms.add_rms_norm_into, norm.skip_rms_norm),
     "aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add"),
    (Model("RMS norm backward", "norm", norms.rms_norm_backward, norms.backward_flops),
     "aten::_fused_rms_norm_backward"),
    (Model("weight norm", "norm", norms.weight_norm, norms.weight_norm_flops), "aten::_weight_norm_interface"),
    (Model("weight norm backward", "norm", norms.weight_norm_backward, norms.weight_norm_backward_flops),
     "aten::_weight_norm_interface_backward"),
    (Model("softmax", "softmax", norms.softmax, norm.softmax), "aten::softmax aten::_softmax aten::_safe_softmax"),
    (Model("logarithm of softmax", "softmax", norms.softmax, norm.log_softmax), "aten::log_softmax aten::_log_softmax"),
    (Model("softmax backward", "softmax", norms.softmax_backward, norms.softmax_backward_flops),
     "aten::_softmax_backward_data aten::_log_softmax_backward_data"),
    (Model("choice of experts", "softmax", reductions.expert_choice, norm.softmax), "_moe_C::topk_softmax"),
    # Element by element
    *((Model("unary", "elementwise", pointwise.each(count), pointwise.per_element), name)
      for name, count in pointwise.UNARY.items()),
    *((Model("binary", "elementwise", pointwise.combined(count), pointwise.per_element), name)
      for name, count in pointwise.BINARY.items()),
    *((Model("comparison", "elementwise", pointwise.combined(count, "bool"), pointwise.per_element), name)
      for name, count in pointwise.TO_FLAGS.items()),
    *((Model("test", "elementwise", pointwise.combined(count, "bool", 1), pointwise.per_element), name)
      for name, count in pointwise.TESTS.items()),
    (Model("sum", "elementwise", pointwise.scaled_sum, pointwise.per_element),
     "aten::add aten::sub aten::rsub aten::subtract"),
    (Model("quotient", "elementwise", pointwise.quotient, pointwise.per_element),
     "aten::div aten::divide aten::true_divide"),
    (Model("ternary", "elementwise", pointwise.combined(1, operands=3), pointwise.per_element), "aten::masked_fill"),
    (Model("ternary", "elementwise", pointwise.where, pointwise.per_element), "aten::where"),
    (Model("ternary", "elementwise", pointwise.combined(3, operands=3), pointwise.per_element),
     "aten::addcmul aten::addcdiv aten::lerp"),
    (Model("clamp", "elementwise", pointwise.clamp, pointwise.per_element), "aten::clamp"),
    (Model("clamp", "elementwise", pointwise.combined(1), pointwise.per_element),
     "aten::clamp_min aten::clamp_max aten::threshold"),
    (Model("absolute value", "elementwise", pointwise.magnitude, pointwise.per_element), "aten::abs aten::angle"),
    (Model("activation", "elementwise", pointwise.gelu, pointwise.per_element), "aten::gelu"),
    (Model("gated activation", "elementwise", pointwise.glu, pointwise.per_element), "aten::glu"),
    (Model("gated activation", "elementwise", pointwise.gated(SILU + 1), pointwise.per_element),
     "_C::silu_and_mul sgl_kernel::silu_and_mul aiter::silu_and_mul"),
    (Model("gated activation", "elementwise", pointwise.gated(GELU + 1), pointwise.per_element),
     "_C::gelu_and_mul sgl_kernel::gelu_and_mul"),
    (Model("gated activation", "elementwise", pointwise.gated(GELU_TANH + 1), pointwise.per_element),
     "_C::gelu_tanh_and_mul sgl_kernel::gelu_tanh_and_mul"),
    *((Model("activation backward", "elementwise", pointwise.gradient(count), pointwise.per_element), name)
      for name, count in pointwise.BACKWARD.items()),
    *((Model("activation backward", "elementwise", form, pointwise.per_element), name) for form, name in (
        (pointwise.gelu_backward, "aten::gelu_backward"), (pointwise.glu_backward, "aten::glu_backward"),
        (pointwise.gradient(pointwise.ELU_BACKWARD, kept=5), "aten::elu_backward"),
        (pointwise.prelu_backward, "aten::_prelu_kernel_backward"))),
    (Model("dropout", "elementwise", pointwise.dropout, pointwise.per_element),
     "aten::native_dropout aten::_fused_dropout"),
    (Model("fused kernel of a compiler", "elementwise", movement.buffers, None, everything, FUSED), COMPILED),
    # Optimisers, which update many tensors at once
    *((Model("foreach", "elementwise", pointwise.foreach(count, lists), pointwise.foreach_flops, movement.of_lists),
       name) for name, count, lists in pointwise.FOREACH),
    (Model("foreach", "reduction", pointwise.foreach_norm, pointwise.foreach_norm_flops, movement.of_lists),
     "aten::_foreach_norm"),
    *((Model("optimiser", "elementwise", form, pointwise.adam_flops, movement.of_lists), name)
      for form, name in ((pointwise.adam, "aten::_fused_adam"), (pointwise.adamw, "aten::_fused_adamw"))),
    (Model("optimiser", "elementwise", pointwise.foreach(pointwise.SGD, 2), pointwise.foreach_flops, movement.of_lists),
     "aten::_fused_sgd"),
    # Reductions, scans, sorts
    *((Model("reduction", "reduction", form, reduction(*counts)), names)
      for form, counts, names in reductions.TABLE),
    (Model("scan", "reduction", reductions.scan, reduction(1, 0)), "aten::cumsum aten::cumprod"),
    (Model("scan", "reduction", reductions.scan, reduction(4, 0)), "aten::logcumsumexp"),
    (Model("scan", "reduction", reductions.running, reduction(1, 0)), "aten::cummax aten::cummin"),
    *((Model("choice by order", "sort", reductions.chosen(axis), None, everything, reductions.SELECTION), names)
      for axis, names in ((1, "aten::median aten::nanmedian aten::mode"), (2, "aten::kthvalue"))),
    (Model("sort", "sort", reductions.sort, reductions.sort_flops), "aten::sort aten::argsort"),
    (Model("choice of the largest", "sort", reductions.top_k, top_k), "aten::topk"),
    (Model("values that fit", "sort", movement.nothing, None, None, VALUES),
     "aten::nonzero aten::masked_select aten::unique_consecutive aten::_unique2 aten::unique_dim "
     "aten::_coalesce aten::bincount"),
    # Moving, filling, indexing
    (Model("view", "copy", movement.nothing, nothing, nothing), movement.VIEWS),
    (Model("view or copy", "copy", movement.perhaps_copied, nothing), movement.PERHAPS),
    (Model("copy", "copy", movement.copy, nothing), "aten::copy"),
    (Model("copy", "copy", movement.same, nothing),
     "aten::clone aten::flip aten::roll aten::tril aten::triu aten::_conj_physical"),
    (Model("cast", "copy", pointwise.cast, nothing), "aten::_to_copy"),
    (Model("concatenation", "copy", movement.concatenated, nothing, movement.of_lists),
     "aten::cat aten::stack aten::concat aten::hstack aten::vstack"),
    (Model("repetition", "copy", movement.repeated, nothing), "aten::repeat"),
    (Model("padding", "copy", movement.padded, nothing), 
     "aten::constant_pad_nd aten::pad aten::reflection_pad1d aten::reflection_pad2d aten::reflection_pad3d "
     "aten::replication_pad1d aten::replication_pad2d aten::replication_pad3d"),
    (Model("fill", "fill", movement.filled, nothing, output_only), "aten::fill aten::zero"),
    (Model("fill", "fill", movement.filled, None, output_only, RANDOM),
     "aten::normal aten::uniform aten::random aten::bernoulli aten::exponential"),
    (Model("fill", "fill", movement.created(1), nothing, output_only), "aten::zeros aten::ones"),
    (Model("fill", "fill", movement.created(2), nothing, output_only), "aten::full"),
    (Model("fill", "fill", movement.created(1), None, output_only, RANDOM), "aten::rand aten::randn"),
    (Model("fill", "fill", movement.like(1), nothing, output_only), "aten::zeros_like aten::ones_like"),
    (Model("fill", "fill", movement.like(2), nothing, output_only), "aten::full_like"),
    (Model("fill", "fill", movement.like(1), None, output_only, RANDOM), "aten::rand_like aten::randn_like"),
    (Model("fill", "fill", movement.counted(2, 3, "float32"), per_output(2), output_only), "aten::linspace"),
    (Model("fill", "fill", movement.counted(0, 1, "int64"), None, output_only, RANDOM), "aten::randperm"),
    (Model("embedding", "embedding", movement.embedding, nothing, selected), "aten::embedding"),
    (Model("embedding backward", "embedding", movement.embedding_backward, reductions.per_gradient),
     "aten::embedding_dense_backward aten::embedding_backward"),
    (Model("index", "embedding", movement.index_select, nothing, selected), "aten::index_select"),
    (Model("index", "embedding", movement.gather, nothing, selected), "aten::gather"),
    (Model("index", "embedding", movement.index, nothing, selected), "aten::index"),
    (Model("scatter", "embedding", movement.scatter, nothing), "aten::scatter aten::index_copy"),
    (Model("scatter with addition", "embedding", movement.scatter_add, reductions.per_gradient),
     "aten::scatter_add aten::index_add aten::scatter_reduce aten::index_reduce"),
    # 8-bit and less
    (Model("quantisation", "quantize", quantised.given_scale, quantised.flops),
     "_C::static_scaled_fp8_quant _C::static_scaled_int8_quant"),
    (Model("quantisation", "quantize", quantised.found_scale, quantised.flops),
     "_C::dynamic_scaled_fp8_quant _C::dynamic_per_token_scaled_fp8_quant _C::dynamic_scaled_int8_quant"),
    (Model("quantisation", "quantize", quantised.per_tensor, quantised.flops),
     "aten::quantize_per_tensor aten::fake_quantize_per_tensor_affine"),
    (Model("dequantisation", "quantize", quantised.dequantised, quantised.flops), "aten::dequantize"),
    (Model("matrix product with 4-bit weights", "gemm", quantised.int4_weights, linear.matmul_nbits),
     "aten::_weight_int4pack_mm"),
    (Model("matrix product with 8-bit weights", "gemm", quantised.int8_weights, linear.matmul_nbits),
     "aten::_weight_int8pack_mm"),
    # Recurrent layers
    *((Model("recurrent layer", "recurrent", recurrent.stacked(kind), recurrent.stacked_flops,
             recurrent.stacked_traffic), name)
      for kind, name in (("lstm", "aten::lstm"), ("gru", "aten::gru"), ("rnn", "aten::rnn_tanh"))),
    *((Model("recurrent cell", "recurrent", recurrent.cell(kind), recurrent.cell_flops), name)
      for kind, name in (("lstm", "aten::lstm_cell"), ("gru", "aten::gru_cell"))),
    *((Model("gates of a recurrent cell", "recurrent", recurrent.gates(kind), recurrent.gates_flops), name)
      for kind, name in (("lstm", "aten::_thnn_fused_lstm_cell"), ("gru", "aten::_thnn_fused_gru_cell"))),
    *((Model("gates of a recurrent cell backward", "recurrent", recurrent.gates_backward(kind), None, everything,
             BACKWARD_OF_LAYERS), name)
      for kind, name in (("lstm", "aten::_thnn_fused_lstm_cell_backward_impl"),
                         ("gru", "aten::_thnn_fused_gru_cell_backward"))),
    *((Model("recurrent layer", "recurrent", form, recurrent.stacked_flops, recurrent.stacked_traffic), name)
      for form, name in ((recurrent.packed(6, 9, 13), "aten::_cudnn_rnn"),
                         (recurrent.packed(5, 7, 11), "aten::miopen_rnn"))),
    *((Model("recurrent layer backward", "recurrent", form, recurrent.gradient_flops, None, BACKWARD_OF_LAYERS), name)
      for form, name in ((recurrent.packed(10, 13, 17, 21), "aten::_cudnn_rnn_backward"),
                         (recurrent.packed(10, 12, 16, 20), "aten::miopen_rnn_backward"))),
    # Between devices
    (Model("collective", "collective", movement.message(0), None, everything, RANKS),
     "c10d::allreduce c10d::broadcast _c10d_functional::all_reduce symm_mem::multimem_all_reduce c10d::reduce"),
    (Model("collective", "collective", movement.reduced_message, None, everything, RANKS), "vllm::all_reduce"),
    (Model("collective", "collective", movement.message(1, 0), nothing), "c10d::_allgather_base c10d::alltoall_base"),
    (Model("collective", "collective", movement.message(1, 0), None, everything, RANKS), "c10d::_reduce_scatter_base"),
    (Model("collective", "collective", movement.gathered(2), nothing),
     "vllm::all_gather _c10d_functional::all_gather_into_tensor"),
    (Model("collective", "collective", movement.message(0), nothing, output_only), "c10d::send c10d::recv"),
)


def _index(rows: Iterable[Row]) -> dict[str, Model]:
    table: dict[str, Model] = {}
    for model, names in rows:
        for name in names.split():
            if name in table:
                raise TypeError(f"operator {name} is declared twice")
            table[name] = model
    return table


TABLE = _index((*_ROWS, *losses.ROWS, *lookups.ROWS, *sampling.ROWS, *solvers.ROWS, *transforms.ROWS,
                *serving_rows.ROWS))

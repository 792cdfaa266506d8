"""The rows of the operator table for the custom operators of vLLM, SGLang, AITER and FlashInfer."""

from __future__ import annotations

import re

from aaco.analytics.costs import linear, norm
from aaco.analytics.costs.elementwise import GELU, GELU_TANH, SILU
from aaco.analytics.costs.terms import everything, nothing, output_only
from aaco.analytics.costs.torch import attention, movement, norms, pointwise, quantised, reductions, serving
from aaco.analytics.costs.torch.arguments import Form
from aaco.analytics.costs.torch.model import FUSED, RANDOM, RANKS, VALUES, Model, Row
from aaco.analytics.costs.torch.serving import moved, product_into, quantised_norm, scaled_product

CACHED_ATTENTION = Model("attention over a cache", "attention", movement.nothing, None, None, attention.CACHED)
ATTENTION_WORDS = re.compile(
    r"::\w*(?:(?:paged|unified|ragged|radix|cached)_?(?:attention|attn)|flash_attn_(?:varlen|with_kvcache)|mla_decode"
    r"|mla_prefill|flash_mla|sparse_(?:decode|prefill)_fwd|batch_(?:decode|prefill)\w*|pa_(?:fwd|decode)_\w+"
    r"|mha_batch_prefill|fmha_v3_varlen|mha_varlen|varlen_fwd|attention_core|attention_with_output)")


def _scaled(form: Form, names: str) -> Row:
    return Model("scaled matrix product", "gemm", form, linear.matmul_integer_to_float), names


def _quantised_norm(form: Form, names: str) -> Row:
    return Model("RMS norm with quantisation", "norm", form, serving.quantised_norm_flops), names


def _few_bits(form: Form, names: str) -> Row:
    return Model("matrix product with packed weights", "gemm", form, linear.matmul_nbits), names


def _quantised(form: Form, names: str) -> Row:
    return Model("quantisation", "quantize", form, quantised.flops), names


def _element(form: Form, names: str) -> Row:
    return Model("gated activation", "elementwise", form, pointwise.per_element), names


SWIGLU_OF_OPENAI = 3 + 1 + SILU + 2  # three clamps, the factor of the gate, SiLU, the offset of the other half and x
ROWS: tuple[Row, ...] = (
    # Products
    _scaled(scaled_product(out=4, dtype=5), "aiter::gemm_a8w8 aiter::gemm_a8w8_bpreshuffle vllm::rocm_aiter_gemm_a8w8"),
    _scaled(scaled_product(out=4, bias=6), "aiter::gemm_a8w8_asm aiter::gemm_a8w8_bpreshuffle_ck "
            "aiter::gemm_a8w8_bpreshuffle_cktile aiter::gemm_a8w8_blockscale_ck aiter::gemm_a8w8_blockscale_cktile "
            "aiter::gemm_a8w8_blockscale_bpreshuffle_ck aiter::flatmm_a8w8_blockscale_asm"),
    _scaled(scaled_product(dtype=4), "aiter::gemm_a8w8_blockscale aiter::gemm_a8w8_blockscale_bpreshuffle "
            "vllm::rocm_aiter_gemm_a8w8_blockscale vllm::rocm_aiter_triton_gemm_a8w8_blockscale"),
    _scaled(scaled_product(out=2, scales=(3, 4), bias=5), "aiter::gemm_a8w8_blockscale_bpreshuffle_asm"),
    _scaled(scaled_product(dtype=5), "vllm::rocm_aiter_gemm_w8a8_blockscale vllm::w8a8_triton_block_scaled_mm_func "
            "vllm::w8a8_block_fp8_matmul_deepgemm sglang::w8a8_block_fp8_matmul_triton "
            "sglang::w8a8_block_fp8_matmul_deepgemm"),
    _scaled(scaled_product(dtype=4, bias=5, columns=True),
            "sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm sgl_kernel::fp8_blockwise_scaled_mm"),
    _scaled(scaled_product(2, (1, 3), out=4), "sglang::deep_gemm_fp8_fp8_bf16_nt vllm::fp8_gemm_nt"),
    _scaled(scaled_product(2, (3, 4), left=1, out=0, bias=7, columns=True), "_C::cutlass_scaled_mm_azp"),
    _scaled(scaled_product(2, (3, 4), left=1, out=0, packed=True),
            "_C::cutlass_scaled_fp4_mm sgl_kernel::cutlass_scaled_fp4_mm"),
    _scaled(scaled_product(out=4, dtype=5, packed=True), "aiter::gemm_a4w4"),
    _scaled(scaled_product(out=4, packed=True), "aiter::gemm_a4w4_asm aiter::gemm_a4w4_blockscale"),
    (Model("grouped matrix product", "gemm", serving.scaled_groups, serving.stated_flops), "aten::_scaled_grouped_mm"),
    (Model("matrix product", "gemm", product_into(columns=True), linear.matmul),
     "_C::dsv3_fused_a_gemm sgl_kernel::dsv3_fused_a_gemm"),
    (Model("matrix product", "gemm", product_into(), linear.matmul), "sgl_kernel::dsv3_router_gemm"),
    (Model("matrix product", "gemm", product_into(left=1, right=0, out=None), linear.matmul),
     "_rocm_C::wvSplitK _rocm_C::LLMM1"),
    _few_bits(serving.packed_weights(2, (3,), columns_of=2), "_C::awq_gemm vllm::awq_gemm"),
    _few_bits(serving.packed_weights(3, (2, 4), columns_of=1), "_C::gptq_gemm sgl_kernel::gptq_gemm"),
    _few_bits(serving.packed_weights(4, (5, 7), columns_of=4), "_C::machete_mm"),
    _few_bits(serving.marlin, "_C::gptq_marlin_gemm _C::marlin_gemm sgl_kernel::gptq_marlin_gemm"),
    (Model("mixture of experts", "gemm", serving.marlin_experts, serving.stated_flops),
     "_moe_C::moe_wna16_marlin_gemm sgl_kernel::moe_wna16_marlin_gemm"),
    # Attention and what surrounds it
    (CACHED_ATTENTION, "_vllm_fa2_C::varlen_fwd _vllm_fa3_C::fwd aiter::paged_attention_v1 aiter::pa_fwd_asm "
     "aiter::mla_decode_stage1_asm_fwd aiter::mla_reduce_v1 aiter::mha_batch_prefill sgl_kernel::cutlass_mla_decode "
     "vllm::unified_mla_attention vllm::unified_mla_attention_with_output _C::sm100_cutlass_mla_decode"),
    (Model("rotary embedding", "elementwise", serving.rotary_into, serving.stated_flops),
     "sgl_kernel::apply_rope_pos_ids_cos_sin_cache"),
    (Model("norm and rotary embedding", "norm", serving.norm_and_rotary, serving.stated_flops),
     "_C::fused_qk_norm_rope"),
    (Model("keys and values into a cache", "embedding", attention.store_cache, nothing),
     "aiter::reshape_and_cache aiter::reshape_and_cache_flash"),
    (Model("keys and values into a cache", "embedding", serving.latent_cache, nothing),
     "_C_cache_ops::concat_and_cache_mla"),
    (Model("concatenation", "copy", moved((0, 1), (2,)), nothing), "_C_cache_ops::concat_mla_q"),
    # Norms
    (Model("RMS norm", "norm", norms.rms_norm_into, norm.rms_norm),
     "sgl_kernel::gemma_rmsnorm flashinfer::rmsnorm flashinfer::gemma_rmsnorm aiter::rms_norm_cu"),
    (Model("RMS norm", "norm", norms.plain_rms_norm, norm.rms_norm), "vllm::rocm_aiter_rms_norm"),
    (Model("sum and RMS norm", "norm", norms.add_rms_norm, norm.skip_rms_norm),
     "sgl_kernel::gemma_fused_add_rmsnorm flashinfer::fused_add_rmsnorm flashinfer::gemma_fused_add_rmsnorm "
     "aiter::fused_add_rms_norm_cu vllm::rocm_aiter_rmsnorm2d_fwd_with_add"),
    _quantised_norm(quantised_norm(2, (3,), finds=False), "_C::rms_norm_static_fp8_quant"),
    _quantised_norm(quantised_norm(3, (4,), finds=False, residual=2), "_C::fused_add_rms_norm_static_fp8_quant"),
    _quantised_norm(quantised_norm(2, (3,), finds=True, residual=6),
                    "_C::rms_norm_dynamic_per_token_quant _C::rms_norm_per_block_quant"),
    _quantised_norm(quantised_norm(3, (2,), finds=True), "aiter::rmsnorm2d_fwd_with_dynamicquant aiter::rmsnorm_quant"),
    _quantised_norm(quantised_norm(5, (4,), finds=True, residual=2, total=3),
                    "aiter::rmsnorm2d_fwd_with_add_dynamicquant aiter::add_rmsnorm_quant"),
    # Activations
    _element(pointwise.gated(SILU + 1), "_C::mul_and_silu flashinfer::silu_and_mul"),
    _element(pointwise.gated(GELU + 1), "aiter::gelu_and_mul flashinfer::gelu_and_mul"),
    _element(pointwise.gated(GELU_TANH + 1), "aiter::gelu_tanh_and_mul flashinfer::gelu_tanh_and_mul"),
    _element(pointwise.gated(SWIGLU_OF_OPENAI), "_C::swigluoai_and_mul"),
    _element(moved((1, 2), (0,), SILU + 1 + 4), "_C::silu_and_mul_quant aiter::scaled_silu_and_mul"),
    _element(moved((1,), (0, 2), SILU + 1 + 6), "_C::silu_and_mul_per_block_quant"),
    (Model("activation", "elementwise", moved((1,), (0,), GELU_TANH), pointwise.per_element),
     "_C::gelu_new _C::gelu_fast"),
    (Model("activation", "elementwise", moved((1,), (0,), SILU + 1), pointwise.per_element), "_C::gelu_quick"),
    # Quantisation
    _quantised(moved((0,), (1, 2), 6), "_C::per_token_group_fp8_quant _C::per_token_group_quant_int8 "
               "sgl_kernel::sgl_per_token_group_quant_fp8 sgl_kernel::sgl_per_token_group_quant_int8 "
               "sgl_kernel::sgl_per_token_group_quant_8bit sgl_kernel::sgl_per_token_quant_fp8 "
               "sgl_kernel::sgl_per_tensor_quant_fp8"),
    _quantised(moved((1, 3), (0, 2), 6), "_C::scaled_fp4_quant sgl_kernel::scaled_fp4_quant"),
    _quantised(quantised.found_scale, "aiter::dynamic_per_token_scaled_quant aiter::dynamic_per_tensor_quant"),
    _quantised(quantised.given_scale, "aiter::static_per_tensor_quant"),
    # Choice of experts
    (Model("choice of experts", "softmax", serving.expert_choice, norm.softmax), "sgl_kernel::topk_softmax"),
    (Model("choice of experts", "softmax", reductions.expert_choice, norm.softmax), "aiter::topk_softmax"),
    (Model("choice of experts", "sort", movement.buffers, None, everything, FUSED),
     "aiter::biased_grouped_topk aiter::grouped_topk aiter::moe_sorting_fwd "
     "_moe_C::moe_align_block_size sgl_kernel::moe_align_block_size"),
    (Model("sum over experts", "reduction", serving.summed, serving.stated_flops),
     "_moe_C::moe_sum sgl_kernel::moe_sum_reduce aiter::moe_sum"),
    # Sampling
    (Model("penalties", "elementwise", moved((0, 1, 2, 3), (0,), 2), pointwise.per_element),
     "_C::apply_repetition_penalties"),
    (Model("sampling", "sort", serving.drawn, None, everything, RANDOM), "aten::multinomial"),
    (Model("sampling", "sort", movement.buffers, None, everything, VALUES),
     "sgl_kernel::top_k_top_p_sampling_from_probs sgl_kernel::min_p_sampling_from_probs "
     "sgl_kernel::top_p_renorm_probs sgl_kernel::top_k_renorm_probs flashinfer::top_k_top_p_sampling_from_probs "
     "flashinfer::top_p_sampling_from_probs flashinfer::min_p_sampling_from_probs"),
    (Model("fill", "fill", serving.counting, nothing, output_only), "aten::arange"),
    # Between devices
    (Model("collective", "collective", moved((1,), (2,)), None, everything, RANKS),
     "_C_custom_ar::all_reduce _C_custom_ar::qr_all_reduce sgl_kernel::all_reduce sgl_kernel::mscclpp_allreduce"),
    (Model("collective", "collective", movement.message(0), None, everything, RANKS),
     "sglang::inplace_all_reduce vllm::inplace_all_reduce symm_mem::two_shot_all_reduce"),
    (Model("collective", "collective", movement.reduced_message, None, everything, RANKS),
     "sglang::outplace_all_reduce vllm::outplace_all_reduce"),
    (Model("collective", "collective", serving.scattered_part, None, everything, RANKS), "vllm::reduce_scatter"),
    (Model("collective", "collective", movement.message(1, 0), nothing), "sglang::reg_all_gather_into_tensor"),
    (Model("sum over devices and RMS norm", "collective", moved((0, 1, 2), (0, 1)), None, everything, RANKS),
     "vllm::flashinfer_trtllm_fused_allreduce_norm"),
)

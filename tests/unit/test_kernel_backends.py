"""Which implementation of a product or of attention a kernel is of: names as profilers of serving engines have them."""

from __future__ import annotations

import gzip
import json

import pytest

from aaco.analytics.kernels.families import backend, decode
from tests.third_party import captures

NAMES = {
    "hipBLASLt": [
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_SK3_",
    ],
    "Tensile": [
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE_1LDSB0",
    ],
    "Composable Kernel": [
        "void ck_tile::kentry<1, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<int>>>(int)",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<int>>(int)",
    ],
    "AITER": [
        "_ZN5aiter34fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256E",
        "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256",
        "fmha_fwd_hd128_bf16_causal_rtne",
        "mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_bf16",
        "pa_bf16_pertokenFp8_gqa8_2tg_4w",
        "aiter::gemm_a8w8_blockscale",
    ],
    "FlashAttention 2": [
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(flash::Flash_fwd_params)",
        ("void pytorch_flash::flash_fwd_splitkv_kernel<pytorch_flash::Flash_fwd_kernel_traits<128,64>>(pyt"
         "orch_flash::Flash_fwd_params)"),
    ],
    "FlashAttention 3": [
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Collectiv"
         "eMainloopFwdSm90<2>>>>(Params)"),
    ],
    "FlashMLA": [
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64>>(Flash_fwd_mla_params)",
    ],
    "FlashInfer": [
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>(int)",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>(int)",
    ],
    "TensorRT-LLM": [
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP32VarSeqQ128Kv128",
        ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x256u2_s4_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_transOut_schedS_"
         "bN_ldgstsSf_dsFp8_sm100f"),
    ],
    "Triton unified attention": [
        "kernel_unified_attention_2d",
        "kernel_unified_attention_3d",
        "reduce_segments",
    ],
    "Triton paged attention": [
        "kernel_paged_attention_2d",
    ],
    "Triton split-KV decode": [
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage2",
    ],
    "cuBLASLt nvjet": [
        "nvjet_sm90_tst_128x16_64x11_4x1_v_bz_TNT",
        "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNN",
    ],
    "CUTLASS": [
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(int)",
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8",
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int,int,int,int>, "
         "cutlass::gemm::collective::CollectiveMma<int>>>(int)"),
    ],
    "cuBLAS": [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k"
         "_off_kernel__5x_cublas"),
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4,"
         " 4, false>(int)"),
    ],
    "Marlin": [
        "void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)",
        "void gptq_marlin::Marlin<__half>(int)",
    ],
    "GPTQ": [
        "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>(int)",
    ],
    "DeepGEMM": [
        "void deep_gemm::fp8_gemm_kernel<512u, 7168u, 64u, 128u>(int)",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u>(int)",
    ],
    "Triton matmul_ogs": [
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
    ],
    "Triton fused MoE": [
        "fused_moe_kernel",
    ],
    "Triton by Inductor": [
        "triton_tem_fused_mm_3",
    ],
    "Triton": [
        "_w8a8_block_fp8_matmul",
        "_w8a8_triton_block_scaled_mm",
        "attn_fwd",
        "_attn_fwd",
    ],
    "vLLM skinny GEMM": [
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 4>(int)",
    ],
    "ROCm paged attention": [
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>(int)",
    ],
    "vLLM paged attention": [
        ("void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128, "
         "(vllm::Fp8KVCacheDataType)0, false, 512>(int)"),
    ],
    "cuDNN": [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
    ],
    "CUTLASS memory-efficient": [
        ("void fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::"
         "bfloat16_t>::Params)"),
    ],
    None: [
        "paged_attention_split",
        "kv_write",
        "void vllm::rms_norm_kernel<float>(int)",
        "void tensorrt_llm::kernels::cutlass_kernels::fused_moe::x<int>(int)",
    ],
    "FlashAttention 4": [
        "kernel_cutlass_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16",
    ],
}


@pytest.mark.parametrize(("expected", "name"), [
    (expected, name) for expected, names in NAMES.items() for name in names])
def test_the_backend_of_a_kernel(expected, name):
    assert backend(name) == expected


def test_the_tile_and_the_split_of_a_product():
    kernel = decode(NAMES["hipBLASLt"][0])
    assert (kernel.tile, kernel.split) == ("256x32x64", "stream_k")


def test_a_kernel_written_in_triton_is_not_vllms():
    """Mutation: every name that begins with paged_attention is vLLM's."""
    assert decode("paged_attention_split").library is None
    assert decode("void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, 128>(int)").library == "vllm"


@pytest.mark.captures
@pytest.mark.parametrize(("recording", "expected"), [
    ("kineto/inference_sglang_decode_sglang_Qwen3-8B_decode.json.gz", {"hipBLASLt", "ROCm paged attention"}),
    ("kineto/inference_vllm_decode_full_graph_execution.json.gz",
     {"hipBLASLt", "Triton matmul_ogs", "Triton unified attention"}),
    ("serving/prefill_1x512.trace.json.gz", {"cuBLASLt nvjet", "cuDNN"}),
])
def test_the_backends_of_recorded_steps(recording, expected):
    """Every product and every attention kernel of the recordings has one, and no other kernel."""
    document = json.loads(gzip.decompress((captures() / recording).read_bytes()))
    names = {event["name"] for event in document["traceEvents"] if event.get("cat") == "kernel"}
    assert {backend(name) for name in names} - {None} == expected
    assert all((backend(name) is not None) == (decode(name).family in ("gemm", "attention")) for name in names)

"""What kernel names say: one example or more per library, each read off the library's own grammar."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aaco.analytics.costs import FAMILIES, torch
from aaco.analytics.kernels import families
from aaco.analytics.kernels.families import decode

EXAMPLES = (  # name, family, library
    ("Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_GSU4_WG32_8_1", "gemm", "tensile"),
    ("Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_GSU4_PostGSU4_VW2", "reduction", "tensile"),
    ("Cijk_S_GA", "elementwise", "tensile"),
    ("_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelIiEEJiEEEvDpT1_", "attention", "ck"),
    ("fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256.kd", "gemm", "aiter"),
    ("void aiter::add_rmsnorm_quant_kernel<__hip_bfloat16, 256>(int)", "norm", "aiter"),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_f2x3_stride1", "conv", "miopen"),
    ("batched_transpose_32x16_half.kd", "transpose", "miopen"),
    ("void rocprim::detail::radix_sort_block_sort_kernel<int>(int)", "sort", "rocprim"),
    ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>) [clone .kd]", "collective", "nccl"),
    ("__amd_rocclr_fillBufferAligned.kd", "fill", "rocclr"),
    ("mlir_convolution_add_relu", "conv", "migraphx"),
    ("add_relu_kernel", "elementwise", "migraphx"),
    ("triton_poi_fused_addmm_gelu_2", "elementwise", "triton"),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "norm", "triton"),
    ("triton_tem_fused_addmm_relu_1", "gemm", "triton"),
    ("nvjet_sm90_tst_64x32_64x16_2x4_h_bz_splitK_bias_TNT", "gemm", "cublas"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_64x5_tn_align8>(int)", "gemm", "cutlass"),
    ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64", "conv", "cudnn"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(int)", "norm", "cudnn"),
    ("void flash::flash_fwd_splitkv_combine_kernel<Traits>(Params)", "attention", "flash"),
    ("void vllm::reshape_and_cache_flash_kernel<unsigned short>(int)", "embedding", "vllm"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)",
     "fill", "aten"),
    ("void at::native::roll_cuda_kernel<float>(float const*, float*, long, long, long, long, long, long)", "copy",
     "aten"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, true>(float*)", "softmax", "aten"),
    ("_ZN11onnxruntime4cuda17_UnaryElementWiseIffNS0_7OP_ReluIfEELi256ELi4EEEvPKT_PT0_T1_l", "elementwise",
     "onnxruntime"),
    ("LayerNormalization", "norm", "onnxruntime"),
    ("void mul_mat_q<(ggml_type)12, 128, false>(char const*)", "gemm", "llama.cpp"),
    ("void rope_norm<true, false, float, float>(float const*)", "elementwise", "llama.cpp"),
    ("void conv2d_dw_kernel<float, whcn_layout>(float const*)", "conv", "llama.cpp"),
    ("conv2d_c1_k1_nhwc", "conv", "cudnn"),  # begins like llama.cpp's
    ("dgrad2d_c1_k1_nhwc_specialized", "conv", "cudnn"),
    ("void nchwToFoldedNhwcKernel<float, float, float, true, (cudnnKernelDataType_t)2>(int)", "transpose", "cudnn"),
    ("void LSTM_elementWise_bp1<float, float, float>(int)", "recurrent", "cudnn"),
    ("BatchNormalization", "norm", "onnxruntime"),  # begins like one of MIOpen's
    ("Col2Im", "pooling", "onnxruntime"),
    ("loop_add_fusion.3", "elementwise", "xla"),
    ("matrixTranspose(float*, float*, int)", "transpose", None),
    ("KernelExecution", "unknown", None),
)


@pytest.mark.parametrize(("name", "family", "library"), EXAMPLES)
def test_a_name_of_each_library(name, family, library):
    found = decode(name)
    assert (found.family, found.library) == (family, library)
    assert found.name == name


def test_a_tensile_name_says_types_layout_tile_and_split():
    found = decode("Cijk_Ailk_Bjlk_HHS_BH_MT128x96x32_MI16x16x16x1_SN_GSU4_WG32_8_1.kd")
    assert found.dtypes == ("float16", "float32")
    assert (found.layout, found.tile, found.split, found.split_count) == ("NT", "128x96x32", "split_k", 4)
    assert decode("Cijk_Alik_Bljk_SB_MT64x64x16_GSU1_WG16_16_1").split == "none"
    assert decode("Cijk_Alik_Bljk_SB_MT64x64x16_GSU1_WG16_16_1").dtypes == ("float32",)
    assert decode("Cijk_Alik_Bljk_BBS_BH_Bias_MT64x64x16_GSUAMB_SK3_WG16_16_1").split == "stream_k"


def test_the_short_name_is_the_same_in_builds_that_number_their_lambdas_otherwise():
    one = ("void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)::"
           "{{lambda()#{}}}::operator()() const::{{lambda(float)#1}}, {}<char*, 2ul> >(int)")
    first, second = (decode(one.format(*parts)) for parts in ((1, "std::array"), (2, "at::detail::Array")))
    assert first.normalised == "vectorized_elementwise_kernel<4, silu_kernel::lambda[float], ptrs<2>>"
    assert second.normalised == first.normalised


def test_every_family_of_the_rules_is_in_the_vocabulary():
    rules = [*(rule for library in families.LIBRARIES for rule in (*library.rules, *library.inner)),
             *((library.otherwise, "") for library in families.LIBRARIES),
             *((family, "") for family in families.words.OPERATORS), *families.words.SPOKEN]
    assert {family for family, _ in rules} <= FAMILIES.keys()
    assert {model.family for model in torch.TABLE.values()} <= FAMILIES.keys()


def test_a_dictionary_of_names_becomes_a_table():
    table = families.of_names([name for name, *_ in EXAMPLES])
    assert table["family"].to_pylist() == [family for _, family, _ in EXAMPLES]
    assert families.of_names([]).num_rows == 0
    assert families.families_of(pa.array(["Gemm", None])).to_pylist() == ["gemm", None]


def test_the_tile_and_the_split_of_a_product():
    kernel = decode("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_SK3_")
    assert (kernel.tile, kernel.split) == ("256x32x64", "stream_k")


def test_a_kernel_written_in_triton_is_not_vllms():
    """Mutation: every name that begins with paged_attention is vLLM's."""
    assert decode("paged_attention_split").library is None
    assert decode("void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, 128>(int)").library == "vllm"


@pytest.mark.parametrize(("name", "direction"), [
    ("naive_conv_ab_nonpacked_bwd_nchw_float_double_float", None), ("naive_conv_bwd_nchw_fp32", None),
    ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32", None), ("dgrad2d_c1_k1_nhwc_specialized", None),
    ("gridwise_convolution_backward_data_implicit_gemm_v1r1_xdlops_nchw_kcyx_nkhw", None),
    ("void ck::kernel_grouped_conv_bwd_data_multiple_d_xdl_cshuffle<float>(int)", None),
    ("void ck_tile::kentry<256, 2, ck_tile::GroupedConvolutionBackwardDataKernel<float> >(int)", None),
    ("void cutlass::Kernel<cutlass::conv::kernel::ImplicitGemmConvolutionStridedDgrad<float> >(int)", None),
    ("void ck::kernel_normalization_bwd_data<float>(int)", "backward"),
    ("void phi::funcs::VectorizedElementwiseKernel<phi::funcs::SigmoidGradFunctor<float> >(int)", "backward"),
    ("triton_red_fused__log_softmax__log_softmax_backward_data_2", "backward"),
    ("naive_conv_ab_packed_wrw_nchw_float_double_float", "backward")])
def test_the_gradient_of_a_convolutions_input_has_no_direction(name, direction):
    """A transposed convolution runs the same kernel. Other gradients whose names end or go on alike have theirs."""
    assert decode(name).direction == direction

"""One limit per kernel: the unit that its name says, its work by shapes, and the same word in every table."""

from __future__ import annotations

import json

import pytest

from aaco.analytics.bottleneck import kernel_limits
from aaco.analytics.bottleneck.costs import KernelPart, shaped
from aaco.analytics.bottleneck.kernel_classes import classify, facts_of
from aaco.analytics.roofline.devices.ceilings import Ceilings
from aaco.analytics.roofline.units import named, rate_used
from aaco.core import tables
from aaco.steps.findings import operator_time

H200 = {"vector_f32": 66.9e12, "matrix_tf32": 494.7e12, "matrix_bf16": 989.4e12, "matrix_f16": 989.4e12,
        "matrix_f8": 1978.9e12, "vector_f64": 33.5e12, "matrix_f64": 66.9e12, "vector_f16": 133.8e12}
DEVICE = Ceilings("H200", H200, {"dram": 4.8e12})
ROW = {"kernel_name": "k", "family": "gemm", "calls": 1, "total_ns": 100_000, "median_ns": 100_000.0,
       "occupancy_pct": 0.0}


@pytest.mark.parametrize(("name", "family", "dtype", "achieved", "rate"), [
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4", "gemm",
     "float32", 0, "vector_f32"),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16", "conv", "float32", 0,
     "matrix_tf32"),
    ("ampere_sgemm_32x128_tn", "gemm", "float32", 0, "vector_f32"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(x)", "gemm", "float32", 0, "vector_f32"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(x)", "gemm", "float32", 0,
     "matrix_tf32"),
    ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>", "conv", "float32", 0, "vector_f32"),
    ("void gemv2T_kernel_val<int, int, __nv_bfloat16>", "gemm", "bfloat16", 0, "vector_f32"),
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", "bfloat16", 0, "matrix_bf16"),
    ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", None, 0, "matrix_f16"),
    ("some_kernel", "gemm", "float32", 1e12, "vector_f32"), ("some_kernel", "gemm", "float32", 100e12, "matrix_tf32"),
    ("some_kernel", "elementwise", "bfloat16", 0, "vector_f32"), ("some_kernel", "gemm", None, 0, None),
    (None, "gemm", "float16", 0, "matrix_f16")])
def test_the_unit_is_the_one_that_the_name_says(name, family, dtype, achieved, rate):
    """Where the name does not tell, the slowest that can have done it. Mutations: the fastest; the name not asked."""
    assert rate_used(name, family, dtype, H200, achieved) == rate


def test_tensile_names_its_matrix_instruction_or_has_none():
    assert named("Cijk_Ailk_Bljk_SB_MT64x64x16_SN_1LDSB0_APM1") == ("vector", "f32")
    assert named("Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x1x2_SN") == ("matrix", "f32")
    mi300 = {"vector_f32": 163.4e12, "matrix_f32": 163.4e12, "matrix_tf32": 653.7e12}
    assert rate_used("Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x1x2_SN", "gemm", "float32", mi300) == "matrix_f32"


def test_types_that_differ_add_up_as_time():
    """Half of the time each at half of the roof of its type. Mutation: unclear, because the lists differ."""
    parts = [KernelPart(0.5 * H200["matrix_bf16"] * 50e-6, 1e6, 50_000, json.dumps(["c10::BFloat16", "float"])),
             KernelPart(0.5 * H200["matrix_f16"] * 50e-6, 1e6, 50_000, json.dumps(["c10::Half", "c10::Half"]))]
    work = shaped("attn_fwd", "attention", parts, DEVICE)
    assert work is not None and work.compute_share == pytest.approx(0.5)
    assert work.memory_share == pytest.approx(2e6 / 4.8e12 / 100e-6)


@pytest.mark.parametrize(("flops", "moved", "expected"), [
    (70e12 * 100e-6, 1e6, None), (60e12 * 100e-6, 1e6, "compute"), (1e12 * 100e-6, 4e12 * 100e-6, "memory"),
    (1e12 * 100e-6, 9.6e12 * 100e-6, "cached")])
def test_work_beyond_a_roof_is_wrong_or_cached(flops, moved, expected):
    """By plain arithmetic. Mutation: a share beyond 1 of the unit that the name says taken for a place."""
    work = shaped("ampere_sgemm_32x128_tn", "gemm", [KernelPart(flops, moved, 100_000, '["float", "float"]')], DEVICE)
    if expected is None:
        assert work is None
        return
    if expected == "cached":
        assert (work.compute_share, work.memory_share) == (None, None) and work.ridge_ratio < 1
        return
    assert work.rate == "vector_f32" and (work.compute_share > work.memory_share) == (expected == "compute")
    assert work.compute_share == pytest.approx(flops / 66.9e12 / 100e-6)


def test_without_a_known_device_only_a_sure_side_is_told():
    far, near = (shaped("k", "gemm", [KernelPart(intensity, 1.0, 10, '["c10::BFloat16"]')], None)
                 for intensity in (180 * 3.0, 180 * 2.9))
    assert far.ridge_ratio == pytest.approx(3.0) and near is None


def test_counters_are_believed_before_shapes_and_shapes_before_names():
    row = ROW | {"kernel_name": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"}
    work = shaped("k", "gemm", [KernelPart(100e12 * 100e-6, 4e12 * 100e-6, 100_000, '["c10::BFloat16"]')], DEVICE)
    counters = {"compute_share": 0.6, "dram_share": 0.2}
    found = [classify(facts_of(row, 10_000.0, {}, placed, by_shapes))
             for placed, by_shapes in ((counters, work), (None, work), (None, None))]
    assert [(one.label, one.by) for one in found] == [
        ("compute_throughput", "counters"), ("memory_bandwidth", "shapes"), ("compute_throughput", "name")]


@pytest.mark.parametrize(("name", "family"), [
    ("void gemv2T_kernel_val<int, int, float>", "gemm"), ("mul_mat_vec_q<(ggml_type)2>", "gemm"),
    ("void wvSplitK_hf_<__hip_bfloat16, 64>(int)", "gemm"), ("nvjet_sm90_tst_192x8_64x8_2x1_v_bz_TNT", "gemm"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "gemm"),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1", "gemm"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN", "gemm"),
    ("void vllm::paged_attention_v1_kernel<...>", "attention")])
def test_products_of_decoding_read_memory(name, family):
    """Mutation: only a tile told."""
    found = classify(facts_of(ROW | {"kernel_name": name, "family": family}, 10_000.0, {}, None, None))
    assert (found.label, found.part, found.by) == ("memory_bandwidth", "memory", "name")


def test_the_work_of_a_product_is_not_that_of_conversions_beside_it():
    """And of that the kernels of the product have all. Mutation: by share of the operator's whole time."""
    cost = {1: {"family": "conv", "flops": 100, "bytes": 10, "dtypes": "[]", "device_ns": 40}}
    time = {("conv", 1): 30, ("transpose", 1): 10}
    parts = operator_time.parts(cost, time, {"conv": "conv", "transpose": "transpose"})
    assert parts == {"conv": [KernelPart(100, 10, 30, "[]")]}
    assert operator_time.longest(time) == {1: "conv"}


def test_an_operators_limit_is_that_of_most_of_its_time():
    """Mutation: the first by name."""
    operators = tables.OPERATORS.build(operator_id=[1, 2, 3], kernels=[3, 1, 0], device_ns=[60, 5, 0])
    time = {("a", 1): 20, ("b", 1): 25, ("c", 1): 15, ("a", 2): 5}
    limits = {"a": "tiny", "b": "compute_throughput", "c": "tiny"}
    found = kernel_limits.of_operators(operators, time, limits)
    assert found["limit"].to_pylist() == ["tiny", "tiny", None]
    time[("b", 1)] = 36
    assert kernel_limits.of_operators(operators, time, limits)["limit"].to_pylist()[0] == "compute_throughput"


def test_the_roofline_has_the_limits_and_not_its_nearest_ceilings():
    """Mutation: the nearest ceiling taken for the limit."""
    operators = tables.OPERATORS.build(operator_id=[1, 2], operator=["mm"] * 2, kernels=[1, 1], device_ns=[60, 50],
                                       limit=["tiny", "unclear"])
    signature = {"operator": "mm", "shapes": None, "dtypes": None, "family": None, "capture": None}
    found = kernel_limits.of_roofline({"symbols": [{"kernel_name": "k", "bound": "dram"}],
                                       "operators": [signature | {"bound": "compute"}]}, operators,
                                      {"k": "memory_latency"})
    assert found["symbols"][0]["limit"] == "memory_latency" and found["operators"][0]["limit"] == "tiny"

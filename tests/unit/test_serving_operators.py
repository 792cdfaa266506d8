"""Custom operators of serving engines: sizes by hand, equality with plain operators, and what has no cost."""

from __future__ import annotations

import gzip
import json

import pytest

from aaco.analytics.costs.elementwise import SILU
from aaco.analytics.costs.torch import model, price, recorded
from aaco.analytics.costs.torch.attention import CACHED
from tests.recorded import HALF, cost, of
from tests.third_party import captures

FP8, PACKED = "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2"
M, N, K = 8, 64, 256
SCALED = (2 * M * N * K + M * N, M * K + N * K + 4 * (M + N) + 2 * M * N)  # one scale for each row and column
BLOCKS = (SCALED[0], M * K + N * K + 4 * (M * 2 + 1 * 2) + 2 * M * N)  # one for 1 x 128 and 128 x 128


@pytest.mark.parametrize(("name", "arguments", "expected"), [
    ("aiter::gemm_a8w8", (((M, K), FP8), ((N, K), FP8), (M, 1), (1, N), None, 15), SCALED),
    ("aiter::gemm_a8w8_ck", (((M, K), FP8), ((N, K), FP8), (M, 1), (1, N), ((M, N), HALF)), SCALED),
    ("aiter::gemm_a8w8", (((M, K), FP8), ((N, K), FP8), (M, 1), (1, N), ((1, N), HALF), 15),
     (SCALED[0] + M * N, SCALED[1] + 2 * N)),  # the fifth is a bias where it has not the result's shape
    ("aiter::gemm_a8w8_blockscale", (((M, K), FP8), ((N, K), FP8), (M, 2), (1, 2), 15), BLOCKS),
    ("vllm::w8a8_triton_block_scaled_mm_func", (((M, K), FP8), ((N, K), FP8), (M, 2), (1, 2), [128, 128], 15), BLOCKS),
    ("sgl_kernel::fp8_scaled_mm", (((M, K), FP8), ((K, N), FP8), (M, 1), (N, 1), 15, None), SCALED),
    ("sglang::deep_gemm_fp8_fp8_bf16_nt", (((M, K), FP8), (M, 2), ((N, K), FP8), (1, 2), ((M, N), HALF)), BLOCKS),
    ("_C::cutlass_scaled_mm_azp", (((M, N), HALF), ((M, K), "signed char"), ((K, N), "signed char"), (M, 1), (1, N),
                                   None, None, None), SCALED),
])
def test_scaled_products(name, arguments, expected):
    """Mutation: taking a bias for the result."""
    assert cost(name, *arguments) == expected


def test_products_of_two_numbers_in_a_byte():
    """Sizes are of the numbers, bytes of what is stored. Mutation: the packed depth for the depth."""
    moved = M * K // 2 + N * K // 2 + 2 * M * N
    scales = (((M, K // 16), FP8), ((N, K // 16), FP8))
    assert cost("_C::cutlass_scaled_fp4_mm", ((M, N), HALF), ((M, K // 2), "unsigned char"),
                ((N, K // 2), "unsigned char"), *scales, (1,)) == (SCALED[0], moved + (M + N) * K // 16)
    assert cost("aiter::gemm_a4w4_asm", ((M, K // 2), PACKED), ((N, K // 2), PACKED), *scales,
                ((M, N), HALF))[0] == SCALED[0]
    aten = cost("aten::_scaled_mm", ((M, K // 2), PACKED), ((K // 2, N), PACKED), *scales, None, None, 15)
    assert aten == (SCALED[0], moved + (M + N) * K // 16)


def test_products_with_integer_weights_of_four_bits():
    """AWQ, GPTQ and Marlin hold the same numbers in other shapes: the same cost, but for the zero points."""
    groups, flops = K // 128, 2 * M * N * K + 2 * N * K
    moved = 2 * M * K + N * K // 2 + 2 * groups * N + 2 * M * N
    half = (M, K)
    zeros = ((groups, N // 8), "int")
    assert cost("_C::awq_gemm", half, ((K, N // 8), "int"), (groups, N), zeros, 8,
                kind=HALF) == (flops, moved + groups * N // 2)
    assert cost("_C::gptq_gemm", half, ((K // 8, N), "int"), zeros, (groups, N), ((K,), "int"), "True", "False", 4,
                kind=HALF) == (flops, moved + groups * N // 2 + 4 * K)
    packed = ((K // 16, N * 2), "int")
    new = (None, packed, None, (groups, N), None, None, None, None, None, ((100,), "int"), 44, M, N, K, "True", "False",
           "True", "False")
    old = (None, packed, (groups, N), None, None, None, None, ((100,), "int"), 44, M, N, K, "True", "False", "True",
           "False")
    assert cost("_C::marlin_gemm", half, *new, kind=HALF) == cost("sgl_kernel::gptq_marlin_gemm", half, *old, kind=HALF)
    assert cost("_C::marlin_gemm", half, *new, kind=HALF) == (flops, moved)
    assert cost("_C::machete_mm", half, ((K, N // 8), "int"), 44, None, (groups, N), None, 128, None, None, None,
                kind=HALF) == (flops, moved)


def test_experts_with_integer_weights():
    """16 rows through 2 of 8 experts read 8, one row reads 2."""
    def call(rows):
        return cost("_moe_C::moe_wna16_marlin_gemm", (rows, K), None, ((8, K // 16, N * 2), "int"), (8, 2, N), None,
                    None, None, ((100,), "int"), ((64,), "int"), ((8,), "int"), ((1,), "int"), (rows, 2), 8, 2, "False",
                    "False", 44, rows, N, K, "True", "False", "True", "False", kind=HALF)

    assert call(16) == (2 * 32 * N * K, 2 * 16 * K + 8 * N * K // 2 + 2 * 32 * N)
    assert call(1) == (2 * 2 * N * K, 2 * K + 2 * N * K // 2 + 2 * 2 * N)


def test_packed_experts_cost_as_many_operations_as_others():
    plain = ((4, 2 * N, K), (4, K, N))
    whole = cost("aiter::fused_moe", (M, K), *plain, (M, 2), ((M, 2), "int"))
    packed = cost("aiter::fused_moe", (M, K), ((4, 2 * N, K // 2), PACKED), ((4, K, N // 2), PACKED), (M, 2),
                  ((M, 2), "int"))
    assert packed[0] == whole[0] and packed[1] < whole[1]
    assert price("aiter::fused_moe", of((M, K), (4, 2 * N, 3), (4, K, N), (M, 2), ((M, 2), "int"))).flops is None


def test_norms_that_quantise():
    """As the norm alone, and 4 operations for each element, 6 where the scale is found."""
    plain, added = cost("_C::rms_norm", (M, K), (M, K), (K,), kind=HALF), cost(
        "_C::fused_add_rms_norm", (M, K), (M, K), (K,), kind=HALF)
    narrower = M * K  # the result has a byte for two
    static = cost("_C::rms_norm_static_fp8_quant", ((M, K), FP8), (M, K), (K,), ((1,), "float"), 1e-6, kind=HALF)
    assert static == (plain[0] + 4 * M * K, plain[1] - narrower + 4)
    fused = cost("_C::fused_add_rms_norm_static_fp8_quant", ((M, K), FP8), (M, K), (M, K), (K,), ((1,), "float"), 1e-6,
                 kind=HALF)
    assert fused == (added[0] + 4 * M * K, added[1] - narrower + 4)
    dynamic = ((M, K), FP8), (M, K), (K,), ((M, 1), "float"), 1e-6, None
    assert cost("_C::rms_norm_dynamic_per_token_quant", *dynamic, None, kind=HALF) == (
        plain[0] + 6 * M * K, plain[1] - narrower + 4 * M)
    assert cost("_C::rms_norm_dynamic_per_token_quant", *dynamic, (M, K), kind=HALF) == (
        added[0] + 6 * M * K, added[1] - narrower + 4 * M)
    aiter = cost("aiter::rmsnorm2d_fwd_with_add_dynamicquant", ((M, K), FP8), (M, K), (M, K), (M, K),
                 ((M, 1), "float"), (K,), 1e-6, kind=HALF)
    assert aiter == (added[0] + 6 * M * K, added[1] - narrower + 4 * M)


def test_activations_and_quantisation():
    gated = cost("_C::silu_and_mul", (M, K), (M, 2 * K), kind=HALF)
    assert cost("_C::silu_and_mul_quant", ((M, K), FP8), (M, 2 * K), ((1,), "float"), kind=HALF) == (
        gated[0] + 4 * M * K, gated[1] - M * K + 4)
    assert gated[0] == (SILU + 1) * M * K
    assert cost("sgl_kernel::sgl_per_token_group_quant_fp8", (M, K), ((M, K), FP8), ((M, 2), "float"), 128,
                kind=HALF) == (6 * M * K, 3 * M * K + 8 * M)
    assert cost("_C::scaled_fp4_quant", ((M, K // 2), "unsigned char"), (M, K), ((M, K // 16), FP8), ((1,), "float"),
                kind=HALF) == (6 * M * K, 2 * M * K + M * K // 2 + M * K // 16 + 4)


def test_rotary_embedding_norms_and_caches():
    tokens, heads, kept, width = 5, 4, 2, 32
    turned = cost("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", (tokens, heads, width), (tokens, kept, width),
                  (tokens, heads, width), (tokens, kept, width), ((100, width), "float"), ((tokens,), "long int"),
                  kind=HALF)
    elements = tokens * (heads + kept) * width
    assert turned == (3 * elements, 2 * 2 * elements + 4 * tokens * width + 8 * tokens)
    fused = cost("_C::fused_qk_norm_rope", (tokens, (heads + 2 * kept) * width), heads, kept, kept, width, 1e-6,
                 (width,), (width,), ((100, width), "float"), "True", ((tokens,), "long int"), kind=HALF)
    assert fused == (7 * elements + 2 * tokens * (heads + kept),
                     4 * elements + 4 * width + 4 * tokens * width + 8 * tokens)
    assert cost("_C_cache_ops::concat_and_cache_mla", (tokens, 512), (tokens, 64), ((9, 16, 576), FP8),
                ((tokens,), "long int"), "fp8", (1,), kind=HALF) == (0, 2 * tokens * 576 + 8 * tokens + tokens * 576)


def test_ranges_and_sampling():
    """arange by one, two or three bounds; of fractions it is single precision."""
    for bounds, size in (((10,), 80), ((3, 10), 56), ((0, 10, 3), 32), ((0, 1, 0.25), 16)):
        assert cost("aten::arange", *bounds, None, None, None, "False") == (0, size)
    assert price("aten::multinomial", of((M, N), 1, "False", None)).bytes == 4 * M * N + 8 * M


@pytest.mark.parametrize(("name", "arguments", "moved"), [
    ("_C_custom_ar::all_reduce", (7, (M, K), (M, K), 0, 0), 4 * M * K),
    ("sgl_kernel::all_reduce", (7, (M, K), (M, K), 0, 0), 4 * M * K),
    ("sglang::inplace_all_reduce", ((M, K), "tp:0"), 4 * M * K),
    ("sglang::outplace_all_reduce", ((M, K), "tp:0", "ca"), 4 * M * K),
    ("vllm::reduce_scatter", ((M, K), 0, 4, "tp:0"), 2 * M * K + 2 * M * K // 4),
])
def test_sums_over_devices_have_bytes_and_a_reason(name, arguments, moved):
    found = price(name, of(*arguments, kind=HALF))
    assert (found.bytes, found.flops) == (moved, None) and "ranks" in found.why


@pytest.mark.parametrize("name", [
    "vllm::unified_attention_with_output", "_vllm_fa3_C::fwd", "sglang_profiler::attention_paged_attention_ragged_100",
    "vllm::unified_mla_attention", "flashinfer::batch_decode_with_paged_kv_cache_run", "aiter::mla_decode_fwd",
    "sgl_kernel::flash_attn_varlen_func",
])
def test_attention_over_a_cache_says_what_to_pass(name):
    assert price(name, of((M, K))).why == CACHED and "--model-config" in CACHED


@pytest.mark.parametrize("name", ["aten::mm", "mylib::attentive", "paged_attention", "vllm::page_table"])
def test_other_names_are_no_attention_over_a_cache(name):
    assert model(name) is None or model(name).kind != "attention over a cache"


@pytest.mark.captures
def test_all_that_launched_a_kernel_of_the_captured_step_of_sglang_is_priced_or_says_why():
    """Only attention over the cache has no cost; what encloses other operators launches nothing itself."""
    path = captures() / "kineto" / "inference_sglang_decode_capture_traces_bs_32_rank0.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    calls = sorted((event for event in events if event.get("cat") == "cpu_op"), key=lambda event: event["ts"])
    unpriced = set()
    for launch in (event for event in events if event["name"] in ("hipLaunchKernel", "hipExtModuleLaunchKernel")):
        around = [call for call in calls if call["ts"] <= launch["ts"] < call["ts"] + call["dur"]]
        if around:
            found = price(around[-1]["name"], recorded(around[-1]["args"]))
            if found.bytes is None:
                unpriced.add((around[-1]["name"], found.why))
    assert unpriced == {("sglang_profiler::attention_paged_attention_ragged_100", CACHED)}

"""Advice of AMD's libraries: tuned products, MIOpen's search, AITER; floors by hand, facts by planted names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aaco.analytics.advice import recommend
from aaco.analytics.advice.floor import StepTime, floor
from aaco.analytics.advice.floors import Floors, floors_of
from aaco.analytics.advice.mechanism import Response
from aaco.analytics.advice.mechanisms import ACTIONS, MECHANISMS
from aaco.analytics.advice.near_roof import MOST_OF_MEMORY, MOST_OF_PEAK
from aaco.analytics.advice.work import OPERATOR_COLUMNS, StepOperator, step_operators
from aaco.analytics.workload.read import facts_of
from aaco.analytics.workload.signs import NameTally, WorkloadSigns
from aaco.core import tables
from aaco.core.advice import offered
from tests.step_pieces import BF16, CONV, LIMITS, copy, floor_us, kernel, product, step

HIPBLASLT = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_LDSB1_AFC1"
ROCBLAS = "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SN_1LDSB0_APM1"
TRITON = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
IGEMM = "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_ws1x1_wr2x2"
TILE_NORM = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEEvDpT1_"
TILE_ATTENTION = "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_26FmhaFwdTilePartitionerEEEEEvDpT2_"
AITER_NORM = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16EL0EEEvPT0_PT_Pf"
EXCHANGE = "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)"
ENGINE = {"framework": frozenset({"vllm", "pytorch"}), "vendor": frozenset({"amd"}), "phase": frozenset({"serving"})}


def of_products(us: float, flops: float | None, name: str = HIPBLASLT, operator: str = "aten::mm", **more: object):
    """A product of one of AMD's libraries. FLOPs of 1e9 take 1 us at the roof."""
    return product(us, flops, name, operator, **more)


def refused(work, name):
    """Why there is nothing to change, as the work shows."""
    found = floor(work, [MECHANISMS[name]])
    assert found.floor_ns is None and not found.shown
    return found.why_absent


def response(work, name) -> Response:
    mechanism = MECHANISMS[name]
    return mechanism.respond(work, mechanism.least_ns(work))


# Products of hipBLASLt and rocBLAS
@pytest.mark.parametrize("name", [HIPBLASLT, ROCBLAS])
def test_tuned_products_are_at_their_roof_and_kernels_of_others_stay(name):
    """10 of 100 us; products of Triton and of NVIDIA's libraries, and a pass over memory, stay."""
    work = step(of_products(100, 1e10, name), product(50, 1e9, TRITON), product(20, 1e9, BF16), kernel(7))
    assert floor_us(work, "product_tuning") == 10 + 50 + 20 + 7
    assert [target.name for target in floor(work, [MECHANISMS["product_tuning"]]).targets] == [name]


def test_without_a_product_of_the_libraries_nothing_is_tuned():
    for work in (step(product(50, 1e9, TRITON), product(20, 1e9, BF16)), step(kernel(7))):
        assert refused(work, "product_tuning") == "no known product is a kernel of hipBLASLt or rocBLAS"


def test_rocblas_under_miopen_is_not_tuned_as_a_product():
    work = step(of_products(100, 1e10, operator="aten::miopen_convolution"))
    assert "no known product" in refused(work, "product_tuning")
    assert floor_us(work, "convolution_search") == 2.5


@pytest.mark.parametrize(("roof_us", "is_near"), [(51, False), (52.5, True), (60, True)])
def test_products_as_fast_as_the_libraries_get_are_not_tuned(roof_us, is_near):
    """At 708 of 1307.4 TFLOP/s of the roof a product of 100 us takes 94.2, and 96.9. Mutation: the roof itself."""
    work = step(of_products(100, roof_us * 1e9))
    if is_near:
        assert "as fast as AMD's libraries compute at best" in refused(work, "product_tuning")
    else:
        assert floor_us(work, "product_tuning") == roof_us


def test_products_that_wait_for_memory_are_not_tuned_where_no_cache_holds_them():
    """150 MB at 2 TB/s: 75 us, 96 at what memory reaches. The floor lets a cache of 50 MB hold some before and after.
    40 MB may be there whole.
    """
    at_best = 75 / MOST_OF_MEMORY
    assert "at best" in refused(step(of_products(1.04 * at_best, 1e9, bytes=1.5e8)), "product_tuning")
    assert floor_us(step(of_products(2 * at_best, 1e9, bytes=1.5e8)), "product_tuning") == 25
    assert floor_us(step(of_products(30, 1e9, bytes=4e7)), "product_tuning") == 4


def test_short_kernels_keep_the_part_that_no_choice_shortens():
    assert "at best" in refused(step(of_products(3, 1e8)), "product_tuning")


def test_products_of_unknown_work_have_no_floor_and_speak_for_nothing():
    """Two of them take less than a fifth of the step, and so does not the rest of it."""
    found = floor(step(of_products(10, None), kernel(90)), [MECHANISMS["product_tuning"]])
    assert found.floor_ns is None and found.shown and "not known" in found.why_absent
    assert not found.targets  # what they could lose is not known


def test_tuned_products_usually_are_as_fast_as_the_libraries_get():
    work = step(of_products(100, 1e10), kernel(7))
    assert response(work, "product_tuning").device_ns.tolist() == [pytest.approx(1e4 / MOST_OF_PEAK), 7000]


# Convolutions by MIOpen
def test_searched_convolutions_are_at_their_roof_with_what_they_need_around():
    """A fourth of 4e10 FLOPs at 1e15 are 10 us of 150; cuDNN's stay, and products."""
    of_miopen = StepOperator("aten::miopen_convolution", types=("bf16",), flops=4e10, kernels=2)
    others = StepOperator("aten::cudnn_convolution", types=("bf16",), flops=4e10)
    work = step(kernel(60, "transpose", of_miopen, "batched_transpose_256x4_half"),
                kernel(90, "conv", of_miopen, IGEMM, types=("bf16",)), kernel(30, "conv", others, CONV),
                of_products(20, 1e9))
    assert floor_us(work, "convolution_search") == 10 + 30 + 20
    assert refused(step(kernel(30, "conv", others, CONV)), "convolution_search") == (
        "nothing that is known convolves by MIOpen")


def test_convolutions_that_compute_as_fast_as_products_do_are_not_searched():
    """At all multiplications: 80 us of FLOPs are 148 at best, and a fourth of them the roof."""
    operator = StepOperator("aten::miopen_convolution", types=("bf16",), flops=8e10)
    for took, is_near in ((150, True), (200, False)):
        work = step(kernel(took, "conv", operator, IGEMM, types=("bf16",)))
        found = floor(work, [MECHANISMS["convolution_search"]])
        assert (found.floor_ns is None) is is_near
        if not is_near:
            assert found.floor_ns == pytest.approx(20_000)
            assert response(work, "convolution_search").device_ns.tolist() == [pytest.approx(8e4 / MOST_OF_PEAK)]


# AITER
def test_aiters_kernels_leave_products_at_their_roof_and_no_passes():
    """A product of 10 us of 100 and attention of 5 of 40; a norm, a pass and a write into the cache may be part of
    others. Copies from the host stay."""
    attention = StepOperator("_vllm::attention", types=("bf16",), flops=5e9)
    work = step(product(100, 1e10, TRITON), kernel(40, "attention", attention, "paged_attention", types=("bf16",)),
                kernel(20, "norm"), kernel(9), kernel(4, "embedding"), copy(3, "h2d", pinned=True))
    assert floor_us(work, "aiter_kernels") == 10 + 5 + 3


def test_aiter_acts_on_what_it_has_kernels_for_also_where_no_roof_is_known():
    """Attention and norms, 60 of 100 us; not products of hipBLASLt, nor other passes. Mutation: without a floor the
    share is not known."""
    work = step(of_products(30, None), kernel(45, "attention", name="paged_attention"), kernel(15, "norm"), kernel(10))
    found = floor(work, [MECHANISMS["aiter_kernels"]])
    assert found.floor_ns is None and "not known" in found.why_absent
    assert [target.name for target in found.targets] == ["paged_attention", "norm"] and found.acted_ns == 60_000
    known = floors_of(work, StepTime(1e5, False))
    assert known.acts_on_pct()["aiter_kernels"] == pytest.approx(60)
    assert "compile" not in known.acts_on_pct()


# Facts
def signs(*names: str, **others: object) -> WorkloadSigns:
    """Kernels of 1 ms each, on the device."""
    return WorkloadSigns(kernels=tuple(NameTally(name, None, 1, 1_000_000) for name in names), on_device=True, **others)


def value(name: str, found: WorkloadSigns) -> str | None:
    return next(fact.value for fact in facts_of(found).facts if fact.name == name)


VLLM_CALL = {"vllm/v1/engine.py(3): step": 1}
MI300X = {"architectures": ("gfx942",), "calls": VLLM_CALL}


@pytest.mark.parametrize(("name", "found", "expected"), [
    ("blas_library", signs(HIPBLASLT, HIPBLASLT, ROCBLAS), "hipblaslt"), ("blas_library", signs(ROCBLAS), "rocblas"),
    ("blas_library", signs("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"), "cublas"),
    ("blas_library", signs(TRITON), "none"), ("blas_library", signs(), None),
    ("aiter", signs(AITER_NORM, **MI300X), "used"), ("aiter", signs(TILE_NORM, **MI300X), "used"),
    ("aiter", signs(TRITON, architectures=("gfx942",), calls={"vllm::rocm_aiter_fused_moe": 4}), "used"),
    ("aiter", signs(TRITON, **MI300X), "unused"), ("aiter", signs(EXCHANGE, **MI300X), "unused"),
    ("aiter", signs(TILE_ATTENTION, **MI300X), "unused"),
    ("aiter", signs("void ck::kernel_batchnorm_forward_infer<float>(float*)", **MI300X), "unused"),
    ("aiter", signs(TRITON, architectures=("gfx950",), calls=VLLM_CALL), "unused"),
    ("aiter", signs(TRITON, architectures=("gfx90a",), calls=VLLM_CALL), "no"),
    ("aiter", signs(TRITON, architectures=("gfx942", "gfx1201"), calls=VLLM_CALL), "no"),
    ("aiter", signs(TRITON, architectures=("sm_90",), calls=VLLM_CALL), "no"),
    ("aiter", signs(TRITON, architectures=("gfx942",), calls={"aten::mm": 1}), "no"),
    ("aiter", signs(TRITON, calls=VLLM_CALL), None), ("aiter", signs(), None)])
def test_which_libraries_compute_is_read_from_names(name, found, expected):
    assert value(name, found) == expected


def test_an_unknown_device_is_asked_for():
    (fact,) = (fact for fact in facts_of(signs(TRITON, calls=VLLM_CALL)).facts if fact.name == "aiter")
    assert fact.why_absent == "none of its kernels ran, and the device is not known (--device names it)"


# What is offered
def steps_of(action: str, **facts: str) -> tuple[str, ...]:
    """What an action says to try in a workload with these facts; the reason alone where it is not offered."""
    known = {name: frozenset(values.split()) for name, values in facts.items()}
    (found,) = (one for one in ACTIONS if one.name == action)
    if reason := found.why_not(known):
        return (reason,)
    return tuple(attempt.text for attempt in found.attempts if not attempt.why_not(known))


@pytest.mark.parametrize(("engine", "variable"), [("vllm", "VLLM_ROCM_USE_AITER=1"), ("sglang", "SGLANG_USE_AITER=1")])
def test_each_engine_has_its_own_switch_for_aiter(engine, variable):
    (text,) = steps_of("aiter_kernels", framework=f"{engine} pytorch", vendor="amd", aiter="unused")
    assert text.startswith(variable)
    facts = {"framework": f"{engine} pytorch", "vendor": "amd"}
    assert steps_of("aiter_kernels", **facts, aiter="used") == ("already so: aiter is used",)
    assert steps_of("aiter_kernels", **facts, aiter="no") == ("not here: no aiter",)
    assert steps_of("aiter_kernels", **facts) == ("not here: aiter is not known",)
    assert steps_of("aiter_kernels", framework=engine, vendor="nvidia", aiter="no") == ("not here: vendor is nvidia",)


def test_products_are_tuned_by_what_reaches_their_library():
    by_pytorch, by_library = steps_of("tune_products", framework="pytorch", vendor="amd", blas_library="hipblaslt")
    assert "PYTORCH_TUNABLEOP_ENABLED=1" in by_pytorch and "HIPBLASLT_TUNING_OVERRIDE_FILE" in by_library
    (text,) = steps_of("tune_products", framework="pytorch", vendor="amd", blas_library="rocblas")
    assert "PYTORCH_TUNABLEOP_ENABLED=1" in text
    for facts in ({"framework": "pytorch", "vendor": "nvidia", "blas_library": "cublas"},
                  {"framework": "llama.cpp", "vendor": "amd", "blas_library": "rocblas"},
                  {"framework": "sglang pytorch", "vendor": "amd", "blas_library": "hipblaslt", "aiter": "used"},
                  {"framework": "pytorch", "vendor": "amd", "blas_library": "none"}):
        assert "not here" in steps_of("tune_products", **facts)[0]


def test_convolutions_are_searched_by_pytorch_on_amd_only():
    (text,) = steps_of("search_convolutions", framework="pytorch", vendor="amd")
    assert "MIOPEN_FIND_ENFORCE=3" in text
    assert "vendor" in steps_of("search_convolutions", framework="pytorch", vendor="nvidia")[0]
    assert "framework" in steps_of("search_convolutions", framework="vllm pytorch", vendor="amd")[0]


def test_another_vendors_actions_are_not_listed_as_not_advised():
    """On AMD it is: the engine has AITER on already. Mutation: a reader on NVIDIA is told that AITER is not for it."""
    work = step(of_products(100, 1e10), kernel(200, "attention", name="paged_attention"))
    floors = floors_of(work, StepTime(3e5, False))
    facts = {**ENGINE, "aiter": frozenset({"used"}), "blas_library": frozenset({"hipblaslt"})}

    def listed(facts: dict[str, frozenset[str]]) -> set[str]:
        return {entry.name for entry in recommend.withheld({}, facts, floors)}

    assert "aiter_kernels" in listed(facts)
    assert not {"aiter_kernels", "tune_products"} & listed({**facts, "vendor": frozenset({"nvidia"})})


def test_an_engine_without_aiter_is_advised_it_with_its_share_and_no_ceiling():
    work = step(of_products(30, None), kernel(45, "attention", name="paged_attention"), kernel(15, "norm"))
    floors = floors_of(work, StepTime(1e5, False))
    facts = {**ENGINE, "aiter": frozenset({"unused"})}
    advised, _ = recommend.bounded(recommend.gaining({}, facts, floors), floors)
    (advice,) = (one for one in advised if one.name == "aiter_kernels")
    assert advice.share_pct == pytest.approx(60) and advice.ceiling is None and advice.expected is None
    assert "not known" in advice.why_no_ceiling and advice.targets == ("paged_attention", "norm")


def test_no_gain_of_tuning_is_expected_without_a_recorded_pair():
    floors = floors_of(step(of_products(100, 1e10)), StepTime(1e5, True), None, "none was recorded on AMD")
    assert "product_tuning" not in floors.expected
    assert floors.why_not_expected["product_tuning"] == "none was recorded on AMD"
    assert Floors.of(floors.document()) == floors


@pytest.mark.parametrize(("mechanisms", "facts", "expected"), [
    (["narrower_types"], {"product_type": "bf16", "framework": "pytorch"}, "already so: product type is bf16"),
    (["narrower_types"], {"product_type": "fp32", "framework": "pytorch"}, ""),
    (["tf32", "narrower_types"], {"product_type": "bf16", "framework": "pytorch", "tf32_units": "yes"},
     "already so: product type is bf16"),
    (["tf32", "graph"], {"product_type": "bf16", "framework": "pytorch", "graph_capture": "possible"}, ""),
    (["what_if"], {"product_type": "bf16"}, "")])
def test_what_if_says_what_advice_has_against_a_change(mechanisms, facts, expected):
    """Of several changes only where all of them are refused. Mutation: a ceiling of 16 bits where all is bf16."""
    known = {name: frozenset({fact}) for name, fact in facts.items()}
    assert recommend.why_not_advised(mechanisms, known) == expected


# Types of operators
def operators(dtypes: str, shapes: str) -> StepOperator:
    table = tables.OPERATORS.build(operator_id=[0], operator=["aten::mul"], shapes=[shapes], dtypes=[dtypes], calls=[1],
                                   kernels=[1], host_ns=[1], device_ns=[1]).select(OPERATOR_COLUMNS)
    return step_operators(table)[0]


@pytest.mark.parametrize(("dtypes", "shapes", "types", "integers"), [
    ('["c10::BFloat16","double"]', "[[8,8],[]]", ("bf16",), False),
    ('["c10::BFloat16","float"]', "[[8,8],[8]]", ("bf16", "f32"), False),
    ('["long int","double"]', "[[8,8],[]]", ("f64",), False),
    ('["long int","long int"]', "[[8,8],[]]", (), True),
    ('["double"]', "[[]]", ("f64",), False)])
def test_a_wrapped_number_leaves_the_type_of_an_operator_alone(dtypes, shapes, types, integers):
    """A bf16 tensor times .125 is recorded as bf16 and float64. Mutation: it counts as work in 64 bits, which 16 bits
    would halve."""
    found = operators(dtypes, shapes)
    assert found.types == types and found.integers is integers


def test_16_bits_do_not_halve_what_a_wrapped_number_scales():
    scaled = replace(operators('["c10::BFloat16","double"]', "[[8,8],[]]"), name="aten::mul")
    assert "already" in refused(step(kernel(9, operator=scaled, types=("bf16",)), limits=LIMITS), "narrower_types")


# Images for MIOpen
@pytest.mark.parametrize(("vendor", "asked"), [("amd", True), ("nvidia", False), ("", False)])
def test_miopen_has_to_be_asked_for_channels_last(vendor, asked):
    """Until ROCm 7.0 PyTorch converts such images back otherwise. Mutation: AMD's step for all vendors."""
    steps = next(action for action in ACTIONS if action.name == "channels_last").attempts
    facts = {"framework": frozenset({"pytorch"}), "vendor": frozenset({vendor} - {""})}
    (attempt,) = offered(steps, facts)
    assert "model.to(memory_format=torch.channels_last), and the inputs too" in attempt
    assert ("PYTORCH_MIOPEN_SUGGEST_NHWC=1" in attempt) is asked


def test_16_bits_with_images_for_miopen_ask_for_it_too():
    steps = next(action for action in ACTIONS if action.name == "narrow_images").attempts
    facts = {"framework": frozenset({"pytorch"}), "vendor": frozenset({"amd"}), "phase": frozenset({"inference"})}
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in "; ".join(offered(steps, facts))
    assert "MIOPEN" not in "; ".join(offered(steps, {**facts, "vendor": frozenset({"nvidia"})}))

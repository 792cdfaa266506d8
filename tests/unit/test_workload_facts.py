"""What a workload already does: each fact by planted names, counts and times; and the advice that depends on it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aaco.analytics.advice import recommend
from aaco.analytics.bottleneck.work import Copied
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.measure import measure
from aaco.analytics.workload import arithmetic, device_use
from aaco.analytics.workload.facts import WorkloadFact, WorkloadFacts
from aaco.analytics.workload.growth import Growth, grown, growth, operands
from aaco.analytics.workload.read import FACTS, facts_of
from aaco.analytics.workload.signs import CallTallies, KernelTallies, LaunchStretches, NameTally, WorkloadSigns
from aaco.core import registry
from aaco.core.advice import Step, fact_in_words, fact_is, fact_is_not, offered
from aaco.core.config import Analysis
from aaco.core.readings import Reading
from aaco.core.tables import API_CALLS, KERNELS, OPERATORS
from aaco.report.renderers import terminal
from aaco.report.sections.findings import workload_facts

BF16 = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
FFMA = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas"
TENSILE = "Cijk_Ailk_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, 3>(int)"
ADD_DOUBLES = ADD.replace("float", "double")
SDPA = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"
CONV = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize256x64x8_execute_kernel__5x_cudnn"
DATA_GRADIENT = CONV.replace("fprop", "dgrad")
CONVERSION = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(Params)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>(P)"


def signs(*kernels: tuple[str, int], **others: object) -> WorkloadSigns:
    """Each kernel once, with how long it took, ns."""
    return WorkloadSigns(kernels=tuple(NameTally(name, None, 1, ns) for name, ns in kernels), on_device=True, **others)


def reading(element_type: str, name: str) -> WorkloadSigns:
    """A kernel whose first input is of this type."""
    return WorkloadSigns(kernels=(NameTally(name, element_type, 1, 1),), on_device=True)


def value(name: str, found: WorkloadSigns) -> str | None:
    return next(fact.value for fact in facts_of(found).facts if fact.name == name)


@pytest.mark.parametrize(("name", "found", "expected"), [
    ("vendor", signs((BF16, 1)), "nvidia"), ("vendor", signs((TENSILE, 1)), "amd"),
    ("vendor", signs((ADD, 1), calls={"hipLaunchKernel": 3}), "amd"),
    ("vendor", signs((ADD, 1)), None),
    ("vendor", WorkloadSigns(kernels=(NameTally("MatMul", None, 1, 1),)), "cpu"),
    ("runtime", signs(calls={"cudaLaunchKernel": 1}), "cuda"), ("runtime", signs(calls={"hsa_signal_load": 1}), "hsa"),
    ("framework", signs((ADD, 1)), "pytorch"), ("framework", signs((BF16, 1)), None),
    ("framework", signs(calls={"vllm/v1/engine.py(3): step": 1, "aten::add": 9}), "vllm"),
    ("framework", signs(("vllm::act_and_mul_kernel", 1), calls={"/x/sglang/srt/run.py(1): go": 1}), "sglang"),
    ("framework", signs(("void silu_f32(float const*)", 1), calls={"aten::silu": 1}), "pytorch"),
    ("framework", signs(("void silu_f32(float const*)", 1)), "llama.cpp"),
    ("framework", signs(domains={"ort": 4}), "onnxruntime"),
    ("python_frames", signs(calls={"aten::add": 1, "train.py(41): step": 2}), "recorded"),
    ("python_frames", signs(calls={"aten::add": 1}), "none"), ("python_frames", signs((BF16, 1)), None),
    ("framework", signs(("vllm::act_and_mul_kernel", 1), calls={"aten::add": 1}), "pytorch"),
    ("framework", signs(("vllm::act_and_mul_kernel", 1)), "vllm"),
    ("phase", signs(calls={"autograd::engine::evaluate_function: AddBackward0": 1}), "training"),
    ("phase", signs(calls={"execute_8_context_0(sq0)_generation_8(sq8)": 2, "aten::add": 1}), "serving"),
    ("phase", signs(calls={"aten::add": 1}), "inference"), ("phase", signs((BF16, 1)), None),
    ("phase", signs((DATA_GRADIENT, 1), calls={"aten::conv_transpose3d": 1}), "inference"),
    ("phase", signs((DATA_GRADIENT, 1), (DATA_GRADIENT.replace("dgrad", "wgrad"), 1)), "training"),
    ("data_loader", signs(calls={"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 3}), "single_process"),
    ("data_loader", signs(calls={"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": 3}), "workers"),
    ("data_loader", signs(calls={"aten::add": 3}), "none"), ("data_loader", signs((BF16, 1)), None),
    ("optimizer", signs(calls={"Optimizer.step#AdamW.step": 2, "aten::_fused_adamw_": 2}), "fused"),
    ("optimizer", signs(calls={"Optimizer.step#AdamW.step": 2, "aten::_foreach_add_": 9}), "foreach"),
    ("optimizer", signs(calls={"Optimizer.step#AdamW.step": 2, "aten::_fused_rms_norm": 9}), "loop"),
    ("execution", signs(("triton_poi_fused_add_0", 1)), "compiled"), ("execution", signs((ADD, 1)), "eager"),
    ("execution", signs(("triton_poi_fused_add_0", 1), (ADD, 2), (BF16, 9)), "partly_compiled"),
    ("execution", signs((ADD, 2), calls={"Torch-Compiled Region: 0/0": 1}), "partly_compiled"),
    ("execution", signs(("triton_poi_fused_add_0", 2), (ADD, 1), (BF16, 9)), "compiled"),
    ("execution", signs(("triton_poi_fused_add_0", 1), ("at::native::multi_tensor_apply_kernel<int>", 9)), "compiled"),
    ("execution", signs(("triton_poi_fused_add_0", 1), (ADD, 2), calls={"Optimizer.step#SGD.step": 1}), "compiled"),
    ("device_graph", signs(calls={"cudaGraphLaunch": 1, "cudaLaunchKernel": 9}), "replayed"),
    ("device_graph", signs(calls={"hipStreamBeginCapture": 1, "hipLaunchKernel": 9}), "captured"),
    ("device_graph", signs(calls={"cudaLaunchKernel": 9}), "none"), ("device_graph", signs((BF16, 1)), None),
    ("graph_capture", signs(stretches=LaunchStretches(100, 60, 3)), "possible"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 40, 30)), "too_short"),
    ("graph_capture", signs(stretches=LaunchStretches(90, 0, 30)), "too_short"),
    ("graph_capture", signs(stretches=LaunchStretches(89, 0, 30)), "nowhere"),
    ("graph_capture", signs(stretches=LaunchStretches(89, 10, 30)), "too_short"),
    ("graph_capture", signs((BF16, 1)), None),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), calls={"aten::nonzero": 2, "aten::eq": 2}),
     "sized_by_data"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), calls={"aten::nonzero": 2, "aten::eq": 1}),
     "possible"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), calls={"aten::_unique2": 2}), "sized_by_data"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), calls={"aten::nonzero": 1}), "possible"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), growth=Growth(8, 8, 32)), "growing"),
    ("graph_capture", signs(stretches=LaunchStretches(100, 90, 3), growth=Growth(8, 16, 32)), "possible"),
    ("product_type", signs((BF16, 6), (FFMA, 5)), "bf16"), ("product_type", signs((BF16, 4), (FFMA, 5)), "fp32"),
    ("product_type", signs((TF32, 4), (FFMA, 3), (BF16, 5)), "tf32"),
    ("product_type", signs((TENSILE, 1)), "bf16"), ("product_type", signs((ADD, 1)), None),
    ("product_type", signs(("void gemv(int)", 9), (BF16, 1)), None),
    ("element_type", signs((ADD, 1), (BF16, 9)), "fp32"), ("element_type", signs((ADD_DOUBLES, 1)), "fp64"),
    ("element_type", reading("float", "void add(int)"), "fp32"),
    ("product_type", signs((SDPA, 1)), "fp16"), ("product_type", reading("c10::BFloat16", SDPA), "bf16"),
    ("product_kind", signs((CONV, 5), (BF16, 4)), "conv"),
    ("layout", signs((CONV, 99), (CONVERSION, 1)), "nchw"), ("layout", signs((CONV, 999), (CONVERSION, 1)), "nhwc"),
    ("layout", signs((BF16, 1)), "none"),
    ("attention", signs((FLASH, 1)), "fused"), ("attention", signs((BF16, 1)), "none"),
    ("eight_bit_units", signs(rates=frozenset({"matrix_f8"})), "yes"), ("eight_bit_units", signs(), None),
    ("tf32_units", signs(rates=frozenset({"matrix_f8"})), "no"), ("tf32_units", signs(), None),
    ("tf32_units", signs(rates=frozenset({"matrix_tf32"})), "yes"),
    ("copies", signs(copies=(Copied("h2d", True, 1, 60, 1), Copied("d2h", False, 1, 40, 1))), "pinned"),
    ("copies", signs(copies=(Copied("h2d", True, 1, 40, 1), Copied("d2h", False, 1, 60, 1))), "pageable"),
    ("copies", signs(copies=(Copied("d2d", None, 1, 40, 1),)), "none"), ("copies", signs(), None),
])
def test_a_fact_is_read_from_what_shows_it(name, found, expected):
    """What nothing shows is absent with its reason, never a default."""
    fact = next(fact for fact in facts_of(found).facts if fact.name == name)
    assert fact.value == expected and bool(fact.why_absent) is (expected is None)
    assert fact.value is None or fact.evidence


@pytest.mark.parametrize(("of_optimizer", "expected"), [(12, "none"), (11, "written_out"), (20, "none")])
def test_roots_of_an_optimizer_are_of_no_norm(of_optimizer, expected):
    """A loop of Adam takes a root and a quotient for each parameter, and a loss is a mean: no norm is written so.

    Mutations: roots of an optimizer, too; less than no root.
    """
    found = signs((ADD, 1), calls={"aten::mean": 1, "aten::sqrt": 12, "aten::div": 12, "aten::addcdiv_": of_optimizer})
    assert value("norms", found) == expected


@pytest.mark.parametrize(("shapes", "expected"), [("[[4, 16, 128, 128]]", "written_out"), ("[[4096, 8]]", "none")])
def test_a_softmax_of_scores_beside_batched_products_is_attention_and_one_of_experts_is_none(shapes, expected):
    operators = OPERATORS.build(operator_id=[0], operator=["aten::_softmax"], shapes=[shapes], kernels=[1],
                                device_ns=[1])
    found = signs(("void softmax_warp_forward<float>(float*)", 1), calls={"aten::bmm": 2, "aten::_softmax": 1},
                  operators=operators)
    assert value("attention", found) == expected


def test_where_names_tell_no_type_the_operators_inputs_do():
    operators = OPERATORS.build(operator_id=[0, 1], operator=["aten::mv", "aten::add"], family=["gemm", "elementwise"],
                                dtypes=['["c10::BFloat16", "c10::BFloat16"]', '["float"]'], kernels=[1, 1],
                                device_ns=[9, 1])
    assert value("product_type", signs(("void gemv(int)", 9), operators=operators)) == "bf16"


def calls(names: list[str], processes: list[int] | None = None) -> pa.RecordBatch:
    count = len(names)
    table = API_CALLS.build(call_id=range(count), name=names, domain=["cuda_runtime"] * count, capture=[0] * count,
                            process_id=processes or [1] * count)
    return table.select(["name", "domain", "capture", "process_id"]).to_batches()[0]


KEYS = [((1, 8, length, 64), (1, 8, 1, 64)) for length in range(5, 9)]
VALUES = [((1, 8, 64, length), (1, 8, 64, 1)) for length in range(5, 9)]


def test_what_grows_is_a_row_of_three_concatenations_and_more_each_of_the_result_before():
    """Keys and values of one length have one place in the row, whatever the order of their axes."""
    others = [((1, 64, 8), (1, 64, 8)), ((1, 128, 8), (1, 32, 8)), ((9, 9), (9, 1)), ((9, 10), (9, 1))]
    listed = dict(enumerate(KEYS + VALUES + others))
    assert grown(listed) == {number: number % 4 for number in range(8)}
    assert grown(dict(enumerate(KEYS[:2]))) == {} and set(grown(dict(enumerate(KEYS[:3])))) == {0, 1, 2}


@pytest.mark.parametrize(("sizes", "waits", "outlives"), [
    ([0, 0, 1, 1, 2, 2], 0, True),  # no size comes back
    ([0, 0, 1, 1, 2, 2] * 2, 6, True), ([0, 0, 1, 1, 2, 2] * 2, 5, False),  # one size between two waits
    ([0, 1, 2], 9, False),  # a network that keeps the results of its layers
    ([0, 0, 1, 1], 9, False)])
def test_no_graph_holds_a_tensor_whose_sizes_never_come_back_or_change_with_every_wait(sizes, waits, outlives):
    assert growth(sizes).outlives(waits) is outlives


@pytest.mark.parametrize(("shapes", "found"), [
    ([[[1, 2], [1, 3]], []], ((1, 2), (1, 3))), ([[[1, 2]], []], None), ([[[1, 2], [1]], []], None), ([[5], []], None),
    ([], None), ({}, None), ([[[1, "x"], [1, 2]]], None)])
def test_operands_of_a_concatenation_are_tensors_of_one_rank(shapes, found):
    assert operands(shapes) == found


def test_stretches_of_launches_end_where_the_host_waits():
    """Ten launches between two waits are worth a graph; the last stretch counts too, and other processes do not end it.

    Mutation: a wait of another process ends the stretch."""
    tallies = CallTallies()
    launch, wait = "cudaLaunchKernel", "cudaStreamSynchronize"
    tallies.feed(calls([launch] * 3 + [wait] + [launch] * 5))
    tallies.feed(calls([launch, wait] + [launch] * 5 + ["cudaMemcpy"] + [launch] * 9,
                       [1, 2] + [1] * 5 + [1] + [1] * 9))
    assert tallies.stretches() == LaunchStretches(23, 11, 3)
    assert tallies.calls[launch] == 23 and tallies.domains["cuda_runtime"] == 26


def test_a_range_that_the_profiler_copies_onto_the_device_counts_once():
    """Five steps of an optimizer with a foreach operator each; the copies alone count where the host was not recorded.
    Mutation: ten steps with five such operators, which are a loop's."""
    step, operator = "Optimizer.step#AdamW.step", "aten::_foreach_add_"
    names = [step, operator] * 5 + [step] * 5 + ["device only"]
    domains = ["marker", "cpu_op"] * 5 + ["gpu_marker"] * 6
    tallies = CallTallies()
    rows = API_CALLS.build(call_id=range(16), name=names, domain=domains, capture=[0] * 16, process_id=[1] * 16)
    for batch in rows.select(["name", "domain", "capture", "process_id"]).to_batches(max_chunksize=7):
        tallies.feed(batch)
    assert tallies.calls == {step: 5, operator: 5, "device only": 1}
    assert value("optimizer", signs(calls=tallies.calls)) == "foreach"


def test_types_that_are_printed_as_nothing_are_left_out():
    """Mutation: "fp32 100 %, bf16 0 %"."""
    fact = arithmetic.product_type(signs((FFMA, 999), (BF16, 1)))
    assert fact.evidence == "product time: fp32 100 %" and fact.parts["bf16"] == 1


def test_labels_of_facts_are_printed_whole():
    """Mutation: "Eight-bit …trix units"."""
    facts = WorkloadFacts(tuple(WorkloadFact(name, "so", evidence="it is") for name in (
        fact.name for fact in facts_of(signs((BF16, 1))).facts)))
    assert all(len(row.label) < terminal.LABEL for row in workload_facts._rows(facts))


def test_kernels_are_summed_by_name_and_element_type():
    tallies = KernelTallies()
    for types in (["float32"], ["float32"], None):
        rows = KERNELS.build(kernel_id=[0], kernel_name=["MatMul"], dtypes=[types], dur_ns=[5], provider=["CPU"])
        tallies.feed(rows.select(["kernel_name", "dtypes", "dur_ns", "provider"]).to_batches()[0])
    assert tallies.tallies() == (NameTally("MatMul", "float32", 2, 10), NameTally("MatMul", None, 1, 5))
    assert tallies.providers == {"CPU": 3}


def test_the_document_keeps_every_fact():
    found = facts_of(signs((BF16, 1), calls={"aten::add": 1}))
    assert len(found.facts) == len(FACTS) and WorkloadFacts.of(found.document()) == found


def readings(**known: float) -> dict[str, Reading]:
    return measure({}, None, Analysis()) | {name: Reading(name, "pct", amount) for name, amount in known.items()}


TORCH = {"framework": frozenset({"pytorch"}), "vendor": frozenset({"nvidia"}), "graph_capture": frozenset({"possible"})}


@pytest.mark.parametrize(("limit", "action", "facts", "against"), [
    ("launch_tax_pct", "device_graph", {"device_graph": "none"}, {"device_graph": "replayed"}),
    ("launch_tax_pct", "device_graph", {"graph_capture": "possible"}, {"graph_capture": "sized_by_data"}),
    ("launch_tax_pct", "device_graph", {"framework": "pytorch"}, {"framework": "jax"}),
    ("compute_limited_pct", "narrower_types", {"product_type": "tf32"}, {"product_type": "bf16"}),
    ("compute_limited_pct", "eight_bit_types",
     {"product_type": "bf16", "eight_bit_units": "yes", "product_kind": "gemm"},
     {"product_type": "fp8", "eight_bit_units": "yes", "product_kind": "gemm"}),
    ("pointwise_pct", "fusion", {"execution": "eager"}, {"execution": "compiled"}),
])
def test_advice_is_offered_unless_a_fact_speaks_against_it(limit, action, facts, against):
    """What is withheld is told with the fact. Mutation: already_done_if is not asked."""
    one, other = ({**TORCH, **{name: frozenset({what}) for name, what in some.items()}} for some in (facts, against))
    given = readings(**{limit: 80.0})
    assert [advice.name for advice in recommend.gaining(given, one)] == [action]
    assert action not in [advice.name for advice in recommend.gaining(given, other)]
    withheld = {entry.name: entry for entry in diagnose(given, other).withheld}[action]
    assert withheld.gain_pct > 1
    assert withheld.why.partition(": ")[2] in [fact_in_words(name, frozenset({what})) for name, what in against.items()]
    assert action in [entry["action"] for entry in diagnose(given, other).document()["not_offered"]]


def test_a_trace_of_a_graphs_capture_has_no_class_and_no_advice():
    """40 launches were captured and 9 kernels ran. Mutation: MOST_LAUNCHES of a million."""
    of_capture, warm = (signs(*[(BF16, 1)] * kernels, calls={"cudaStreamBeginCapture": 1, "cudaLaunchKernel": 40})
                        for kernels in (9, 10))
    assert device_use.device_graph(of_capture).values == ("captured", "not_run")
    assert device_use.device_graph(warm).values == ()
    given, facts = readings(host_pause_pct=80.0, host_limited_pct=90.0, pointwise_pct=50.0), {
        **TORCH, "device_graph": frozenset({"captured", "not_run"})}
    assert diagnose(given, TORCH).recommendations
    found = diagnose(given, facts)
    assert (found.label, found.recommendations, found.rule_advice) == ("unknown", (), ())
    assert "trace is of a graph's capture" in found.abstained_because


@pytest.mark.parametrize(("share", "facts", "offered"), [
    (12.0, {}, True), (4.0, {}, False), (None, {}, True), (12.0, {"framework": "vllm"}, False),
    (12.0, {"execution": "compiled"}, False)])
def test_kernels_are_to_be_fused_only_where_that_can_gain_and_the_program_is_the_users(share, facts, offered):
    """4 % of the time is worth 1.04 times at most. Mutations: the share is 100 always; no OWN_CODE."""
    found = registry.RULES["memory_bound"].steps
    texts = recommend.worth_trying(found, readings(**{} if share is None else {"pointwise_pct": share}),
                                   {name: frozenset({what}) for name, what in facts.items()})
    assert ("fuse or remove the elementwise and copy kernels that the report lists" in texts) is offered


@pytest.mark.parametrize(("facts", "offered"), [
    ({"product_kind": "gemm"}, "raise the batch so that weights are read once for more samples"), ({}, ""),
    ({"product_kind": "attention"}, ""),
    ({"product_kind": "gemm", "framework": "vllm"}, "more requests at once: --max-num-seqs of vLLM"),
    ({"product_kind": "gemm", "framework": "llama.cpp"}, "more sequences at once: --parallel of llama-server")])
def test_a_larger_batch_is_for_products_with_weights_and_in_words_of_the_engine(facts, offered):
    """Mutation: the batch is raised whatever the kernels are."""
    found = registry.RULES["memory_bound"].steps
    texts = recommend.worth_trying(found, readings(), {name: frozenset({what}) for name, what in facts.items()})
    assert [text for text in texts if "at once" in text or "batch" in text] == [offered] * bool(offered)


def test_weights_of_four_bits_are_not_to_be_shrunk():
    """Mutation: only element_type is asked."""
    given, narrow = readings(), {"product_type": frozenset({"fp4"})}
    shrink = "shrink what is moved: a narrower type for weights and activations"
    steps = registry.RULES["memory_bound"].steps
    assert shrink in recommend.worth_trying(steps, given, {})
    assert shrink not in recommend.worth_trying(steps, given, narrow)


def test_a_data_loader_is_advised_only_where_one_loads():
    given = readings(host_pause_pct=80.0)
    attempts = {loader: recommend.gaining(given, {**TORCH, "data_loader": frozenset({loader})})[0].attempt
                for loader in ("none", "single_process", "workers")}
    assert "DataLoader" not in attempts["none"] and "py-spy" in attempts["none"]
    assert "num_workers" in attempts["single_process"] and "num_workers" not in attempts["workers"]


def test_an_inference_is_narrowed_with_its_weights_and_a_training_by_autocast():
    """Autocast converts the weights in each step, which an inference does not need."""
    given = readings(compute_limited_pct=80.0)
    facts = {**TORCH, "product_type": frozenset({"fp32"})}
    attempts = {phase: next(one.attempt for one in recommend.gaining(given, {**facts, "phase": frozenset({phase})})
                            if one.name == "narrower_types") for phase in ("inference", "training")}
    assert "model.to(torch.bfloat16)" in attempts["inference"] and "autocast(" not in attempts["inference"]
    assert "autocast(" in attempts["training"] and "model.to" not in attempts["training"]


@pytest.mark.parametrize(("vendor", "own", "others"), [("amd", "amd-smi", "nvidia-smi"),
                                                       ("nvidia", "nvidia-smi", "amd-smi")])
def test_rules_name_the_tools_of_the_device_at_hand(vendor, own, others):
    given = readings(device_others_sm_pct=50.0, device_processes_max=3.0)
    (shared,) = [verdict for verdict in diagnose(given, {"vendor": frozenset({vendor})}).conditions
                 if verdict.label == "shared_device"]
    assert own in " ".join(shared.advice) and others not in " ".join(shared.advice)


def test_a_step_applies_if_its_fact_is_known_and_nothing_is_left_out_where_nobody_looked():
    steps = (Step("a", (fact_is("x", "1"),)), Step("b", (fact_is_not("x", "1"),)), Step("c", (), (fact_is("x", "1"),)))
    assert offered(steps, None) == ("a", "b", "c")
    assert offered(steps, {}) == ("b", "c")
    assert offered(steps, {"x": frozenset({"1"})}) == ("a",)
    assert offered(steps, {"x": frozenset({"2"})}) == ("b", "c")


@pytest.mark.parametrize(("drift", "words"), [(12.0, "slower"), (-12.0, "faster")])
def test_a_drift_says_its_direction(drift, words):
    given = readings(latency_drift_pct=drift, latency_drift_p=0.001)
    (verdict,) = [verdict for verdict in diagnose(given).conditions if verdict.label == "drifting_latency"]
    assert f"{words} towards the end" in verdict.evidence[1].because


def test_a_data_sheet_is_named_once_for_all_its_devices():
    """Mutation: once for each device of eight ranks."""
    fact = arithmetic.eight_bit_units(signs(rates=frozenset({"matrix_f8"}), architectures=("sm_90",) * 4 + ("sm_80",)))
    assert fact.evidence == "data sheet of sm_90, sm_80"

"""The catalogue of changes: when each applies, when not and why, and that what it sets reaches ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.core import config
from aaco.core.candidate import ALREADY, Candidate
from aaco.optimize.changes import candidates
from aaco.optimize.situation import Situation
from aaco.runner import ort, provider
from aaco.runner.job import Job
from aaco.runner.registry import BackendEntry
from aaco.workflows.duet import sides
from aaco.workflows.duet.sides import DuetSide

CUDA, TENSORRT, MIGRAPHX, OPENVINO = (f"{name}ExecutionProvider" for name in
                                      ("CUDA", "Tensorrt", "MIGraphX", "OpenVINO"))
HERE = Situation(Path("model.onnx"), "CPUExecutionProvider", {"backend": "cpu", "batch": "1"}, 1, False,
                 {"MatMul": 3, "Softmax": 1, "LayerNormalization": 2}, frozenset({"float32"}), graph_width=3, cpus=8,
                 cores=4, latency_ms=5.0, allowed=tuple(range(8)), machine_cores=4)


def offered(situation: Situation) -> dict[str, Candidate]:
    return {change.name: change for change in candidates(situation)[0]}


def refused(situation: Situation) -> dict[str, str]:
    return {change.name: change.why for change in candidates(situation)[1]}


def having(**settings: str) -> Situation:
    """HERE with further settings; `__` stands for a dot."""
    return replace(HERE, settings={**HERE.settings, **{name.replace("__", "."): value
                                                       for name, value in settings.items()}})


def test_every_change_is_offered_or_refused_with_a_reason_by_one_name():
    """Mutation: a reason that is empty, which would offer the change."""
    for situation in (HERE, having(io="device", session__execution_mode="parallel"),
                      *(replace(HERE, provider=one) for one in (CUDA, TENSORRT, MIGRAPHX, OPENVINO))):
        changes, not_here = candidates(situation)
        names = [change.name for change in (*changes, *not_here)]
        assert len(names) == len(set(names)) and all(change.why and change.title for change in not_here)
        assert all(change.settings or change.rewrite for change in changes)
        assert not any(all(situation.has(*setting) for setting in change.settings.items()) and not change.rewrite
                       for change in changes)


def test_what_a_change_puts_to_the_test_is_an_advice():
    """Mutation: an action's name misspelt."""
    known = {action.name for action in ACTIONS}
    for situation in (HERE, replace(HERE, slo_ms=100.0), *(replace(HERE, provider=one) for one in (CUDA, MIGRAPHX))):
        for change in (*candidates(situation)[0], *candidates(situation)[1]):
            assert set(change.advice) <= known, change.name


@pytest.mark.parametrize("situation, counts", [
    (HERE, {"threads_8", "threads_2", "threads_1"}),
    (having(intra_op_threads="8"), {"threads_4", "threads_2", "threads_1"}),
    (having(intra_op_threads="3"), {"threads_8", "threads_4", "threads_2", "threads_1"}),
    (replace(HERE, cpus=1, cores=1), {"threads_1"}),
    (replace(HERE, cores=None), {"threads_8", "threads_1"})])
def test_counts_of_threads(situation, counts):
    """As many as CPUs, cores, half of them, and one; never what is so already. Mutation: half of the CPUs."""
    names = {name for name in offered(situation) if name.startswith("threads_")}
    assert names == counts
    assert all(why == ALREADY for name, why in refused(situation).items() if name.startswith("threads_"))


def test_threads_that_fit_are_the_answer_to_too_many():
    """Mutation: the advice on too many always."""
    changes = offered(replace(HERE, cpus=2, cores=2, machine_cores=16))
    assert changes["threads_2"].advice == ("fit_threads",) == changes["threads_1"].advice
    assert offered(HERE)["threads_2"].advice == ("compare_threads",)
    assert refused(replace(HERE, provider=CUDA))["threads_2"] == f"{CUDA} does not compute in these threads"
    assert refused(replace(HERE, cpus=None, cores=None))["threads"] == "how many CPUs the run may use is not known"


@pytest.mark.parametrize("situation, why", [
    (HERE, "ONNX Runtime binds them itself where no count of threads is set"),
    (having(intra_op_threads="1"), "the main thread, which is the only one, is not bound"),
    (having(intra_op_threads="9"), "9 threads have no CPU each: the run may use 8"),
    (having(intra_op_threads="4"), "which CPUs share a core is not known"),
    (replace(having(intra_op_threads="4"), allowed=()), "which CPUs the run may use is not known"),
    (replace(HERE, machine_cores=None), "how many threads there are is not known"),
    (having(intra_op_threads="2", session__intra_op_thread_affinities="2"), ALREADY),
    (replace(having(intra_op_threads="8"), provider=CUDA), f"{CUDA} does not compute in these threads")])
def test_threads_are_bound_only_where_it_is_known_to_what(situation, why):
    """Mutation: each condition left out."""
    assert refused(situation)["bound_threads"] == why


def test_threads_are_bound_to_the_cpus_that_the_run_may_use():
    """Groups for all threads but the main one, CPUs from 1. Mutation: numbered from 0."""
    change = offered(having(intra_op_threads="8"))["bound_threads"]
    assert change.settings == {"session.intra_op_thread_affinities": "2;3;4;5;6;7;8", "intra_op_threads": "8"}
    alone = replace(having(intra_op_threads="3"), cores=8, allowed=(4, 5, 6, 7, 8, 9, 10, 11))
    assert offered(alone)["bound_threads"].settings["session.intra_op_thread_affinities"] == "6;7"


def test_operators_beside_each_other():
    """Mutation: no more than the CPUs, or the width, left out."""
    assert {name for name in offered(HERE) if "parallel" in name} == {"parallel_2", "parallel_3"}
    assert {name for name in offered(replace(HERE, cpus=2)) if "parallel" in name} == {"parallel_2"}
    assert refused(replace(HERE, graph_width=1))["parallel_2"] == "every node waits for the one before it"
    assert refused(replace(HERE, graph_width=None))["parallel_2"] == \
        "which nodes could run at the same time is not known"
    assert refused(replace(HERE, cpus=1))["parallel_2"] == "the run may use one CPU"
    assert refused(replace(HERE, provider=CUDA))["parallel_2"] == f"{CUDA} has its own order of operators"
    changed = having(session__execution_mode="parallel", inter_op_threads="2")
    assert offered(changed)["sequential"].settings == {"session.execution_mode": "sequential"}
    assert refused(changed)["parallel_2"] == ALREADY == refused(HERE)["sequential"]


def test_levels_of_graph_optimisation():
    """A higher level is an advice, a lower one only a try. Mutation: every level an answer to the advice."""
    assert {name: change.advice for name, change in offered(HERE).items() if name.startswith("graph_")
            and not change.rewrite} == {"graph_basic": (), "graph_extended": ()}
    changes = offered(having(graph_optimization="extended"))
    assert changes["graph_all"].advice == ("graph_level",) and changes["graph_basic"].advice == ()
    assert refused(HERE)["graph_all"] == ALREADY


def test_memory_is_switched_away_from_what_the_session_has():
    """Mutation: always off."""
    assert offered(HERE)["no_mem_pattern"].settings == {"session.enable_mem_pattern": "false"}
    changes = offered(having(session__enable_mem_pattern="False", session__enable_cpu_mem_arena="False"))
    assert changes["mem_pattern"].settings == {"session.enable_mem_pattern": "true"}
    assert changes["cpu_arena"].settings == {"session.enable_cpu_mem_arena": "true"}
    assert refused(having(session__execution_mode="parallel"))["no_mem_pattern"] == \
        "operators that run at the same time have no pattern of memory"
    assert refused(replace(HERE, provider=CUDA))["no_cpu_arena"] == "its tensors lie in memory of the provider's own"


def test_spinning():
    """Mutation: a single thread is offered the change."""
    assert offered(HERE)["no_spinning"].settings == {"session.intra_op.allow_spinning": "0"}
    assert refused(having(session__intra_op__allow_spinning="0"))["no_spinning"] == ALREADY
    assert refused(having(intra_op_threads="1"))["no_spinning"] == "one thread has no pool that could spin"


def test_inputs_stay_on_a_device_where_there_is_one():
    """Mutation: offered to every provider."""
    assert offered(replace(HERE, provider=CUDA))["io_device"].settings == {"io": "device"}
    assert offered(replace(HERE, provider=MIGRAPHX))["io_device"].advice == ("inputs_on_device", "pin_memory")
    assert refused(HERE)["io_device"] == "CPUExecutionProvider has no memory of a device"
    assert refused(replace(having(io="device"), provider=CUDA))["io_device"] == ALREADY


def test_a_batch_is_raised_as_far_as_its_latency_is_allowed():
    """5 ms for one sample: 10 for two at most. Mutation: the latency of one sample against the limit."""
    changes = offered(replace(HERE, slo_ms=20.0, batch=3))
    assert {name: (change.settings["batch"], change.batch_factor) for name, change in changes.items()
            if name.startswith("batch")} == {"batch_x2": ("6", 2), "batch_x4": ("12", 4)}
    assert refused(replace(HERE, slo_ms=20.0))["batch_x8"] == \
        "an inference may take 40 ms, beyond the 20 ms that are allowed"
    assert refused(HERE)["batch_x2"] == "it makes an inference longer: say how long one may be (--slo)"
    assert refused(replace(HERE, slo_ms=20.0, batch_fixed=True))["batch_x2"] == \
        "the model, or its inputs, allow no other batch"
    assert refused(replace(HERE, slo_ms=20.0, latency_ms=None))["batch_x2"] == "the session has no median latency"


@pytest.fixture(scope="module")
def settings_here(tmp_path_factory):
    return config.resolve(overrides={"storage": {"cache_dir": tmp_path_factory.mktemp("cache")}}, environment={})


def everything_for_the_cpu() -> list[Candidate]:
    """Every change of settings that the CPU's provider is offered in one situation or another."""
    situations = (HERE, having(intra_op_threads="3"), replace(having(intra_op_threads="2"), allowed=(0, 1), cores=8),
                  having(graph_optimization="basic", session__enable_mem_pattern="false"),
                  having(session__enable_cpu_mem_arena="false", session__execution_mode="parallel"))
    changes = {change.name: change for situation in situations for change in candidates(situation)[0]}
    return [change for change in changes.values() if change.settings]


@pytest.mark.parametrize("change", everything_for_the_cpu(), ids=lambda change: change.name)
def test_what_is_set_reaches_onnx_runtime(change, settings_here):
    """Every setting, as a side of a comparison takes it, is in the session that ONNX Runtime made of it."""
    side = sides.prepare(DuetSide(model="bert-tiny", options=dict(change.settings)), settings_here, {})
    with ort.scratch_of(side.runs.workload) as scratch:
        job = Job(kind="time", rows="", account="", warmup=0, iterations=1,
                  **ort.job_of(side.runs.workload, scratch) | {"parent": os.getpid()})
        options = provider.open_session(job).get_session_options()
    for name, value in change.settings.items():
        assert _kept(options, name) == value


def _kept(options, name: str) -> str:
    """Return a setting of an open session in the words of the catalogue."""
    attributes = {"intra_op_threads": "intra_op_num_threads", "inter_op_threads": "inter_op_num_threads",
                  "session.enable_mem_pattern": "enable_mem_pattern",
                  "session.enable_cpu_mem_arena": "enable_cpu_mem_arena"}
    words = {"graph_optimization": ("graph_optimization_level", provider.LEVELS),
             "session.execution_mode": ("execution_mode", provider.EXECUTION_MODES)}
    if name in words:
        attribute, known = words[name]
        return next(word for word, kept in known.items() if kept == getattr(options, attribute))
    if name in attributes:
        return str(getattr(options, attributes[name])).lower()
    return options.get_session_config_entry(name)


@pytest.mark.parametrize("provider, kind, settings, rewrite", [
    (CUDA, "float16", {}, "float16"), (TENSORRT, "float16", {"option.fp16_enable": "true"}, ""),
    (MIGRAPHX, "float16", {"option.fp16_enable": "true"}, ""),
    (TENSORRT, "bfloat16", {"option.bf16_enable": "true"}, ""),
    (MIGRAPHX, "bfloat16", {"option.bf16_enable": "true"}, "")])
def test_sixteen_bits_by_the_providers_switch_or_a_model_in_them(provider, kind, settings, rewrite):
    """A switch that the backend has is the provider's option. Mutation: the model rewritten for every provider."""
    change = offered(replace(HERE, provider=provider))[kind]
    assert (change.settings, change.rewrite, change.precisions, change.lossy) == (settings, rewrite, (kind,), True)
    entry = BackendEntry(name="it", provider=provider, options={name.removeprefix("option."): value
                                                                for name, value in settings.items()})
    assert set(entry.provider_options) == ({_own_name(provider, name) for name in settings})


def _own_name(provider: str, setting: str) -> str:
    """Return a switch's name in ONNX Runtime (migraphx_ and tensorrt_execution_provider_info)."""
    return {MIGRAPHX: "migraphx_", TENSORRT: "trt_"}[provider] + setting.removeprefix("option.")


@pytest.mark.parametrize("situation, name, why", [
    (HERE, "float16", "CPUExecutionProvider has few operators in float16"),
    (replace(HERE, provider=OPENVINO), "bfloat16", f"{OPENVINO} has few operators in bfloat16"),
    (replace(HERE, provider=CUDA), "bfloat16", "ONNX Runtime's tools convert models to float16 alone"),
    (replace(having(option__migraphx_fp16_enable="1"), provider=MIGRAPHX), "float16", ALREADY),
    (replace(having(option__trt_bf16_enable="True"), provider=TENSORRT), "bfloat16", ALREADY),
    (replace(HERE, provider=CUDA, product_types=frozenset({"float16"})), "float16",
     "its products compute in float16 already"),
    (replace(HERE, provider=CUDA, product_types=frozenset()), "float16",
     "which types its products compute in is not known"),
    (replace(HERE, product_types=frozenset({"int8"})), "dynamic_int8", "its products compute in int8 already"),
    (replace(HERE, operators={"Conv": 3}), "dynamic_int8", "no matrix product takes part"),
    (replace(HERE, provider=CUDA), "dynamic_int8", f"{CUDA} has no such products")])
def test_fewer_bits_are_not_there_to_try(situation, name, why):
    """Mutation: each condition left out."""
    assert refused(situation)[name] == why


def test_products_in_8_bit_integers():
    """Mutation: a model without Gemm refused."""
    change = offered(replace(HERE, operators={"Gemm": 1, "Conv": 20}))["dynamic_int8"]
    assert (change.rewrite, change.precisions, change.advice) == ("dynamic_int8", ("int8",), ("int8_nodes",))


@pytest.mark.parametrize("situation, why", [
    (replace(HERE, provider=MIGRAPHX), f"{MIGRAPHX} has no operators that are fused so"),
    (replace(HERE, operators={**HERE.operators, "Attention": 1}), "the model has fused operators already"),
    (replace(HERE, operators={"MatMul": 1, "LayerNormalization": 1}), "the model has not both attention and norms"),
    (replace(HERE, operators={"MatMul": 1, "Softmax": 1, "ReduceMean": 2}),
     "the model has not both attention and norms")])
def test_a_model_that_is_no_transformer_is_not_fused_as_one(situation, why):
    """Mutation: each condition left out."""
    assert refused(situation)["fused_transformer"] == why


def test_a_transformer_is_fused():
    """Norms may be written out. Mutation: only norms that are one operator."""
    written = replace(HERE, provider=CUDA,
                      operators=dict.fromkeys(("MatMul", "Softmax", "ReduceMean", "Pow", "Sqrt"), 1))
    for situation in (HERE, written):
        change = offered(situation)["fused_transformer"]
        assert (change.rewrite, change.advice, change.lossy) == ("transformers", ("fuse_nodes",), False)


# Provider options by the names of ONNX Runtime's sources: cuda_execution_provider_info.cc,
# migraphx_execution_provider_info.h, tensorrt_execution_provider_info.cc, openvino's contexts.h.
DOCUMENTED = {
    CUDA: {"device_id", "has_user_compute_stream", "user_compute_stream", "gpu_mem_limit", "arena_extend_strategy",
           "cudnn_conv_algo_search", "do_copy_in_default_stream", "gpu_external_alloc", "gpu_external_free",
           "gpu_external_empty_cache", "cudnn_conv_use_max_workspace", "enable_cuda_graph", "cudnn_conv1d_pad_to_nc1d",
           "tunable_op_enable", "tunable_op_tuning_enable", "tunable_op_max_tuning_duration_ms",
           "enable_skip_layer_norm_strict_mode", "prefer_nhwc", "use_ep_level_unified_stream", "use_tf32"},
    MIGRAPHX: {"device_id", "migraphx_fp16_enable", "migraphx_bf16_enable", "migraphx_fp8_enable",
               "migraphx_int8_enable", "migraphx_exhaustive_tune", "migraphx_mem_limit",
               "migraphx_arena_extend_strategy"},
    TENSORRT: {"device_id", "trt_fp16_enable", "trt_bf16_enable", "trt_int8_enable", "trt_cuda_graph_enable"},
    OPENVINO: {"device_type", "device_id", "device_luid", "cache_dir", "precision", "load_config", "context",
               "num_of_threads", "model_priority", "num_streams", "enable_opencl_throttling", "enable_qdq_optimizer",
               "disable_dynamic_shapes"}}
IMAGES = {"Conv": 4, "MatMul": 1, "Softmax": 1, "LayerNormalization": 1}


@pytest.mark.parametrize("provider", DOCUMENTED)
def test_options_are_those_that_onnx_runtime_documents(provider):
    """Mutation: an option misspelt."""
    asked = replace(having(option__use_tf32="0", option__device_type="GPU", option__precision="FP32"),
                    provider=provider, operators=IMAGES)
    options = {name.removeprefix("option."): value for change in offered(asked).values()
               for name, value in change.settings.items() if name.startswith("option.")}
    entry = BackendEntry(name="it", provider=provider, options=options)
    assert options and set(entry.provider_options) <= DOCUMENTED[provider]


def test_options_of_the_cuda_provider():
    """Mutation: each condition left out."""
    there = replace(HERE, provider=CUDA, operators=IMAGES)
    assert {name for name in offered(there) if name in ("cuda_graph", "nhwc", "tf32") or name.startswith("conv_")} == {
        "cuda_graph", "conv_heuristic", "conv_default", "nhwc"}
    assert offered(there)["cuda_graph"].settings == {"option.enable_cuda_graph": "1", "io": "device"}
    assert offered(there)["cuda_graph"].advice == ("device_graph",)
    resident = replace(having(io="device", option__use_tf32="0"), provider=CUDA)
    assert offered(resident)["cuda_graph"].settings == {"option.enable_cuda_graph": "1"}
    assert offered(resident)["tf32"].precisions == ("float16",)
    assert {name: refused(resident)[name] for name in ("nhwc", "conv_default")} == dict.fromkeys(
        ("nhwc", "conv_default"), "nothing convolves")
    assert refused(there)["tf32"] == ALREADY == refused(there)["conv_exhaustive"]
    assert refused(replace(there, operators={"Loop": 1}))["cuda_graph"] == "a CUDA graph holds no branches and no loops"
    assert refused(replace(having(option__enable_cuda_graph="1"), provider=CUDA))["cuda_graph"] == ALREADY
    assert refused(HERE)["cuda_options"] == "it runs on CPUExecutionProvider"


def test_options_of_migraphx_and_openvino():
    """Mutation: each condition left out."""
    assert offered(replace(HERE, provider=MIGRAPHX))["exhaustive_tune"].settings == {"option.exhaustive_tune": "true"}
    tuned = replace(having(option__migraphx_exhaustive_tune="1"), provider=MIGRAPHX)
    assert refused(tuned)["exhaustive_tune"] == ALREADY
    assert refused(HERE)["exhaustive_tune"] == "it runs on CPUExecutionProvider" == refused(HERE)["openvino_options"]
    there = replace(having(option__device_type="GPU.0", option__precision="FP32", option__num_streams="2"),
                    provider=OPENVINO)
    assert offered(there)["openvino_float16"].settings == {"option.precision": "FP16"}
    assert refused(there)["streams_2"] == ALREADY and refused(there)["streams_8"] == "there are fewer cores"
    assert offered(there)["streams_4"].settings == {"option.num_streams": "4"}
    assert refused(replace(having(option__device_type="GPU"), provider=OPENVINO))["openvino_float16"] == ALREADY
    assert refused(replace(having(option__device_type="CPU"), provider=OPENVINO))["openvino_float16"] == \
        "on the device CPU OpenVINO computes in one type alone"
    assert refused(replace(HERE, provider=OPENVINO))["openvino_float16"] == \
        "the backend does not say on which device OpenVINO computes"
    assert "load_config" in refused(there)["execution_mode_hint"]

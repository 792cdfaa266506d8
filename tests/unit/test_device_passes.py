"""Kernels timed in one pass and named by another: a recorded profile with planted kernels; recordings of an H200."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco import pipeline
from aaco.analytics.attribution import passes
from aaco.analytics.bottleneck.work import device_work
from aaco.analytics.explanation import NOT_MEASURED
from aaco.analytics.graph.executed_work import executed_work
from aaco.core import inputs, tables
from aaco.core.clocks import ClockOffsets
from aaco.core.config import Analysis, resolve
from aaco.core.errors import Missing
from aaco.core.plan import Plan
from aaco.core.readings import Absent
from aaco.core.show import SILENT
from aaco.profiler.cupti.inside import spool
from aaco.profiler.formats.nvidia import cupti as parser
from aaco.report.sections import content, finding_views, nodes
from aaco.runner import iterations, registry
from aaco.runner.ort import Workload
from aaco.steps import analyze, explain
from aaco.steps import run as record
from aaco.steps.device import trace_passes
from aaco.tracelake import layout
from benchmarks import recordings
from tests import captured, models
from tests.fakes import cupti

WARMUP, RUNS, APART_NS, LATE_NS = 2, 3, 10_000_000, 900
OFFSET_NS = 777  # of CUPTI's clock from the real-time one


def planted(root: Path, extra: int | None = None, named: bool = True, graph: bool = False, calls: str = ""):
    """The session of a recorded run, with captures in which every node on the GPU launches one kernel or two.

    Returns it with the time of each node in the three timed inferences. extra: the timed inference that has one kernel
    more than the others. named: False leaves word of a tracer that never began. graph: the timed kernels are replayed.
    calls: "there" adds a pass with the calls, whose kernels take 7 ns longer each and start LATE_NS after their launch;
    "refused" one that was not traced.
    """
    session = captured.session("ort_cuda_h200/mixed", root)
    clocks = ClockOffsets(**session.record.clocks)
    runtime = session.read_json(layout.ORT_CONFIG)
    session.write_json(layout.ORT_CONFIG, runtime | {"device": {"warmup": WARMUP, "iterations": RUNS, "providers": []}})
    events = json.loads(gzip.decompress((session.folder / layout.ORT_PROFILE).read_bytes()))
    origin = runtime["profile"]["profiling_start_realtime_ns"] - OFFSET_NS
    nodes = sorted((event for event in events if event["name"].endswith("_kernel_time")
                    and event["args"]["provider"].startswith("CUDA")), key=lambda event: event["ts"])
    names, sequence, launched = list[str](), list[tuple[str, int]](), list[bytes]()
    for place, event in enumerate(nodes):
        for one in range(1 + len(event["name"]) % 2):
            kernel = f"{event['args']['op_name']}_{one}"
            names += [] if kernel in names else [kernel]
            at = origin + 1000 * event["ts"] + 100 * one
            launched += [cupti.launch(at, 2 * place + one + 1),
                         cupti.kernel(at + 50_000, 20, names.index(kernel) + 1, 2 * place + one + 1)]
            if place < len(nodes) // (WARMUP + RUNS):
                sequence.append((event["name"].removesuffix("_kernel_time"), names.index(kernel) + 1))
    truth: dict[str, int] = defaultdict(int)
    timed, linked, rows = list[bytes](), list[bytes](), list[int]()
    for run in range(WARMUP + RUNS):
        begin = clocks.monotonic_ns + run * APART_NS
        there = begin + clocks.realtime_ns - clocks.monotonic_ns - OFFSET_NS
        rows += [run - WARMUP if run >= WARMUP else run, int(run >= WARMUP), begin, begin + APART_NS // 2]
        if run - WARMUP == extra:
            timed.append(cupti.kernel(there + 500, 11, len(names) + 1, 1))
        if graph:
            linked.append(cupti.launch(there + 100, 1000 * (run + 1), call=cupti.GRAPH))
        for place, (node, name) in enumerate(sequence):
            lasted = 100 * place + run + 1
            replayed = {"graphId": 9, "graphNodeId": 1 + place} if graph else {}
            timed.append(cupti.kernel(there + 1000 + 10_000 * place, lasted, name, 2 + place, **replayed))
            mine = 1000 * (run + 1) + (0 if graph else 1 + place)
            if not graph:
                linked.append(cupti.launch(there + 1000 + 10_000 * place - LATE_NS, mine))
            linked.append(cupti.kernel(there + 1000 + 10_000 * place, lasted + 7, name, mine, **replayed))
            truth[node] += lasted if run >= WARMUP else 0
    names.append("another")
    for part in (layout.CUPTI_NAMES, layout.CUPTI_TIMES):
        (session.folder / part).mkdir(parents=True)
    path = session.folder / layout.CUPTI_NAMES / "42-1.cupti"
    if named:
        cupti.write(path, names, [launched], OFFSET_NS)
    else:
        word = spool.CuptiSpool(str(path))
        word.state["error"] = {"what": "no libcupti.so is found", "fix": "install it"}
        word.write_state()
    cupti.write(session.folder / layout.CUPTI_TIMES / "43-1.cupti", names, [timed], OFFSET_NS)
    np.array(rows, "<i8").tofile(session.folder / layout.CUPTI_TIMES / iterations.TRACED)
    if calls:
        folder = session.folder / layout.CUPTI_CALLS
        folder.mkdir()
        np.array(rows, "<i8").tofile(folder / iterations.TRACED)
    if calls == "there":
        cupti.write(folder / "44-1.cupti", names, [linked], OFFSET_NS)
    return session, truth, len(sequence)


def test_time_of_one_pass_stands_at_the_nodes_of_the_other(tmp_path):
    """To the ns. Mutation: the profiled pass's own times; the warm-up counted; CUPTI's clock taken for the host's."""
    session, truth, kernels = planted(tmp_path)
    session.write_json(layout.ENVIRONMENT, {"machine": {"ceilings": {"fp32_flops": 5e10, "dram_bytes_per_s": 4e10}}})
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    table = found.tables["kernels"].filter(pc.is_valid(found.tables["kernels"]["iteration"]))
    assert table.num_rows == RUNS * kernels
    spent = {row["executed_node"]: row["dur_ns_sum"] for row in
             table.group_by("executed_node").aggregate([("dur_ns", "sum")]).to_pylist()}
    assert spent == truth
    assert {node.name: round(RUNS * node.time_ns) for node in nodes.executed(found)} == truth
    mapped = found.tables["op_to_kernel_map"]
    assert set(mapped["method"].to_pylist()) == {"exact_sequence", "modelled", "unattributed"}  # one is fused
    assert pc.sum(mapped["share_ns"]).as_py() == pc.sum(found.tables["kernels"]["dur_ns"]).as_py()
    account = found.examined["device_passes"]
    assert (account["identical"], account["aligned"], account["named"]) == (RUNS, 0, RUNS * kernels)
    assert account["timed"]["ns"] == account["named_ns"] == sum(truth.values())
    assert account["host_nodes"] == 1 and account["problems"] == []
    assert set(table["timed"].to_pylist()) == {"execution"} and set(table["device_id"].to_pylist()) == {0}
    busy = account["timed"]["busy_ns"] / (RUNS * APART_NS // 2)
    assert found.readings["gpu_active_ratio"].value == pytest.approx(busy)
    assert "ceilings that were measured are the host's" in found.readings["hardware_envelope_utilization"].why_absent
    rows = {row.label: row.text for _, some in finding_views.sections(found.examined) for row in some}
    assert "the same sequence of kernels in 3 of 3 inferences; 100" in rows["Named"]
    assert "1 node of the CPU provider" in rows["On the host"]


@pytest.mark.parametrize("graph", [False, True])
def test_launches_idle_causes_and_times_are_of_the_pass_that_has_the_calls(tmp_path, graph):
    """The pass of kernels alone says how busy the device is, and what the times differ by; one call launches a graph.
    Mutation: the kernels of that pass beside the calls of this; warm-up looked at, too.
    """
    session, truth, kernels = planted(tmp_path, graph=graph, calls="there")
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    account = found.examined["device_passes"]
    assert account["checked"]["ns"] == sum(truth.values()) == account["timed"]["ns"] - 7 * RUNS * kernels
    assert account["named"] == account["timed"]["kernels"] == RUNS * kernels
    launches = found.trace.launches
    assert (launches.work, launches.linked) == (RUNS * kernels, RUNS * kernels)
    called = {each.name: each.launches for each in launches.functions}
    assert called == ({"cudaGraphLaunch": RUNS} if graph else {"cudaLaunchKernel": RUNS * kernels})
    device, = found.trace.devices
    assert (device.kernels, device.kernel_ns) == (RUNS * kernels, account["timed"]["ns"])
    measured = inputs.measured(found.tables["kernels"])
    assert device.span_ns == pc.max(measured["t_end_ns"]).as_py() - pc.min(measured["t_start_ns"]).as_py()
    calls = found.tables["api_calls"]
    assert calls.num_rows == (WARMUP + RUNS) * (1 if graph else kernels) + RUNS  # the warm-up is kept
    assert found.coverage.in_file[0] == (WARMUP + RUNS) * kernels and found.coverage.used[0] == RUNS * kernels
    for name in ("gpu_active_ratio", "closure_ratio"):
        assert found.readings[name].value == account["checked"]["busy_ns"] / (RUNS * APART_NS // 2)
    assert found.readings["unprofiled_busy_ratio"].value > 0
    assert found.readings["host_limited_pct"].value > (0 if graph else 50)  # else it is between inferences alone
    rows = {row.label: row.text for _, some in finding_views.sections(found.examined) for row in some}
    said = " ".join(content.banners(found))
    assert "the pass that recorded the device took" in said and "do not describe the clean run" not in said
    assert "with the calls that launched them" in rows["Timed"] and "of kernels per inference there" in rows["Checked"]


def test_a_run_whose_launches_are_known_is_judged_by_them(tmp_path):
    """And a run of nodes alone by the time outside of them."""
    rules = {}
    for calls in ("", "there"):
        (tmp_path / calls).mkdir(exist_ok=True)
        session, _, _ = planted(tmp_path / calls, calls=calls)
        found = explain.explain(session, Analysis(), analyze.recompute(session))
        every = (found.diagnosis.bottleneck, *found.diagnosis.considered)
        verdict = next(one for one in every if one and one.label == "launch_bound")
        rules[calls] = {each.reading.metric for each in verdict.evidence}
    assert "dispatch_overhead_pct" in rules[""] and "dispatch_overhead_pct" not in rules["there"]
    assert {"host_limited_pct", "launch_tax_pct"} <= rules["there"]


def test_the_budget_of_a_run_has_the_limits_of_its_kernel_groups():
    """Kernels without one count by their names. Mutation: the limits not read."""
    rows = [("a", "conv", 1), ("b", "transpose", 10), ("c", "conv", 100), ("d", "elementwise", 1000)]
    ends = np.cumsum([ns for _, _, ns in rows])
    kernels = tables.KERNELS.build(
        kernel_id=range(4), kernel_name=[one[0] for one in rows], family=[one[1] for one in rows], device_id=[0] * 4,
        t_start_ns=ends - [one[2] for one in rows], t_end_ns=ends)
    groups = tables.KERNEL_GROUPS.build(
        kernel_name=["a", "b", "c"], calls=[1] * 3, limit_by=["shapes", "counters", None],
        budget_part=["memory", "kernel", None])
    found = device_work(kernels, kernel_groups=groups)
    assert found.parts_ns["memory"] == 1 + 1000 and found.parts_ns["kernel"] == 10 and found.parts_ns["compute"] == 100
    assert found.told_by_ns == {"shapes": 1, "counters": 10, "names": 1100}


@pytest.mark.parametrize("spoil, why", [
    (None, "the tracer recorded no kernel on a device"),
    (lambda capture: capture.write_bytes(b"AACOCUPT" + bytes(64)), "44-1.cupti"),
    (lambda capture: (capture.parent / iterations.TRACED).write_bytes(
        np.array([[0, 1, 1, 2]], "<i8").tobytes()), "kernels ran in a measured inference")])
def test_without_its_pass_the_calls_are_missing_with_the_reason(tmp_path, spoil, why):
    """And everything else is as it was. Mutations: the other pass given up, too; a pass outside inferences taken."""
    session, truth, _ = planted(tmp_path, calls="there" if spoil else "refused")
    if spoil:
        spoil(session.folder / layout.CUPTI_CALLS / "44-1.cupti")
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    account = found.examined["device_passes"]
    assert "checked" not in account and account["named_ns"] == sum(truth.values())
    assert len(account["problems"]) == 1
    assert account["problems"][0].startswith("the pass that records calls: ") and why in account["problems"][0]
    assert "no launch call" in found.readings["host_limited_pct"].why_absent


@pytest.mark.parametrize("damaged", [True, False])
def test_without_the_pass_of_kernels_alone_those_with_the_calls_stand(tmp_path, damaged):
    """Nothing else is missing than the check of the one pass by the other. Mutation: the device given up."""
    session, truth, kernels = planted(tmp_path, calls="there")
    if damaged:
        (session.folder / layout.CUPTI_TIMES / "43-1.cupti").write_bytes(b"AACOCUPT" + bytes(64))
    else:
        runtime = session.read_json(layout.ORT_CONFIG)
        session.write_json(layout.ORT_CONFIG, runtime | {"device": {"tracer": "cupti", "why_absent": "it was killed"}})
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    account = found.examined["device_passes"]
    assert account["named_ns"] == account["timed"]["ns"] == sum(truth.values()) + 7 * RUNS * kernels
    assert "checked" not in account and len(account["problems"]) == 1
    assert account["problems"][0].startswith("the pass that times kernels: ")
    assert ("43-1.cupti" if damaged else "it was killed") in account["problems"][0]
    assert found.trace.launches.linked == RUNS * kernels and found.readings["host_limited_pct"].value > 50
    assert found.readings["gpu_active_ratio"].value == account["timed"]["busy_ns"] / account["wall_ns"]
    rows = {row.label: row.text for _, some in finding_views.sections(found.examined) for row in some}
    assert "with the calls that launched them" in rows["Timed"] and "Checked" not in rows


@pytest.mark.parametrize("failing, tells", [
    ({"device"}, ["device_calls", "device_counters"]), ({"device_calls"}, ["device", "device_counters"]),
    ({"device", "device_calls"}, [])])
def test_kernels_are_counted_where_either_pass_has_them(tmp_path, monkeypatch, failing, tells):
    """Mutation: not counted where the first pass failed."""
    def traced_pass(folder, *_, **__):
        fact = {layout.CUPTI_TIMES: "device", layout.CUPTI_CALLS: "device_calls"}[str(folder.relative_to(tmp_path))]
        if fact in failing:
            raise Missing(f"no {fact}")
        return {"iterations": RUNS}

    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    monkeypatch.setattr(trace_passes.ort, "profile_pass", lambda *_, **__: {})
    monkeypatch.setattr(trace_passes.ort, "traced_pass", traced_pass)
    monkeypatch.setattr(trace_passes.counter_passes, "count", lambda *_: [{"tool": "ncu"}])
    backend = registry.BackendEntry(name="c", provider="CUDAExecutionProvider")
    workload = Workload(tmp_path / "m.onnx", backend, {}, False)
    found = {name: fact for one in trace_passes.profile(tmp_path, workload, Plan(model="m"), SILENT, counting=object())
             for name, fact in one.items()}
    assert [name for name, fact in found.items() if name != "profile" and "why_absent" not in fact] == tells
    assert {name: found[name]["why_absent"] for name in failing} == {name: f"no {name}" for name in failing}


def test_the_work_of_executed_nodes_is_found_once(tmp_path, monkeypatch):
    """For operators and for the roofs. Mutation: what the tables took is not handed on."""
    session, _, _ = planted(tmp_path)
    asked, tensors = [], sys.modules[executed_work.__module__]._Tensors
    monkeypatch.setattr(f"{executed_work.__module__}._Tensors", lambda *graph: asked.append(1) or tensors(*graph))
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    assert found.readings["achieved_gflops"].value > 0 and asked == [1]
    assert found.tables["operators"]["flops"].null_count < found.tables["operators"].num_rows


@pytest.mark.parametrize("extra", [None, 1])
def test_the_work_of_operators_is_known_by_how_often_their_nodes_ran(tmp_path, extra):
    """However many kernels a node launches. Mutation: a call counted for each kernel; the warm-up's kernels counted."""
    session, truth, _ = planted(tmp_path, extra=extra)
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    operators = found.tables["operators"].to_pylist()
    of_device = [one for one in operators if one["calls"]]
    ran = set(found.tables["kernels"]["executed_node"].to_pylist())
    graph = [found.tables[name] for name in ("executed_nodes", "graph_nodes", "graph_edges")]
    work = [one for name, one in executed_work(*graph).items() if name in ran]
    assert sum(one["calls"] for one in of_device) == RUNS * len(work)
    for amount in ("flops", "bytes"):
        assert sum(one[amount] or 0 for one in of_device) == RUNS * sum(getattr(one, amount) or 0 for one in work) > 0
    assert sum(one["device_ns"] for one in operators) == sum(truth.values()) + (11 if extra else 0)
    assert found.readings["modelled_time_pct"].value > 50


def test_how_often_a_node_runs_that_inferences_run_unlike_often_is_not_known():
    """Mutation: the mean taken."""
    nodes = tables.KERNELS.build(kernel_id=range(7), executed_node=list("aabbbba"), iteration=[0, 1, 0, 0, 0, 1, None])
    assert passes.executions(nodes, 2, 10) == {"a": 10, "b": 20}
    assert passes.executions(nodes.slice(1), 2, 10) == {"b": 20}


@pytest.mark.parametrize("graph", [False, True])
def test_an_inference_with_another_sequence_is_aligned_and_said(tmp_path, graph):
    """In a replayed graph the kernel's node in it says the rest, too."""
    session, truth, kernels = planted(tmp_path, extra=1, graph=graph)
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    account = found.examined["device_passes"]
    assert (account["identical"], account["aligned"], account["first_difference"]) == (RUNS - 1, 1, 0)
    assert account["named_ns"] == sum(truth.values()) == account["timed"]["ns"] - 11
    assert account["methods"].get("sequence", 0) == (0 if graph else kernels)
    assert account["methods"]["exact_sequence"] >= (RUNS if graph else RUNS - 1) * kernels


def test_a_tracer_that_never_began_leaves_the_host_times_and_the_reason(tmp_path):
    session, _, _ = planted(tmp_path, named=False)
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    assert "no libcupti.so is found; try: install it" in found.examined["device_passes"]["why_absent"]
    assert "dispatch" in found.tables["kernels"]["timed"].to_pylist()
    assert "Not traced" in [row.label for _, some in finding_views.sections(found.examined) for row in some]


def test_a_tracer_that_this_version_does_not_know_is_a_reason():
    """Mutation: looked up without asking, which is a traceback for a session of a later version."""
    with pytest.raises(Absent, match="'other', which this version does not read"):
        trace_passes.read(Path(), {}, ClockOffsets(0, 0, 0, 0), {"device": {"tracer": "other"}})


def test_without_its_tracer_a_device_graph_is_not_replayed_in_the_profile(tmp_path, monkeypatch):
    """Mutation: the profile of a replayed graph, in which no node runs."""
    seen = []

    def profile_pass(folder, workload, plan, **around):
        seen.append(workload.backend.options)
        if around:
            raise Missing("no tracer")
        return {}

    monkeypatch.setattr(trace_passes.ort, "profile_pass", profile_pass)
    backend = registry.BackendEntry(name="graph", provider="CUDAExecutionProvider",
                                    options={"enable_cuda_graph": "1", "device_id": "0"})
    workload = Workload(tmp_path / "m.onnx", backend, {}, False)
    assert [*trace_passes.profile(tmp_path, workload, Plan(model="m"), SILENT)] == [
        {"profile": {}}, {"device": {"tracer": "cupti", "why_absent": "no tracer", "fix": ""}}]
    assert seen == [{"device_id": "0"}] * 2


def test_a_moment_lies_in_the_run_around_it():
    """Within a microsecond of either end. Mutation: no end; then the second lies in the first run."""
    begins, ends = np.array([10_000, 50_000]), np.array([20_000, 60_000])
    at = np.array([9_100, 30_000, 20_900, 60_500, 61_500, 8_000])
    assert passes.inside(at, begins, ends).to_pylist() == [0, None, 0, 1, None, None]
    assert passes.inside(at, begins[:0], ends[:0]).null_count == 6


@pytest.mark.captures
@pytest.mark.parametrize("model", ["resnet50_b1", "fallback_b1"])  # benchmarks.diagnosis has the third
def test_recorded_inferences_of_an_h200_are_joined_whole(captures: Path, model):
    """The recorder's own pass without a profile, 30 inferences by its medians, named by the profiled one: all but feed
    and fetch, at the recorder's own nodes.
    """
    folder = captures / "h200/ort_cuda"
    recording, rows = recordings.ort_cuda(folder, model), recordings.twopass(folder, model)
    joined = passes.join(recordings.cut_names(recording.kernels), recording.api_calls,
                         set(recording.executed_nodes["name"].to_pylist()), recordings.timed_pass(folder, model))
    nodes = [row["node"] if row["node"] != "None" else None for row in rows]
    assert joined.kernels["executed_node"].to_pylist() == nodes
    account = joined.account
    assert (account["identical"], account["aligned"]) == (1, 0)
    assert account["named"] == len(rows) - 2 and nodes.count(None) == 2
    assert account["profiled"]["inferences"] == 15
    assert sum(account["unnamed"].values()) == 2 * 15


def as_calls(session):
    """The pass of names as if it were the one of calls, with the runtime's own times of its inferences."""
    shutil.copytree(session.folder / layout.CUPTI_NAMES, session.folder / layout.CUPTI_CALLS)
    runtime = session.read_json(layout.ORT_CONFIG)["profile"]
    origin = ClockOffsets(**session.record.clocks).from_realtime(runtime["profiling_start_realtime_ns"])
    events = json.loads(gzip.decompress((session.folder / layout.ORT_PROFILE).read_bytes()))
    runs = sorted((origin + 1000 * each["ts"], 1000 * each["dur"]) for each in events if each["name"] == "model_run")
    rows = [[run, int(run >= runtime["warmup"]), start, start + ns] for run, (start, ns) in enumerate(runs)]
    np.array(rows, "<i8").tofile(session.folder / layout.CUPTI_CALLS / iterations.TRACED)


@pytest.mark.parametrize("calls", [False, True])
def test_a_recorded_run_of_a_device_graph_explains_itself(tmp_path, calls):
    """bert-tiny on an H200: 61 kernels of each inference, replayed in the times pass, launched one by one where names
    are found. Every kernel has its node; with calls all work has its launch, and the host is what the device waits for.
    """
    session = captured.session("ort_cuda_h200/bert-tiny", tmp_path)
    if calls:
        as_calls(session)
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    account, trace = found.examined["device_passes"], found.trace
    assert (account["identical"], account["named"], account["timed"]["kernels"]) == (3, 3 * 61, 3 * 61)
    assert account["problems"] == [] and found.coverage.dropped[NOT_MEASURED][0] == 2 * 61
    assert [(one.count, one.outside) for one in trace.blocks.steps] == [(3, 0)]
    assert sum(device.busy_ns + device.idle_ns for device in trace.devices) == trace.sum("span_ns")
    names = found.tables["kernels"]["kernel_name"].unique().to_pylist()
    assert not [name for name in names if name.startswith("_Z")]
    assert [name for name in names if name.startswith("void onnxruntime::cuda::softmax_warp_forward<float, float, ")]
    assert "unknown" not in found.tables["kernels"]["family"].unique().to_pylist()
    if calls:
        assert trace.launches.linked == trace.launches.work and found.diagnosis.bottleneck.label == "launch_bound"
        assert found.readings["host_limited_pct"].value > 25 > abs(
            account["timed"]["ns"] / account["checked"]["ns"] - 1) * 100
    else:
        assert not trace.launches.linked and "checked" not in account


def test_a_damaged_capture_costs_the_device_alone(tmp_path):
    """Mutation: what is wrong with a capture of the device is wrong with the run."""
    session, *_ = planted(tmp_path)
    path, = (session.folder / layout.CUPTI_TIMES).glob("*.cupti")
    path.write_bytes(b"no capture" + path.read_bytes())
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    assert found.examined["device_passes"]["why_absent"].startswith("damaged: ")
    assert not found.tables["kernels"]["device_id"].drop_null() and "graph_nodes" in found.tables


def test_the_worker_is_traced_in_three_passes(tmp_path, monkeypatch):
    """The road that a run on CUDA takes, on the CPU provider: all processes come under a (fake) tracer, whose captures
    lie in the session beside the runs' times. Mutation: the environment not handed to the worker.
    """
    monkeypatch.setattr(trace_passes, "TRACED_BY", {"CPUExecutionProvider": "cupti"})
    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    monkeypatch.setenv("FAKE_CUPTI_LOG", str(tmp_path / "log"))
    settings = resolve()
    plan = pipeline.plan(settings, str(models.chain(tmp_path / "chain.onnx")), warmup=2, profile_iterations=3)
    profiled, *traced = trace_passes.profile(tmp_path, record.prepare(plan, settings).workload, plan, SILENT)
    assert profiled.keys() == {"profile"}
    facts = {"tracer": "cupti", "warmup": 2, "iterations": 3, "providers": ["CPUExecutionProvider"]}
    assert traced == [{"device": facts}, {"device_calls": facts}]
    for part in (layout.CUPTI_NAMES, layout.CUPTI_TIMES, layout.CUPTI_CALLS):
        path, = (tmp_path / part).glob("*.cupti")
        *_, said = parser.parse(path)
        assert said.problems == () and said.records == {"kernel": 0, "device": 1}
    asked = (tmp_path / "log").read_text().split()
    assert asked.count("cuptiFinalize") == 3 and asked.count("cuptiActivityEnable5") == 2
    for part in (layout.CUPTI_TIMES, layout.CUPTI_CALLS):
        assert len(iterations.measured(tmp_path / part / iterations.TRACED)) == 3
    assert (tmp_path / layout.ORT_PROFILE).is_file()
    with pytest.raises(Absent, match="recorded no kernel on a device"):
        trace_passes.read(tmp_path, {}, ClockOffsets(0, 0, 0, 0), traced[0])

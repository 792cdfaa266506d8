"""Kernels timed in one pass and named by another: a recorded profile with planted kernels; recordings of an H200."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco import derive, device_passes, pipeline, record
from aaco.analytics.attribution import passes
from aaco.core.clocks import ClockOffsets
from aaco.core.config import Analysis, resolve
from aaco.core.readings import Absent
from aaco.core.show import SILENT
from aaco.profiler import cupti as parser
from aaco.profiler.cupti.inside import spool
from aaco.report import examined
from aaco.runner import iterations
from aaco.tracelake import layout
from benchmarks import recordings
from tests import captured, models
from tests.fakes import cupti

WARMUP, RUNS, APART_NS = 2, 3, 10_000_000
OFFSET_NS = 777  # of CUPTI's clock from the real-time one


def planted(root: Path, extra: int | None = None, named: bool = True, graph: bool = False):
    """The session of a recorded run, with captures in which every node on the GPU launches one kernel or two.

    Returns it with the time of each node in the three timed inferences. extra: the timed inference that has one kernel
    more than the others. named: False leaves word of a tracer that never began. graph: the timed kernels are replayed.
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
    timed, rows = list[bytes](), list[int]()
    for run in range(WARMUP + RUNS):
        begin = clocks.monotonic_ns + run * APART_NS
        there = begin + clocks.realtime_ns - clocks.monotonic_ns - OFFSET_NS
        rows += [run - WARMUP if run >= WARMUP else run, int(run >= WARMUP), begin, begin + APART_NS // 2]
        if run - WARMUP == extra:
            timed.append(cupti.kernel(there + 500, 11, len(names) + 1, 1))
        for place, (node, name) in enumerate(sequence):
            lasted = 100 * place + run + 1
            replayed = {"graphId": 9, "graphNodeId": 1 + place} if graph else {}
            timed.append(cupti.kernel(there + 1000 + 10_000 * place, lasted, name, 2 + place, **replayed))
            truth[node] += lasted if run >= WARMUP else 0
    names.append("another")
    for part in (layout.CUPTI_NAMES, layout.CUPTI_TIMES):
        (session.folder / part).mkdir(parents=True)
    path = session.folder / layout.CUPTI_NAMES / "42-1.cupti"
    if named:
        cupti.write(path, names, [launched], OFFSET_NS)
    else:
        word = spool.Spool(str(path))
        word.state["error"] = {"what": "no libcupti.so is found", "fix": "install it"}
        word.tell()
    cupti.write(session.folder / layout.CUPTI_TIMES / "43-1.cupti", names, [timed], OFFSET_NS)
    np.array(rows, "<i8").tofile(session.folder / layout.CUPTI_TIMES / iterations.TRACED)
    return session, truth, len(sequence)


def test_time_of_one_pass_stands_at_the_nodes_of_the_other(tmp_path):
    """To the ns. Mutation: the profiled pass's own times; the warm-up counted; CUPTI's clock taken for the host's."""
    session, truth, kernels = planted(tmp_path)
    session.write_json(layout.ENVIRONMENT, {"machine": {"ceilings": {"fp32_flops": 5e10, "dram_bytes_per_s": 4e10}}})
    found = derive.explanation(session, Analysis(), anew=True)
    table = found.tables["kernels"].filter(pc.is_valid(found.tables["kernels"]["iteration"]))
    assert table.num_rows == RUNS * kernels
    spent = {row["executed_node"]: row["dur_ns_sum"] for row in
             table.group_by("executed_node").aggregate([("dur_ns", "sum")]).to_pylist()}
    assert spent == truth
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
    rows = {row.label: row.text for _, some in examined.sections(found.examined) for row in some}
    assert "the same sequence of kernels in 3 of 3 inferences; 100" in rows["Named"]
    assert "1 node of the CPU provider" in rows["On the host"]


@pytest.mark.parametrize("graph", [False, True])
def test_an_inference_with_another_sequence_is_aligned_and_said(tmp_path, graph):
    """In a replayed graph the kernel's node in it says the rest, too."""
    session, truth, kernels = planted(tmp_path, extra=1, graph=graph)
    found = derive.explanation(session, Analysis(), anew=True)
    account = found.examined["device_passes"]
    assert (account["identical"], account["aligned"], account["first_difference"]) == (RUNS - 1, 1, 0)
    assert account["named_ns"] == sum(truth.values()) == account["timed"]["ns"] - 11
    assert account["methods"].get("sequence", 0) == (0 if graph else kernels)
    assert account["methods"]["exact_sequence"] >= (RUNS if graph else RUNS - 1) * kernels


def test_a_tracer_that_never_began_leaves_the_host_times_and_the_reason(tmp_path):
    session, _, _ = planted(tmp_path, named=False)
    found = derive.explanation(session, Analysis(), anew=True)
    assert "no libcupti.so is found; try: install it" in found.examined["device_passes"]["why_absent"]
    assert "dispatch" in found.tables["kernels"]["timed"].to_pylist()
    assert "Not traced" in [row.label for _, some in examined.sections(found.examined) for row in some]


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


def test_the_worker_is_traced_in_two_passes(tmp_path, monkeypatch):
    """The road that a run on CUDA takes, on the CPU provider: both processes come under a (fake) tracer, whose captures
    lie in the session beside the runs' times. Mutation: the environment not handed to the worker.
    """
    monkeypatch.setattr(device_passes, "PROVIDERS", {"CPUExecutionProvider"})
    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    monkeypatch.setenv("FAKE_CUPTI_LOG", str(tmp_path / "log"))
    settings = resolve()
    plan = pipeline.plan(settings, str(models.chain(tmp_path / "chain.onnx")), warmup=2, profile_iterations=3)
    profiled, traced = device_passes.profile(tmp_path, record.prepare(plan, settings).workload, plan, SILENT)
    assert profiled.keys() == {"profile"}
    assert traced["device"] == {"warmup": 2, "iterations": 3, "providers": ["CPUExecutionProvider"]}
    for part in (layout.CUPTI_NAMES, layout.CUPTI_TIMES):
        path, = (tmp_path / part).glob("*.cupti")
        *_, said = parser.parse(path)
        assert said.problems == () and said.records == {"kernel": 0, "device": 1}
    asked = (tmp_path / "log").read_text().split()
    assert asked.count("cuptiFinalize") == 2 and asked.count("cuptiActivityEnable5") == 1
    assert len(iterations.measured(tmp_path / layout.CUPTI_TIMES / iterations.TRACED)) == 3
    assert (tmp_path / layout.ORT_PROFILE).is_file()
    with pytest.raises(Absent, match="recorded no kernel on a device"):
        device_passes.read(tmp_path, {}, ClockOffsets(0, 0, 0, 0), 2)

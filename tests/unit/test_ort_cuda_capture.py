"""A real recording of the CUDA provider, through the whole derivation; truths are read from the raw files directly."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import numpy as np
import onnx
import pyarrow.compute as pc
import pytest

from aaco.analytics.kernels.fallback import fallen_back
from aaco.core.config import Analysis
from aaco.core.readings import Absent
from aaco.profiler.formats.onnxruntime import ort as ort_profile
from aaco.steps import analyze, explain
from aaco.tracelake import layout
from tests import captured

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
MODELS = ("resnet50", "gpt2-tiny", "mixed", "loop")


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    root = tmp_path_factory.mktemp("cuda")
    sessions = {model: captured.session(f"ort_cuda_h200/{model}", root) for model in MODELS}
    return {model: explain.explain(session, Analysis(), analyze.recompute(session))
            for model, session in sessions.items()}


def events(model):
    """The node events that are not around other nodes."""
    return [event for event in captured.nodes_of(f"ort_cuda_h200/{model}") if event["args"]["op_name"] != "Loop"]


def rows(explanation, table):
    return explanation.tables[table].to_pylist()


@pytest.mark.parametrize("model", MODELS)
def test_kernel_time_is_that_of_the_file_to_the_ns(explained, model):
    kernels = explained[model].tables["kernels"]
    assert kernels.num_rows == len(events(model))
    assert pc.sum(kernels["dur_ns"]).as_py() == 1000 * sum(event["dur"] for event in events(model))
    assert explained[model].coverage.in_file == (kernels.num_rows, pc.sum(kernels["dur_ns"]).as_py())


@pytest.mark.parametrize("model", MODELS)
def test_each_kernel_has_the_provider_and_node_of_its_event(explained, model):
    said = Counter((event["name"].removesuffix("_kernel_time"), event["args"]["provider"]) for event in events(model))
    assert Counter((row["executed_node"], row["provider"]) for row in rows(explained[model], "kernels")) == said


@pytest.mark.parametrize("model", MODELS)
def test_every_source_node_is_claimed_once_or_eliminated(explained, model):
    nodes = rows(explained[model], "graph_nodes")
    claimed = [node for row in rows(explained[model], "executed_nodes") for node in row["source_nodes"]]
    eliminated = [row["node_id"] for row in nodes if row["fate"] == "eliminated"]
    assert sorted(claimed + eliminated) == list(range(len(nodes)))


@pytest.mark.parametrize("model", ("resnet50", "gpt2-tiny", "mixed"))
def test_executed_nodes_are_the_nodes_of_the_profile(explained, model):
    ran = {event["name"].removesuffix("_kernel_time"): event["args"]["provider"] for event in events(model)}
    assert {row["name"]: row["provider"] for row in rows(explained[model], "executed_nodes")} == ran


@pytest.mark.parametrize("model", MODELS)
def test_shares_of_a_kernel_sum_to_it(explained, model):
    shares = explained[model].tables["op_to_kernel_map"].group_by("kernel_id").aggregate([("share_ns", "sum")])
    kernels = explained[model].tables["kernels"]
    assert shares.sort_by("kernel_id")["share_ns_sum"].to_pylist() == kernels["dur_ns"].to_pylist()


def test_the_cuda_provider_ran_and_said_so(explained):
    assert all(explanation.runtime["profile"]["providers"][0] == CUDA for explanation in explained.values())
    assert explained["resnet50"].runtime["providers"][0] == CUDA
    latency = [row["latency_ms"] for row in rows(explained["resnet50"], "inference_iters") if row["phase"] != "warmup"]
    assert len(latency) == 200
    assert 1.0 < np.median(latency) < 2.0


def test_a_model_wholly_on_the_gpu_is_one_partition(explained):
    nodes = rows(explained["resnet50"], "graph_nodes")
    assert {(row["provider"], row["partition"]) for row in nodes} == {(CUDA, 0)}
    assert explained["resnet50"].readings["partition_fragmentation"].value == 0
    assert explained["resnet50"].readings["memcpy_nodes"].value == 0


def test_copies_stand_where_the_placement_changes(explained):
    """The Det in the middle is on the CPU: one copy there and one back, which compute no node of the source."""
    explanation = explained["mixed"]
    executed = rows(explanation, "executed_nodes")
    inserted = [(row["op_type"], row["provider"]) for row in executed if row["origin"] == "inserted"]
    assert sorted(inserted) == [("MemcpyFromHost", CUDA), ("MemcpyToHost", CUDA)]
    assert explanation.readings["memcpy_nodes"].value == 2
    assert explanation.readings["ep_transitions"].value == 2
    partition = [(row["provider"], row["partition"]) for row in rows(explanation, "graph_nodes")]
    assert partition == [(CUDA, 0)] * 6 + [(CPU, 1)] + [(CUDA, 2)] * 7
    assert explanation.readings["partition_fragmentation"].value == pytest.approx(1 - (6**2 + 1 + 7**2) / 14**2)
    copied = sum(event["dur"] for event in events("mixed") if event["args"]["op_name"].startswith("Memcpy"))
    assert explanation.tables["op_to_kernel_map"].filter(
        pc.is_null(explanation.tables["op_to_kernel_map"]["node_id"]))["share_ns"].to_numpy().sum() == 1000 * copied


def test_the_time_of_nodes_on_the_cpu_is_a_share_of_the_measured_runs_and_advised(explained):
    """Runs of 282, 287 and 266 us have a Det of 53, 46 and 43 us on the CPU. Mutation: nodes of every provider count.
    """
    explanation = explained["mixed"]
    assert explanation.readings["cpu_node_pct"].value == pytest.approx(100 * (53 + 46 + 43) / (282 + 287 + 266))
    (advice,) = [one for one in explanation.diagnosis.recommendations if one.name == "nodes_on_device"]
    (node,) = {row["executed_node"] for row in rows(explanation, "kernels") if row["provider"] == CPU}
    assert advice.targets == (f"{node} (Det)",)
    whole = explained["resnet50"]
    assert whole.readings["cpu_node_pct"].value == 0
    assert "nodes_on_device" not in [one.name for one in whole.diagnosis.recommendations]


def test_a_run_of_the_cpu_provider_alone_has_no_fallback(explained):
    kernels = explained["mixed"].tables["kernels"]
    alone = kernels.filter(pc.equal(kernels["provider"].cast("string"), CPU))
    with pytest.raises(Absent, match="no provider of a device"):
        fallen_back(alone)


def test_integer_nodes_that_fall_to_the_cpu_split_the_graph(explained):
    explanation = explained["gpt2-tiny"]
    assigned = {name for part in explanation.runtime["profile"]["assignment"] if part["provider"] == CPU
                for name in part["nodes"]}
    on_cpu = {row["name"] for row in rows(explanation, "graph_nodes") if row["provider"] == CPU}
    assert on_cpu == assigned
    assert len(on_cpu) == 3
    assert len({row["partition"] for row in rows(explanation, "graph_nodes")} - {None}) == 5


@pytest.mark.parametrize("model", MODELS)
def test_a_dispatch_is_not_taken_for_the_work(explained, model):
    """What would need the GPU's own times is absent, even where this machine's ceilings are known."""
    for row in rows(explained[model], "kernels"):
        assert row["timed"] == ("execution" if row["provider"] == CPU else "dispatch")
        assert row["device_id"] is None
    for name in ("microkernel_pct", "microkernel_time_pct", "kernel_mean_us", "gpu_active_ratio"):
        assert f"on {CUDA} the profile times the host's dispatch" in explained[model].readings[name].why_absent
    assert "its own times are not in this capture" in explained[model].notes[0]


def test_no_roofline_from_dispatch_times(tmp_path):
    session = captured.session("ort_cuda_h200/resnet50", tmp_path)
    session.write_json(layout.ENVIRONMENT, {"machine": {"ceilings": {"fp32_flops": 5e13, "dram_bytes_per_s": 4e12}}})
    readings = explain.explain(session, Analysis(), analyze.recompute(session)).readings
    for name in ("hardware_envelope_utilization", "compute_side_pct", "achieved_gflops"):
        assert "dispatch" in readings[name].why_absent


@pytest.mark.parametrize("model", MODELS)
def test_the_worker_counted_the_events_of_the_file(model):
    folder = captured.CAPTURES / "ort_cuda_h200" / model
    written = json.loads(gzip.decompress((folder / layout.ORT_PROFILE).read_bytes()))
    said = json.loads((folder / layout.ORT_CONFIG).read_text())["profile"]["events"]
    assert said == Counter(event["cat"] for event in written)


def test_gpu_kernel_events_are_left_out_and_counted(tmp_path):
    """A build of ONNX Runtime that traces the GPU puts `Kernel` events after the node that launched them."""
    session = captured.session("ort_cuda_h200/mixed", tmp_path)
    path = session.folder / layout.ORT_PROFILE
    plain = ort_profile.tables(path)
    traced = []
    for event in json.loads(gzip.decompress(path.read_bytes())):
        traced.append(event)
        if event["cat"] == "Node":
            args = {"stream": "7", "grid_x": "1", "op_name": event["args"]["op_name"], "parent_name": event["name"]}
            extra = {"cat": "Kernel", "name": "a_kernel_time", "pid": -1, "tid": -1, "dur": 5, "args": args}
            traced.append(event | extra)
    path.write_bytes(gzip.compress(json.dumps(traced).encode()))
    assert all(plain[name].equals(table) for name, table in ort_profile.tables(path).items())
    runtime = session.read_json(layout.ORT_CONFIG)
    runtime["profile"]["events"]["Kernel"] = 60
    session.write_json(layout.ORT_CONFIG, runtime)
    assert "60 Kernel" in explain.explain(session, Analysis(), analyze.recompute(session)).notes[1]


def test_the_graphs_carry_no_weights():
    """A capture is small because what is large is no evidence."""
    for path in captured.CAPTURES.glob("*/*/model/*.onnx.gz"):
        graph = onnx.load_from_string(gzip.decompress(path.read_bytes())).graph
        assert all(len(tensor.raw_data) <= 1024 for tensor in graph.initializer)

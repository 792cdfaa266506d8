"""Figures of real runs that would be easy to get wrong by a factor: each says what it rests on, or is absent."""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from aaco.calibration import card
from aaco.calibration.card import Ceiling, CeilingConditions, MachineCard
from aaco.collectors.inventory import machine
from tests import models
from tests.system.conftest import Aaco

ALONE = CeilingConditions(cpu_mhz_before=None, cpu_mhz_after=None, load_average=0.0, others_cpu_pct=2.5)


def fixed_batch(path, batch=8):
    """A MatMul whose input is [8, 64], without a symbol."""
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    return models.save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
                       [("x", [batch, 64])], [("y", [batch, 64])], [weight])


def report(aaco, *more):
    return json.loads(aaco.inside("report", "--format", "json", *more).stdout)


def with_a_card(folder):
    """aaco on a machine whose card was kept: its fp32 roof had not converged."""
    made = Aaco(folder, folder / "cache")
    (folder / ".config/aaco/config.yaml").write_text("profiling: {calibrate: true}\n")
    ceilings = [Ceiling(name=name, value=value, unit=unit, low=value / 2, high=value, samples=9, converged=settled,
                        how="planted", threads=len(os.sched_getaffinity(0)), conditions=ALONE)
                for name, value, unit, settled in (("fp32_flops", 1e11, "FLOP/s", False),
                                                   ("dram_bytes_per_s", 1e10, "B/s", True))]
    card.save(MachineCard(machine_id=machine.identify().id, ceilings=ceilings), folder / "cache")
    return made


@pytest.fixture(scope="module")
def eight_bit(tmp_path_factory):
    made = with_a_card(tmp_path_factory.mktemp("eight-bit"))
    made.inside("run", models.eight_bit(made.folder / "q.onnx"), "--batch", 64, "--warmup", 2, "--iterations", 30)
    return made


def test_an_8_bit_product_has_no_fp32_roof(eight_bit):
    """Mutation: one roof for every type; the product then seems to reach a share of it."""
    rows = {row["name"]: row for row in report(eight_bit)["roofline"]["executed_nodes"]}
    product = rows.pop("product") if "product" in rows else next(row for row in rows.values() if row["dtype"] == "int8")
    assert product["utilization"] is None and product["why_absent"] == "no ceiling of int8 arithmetic was measured"
    assert "no ceiling of int8 arithmetic was measured" in " ".join(eight_bit.inside("report").stdout.split())


def test_the_ceilings_are_shown_as_they_were_measured(eight_bit):
    text = " ".join(eight_bit.inside("report").stdout.split())
    assert "100 GFLOP/s, did NOT converge, others used 2.5 % of the CPUs" in text
    assert "10.0 GB/s, converged, others used 2.5 % of the CPUs" in text
    for form in ("terminal", "markdown", "html"):
        assert "fp32" in eight_bit.inside("report", "--format", form).stdout
    reading = report(eight_bit)["readings"]["hardware_envelope_utilization"]
    assert reading["caveat"] == "unsure roofs: fp32_flops not converged"


def test_a_fixed_batch_is_the_batch_that_is_reported(aaco):
    """Mutation: the plan's 1; the throughput is then too low by 8."""
    model = fixed_batch(aaco.folder / "eight.onnx")
    aaco.inside("run", model, "--warmup", 1, "--iterations", 20, "--no-profile")
    rows = pq.read_table(aaco.latest / "metrics/inference_iters.parquet").to_pylist()
    assert {row["batch"] for row in rows} == {8}
    seconds = sum(row["latency_ms"] for row in rows if row["phase"] == "measurement") / 1e3
    found = report(aaco)
    assert found["readings"]["throughput_per_s"]["value"] == pytest.approx(8 * 20 / seconds)
    assert found["record"]["plan"]["batch"] == found["summary"]["batch"] == 8
    assert "8 samples per inference, as the model fixes it" in aaco.inside("report").stdout
    refused = aaco.inside("run", model, "--batch", 1, expect=2).stderr
    assert "the model fixes it at 8" in refused and "leave --batch out" in refused


def counted_loop(path, counted):
    """A Loop of 40 products of 64 x 64; with `counted` as a constant, else as a model input."""
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"], name="go"),
         helper.make_node("MatMul", ["state", "w"], ["next"], name="product")], "body",
        [helper.make_tensor_value_info("trip", TensorProto.INT64, []),
         helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, [64, 64])])
    nodes = [helper.make_node("Loop", ["trips", "true", "x"], ["y"], name="loop", body=body)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])]
    constants = [weight, numpy_helper.from_array(np.array(True), "true")]
    if counted:
        constants.append(numpy_helper.from_array(np.array(40), "trips"))
    else:
        inputs.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
                              constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.mark.parametrize("counted", [True, False])
def test_a_loops_body_is_counted_as_often_as_it_is_timed(tmp_path, counted):
    """Mutation: flops of one trip against the time of forty."""
    aaco = with_a_card(tmp_path)
    aaco.inside("run", counted_loop(aaco.folder / "loop.onnx", counted), "--warmup", 1, "--iterations", 5)
    product = next(row for row in pq.read_table(aaco.latest / "model/graph_nodes.parquet").to_pylist()
                   if row["name"] == "product")
    found = report(aaco)
    if counted:
        assert (product["executions"], product["flops"]) == (40, 40 * 2 * 64**3)
        kernels = pq.read_table(aaco.latest / "profiler/rocprof_kernels.parquet").to_pylist()
        ns = sum(row["dur_ns"] for row in kernels if row["executed_node"] == "product" and row["iteration"] is not None)
        row = next(row for row in found["roofline"]["executed_nodes"] if row["name"] == "product")
        assert (row["flops"], row["time_ns"]) == (40 * 2 * 64**3, pytest.approx(ns / 10))
        assert row["utilization"] == pytest.approx(40 * 2 * 64**3 / 1e11 / (ns / 10 / 1e9))
    else:
        assert product["flops"] is None and "inside a loop" in product["why_no_cost"]
        assert found["model_facts"]["unknown_trips"] == 2
        assert "how often that runs its body is not in the model" in " ".join(aaco.inside("report").stdout.split())


def test_operators_are_of_the_measured_inferences_as_everything_else_is(recorded):
    """Mutation: the kernels of the profiled pass's warm-up counted with them, which the coverage says are dropped."""
    kernels, operators, groups = (pq.read_table(recorded.latest / name).to_pylist() for name in (
        "profiler/rocprof_kernels.parquet", "attribution/operators.parquet", "attribution/kernel_groups.parquet"))
    measured = [kernel for kernel in kernels if kernel["iteration"] is not None]
    assert 0 < len(measured) < len(kernels)
    for column, of_group, total in (("device_ns", "total_ns", sum(kernel["dur_ns"] for kernel in measured)),
                                    ("kernels", "calls", len(measured))):
        assert sum(row[column] for row in operators) == sum(row[of_group] for row in groups) == total
    known = [row for row in operators if row["flops"] is not None and row["bytes"] is not None]
    assert report(recorded)["readings"]["operator_flops_per_s"]["value"] == pytest.approx(
        1e9 * sum(row["flops"] for row in known) / sum(row["device_ns"] for row in known))


def test_the_effective_number_is_traced_home_by_its_formula(aaco):
    """Mutation: a formula that does not say that its n is of one process, or that its r is never below 0."""
    aaco.inside("run", models.chain(aaco.folder / "chain.onnx"), "--processes", 2, "--iterations", 20, "--no-profile")
    readings = report(aaco)["readings"]
    rows = [row for row in pq.read_table(aaco.latest / "metrics/inference_iters.parquet").to_pylist()
            if row["phase"] == "measurement" and row["process"] == 0]
    taken = np.array([row["latency_ms"] for row in rows])
    apart = taken - taken.mean()
    r = float((apart[1:] * apart[:-1]).sum() / (apart * apart).sum())
    assert readings["latency_autocorrelation"]["value"] == pytest.approx(r)
    assert readings["effective_iterations"]["value"] == pytest.approx(20 * (1 - max(0.0, r)) / (1 + max(0.0, r)))
    for name in ("effective_iterations", "latency_autocorrelation", "latency_drift_pct", "latency_drift_p",
                 "latency_independence_p"):
        assert "of the process that made most" in readings[name]["formula"].replace("\n", " ")
    assert "0 where negative" in readings["effective_iterations"]["formula"]


def test_the_clean_time_of_a_run_on_cpus_is_shared_out_to_the_ns(eight_bit):
    """What the document, the readings, the summary and the report say of it is the same."""
    session = eight_bit.latest
    budget = json.loads((session / "metrics/cpu_budget.json").read_text())
    iterations = pq.read_table(session / "metrics/inference_iters.parquet").to_pylist()
    wall = sum(row["t_end_ns"] - row["t_start_ns"] for row in iterations if row["phase"] == "measurement")
    assert sum(budget["parts_ns"].values()) == budget["wall_ns"] == wall
    readings = report(eight_bit)["readings"]
    for metric, part in (("node_compute_pct", "compute"), ("runtime_overhead_pct", "overhead")):
        assert readings[metric]["value"] == pytest.approx(100 * budget["parts_ns"][part] / wall)
    for command in ("summary", "report"):
        text = eight_bit.inside(command).stdout.translate({ord("║"): " ", ord("│"): " "})
        assert "of the clean inferences" in " ".join(text.split())
    account = json.loads((session / "runtime/ort_config.json").read_text())["passes"][0]["cpu"]
    assert account is None or account["cpus"] == len(os.sched_getaffinity(0))

"""Runs on AMD's own provider of ONNX Runtime, as its wheel has it, over a ROCm without a GPU (tests/fakes/rocm)."""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.gpu import _models
from tests.fakes import rocm

PROVIDER = "MIGraphXExecutionProvider"
RUNS = 10  # that are profiled where nobody says


@dataclass(frozen=True)
class Stack:
    """The libraries and AMD's wheel, in a folder."""

    folder: Path

    def around(self, tools: Path | None = None, libraries: bool = True) -> dict[str, str]:
        return rocm.environment(self.folder if libraries else None, self.folder / "packages", tools)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rocm")
    rocm.build(folder)
    rocm.wheel(folder / "packages")
    return Stack(folder)


def run(aaco, model, around, *more, expect=0):
    """Runs a model on the provider; the passes are programs of their own, which find the wheel by PYTHONPATH."""
    wheel = around["PYTHONPATH"].split(os.pathsep)[1]
    with patch.object(sys, "path", [wheel, *sys.path]):
        return aaco.inside("run", model, "-b", "migraphx", "--warmup", 2, "-n", 6, "--full", *more, expect=expect,
                           **around)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, cache, stack):
    """A session of a small model with the tracer, what was asked of it, and the text of the run."""
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("migraphx"), cache)
    log = rocm.install_rocprofv3(made.folder)
    text = run(made, "bert-tiny", stack.around(made.folder / "bin")).stdout
    return made, made.latest, log.read_text().splitlines(), " ".join(text.split())


def table(session, name):
    return pq.read_table(session / name)


def document(session, name):
    return json.loads((session / name).read_text())


def traced(session, part, kind="kernel_trace"):
    path, = (session / "profiler/rocprof_raw" / part).glob(f"host/*_{kind}.csv")
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_kernel_has_what_was_counted_of_its_dispatch(aaco, stack):
    """In as many executions as the hardware takes, under the roofs of the device that rocprofv3 names. Mutations:
    joined by order of the measured kernels; keys of the counting execution; its times told.
    """
    log = rocm.install_rocprofv3(aaco.folder)
    text = run(aaco, "bert-tiny", stack.around(aaco.folder / "bin"), "--pmc", "memory,SQ_WAVES").stdout
    lines = log.read_text().splitlines()[3:]
    assert len(lines) == 2 and not [line for line in lines if "trace" in line.replace("rocprof_raw", "")]
    session = aaco.latest
    dispatch = {row["kernel_id"]: row["dispatch_id"]
                for row in table(session, "profiler/rocprof_kernels.parquet").to_pylist()}
    names = {row["kernel_id"]: row["kernel_name"]
             for row in table(session, "profiler/rocprof_kernels.parquet").to_pylist()}
    found = {(row["pass"], dispatch[row["kernel_id"]], names[row["kernel_id"]], row["counter"]): row["value"]
             for row in table(session, "profiler/counters.parquet").to_pylist()}
    written = {(number, int(row["Dispatch_Id"]), row["Kernel_Name"], row["Counter_Name"]): float(row["Counter_Value"])
               for number in (1, 2) for row in traced(session, f"counters-{number:02d}", "counter_collection")}
    assert found == written and len(found) == len(rocm.COUNTED) * len(dispatch)
    account = document(session, "metrics/device_passes.json")["counters"]
    assert [(one["tool"], one["joined"], one["why_not"]) for one in account] == [("rocprofv3", len(dispatch), None)] * 2
    assert {name for one in account for name in one["counters"]} == set(rocm.COUNTED)
    kernels = table(session, "profiler/rocprof_kernels.parquet")
    measured = kernels.filter(pc.is_valid(kernels["iteration"]))
    placed = table(session, "attribution/kernel_roofline.parquet")
    assert placed["kernel_id"].to_pylist() == measured["kernel_id"].to_pylist()
    assert not placed["dram_read_bytes"].null_count
    device, = document(session, "metrics/roofline.json")["devices"]
    assert (device["arch"], device["compute_units"]) == ("gfx942", 304)
    assert "in an execution of its own" in " ".join(text.split())
    before = table(session, "profiler/counters.parquet")
    said = document(session, "metrics/derived_metrics.json")["counted_time_pct"]["why_absent"]
    assert "not recorded" in said
    aaco.inside("analyze", session.name)
    assert document(session, "metrics/derived_metrics.json")["counted_time_pct"]["why_absent"] == said
    assert table(session, "profiler/counters.parquet").equals(before)
    assert document(session, "manifest.json")["absent"].keys().isdisjoint(
        ["profiler/counters.parquet", "attribution/kernel_roofline.parquet"])


def test_counters_of_other_work_cost_themselves_alone(aaco, stack):
    """As those of an execution that fails do (tests/unit/test_device_counters.py). Mutation: those of the dispatches
    that agree are taken."""
    says = "dispatches are other kernels than in the trace"
    rocm.install_rocprofv3(aaco.folder, other="another_kernel")
    text = run(aaco, "bert-tiny", stack.around(aaco.folder / "bin"), "--pmc", "SQ_WAVES").stdout
    account = document(aaco.latest, "metrics/device_passes.json")
    one, = account["counters"]
    assert says in one["why_not"] and one["joined"] == 0 and account["named"] == account["timed"]["kernels"] > 0
    assert says in document(aaco.latest, "manifest.json")["absent"]["profiler/counters.parquet"]
    assert "left out, as" in " ".join(text.split())
    assert document(aaco.latest, "session.json")["status"] == "complete"
    assert not (aaco.latest / "metrics/roofline.json").exists()


def test_what_cannot_be_counted_is_refused_before_anything_starts(aaco, stack):
    """Mutations: found out after the passes; the profile left out in silence."""
    rocm.install_rocprofv3(aaco.folder)
    there, away = stack.around(aaco.folder / "bin"), stack.around()
    assert "no counter SQ_WAVE; did you mean 'SQ_WAVES'" in run(
        aaco, "bert-tiny", there, "--pmc", "SQ_WAVE", expect=6).stderr
    assert "rocprofv3 is not installed" in run(aaco, "bert-tiny", away, "--pmc", "SQ_WAVES", expect=6).stderr
    assert "leave out --no-profile" in run(
        aaco, "bert-tiny", there, "--pmc", "SQ_WAVES", "--no-profile", expect=2).stderr
    assert "choose a backend of a GPU" in aaco.inside("run", "bert-tiny", "--pmc", "SQ_WAVES", expect=2).stderr
    assert json.loads(aaco.inside("ls", "--json").stdout)["sessions"] == []


def test_kernels_have_the_times_of_their_pass_and_the_compiled_subgraph(ran):
    """Mutation: boottime taken for realtime; the pass of names told; a pass that is not traced."""
    _, session, asked, text = ran
    kernels = table(session, "profiler/rocprof_kernels.parquet")
    counted = kernels.filter(pc.is_valid(kernels["iteration"]))
    written = traced(session, "calls")
    written = written[-counted.num_rows:]  # behind compiling and warm-up
    assert counted.num_rows and counted.num_rows % RUNS == 0
    assert counted["kernel_name"].to_pylist() == [row["Kernel_Name"] for row in written]
    assert counted["dur_ns"].to_pylist() == [int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in written]
    timed = np.fromfile(session / "profiler/rocprof_raw/calls/iterations.i64", "<i8").reshape(-1, 4)
    begins, ends = timed[timed[:, 1] == 1][:, 2:].T
    at = np.repeat(np.arange(RUNS), counted.num_rows // RUNS)
    starts = counted["t_start_ns"].to_numpy()
    assert counted["iteration"].to_pylist() == at.tolist() and np.all((begins[at] <= starts) & (starts <= ends[at]))
    executed, = table(session, "model/executed_nodes.parquet").to_pylist()
    assert set(counted["executed_node"].to_pylist()) == {executed["name"]} and executed["provider"] == PROVIDER
    account = document(session, "metrics/device_passes.json")
    assert (account["tracer"], account["identical"], account["named"]) == ("rocprofv3", RUNS, counted.num_rows)
    assert account["problems"] == [] and account["named_ns"] == account["timed"]["ns"]
    assert "by rocprofv3 with the calls that launched them" in text
    assert ["--hip-runtime-trace" in line for line in asked] == [True, False, True]


def test_the_partition_is_that_of_the_provider_and_no_ratio_of_its_nodes_is_told(ran):
    """Mutation: nodes of a compiled subgraph counted as one node of the executed graph."""
    _, session, *_ = ran
    part, = document(session, "runtime/migraphx_partition.json")["instructions"]
    graph = table(session, "model/graph_nodes.parquet").to_pylist()
    assert part["nodes"] == [node["name"] for node in graph if node["provider"] == PROVIDER]
    assert part["origin"] == "fused" and len(part["nodes"]) > 10
    readings = document(session, "metrics/derived_metrics.json")
    assert "compiled subgraphs" in readings["kernel_amplification_ratio"]["why_absent"]
    assert readings["source_amplification_ratio"]["value"] > 0
    record = document(session, "session.json")
    assert record["backend_ran"] == PROVIDER and record["status"] == "complete"
    assert "runtime/migraphx_partition.json" not in document(session, "manifest.json")["absent"]


def test_it_is_made_anew_from_what_was_recorded_and_computes_what_the_cpu_does(ran):
    made, session, *_ = ran
    before = {name: document(session, f"metrics/{name}.json") for name in ("device_passes", "derived_metrics")}
    made.inside("analyze", session.name)
    assert before == {name: document(session, f"metrics/{name}.json") for name in before}
    made.inside("run", "bert-tiny", "--warmup", 0, "-n", 3, "--no-profile")
    assert made.inside("outputs", made.latest.name, session.name).stdout.startswith("CLOSE")


def test_a_node_that_the_provider_does_not_take_runs_on_the_host_between_two_subgraphs(aaco, stack):
    """Mutation: the host's node among the device's kernels; copies between providers of unknown origin."""
    rocm.install_rocprofv3(aaco.folder)
    # The provider leaves a part between others to the CPU unless a product in it is small: inputs of 300 at most.
    run(aaco, _models.with_host_node(aaco.folder / "split.onnx", 16), stack.around(aaco.folder / "bin"))
    nodes = {node["name"]: node for node in table(aaco.latest, "model/graph_nodes.parquet").to_pylist()}
    assert nodes["middle/Det"]["provider"] == "CPUExecutionProvider"
    assert len(document(aaco.latest, "runtime/migraphx_partition.json")["instructions"]) == 2
    copies = [node for node in table(aaco.latest, "model/executed_nodes.parquet").to_pylist()
              if node["op_type"].startswith("Memcpy")]
    assert [node["origin"] for node in copies] == ["inserted"] * 2
    account = document(aaco.latest, "metrics/device_passes.json")
    assert account["host_nodes"] == 1 and account["named"] == account["timed"]["kernels"]
    assert {node["partition"] for name, node in nodes.items() if name.startswith("before/")}.isdisjoint(
        node["partition"] for name, node in nodes.items() if name.startswith("after/MatMul"))


@pytest.mark.parametrize(("refuses", "says"), [
    (None, "rocprofv3 is not installed, or not on the PATH"), ("--hip-runtime-trace", "rocprofv3: no")])
def test_a_tracer_that_is_not_here_or_fails_costs_the_device_alone(aaco, stack, refuses, says):
    """Mutation: the failure of the traced pass is the run's."""
    if refuses:
        rocm.install_rocprofv3(aaco.folder, refuses)
    text = run(aaco, "bert-tiny", stack.around(aaco.folder / "bin" if refuses else None)).stdout
    assert says in " ".join(text.split())
    assert says in document(aaco.latest, "metrics/device_passes.json")["why_absent"]
    assert document(aaco.latest, "session.json")["status"] == "complete"
    assert document(aaco.latest, "runtime/migraphx_partition.json")["instructions"]


def test_a_pass_of_calls_that_fails_leaves_the_times(aaco, stack):
    log = rocm.install_rocprofv3(aaco.folder, fails_at=3)
    run(aaco, "bert-tiny", stack.around(aaco.folder / "bin"))
    account = document(aaco.latest, "metrics/device_passes.json")
    assert len(log.read_text().splitlines()) == 3 and "checked" not in account
    assert account["named"] == account["timed"]["kernels"] > 0
    assert account["problems"] == [
        "the pass that records calls: the measured process ended with exit code 1: rocprofv3: no"]


def test_a_tracer_that_never_ends_is_not_waited_for(aaco, stack, monkeypatch):
    """The pass with the calls stands alone. Mutation: no limit once the work is done."""
    from aaco.runner import ort

    monkeypatch.setattr(ort, "FINISHING_S", 2.0)
    rocm.install_rocprofv3(aaco.folder, hangs_at=2)
    around = stack.around(aaco.folder / "bin")
    run(aaco, "bert-tiny", around)
    passes = document(aaco.latest, "metrics/device_passes.json")
    why = "the pass that times kernels: the tracer had not ended 2 s after the work was done"
    assert why in passes["problems"] and passes["with_calls"] and passes["named"] == passes["timed"]["kernels"] > 0


def test_without_rocm_the_provider_says_which_library_it_lacks(aaco, stack):
    """Nothing runs on the CPU in its place."""
    refused = aaco("run", "bert-tiny", "-b", "migraphx", expect=6, **stack.around(libraries=False)).stderr
    assert "libmigraphx_c.so.3: cannot open shared object file" in refused


def test_doctor_says_what_the_provider_lacks_to_be_loaded_and_what_device(aaco, stack):
    """Mutation: the library counted as good because its file is there."""
    lines = {libraries: json.loads(aaco("doctor", "--json", **stack.around(libraries=libraries)).stdout)["capabilities"]
             for libraries in (False, True)}
    why = {libraries: next(one for one in found if one["name"] == PROVIDER)["why_not"]
           for libraries, found in lines.items()}
    assert why[False].startswith("libmigraphx_c.so.3: cannot open shared object file")
    assert "kfd" in why[False] and why[True] in why[False] and "libmigraphx" not in why[True]


def test_data_that_stays_on_the_device_is_not_copied_in_an_inference(ran, stack, aaco):
    """Mutation: each inference binds its inputs anew; outputs bound to the host."""
    made, session, *_ = ran
    rocm.install_rocprofv3(aaco.folder)
    around = stack.around(aaco.folder / "bin")
    run(aaco, "bert-tiny", around, "--io", "device")
    copied = [pq.read_table(one / "profiler/copies.parquet")["iteration"].drop_null() if
              (one / "profiler/copies.parquet").is_file() else [] for one in (session, aaco.latest)]
    assert len(copied[0]) >= 2 * RUNS and len(copied[1]) == 0
    assert "latencies hold no copy" in aaco.inside("report").stdout.replace("\n", " ").replace("  ", " ")
    hashes = {document(one, "session.json")["config_hash"] for one in (session, aaco.latest)}
    assert len(hashes) == 2
    assert made.inside("outputs", session.name, aaco.latest).stdout.startswith("EQUAL")


def test_data_cannot_stay_where_there_is_no_device(aaco):
    refused = aaco.inside("run", "bert-tiny", "--io", "device", expect=2).stderr
    assert "--io device: cpu has no memory of a device" in refused

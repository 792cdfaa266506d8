"""A small explained session, made through the real measure() and diagnose(), for the tests of the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics import attribution
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.explanation import Explanation, cover, summarise
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.measure import measure
from aaco.core import inputs, tables
from aaco.core.config import Analysis
from aaco.governance.verdict_document import Cause, Counts, EnvironmentDifference, RegressionVerdict
from aaco.steps import readings as step

SESSION = "20260102_030405_abcdef"
OPERATORS = ("Conv", "FusedConv", "MaxPool", "Conv", "Add", "ReorderInput", "Gemm", "Softmax")
DOMAINS = ("", "com.microsoft", "", "", "", "com.microsoft.nchwc", "", "")
MICROSECONDS = (900, 640, 75, 410, 60, 22, 130, 8)
FLOPS = (30_000_000, 21_000_000, 800_000, 14_000_000, 200_000, None, 4_000_000, 4_000)
BYTES = (2_000_000, 1_400_000, 1_600_000, 900_000, 1_200_000, None, 8_000_000, 8_000)
CEILINGS = {"fp32_flops": 6.0e10, "dram_bytes_per_s": 2.0e10}
WARMUP_RUNS, RUNS = 2, 10


@dataclass(frozen=True)
class Sample:
    """What varies between the sessions of the tests."""

    names: Sequence[str] = ("conv1", "conv2_relu", "pool", "conv3", "add", "reorder", "fc", "softmax")
    operators: Sequence[str] = OPERATORS
    model: str = "resnet50"
    status: str = "complete"
    failure: str | None = None
    device: int | None = None
    ceilings: Mapping[str, float] | None = field(default_factory=lambda: CEILINGS)
    converged: bool = True
    others_cpu_pct: float | None = 1.25
    processes: int = 2
    iterations: int = 120
    profiled: bool = True
    verdict: Mapping[str, Any] | None = None

    def explain(self) -> Explanation:
        """The session, explained."""
        found = {"inference_iters": self._iterations()}
        missing = {"system_events": "the run was made without --telemetry"}
        if self.profiled:
            found |= self._capture()
        else:
            missing |= dict.fromkeys(sorted(tables.ALL.keys() - found.keys() - missing.keys()), "not profiled")
        doubts = step.caveats({"machine": self._machine()}, found)
        readings = measure(found, self.ceilings, Analysis(), missing, doubts)
        latencies = {"warmup": inputs.warmup_ms(found["inference_iters"]),
                     "measurement": inputs.latencies_ms(found["inference_iters"])}
        return Explanation(
            session_id=SESSION, folder=f"sessions/2026-01-02/{SESSION}", status=self.status,
            record=self._record(), model={"name": self.model, "parameters": 25_557_032, "opset": {"": 17}},
            runtime={"provider": "CPUExecutionProvider", "onnxruntime": "1.23.0",
                     "passes": [{"load_ms": 41.0, "stopped_by": "iterations",
                                 "null_loop": {"inside_ns": 62.0, "per_iteration_ns": 810.0}}] * self.processes},
            environment={"cpu": {"model": "Example CPU", "cores": 2}, "packages": {"numpy": "2.1.0"}},
            machine=self._machine(), tables=found, readings=readings, diagnosis=diagnose(readings),
            summary=summarise(latencies, 1), coverage=cover(found.get("kernels"), found.get("op_to_kernel_map")),
            absent=by_file(missing), verdict=self.verdict)

    def _record(self) -> dict[str, Any]:
        return {"session_id": SESSION, "created_utc": "2026-01-02T03:04:05.000+00:00",
                "status": self.status, "failure": self.failure, "tag": "", "tool_version": "0.1.0",
                "plan": {"model": self.model, "backend": "cpu", "batch": 1, "iterations": self.iterations},
                "backend_asked": "CPUExecutionProvider", "backend_ran": "CPUExecutionProvider",
                "synthetic_weights": True}

    def _machine(self) -> dict[str, Any]:
        return {"id": "abc123def456", "label": "Example CPU, 2 cores, 8 GiB", "ceilings": self.ceilings,
                "card": self._card() if self.ceilings else None}

    def _card(self) -> dict[str, Any]:
        units = {"fp32_flops": "FLOP/s", "dram_bytes_per_s": "B/s"}
        conditions = {"cpu_mhz_before": None, "cpu_mhz_after": None, "load_average": 0.1,
                      "others_cpu_pct": self.others_cpu_pct}
        return {"machine_id": "abc123def456", "measured_utc": "2026-01-02T01:02:03.000Z", "ceilings": [
            {"name": name, "value": value, "unit": units[name], "low": value / 2, "high": value, "samples": 9,
             "converged": self.converged, "how": "so", "threads": 2, "conditions": conditions}
            for name, value in (self.ceilings or {}).items()]}

    def _iterations(self) -> pa.Table:
        """Latencies of a warm-up that settles, and of a steady state with a few stragglers."""
        each = 20 + self.iterations
        turn = np.tile(np.arange(each), self.processes)
        process = np.repeat(np.arange(self.processes), each)
        chance = Random(1)  # whose stream no version of Python changes
        noise = np.array([chance.random() for _ in turn])
        ms = 2.4 + 0.08 * noise + 0.9 * np.exp(-turn / 4) + 0.03 * process + np.where(turn % 37 == 36, 0.6, 0)
        ns = (ms * 1e6).astype(np.int64)
        start = np.cumsum(ns + 1000) - ns
        return tables.INFERENCE_ITERS.build(
            iteration=np.where(turn < 20, turn, turn - 20), phase=np.where(turn < 20, "warmup", "measurement").tolist(),
            t_start_ns=start, t_end_ns=start + ns, latency_ms=ns / 1e6, batch=np.ones(len(turn), np.int64),
            process=process)

    def _capture(self) -> dict[str, pa.Table]:
        count, runs = len(self.names), WARMUP_RUNS + RUNS
        ns = 1000 * np.resize(MICROSECONDS, count).astype(np.int64)
        run_ns = int(ns.sum()) + 90_000
        start = np.add.outer(np.arange(runs) * (run_ns + 50_000), np.cumsum(ns) - ns + 20_000).ravel()
        duration = np.tile(ns, runs)
        run = np.repeat(np.arange(runs), count)
        kernels = tables.KERNELS.build(
            kernel_id=np.arange(len(start)), kernel_name=list(self.operators[:count]) * runs,
            executed_node=list(self.names) * runs, dtypes=[["float32"]] * len(start),
            t_start_ns=start, t_end_ns=start + duration, dur_ns=duration,
            device_id=pa.array([self.device] * len(start), pa.int64()), source=["ort"] * len(start),
            iteration=pa.array(run - WARMUP_RUNS, pa.int64(), mask=run < WARMUP_RUNS))
        begin = np.arange(runs) * (run_ns + 50_000)
        calls = tables.API_CALLS.build(call_id=np.arange(runs), name=[inputs.RUN] * runs, domain=["ort"] * runs,
                                       t_start_ns=begin, t_end_ns=begin + run_ns, dur_ns=np.full(runs, run_ns))
        return self._derived({"kernels": kernels, "api_calls": calls, **self._graph(count)})

    def _graph(self, count: int) -> dict[str, pa.Table]:
        numbers = np.arange(count)
        flops, moved = (np.resize(np.array(known, object), count).tolist() for known in (FLOPS, BYTES))
        nodes = tables.GRAPH_NODES.build(
            node_id=numbers, name=[f"{name}_src" for name in self.names], op_type=list(self.operators[:count]),
            flops_each=flops, bytes_each=moved, executions=[1] * count, flops=flops, bytes=moved,
            provider=["CPUExecutionProvider"] * count, partition=[0] * count,
            executed_as=list(self.names))
        run = tables.EXECUTED_NODES.build(
            executed_id=numbers, name=list(self.names), op_type=list(self.operators[:count]),
            domain=np.resize(DOMAINS, count).tolist(), provider=["CPUExecutionProvider"] * count,
            source_nodes=[[number] for number in range(count)])
        edges = tables.GRAPH_EDGES.build(
            src_node=numbers[:-1], dst_node=numbers[1:], tensor=[f"t{number}" for number in numbers[1:]],
            bytes=np.full(count - 1, 4096))
        return {"graph_nodes": nodes, "executed_nodes": run, "graph_edges": edges}

    def _derived(self, found: dict[str, pa.Table]) -> dict[str, pa.Table]:
        kernels = attribution.label_families(found["kernels"], found["executed_nodes"])
        used = kernels.filter(pc.is_valid(kernels["iteration"]))
        wall = inputs.window(kernels, found["api_calls"]).wall_ns
        mapped = attribution.map_nodes(kernels, found["executed_nodes"], found["graph_nodes"])
        operators, mapped = attribution.of_graph(
            kernels, mapped, found["executed_nodes"], found["graph_nodes"],
            executed_work(found["executed_nodes"], found["graph_nodes"], found["graph_edges"]))
        return found | {"kernels": kernels, "kernel_groups": attribution.group(used, wall),
                        "op_to_kernel_map": mapped, "operators": operators}


def regressed(recommendation: str = "the kernels take longer each") -> dict[str, Any]:
    """A verdict.json that says slower."""
    counts = Counts(baseline=5, current=2)
    return RegressionVerdict(
        status="regressed", why="the whole interval lies above the tolerance", regression=True, severity="low",
        recommendation=recommendation, baseline_value=2.29, current_value=2.454, effect_pct=7.25, ci=(5.5, 9.0),
        level=0.95, tolerance_pct=5, mde80_pct=3.1, n_sessions=counts, n_iterations=Counts(baseline=600, current=240),
        n_units=counts, design="unpaired sessions", suspected_cause="conv kernels take longer", tool_version="0.1.0",
        causes=[Cause(family="conv", kind="duration", delta_ns=1_600_000, inferences=10, share_pct=97.5),
                Cause(family=None, kind="gaps", delta_ns=41_000, inferences=10, share_pct=2.5)],
        env_diff=[EnvironmentDifference(fact="packages.numpy", baseline="2.0", current="2.1", blocks=False)],
        reproduce_command="aaco diff --baseline main --session latest").model_dump(mode="json")


# Names that try to be markup, script, template, terminal control, another reading direction, or nothing at all.
HOSTILE = (
    "<script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>", "<!--<script>",
    "\"' onmouseover=\"document.title='owned'\" x='",
    "\u202egnp.exe\u2066\u2028\u2029", "line\nbreak\r\n\t\x1b[31mred\x1b]0;owned\x07\x00", "{{ 7*7 }}{% raw %}${7*7}",
    "k" * 10_000, "`|` | *_[x](javascript:alert(1)) \\| # ~~", "https://evil.example/ @someone #1", "名前" * 60,
    "e\u0301" * 90, "null", "NaN", "undefined", "__proto__", "", " ", "&lt;b&gt; &amp;",
)


def hostile() -> Explanation:
    """A session in which every name is hostile."""
    explanation = Sample(names=HOSTILE, operators=HOSTILE[::-1], model=HOSTILE[0], status="failed",
                         failure=" ".join(HOSTILE[2:7])).explain()
    executed = explanation.tables["executed_nodes"]  # of an operator whose element type is known, so that it has a roof
    known = executed.set_column(executed.schema.get_field_index("op_type"), "op_type",
                                pa.array(["Conv"] * executed.num_rows).dictionary_encode())
    return replace(explanation, tables={**explanation.tables, "executed_nodes": known},
                   environment={name: [name, {"inner": name}] for name in HOSTILE}, notes=HOSTILE[5:8])


def nothing() -> Explanation:
    """A session that was killed before it recorded anything."""
    readings = measure({}, None, Analysis(), dict.fromkeys(tables.ALL, "the run did not get that far"))
    return Explanation(
        session_id=SESSION, folder=SESSION, status="incomplete", record={"tool_version": "0.1.0"}, model={},
        runtime={}, environment={}, machine={}, tables={}, readings=readings, diagnosis=diagnose(readings),
        summary=summarise({"warmup": [], "measurement": []}, 1), coverage=None,
        absent=by_file(dict.fromkeys(tables.ALL, "the run did not get that far")))


def without(explanation: Explanation, table: str) -> Explanation:
    """The session as it would be had this table not been recorded."""
    left = {name: rows for name, rows in explanation.tables.items() if name != table}
    return replace(explanation, tables=left, absent={**explanation.absent, tables.ALL[table].file: "not recorded"})


def by_file(missing: Mapping[str, str]) -> dict[str, str]:
    """Why tables are not there, by file instead of by name."""
    return {tables.ALL[name].file: why for name, why in missing.items()}

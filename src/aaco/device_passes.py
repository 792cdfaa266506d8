"""What an NVIDIA device does in a run of ours: recorded by our CUPTI tracer in three passes, joined into one answer.

The worker is traced like any Python program is (profiler/launchers/cupti.py): nothing in it knows of the tracer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import inputs
from aaco.analytics.attribution import passes
from aaco.analytics.bottleneck.budget import Unprofiled
from aaco.analytics.families import families_of
from aaco.analytics.lanes import Ints, integers
from aaco.core import files
from aaco.core.clocks import ClockOffsets
from aaco.core.errors import BadCapture
from aaco.core.plan import Plan
from aaco.core.readings import Absent
from aaco.core.show import Show
from aaco.core.tables import API_CALLS, COPIES, KERNELS, replaced
from aaco.profiler import cupti
from aaco.profiler.launchers.cupti import environment
from aaco.runner import iterations, ort
from aaco.runner.ort import Workload
from aaco.tracelake import layout

ON_HOST = "CPUExecutionProvider"
PROVIDERS = {"CUDAExecutionProvider", "TensorrtExecutionProvider"}
# A replayed graph runs no node: names come from a pass without it, by sequence.
GRAPHS = {"enable_cuda_graph", "trt_cuda_graph_enable"}
RUN = "model_run"
SPECS = {"kernels": KERNELS, "copies": COPIES, "api_calls": API_CALLS}


@dataclass(frozen=True)
class Device:
    """Tables that stand in place of the runtime's own, how each kernel was named, how often each executed node ran in
    the inferences of the tables, and what is to be said of it all."""

    tables: dict[str, pa.Table]
    methods: list[str | None]
    executions: dict[str, int]
    account: dict[str, Any]


@dataclass(frozen=True)
class _Pass:
    """What a pass under the tracer alone left: kernels and copies with the inference that they ran in, calls, and when
    the measured inferences began and ended."""

    tables: dict[str, pa.Table]
    begins: Ints
    ends: Ints
    problems: list[str]

    def lasted(self) -> dict[str, Any]:
        """How long its inferences took: the median, and all together."""
        return {"latency_ms": float(np.median(self.ends - self.begins)) / 1e6,
                "wall_ns": int((self.ends - self.begins).sum())}


def profile(folder: Path, workload: Workload, plan: Plan, show: Show) -> Iterator[dict[str, Any]]:
    """The profiled pass; on an NVIDIA provider under the tracer, and followed by two passes under the tracer alone.

    Yields the facts of each as it ends, as ort_config.json has them: `profile`, `device`, and `device_calls`.
    """
    if workload.backend.provider not in PROVIDERS:
        yield {"profile": ort.profile_pass(folder, workload, plan)}
        return
    for name in (layout.CUPTI_NAMES, layout.CUPTI_TIMES, layout.CUPTI_CALLS):
        with files.storage(folder / name):
            (folder / name).mkdir(parents=True, exist_ok=True)
    options = workload.backend.options
    eager = replace(workload, backend=workload.backend.model_copy(
        update={"options": {name: value for name, value in options.items() if name not in GRAPHS}}))
    yield {"profile": ort.profile_pass(folder, eager, plan, environment((folder / layout.CUPTI_NAMES).resolve()))}
    for fact, name, mode, doing in (("device", layout.CUPTI_TIMES, "kernels", "timing kernels on the device"),
                                    ("device_calls", layout.CUPTI_CALLS, "all", "tracing the calls that launch them")):
        show.step(f"{doing} for {plan.profile_iterations} iterations in a separate process")
        traced = environment((folder / name).resolve(), mode)
        yield {fact: ort.traced_pass(folder / name, workload, plan, traced)}


def read(folder: Path, found: Mapping[str, pa.Table], clocks: ClockOffsets, warmup: int) -> Device:
    """The device's work, from the captures of a session. Raises Absent with the reason, BadCapture.

    found: `kernels` and `api_calls` of the runtime's own profile, on this session's clock, whose nodes name the
    device's kernels. warmup: how many of its runs were not measured.
    """
    shift = clocks.monotonic_ns - clocks.realtime_ns
    named, said = _capture(folder / layout.CUPTI_NAMES, shift)
    times = _traced(folder / layout.CUPTI_TIMES, shift)
    calls, why_not = _with_calls(folder, shift)
    told = calls or times
    runs = _runs(found["api_calls"], warmup)
    profiled = _in_runs(named["kernels"], named["api_calls"], *runs)
    on_host = pc.equal(found["kernels"]["provider"].cast(pa.string()), ON_HOST)
    nodes, host = found["kernels"].filter(pc.invert(on_host)), found["kernels"].filter(on_host)
    joined = passes.join(profiled, pa.concat_tables([named["api_calls"], _ranges(nodes)]),
                         set(nodes["executed_node"].to_pylist()), told.tables["kernels"])
    copies = told.tables["copies"]
    checked = {"checked": passes.spent(times.tables["kernels"]) | times.lasted()} if calls else {}
    account = joined.account | told.lasted() | checked | {
        "copies": copies.filter(pc.is_valid(copies["iteration"])).num_rows,
        "host_nodes": len(set(host["executed_node"].to_pylist())),
        "problems": list(dict.fromkeys((*said, *times.problems, *(calls.problems if calls else ()), *why_not)))}
    tables = {"kernels": _described(joined.kernels, nodes), "api_calls": _with_runs(told, bool(calls))}
    if copies.num_rows:
        tables["copies"] = copies
    if not calls:
        tables |= {name: _without_links(tables[name]) for name in ("kernels", "copies") if name in tables}
    return Device(tables, joined.methods, passes.executions(nodes, len(runs[0]), len(told.begins)), account)


def views(found: Mapping[str, pa.Table], account: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics are to know of passes that record less and so cost less: the clean latency, and how busy the device
    was. Nothing of a session without an account."""
    if "timed" not in account:
        return {}
    known: dict[str, Any] = {}
    if checked := account.get("checked"):
        known["kernels_alone"] = inputs.Alone(checked["busy_ns"], checked["wall_ns"])
    try:
        latencies = inputs.latencies_ms(found["inference_iters"])
    except (Absent, KeyError):
        return known
    return known | {"unprofiled": Unprofiled(len(latencies), float(np.median(latencies)), "the plain pass")}


def _with_calls(folder: Path, shift: int) -> tuple[_Pass | None, list[str]]:
    """The pass that recorded the calls, too; or none, with the reason where one was made."""
    if not (folder / layout.CUPTI_CALLS).is_dir():  # recorded before there was one
        return None, []
    try:
        return _traced(folder / layout.CUPTI_CALLS, shift), []
    except (Absent, BadCapture) as reason:
        return None, [f"the pass that records calls: {reason}"]


def _traced(folder: Path, shift: int) -> _Pass:
    """A pass under the tracer alone. Raises Absent, BadCapture."""
    tables, problems = _capture(folder, shift)
    rows = iterations.measured(folder / iterations.TRACED)
    begins, ends = rows[:, 2], rows[:, 3]
    for name, key in (("kernels", "kernel_id"), ("copies", "copy_id")):
        run = passes.inside(integers(tables[name]["t_start_ns"]), begins, ends)
        tables[name] = _numbered(replaced(tables[name], "iteration", run), key)
    if not pc.any(pc.is_valid(tables["kernels"]["iteration"])).as_py():
        outside = f"none of {tables['kernels'].num_rows:,} kernels ran in a measured inference"
        raise Absent("; ".join([*problems, outside]))
    return _Pass(tables, begins, ends, problems)


def _capture(folder: Path, shift: int) -> tuple[dict[str, pa.Table], list[str]]:
    """The one process's tables that worked on the device, in start order on this session's clock, and what is lost."""
    worked, problems = list[dict[str, pa.Table]](), list[str]()
    for path in sorted(folder.glob("*.cupti")):
        tables, lost = cupti.read(path)
        problems += lost
        if "kernels" in tables:
            worked.append({name: _moved(pa.concat_tables(tables[name]) if name in tables else spec.build(), shift)
                           for name, spec in SPECS.items()})
    if not worked:
        raise Absent("; ".join(problems) or "the tracer recorded no kernel on a device")
    if len(worked) > 1:
        raise Absent(f"{len(worked)} processes worked on the device in one pass")
    return worked[0], problems


def _moved(table: pa.Table, shift: int) -> pa.Table:
    for name in ("t_start_ns", "t_end_ns"):
        table = replaced(table, name, pc.add(table[name], shift))
    return table.unify_dictionaries().sort_by("t_start_ns")


def _runs(api_calls: pa.Table, warmup: int) -> tuple[Ints, Ints]:
    """Begins and ends of the measured runs in the runtime's profile."""
    runs = api_calls.filter(pc.equal(api_calls["name"].cast(pa.string()), RUN)).sort_by("t_start_ns").slice(warmup)
    return integers(runs["t_start_ns"]), integers(runs["t_end_ns"])


def _in_runs(kernels: pa.Table, api_calls: pa.Table, begins: Ints, ends: Ints) -> pa.Table:
    return replaced(kernels, "iteration", passes.of_launches(kernels, api_calls, begins, ends))


def _ranges(nodes: pa.Table) -> pa.Table:
    """The runtime's executions of nodes as ranges that are named like them."""
    return API_CALLS.build(
        call_id=nodes["kernel_id"], name=nodes["executed_node"], domain=["ort"] * nodes.num_rows,
        **{name: nodes[name] for name in ("process_id", "thread_id", "t_start_ns", "t_end_ns", "dur_ns")})


def _with_runs(told: _Pass, calls: bool) -> pa.Table:
    """The measured inferences as ranges of the runtime, among the calls where those are told."""
    length = len(told.begins)
    runs = API_CALLS.build(call_id=np.arange(length), name=[RUN] * length, domain=["ort"] * length,
                           t_start_ns=told.begins, t_end_ns=told.ends, dur_ns=told.ends - told.begins)
    every = [told.tables["api_calls"], runs] if calls else [runs]
    return _numbered(pa.concat_tables(every).unify_dictionaries().sort_by("t_start_ns"), "call_id")


def _described(kernels: pa.Table, nodes: pa.Table) -> pa.Table:
    """The kernels with family, and with what the profile says of their nodes: provider and types of the inputs."""
    known = {node: (provider, dtypes) for node, provider, dtypes in zip(
        *(nodes[name].to_pylist() for name in ("executed_node", "provider", "dtypes")), strict=True)}
    said = [known.get(node, (None, None)) for node in kernels["executed_node"].to_pylist()]
    names = kernels["kernel_name"].combine_chunks()
    families = families_of(names.dictionary).take(names.indices)
    kernels = replaced(kernels, "family", families.cast(pa.string()).dictionary_encode())
    providers = pa.array([provider for provider, _ in said], pa.string())
    kernels = replaced(kernels, "provider", providers.dictionary_encode())
    return replaced(kernels, "dtypes", pa.array([dtypes for _, dtypes in said], pa.list_(pa.string())))


def _numbered(table: pa.Table, key: str) -> pa.Table:
    """Numbered in start order."""
    return replaced(table, key, pa.array(np.arange(table.num_rows)))


def _without_links(table: pa.Table) -> pa.Table:
    """Which call launched it is not recorded in a pass of kernels alone, so nothing is to be linked."""
    return replaced(table, "correlation_id", pa.nulls(table.num_rows, pa.int64()))

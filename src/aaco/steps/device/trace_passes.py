"""The device's work in a run: recorded by its vendor's tracer in three passes, then joined.

The worker is traced like any program is (profiler/launchers/tracers.py): nothing in it knows of the tracer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.attribution import passes
from aaco.analytics.kernels.families import families_of
from aaco.analytics.streaming.stream_ids import integers
from aaco.core import files
from aaco.core.arrays import Ints
from aaco.core.clocks import ClockOffsets
from aaco.core.errors import AacoError, BadCapture, StorageError
from aaco.core.plan import Plan
from aaco.core.providers import CPU, MIGRAPHX, ON_CUDA
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.show import Show
from aaco.core.tables import API_CALLS, COPIES, KERNELS, replaced
from aaco.profiler.launchers.tracers import TRACERS, DeviceTracer
from aaco.runner import iterations, ort
from aaco.runner.ort import Workload
from aaco.steps.device import counter_passes
from aaco.steps.device.choose_profiler import ProfilerShare
from aaco.tracelake import layout

TRACED_BY = {**dict.fromkeys(ON_CUDA, "cupti"), MIGRAPHX: "rocprofv3"}
# A replayed graph runs no node: names come from a pass without it, by sequence.
GRAPHS = {"enable_cuda_graph", "trt_cuda_graph_enable"}
RUN = "model_run"
SPECS = {"kernels": KERNELS, "copies": COPIES, "api_calls": API_CALLS}


class TracedDevice(Struct, frozen=True):
    """Tables that replace the runtime's own, how each kernel was named, how often each executed node ran in
    the inferences of the tables, and the account of the passes."""

    tables: dict[str, pa.Table]
    methods: list[str | None]
    executions: dict[str, int]
    account: dict[str, Any]


class _Pass(Struct, frozen=True):
    """A pass under only the tracer: kernels and copies with the inference that they ran in, calls, and when
    the measured inferences began and ended."""

    tables: dict[str, pa.Table]
    begins: Ints
    ends: Ints
    problems: list[str]

    def lasted(self) -> dict[str, Any]:
        """How long its inferences took: the median, and all together."""
        return {"latency_ms": float(np.median(self.ends - self.begins)) / 1e6,
                "wall_ns": int((self.ends - self.begins).sum())}


def profile(folder: Path, workload: Workload, plan: Plan, show: Show, counting: ProfilerShare | None = None
            ) -> Iterator[dict[str, Any]]:
    """The profiled pass; on a device under its tracer, and followed by two passes under only the tracer, and by those
    that count, if counters are requested.

    Yields the facts of each as it ends, as ort_config.json has them: `profile`, `device`, `device_calls`, and
    `device_counters`; where the device's tracer is not here, or fails, `device` says why. Raises AacoError where the
    model fails without it.
    """
    name = TRACED_BY.get(workload.backend.provider)
    if name is None:
        yield {"profile": ort.profile_pass(folder, workload, plan)}
        return
    tracer, (names, times, calls) = TRACERS[name], (folder / part for part in layout.DEVICE_PASSES[name])
    try:
        around = tracer.around([(names, True), (times, False), (calls, True)])
        for folder_of_pass in (names, times, calls):
            with files.storage(folder_of_pass):
                folder_of_pass.mkdir(parents=True, exist_ok=True)
        profiled = ort.profile_pass(folder, _eager(workload), plan, **as_dict(around[0]))
    except StorageError:
        raise
    except AacoError as reason:
        show.step(f"the device is not traced: {reason.what}")
        yield {"profile": ort.profile_pass(folder, _eager(workload), plan)}
        yield {"device": _untraced(name, reason)}
        return
    yield {"profile": profiled}
    timed = False
    for fact, folder_of_pass, execution, doing in (("device", times, around[1], "timing kernels on the device"),
                                                   ("device_calls", calls, around[2],
                                                    "tracing the calls that launch them")):
        show.step(f"{doing} for {plan.profile_iterations} iterations in a separate process")
        try:
            yield {fact: {"tracer": name} | ort.traced_pass(folder_of_pass, workload, plan, **as_dict(execution))}
            timed = True
        except StorageError:
            raise
        except AacoError as reason:
            show.step(f"that failed: {reason.what}")
            yield {fact: _untraced(name, reason)}
    if counting and timed:  # else there are no kernels to join counters to
        yield {"device_counters": counter_passes.count(folder, workload, plan, counting, show)}


def _untraced(tracer: str, reason: AacoError) -> dict[str, Any]:
    return {"tracer": tracer, "why_absent": reason.what, "fix": reason.fix}


def _eager(workload: Workload) -> Workload:
    """Without a graph of the device, which runs no node when it is replayed."""
    options = {name: value for name, value in workload.backend.options.items() if name not in GRAPHS}
    return replace(workload, backend=workload.backend.model_copy(update={"options": options}))


def read(folder: Path, found: Mapping[str, pa.Table], clocks: ClockOffsets, runtime: Mapping[str, Any]) -> TracedDevice:
    """The device's work, from the captures of a session. Raises Absent with the reason, BadCapture.

    runtime: the facts that `profile` gave. found: `kernels` and `api_calls` of the runtime's own profile, on this
    session's clock; their nodes name the device's kernels.
    """
    facts = runtime["device"]
    tracer = TRACERS.get(name := facts.get("tracer", "cupti"))
    if tracer is None:
        raise Absent(f"the device was traced by {name!r}, which this version does not read")
    captures = _Captures(tracer, -(clocks.ahead_ns(tracer.CLOCK) or 0))
    names, times_in, calls_in = (folder / part for part in layout.DEVICE_PASSES[tracer.NAME])
    times = _tried(times_in, captures, facts)
    # Before there was a pass of the calls, there was no folder of it.
    calls = _tried(calls_in, captures, runtime.get("device_calls", {})) if calls_in.is_dir() else None
    pass_with_times = calls if isinstance(calls, _Pass) else times
    if not isinstance(pass_with_times, _Pass):
        raise pass_with_times
    named, problems = captures.of(names)
    runs = _runs(found["api_calls"], runtime["profile"]["warmup"])
    profiled = replaced(named["kernels"], "iteration", passes.of_launches(named["kernels"], named["api_calls"], *runs))
    on_host = pc.equal(found["kernels"]["provider"].cast(pa.string()), CPU)
    nodes, host = found["kernels"].filter(pc.invert(on_host)), found["kernels"].filter(on_host)
    joined = passes.join(profiled, pa.concat_tables([named["api_calls"], _ranges(nodes)]),
                         set(nodes["executed_node"].to_pylist()), pass_with_times.tables["kernels"])
    copies = pass_with_times.tables["copies"]
    with_calls = pass_with_times is calls
    account = joined.account | {"tracer": tracer.NAME, "with_calls": with_calls} | pass_with_times.lasted() | {
        "copies": copies.filter(pc.is_valid(copies["iteration"])).num_rows,
        "host_nodes": len(set(host["executed_node"].to_pylist())),
        "problems": list(dict.fromkeys([*problems, *_lost("times kernels", times), *_lost("records calls", calls)]))}
    if with_calls and isinstance(times, _Pass):
        account["checked"] = passes.spent(times.tables["kernels"]) | times.lasted()
    tables = {"kernels": _described(joined.kernels, nodes), "api_calls": _with_runs(pass_with_times, with_calls)}
    if copies.num_rows:
        tables["copies"] = copies
    if counted := runtime.get("device_counters"):
        counts = counter_passes.read(folder, pass_with_times.tables["kernels"], counted)
        tables |= counts.tables
        account["counters"] = counts.account
    if not with_calls:
        tables |= {name: _without_links(tables[name]) for name in ("kernels", "copies") if name in tables}
    return TracedDevice(tables, joined.methods, passes.executions(nodes, len(runs[0]), len(pass_with_times.begins)),
                        account)


def _tried(folder: Path, captures: _Captures, facts: Mapping[str, Any]) -> _Pass | Absent | BadCapture:
    """Return the result of a pass under only the tracer, or why there is none."""
    try:
        if why := facts.get("why_absent"):
            raise Absent(why)
        return _traced(folder, captures)
    except (Absent, BadCapture) as reason:
        return reason


def _lost(doing: str, tried: _Pass | Absent | BadCapture | None) -> list[str]:
    if tried is None:
        return []
    return tried.problems if isinstance(tried, _Pass) else [f"the pass that {doing}: {tried}"]


def _traced(folder: Path, captures: _Captures) -> _Pass:
    """Return a pass under only the tracer. Raise Absent, BadCapture."""
    tables, problems = captures.of(folder)
    rows = iterations.measured(folder / iterations.TRACED)
    begins, ends = rows[:, 2], rows[:, 3]
    for name, key in (("kernels", "kernel_id"), ("copies", "copy_id")):
        run = passes.inside(integers(tables[name]["t_start_ns"]), begins, ends)
        tables[name] = _numbered(replaced(tables[name], "iteration", run), key)
    if not pc.any(pc.is_valid(tables["kernels"]["iteration"])).as_py():
        outside = f"none of {tables['kernels'].num_rows:,} kernels ran in a measured inference"
        raise Absent("; ".join([*problems, outside]))
    return _Pass(tables, begins, ends, problems)


class _Captures(Struct, frozen=True):
    """What a tracer left, moved by `shift` ns onto this session's clock."""

    tracer: DeviceTracer
    shift: int

    def of(self, folder: Path) -> tuple[dict[str, pa.Table], list[str]]:
        """The one process's tables that worked on the device, in start order, and what is lost. Raises Absent,
        BadCapture."""
        worked, problems = list[dict[str, pa.Table]](), list[str]()
        for tables, lost in self.tracer.processes(folder):
            problems += lost
            if "kernels" in tables:
                worked.append({name: _moved(pa.concat_tables(tables[name]) if name in tables else spec.build(),
                                            self.shift) for name, spec in SPECS.items()})
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


def _ranges(nodes: pa.Table) -> pa.Table:
    """The runtime's executions of nodes as ranges that are named like them."""
    return API_CALLS.build(
        call_id=nodes["kernel_id"], name=nodes["executed_node"], domain=["ort"] * nodes.num_rows,
        **{name: nodes[name] for name in ("process_id", "thread_id", "t_start_ns", "t_end_ns", "dur_ns")})


def _with_runs(traced: _Pass, calls: bool) -> pa.Table:
    """Return the measured inferences as ranges of the runtime, among the calls if those are recorded."""
    length = len(traced.begins)
    runs = API_CALLS.build(call_id=np.arange(length), name=[RUN] * length, domain=["ort"] * length,
                           t_start_ns=traced.begins, t_end_ns=traced.ends, dur_ns=traced.ends - traced.begins)
    call_tables = [traced.tables["api_calls"], runs] if calls else [runs]
    return _numbered(pa.concat_tables(call_tables).unify_dictionaries().sort_by("t_start_ns"), "call_id")


def _described(kernels: pa.Table, nodes: pa.Table) -> pa.Table:
    """The kernels with family, and with what the profile says of their nodes: provider and types of the inputs."""
    described_by_node = {node: (provider, dtypes) for node, provider, dtypes in zip(
        *(nodes[name].to_pylist() for name in ("executed_node", "provider", "dtypes")), strict=True)}
    descriptions = [described_by_node.get(node, (None, None)) for node in kernels["executed_node"].to_pylist()]
    names = kernels["kernel_name"].combine_chunks()
    families = families_of(names.dictionary).take(names.indices)
    kernels = replaced(kernels, "family", families.cast(pa.string()).dictionary_encode())
    providers = pa.array([provider for provider, _ in descriptions], pa.string())
    kernels = replaced(kernels, "provider", providers.dictionary_encode())
    return replaced(kernels, "dtypes", pa.array([dtypes for _, dtypes in descriptions], pa.list_(pa.string())))


def _numbered(table: pa.Table, key: str) -> pa.Table:
    """Numbered in start order."""
    return replaced(table, key, pa.array(np.arange(table.num_rows)))


def _without_links(table: pa.Table) -> pa.Table:
    """A pass of only kernels does not record which call launched them, so nothing is linked."""
    return replaced(table, "correlation_id", pa.nulls(table.num_rows, pa.int64()))

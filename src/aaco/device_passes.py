"""What an NVIDIA device does in a run of ours: recorded by our CUPTI tracer in two passes, joined into one answer.

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

from aaco.analytics.attribution import passes
from aaco.analytics.families import families_of
from aaco.analytics.lanes import Ints, integers
from aaco.core import files
from aaco.core.clocks import ClockOffsets
from aaco.core.plan import Plan
from aaco.core.readings import Absent
from aaco.core.show import Show
from aaco.core.tables import API_CALLS, COPIES, KERNELS, replaced
from aaco.profiler import cupti
from aaco.profiler.capture import Facts
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
    """Tables that stand in place of the runtime's own, how each kernel was named, and what is to be said of it all."""

    tables: dict[str, pa.Table]
    methods: list[str | None]
    account: dict[str, Any]


def profile(folder: Path, workload: Workload, plan: Plan, show: Show) -> Iterator[dict[str, Any]]:
    """The profiled pass; on an NVIDIA provider under the tracer, and followed by a pass under the tracer alone.

    Yields the facts of each as it ends, as ort_config.json has them: `profile`, and `device`.
    """
    if workload.backend.provider not in PROVIDERS:
        yield {"profile": ort.profile_pass(folder, workload, plan)}
        return
    for name in (layout.CUPTI_NAMES, layout.CUPTI_TIMES):
        with files.storage(folder / name):
            (folder / name).mkdir(parents=True, exist_ok=True)
    options = workload.backend.options
    eager = replace(workload, backend=workload.backend.model_copy(
        update={"options": {name: value for name, value in options.items() if name not in GRAPHS}}))
    yield {"profile": ort.profile_pass(folder, eager, plan, environment((folder / layout.CUPTI_NAMES).resolve()))}
    show.step(f"timing kernels on the device for {plan.profile_iterations} iterations in a separate process")
    traced = environment((folder / layout.CUPTI_TIMES).resolve(), "kernels")
    yield {"device": ort.traced_pass(folder / layout.CUPTI_TIMES, workload, plan, traced)}


def read(folder: Path, found: Mapping[str, pa.Table], clocks: ClockOffsets, warmup: int) -> Device:
    """The device's work, from the captures of a session. Raises Absent with the reason, BadCapture.

    found: `kernels` and `api_calls` of the runtime's own profile, on this session's clock, whose nodes name the
    device's kernels. warmup: how many of its runs were not measured.
    """
    shift = clocks.monotonic_ns - clocks.realtime_ns
    named, said = _capture(folder / layout.CUPTI_NAMES, shift)
    timed, also_said = _capture(folder / layout.CUPTI_TIMES, shift)
    profiled = _in_runs(named["kernels"], named["api_calls"], *_runs(found["api_calls"], warmup))
    rows = iterations.measured(folder / layout.CUPTI_TIMES / iterations.TRACED)
    begins, ends = rows[:, 2], rows[:, 3]
    kernels, copies = (
        replaced(timed[name], "iteration", passes.inside(integers(timed[name]["t_start_ns"]), begins, ends))
        for name in ("kernels", "copies"))
    nodes = found["kernels"].filter(pc.not_equal(found["kernels"]["provider"].cast(pa.string()), ON_HOST))
    joined = passes.join(profiled, pa.concat_tables([named["api_calls"], _ranges(nodes)]),
                         set(nodes["executed_node"].to_pylist()), kernels)
    tables = {"kernels": _described(joined.kernels, nodes), "api_calls": _measured_runs(begins, ends)}
    if copies.num_rows:
        tables["copies"] = _without_links(copies, "copy_id")
    host = found["kernels"].filter(pc.equal(found["kernels"]["provider"].cast(pa.string()), ON_HOST))
    account = joined.account | {
        "latency_ms": float(np.median(ends - begins)) / 1e6, "wall_ns": int((ends - begins).sum()),
        "copies": copies.filter(pc.is_valid(copies["iteration"])).num_rows,
        "host_nodes": len(set(host["executed_node"].to_pylist())),
        "problems": list(dict.fromkeys(said + also_said))}
    return Device(tables, joined.methods, account)


def _capture(folder: Path, shift: int) -> tuple[dict[str, pa.Table], list[str]]:
    """The one process's tables that worked on the device, in start order on this session's clock, and what is lost."""
    worked, problems = list[dict[str, pa.Table]](), list[str]()
    for path in sorted(folder.glob("*.cupti")):
        tables: dict[str, list[pa.Table]] = {name: [] for name in SPECS}
        for item in cupti.parse(path):
            if isinstance(item, Facts):
                problems += item.problems
            else:
                tables[item.schema.metadata[b"aaco.table"].decode()].append(item)
        if tables["kernels"]:
            worked.append({name: _moved(spec.build(), shift) if not tables[name] else
                           _moved(pa.concat_tables(tables[name]), shift) for name, spec in SPECS.items()})
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


def _measured_runs(begins: Ints, ends: Ints) -> pa.Table:
    return API_CALLS.build(call_id=np.arange(len(begins)), name=[RUN] * len(begins), domain=["ort"] * len(begins),
                           t_start_ns=begins, t_end_ns=ends, dur_ns=ends - begins)


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
    kernels = replaced(kernels, "dtypes", pa.array([dtypes for _, dtypes in said], pa.list_(pa.string())))
    return _without_links(kernels, "kernel_id")


def _without_links(table: pa.Table, key: str) -> pa.Table:
    """Numbered in start order. Which call launched it is not recorded in this pass, so nothing is to be linked."""
    table = replaced(table, "correlation_id", pa.nulls(table.num_rows, pa.int64()))
    return replaced(table, key, pa.array(np.arange(table.num_rows)))

"""Which track of a timeline viewer each row of a session belongs to: one answer for every export format.

Processes are the machine's: each device, each host process, the inferences. Their tracks are queues, threads, kinds of
operating-system events. Ids come from what a track is, never from when it was met, so that the same track has the same
id in every export of every session (a viewer keeps pins and colours by it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.core.arrays import Ints
from aaco.core.tables.spec import names_of, whole

INFERENCES = "Inferences"
UNNAMED = "unnamed"
HOST = "Host process"  # viewers write its number behind it
CRITICAL_PATH = "Critical path"
PATH_PID = 2**31 - 1  # likewise no process
ENGINE = "Serving engine"
ENGINE_PID = 2**31 - 2  # likewise
DEVICE_PIDS = 1 << 22  # above Linux's largest process id (pid_max), so that a device is never taken for a process
MARKER_TIDS = 1 << 22  # likewise: a thread's markers have a line of their own beside its operating-system events
UNITS = {"_pct": "%", "_c": "°C", "_w": "W", "_mhz": "MHz", "_bytes": "bytes", "_j": "J"}
VALUES = {  # what is sampled, by the column or kind that holds it
    "gpu_util_pct": "GPU utilisation", "mem_util_pct": "Memory utilisation", "temp_c": "Temperature",
    "power_w": "Power", "hotspot_c": "Hotspot temperature", "power_cap_w": "Power limit", "energy_j": "Energy",
    "sclk_mhz": "Core clock", "sclk_max_mhz": "Core clock, highest", "mclk_mhz": "Memory clock",
    "vram_used_bytes": "GPU memory used", "vram_total_bytes": "GPU memory", "pcie_rx_bytes": "PCIe received",
    "pcie_tx_bytes": "PCIe sent", "cpu_time": "CPU time", "cpu_time_system": "CPU time in the kernel",
    "run_queue_wait": "Waiting for a CPU", "switch_voluntary": "Context switches, voluntary",
    "switch_involuntary": "Context switches, involuntary", "migration": "Moves to another CPU",
    "fault_minor": "Page faults, minor", "fault_major": "Page faults, major", "rss": "Memory used (RSS)",
    "rss_peak": "Memory used (RSS), highest", "io_read": "Bytes read", "io_write": "Bytes written",
    "swap_in": "Pages swapped in", "swap_out": "Pages swapped out", "steal": "CPU time stolen", "load": "Load average",
    "runnable": "Runnable tasks", "psi_cpu": "CPU pressure (PSI)", "psi_io": "I/O pressure (PSI)",
    "psi_memory": "Memory pressure (PSI)"}
GPU_ARCHITECTURES = ("sm_", "gfx")
LAUNCHED = 4  # launches of one operation that get an arrow from it


class Track(Struct, frozen=True):
    """A line of the viewer: the process it is shown under, that process's id, its own name, and its id."""

    process: str
    pid: int
    name: str
    tid: int

    @property
    def is_of_process(self) -> bool:
        """Return whether it is shown under a process of the host, with the number of that process."""
        return self.process.startswith(HOST)

    @property
    def process_uuid(self) -> int:
        """Stable id of the process."""
        return stable_id("process", self.process, str(self.pid))

    def uuid(self, lane: int = 0) -> int:
        """Stable id of a lane of the track."""
        return stable_id("track", self.process, str(self.pid), self.name, str(self.tid), str(lane))


class Events(Struct, frozen=True):
    """Slices of one kind. Per slice: `track` (position in `tracks`), start, end (ns), name (code in `names`), arrows
    (`flows`: ids that begin or pass here, 0 for none; `flow_end`: the one that ends here), whole numbers to show."""

    category: str
    tracks: Sequence[Track]
    track: Ints
    start: Ints
    end: Ints
    names: Sequence[str]
    name: Ints
    flows: Sequence[Ints] = ()
    flow_end: Ints | None = None
    notes: Mapping[str, Ints] = field(default_factory=dict)


class Values(Struct, frozen=True):
    """Values of one counter over time."""

    track: Track
    unit: str
    times: Ints
    values: NDArray[np.float64]


def stable_id(*parts: str) -> int:
    """Return a positive number of at most 53 bits (JavaScript's whole numbers) that identifies these words."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(errors="replace"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) or 1


def events(tables: Mapping[str, pa.Table]) -> Iterator[Events]:
    """Everything of the session that lasts: inferences, host calls, kernels, copies, operating-system events."""
    for name, make in _LASTING.items():
        if name in tables and (table := _timed(tables[name], "t_ns" if name == "system_events" else "t_start_ns")):
            yield make(table)


def values(tables: Mapping[str, pa.Table]) -> Iterator[Values]:
    """Everything that was sampled: telemetry of devices, counters over time, samples of the operating system."""
    if "gpu_events" in tables:
        yield from _gpu_values(tables["gpu_events"])
    for name, label, device in (("samples", "name", "device_id"), ("system_events", "kind", None)):
        if name in tables:
            yield from _sampled(_samples(tables[name]), label, device)


def _inferences(table: pa.Table) -> Events:
    phases = table["phase"].cast(pa.string()).to_pylist()
    labels = [f"{phase} {number}" for phase, number in zip(phases, table["iteration"].to_pylist(), strict=True)]
    process = whole(table, "process")
    numbers = np.unique(process)
    tracks = [Track(INFERENCES, 0, f"Run {number}", int(number)) for number in numbers]
    names, name = np.unique(labels, return_inverse=True)
    return Events("inference", tracks, np.searchsorted(numbers, process), whole(table, "t_start_ns"),
                  whole(table, "t_end_ns"), names.tolist(), name)


def _critical(table: pa.Table) -> Events:
    """What bounded the wall time, a line for each path; delays that rest on an inferred edge say so."""
    path = whole(table, "path")
    numbers = np.unique(path)
    several = len(numbers) > 1
    tracks = [Track(CRITICAL_PATH, PATH_PID, f"path {number}" if several else "path", int(number))
              for number in numbers]
    kinds, kind = names_of(table["kind"], UNNAMED)
    inferred = np.asarray(pc.equal(pc.fill_null(table["basis"].cast(pa.string()), ""), "inferred"), bool)
    names = [*kinds, *(f"{each} (inferred)" for each in kinds)]
    return Events("critical_path", tracks, np.searchsorted(numbers, path), whole(table, "t_start_ns"),
                  whole(table, "t_end_ns"), names, kind + len(kinds) * inferred,
                  notes=_notes(table, "kernel_id", "copy_id", "call_id"))


def _calls(table: pa.Table) -> Events:
    track, keys = _grouped(table, "capture", "rank", "process_id", "thread_id")
    tracks = [_thread(*key) for key in keys]
    names, name = names_of(table["name"], UNNAMED)
    flow = np.where(whole(table, "correlation_id") > 0, _flow(table), 0)
    return Events("call", tracks, track, whole(table, "t_start_ns"), whole(table, "t_end_ns"), names, name,
                  flows=[flow, *_asked(table, flow)], notes=_notes(table, "correlation_id", "external_id"))


def _asked(table: pa.Table, flow: Ints) -> list[Ints]:
    """For operations, the arrows of the first LAUNCHED calls directly inside that launch something."""
    calls, parents = whole(table, "call_id"), whole(table, "parent_id")
    launches = np.flatnonzero((flow > 0) & (parents >= 0))
    order = np.argsort(calls)
    at = np.searchsorted(calls[order], parents[launches])
    at = order[np.minimum(at, len(order) - 1)]
    inside = calls[at] == parents[launches]
    launches, at = launches[inside], at[inside]
    by_parent = np.argsort(at, kind="stable")
    launches, at = launches[by_parent], at[by_parent]
    first = np.flatnonzero(np.diff(at, prepend=-1))
    rank = np.arange(len(at)) - np.repeat(first, np.diff(first, append=len(at)))
    columns = []
    for number in range(LAUNCHED):
        column = np.zeros(len(flow), np.int64)
        column[at[rank == number]] = flow[launches[rank == number]]
        if column.any():
            columns.append(column)
    return columns


def _kernels(table: pa.Table) -> Events:
    track, keys = _grouped(table, "capture", "rank", "device_id", "queue_id", "stream_id", "process_id", "thread_id")
    tracks = [_queue("Kernels", *key) for key in keys]
    names, name = names_of(table["kernel_name"], UNNAMED)
    shape = (f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
    shown = _notes(table, "correlation_id", "dispatch_id", *shape)
    return Events("kernel", tracks, track, whole(table, "t_start_ns"), whole(table, "t_end_ns"), names, name,
                  flow_end=_flow(table), notes=shown)


def _copies(table: pa.Table) -> Events:
    track, keys = _grouped(table, "capture", "rank", "device_id", "queue_id", "stream_id", "process_id", "thread_id")
    tracks = [_queue("Copies", *key) for key in keys]
    names, name = names_of(table["kind"], UNNAMED)
    return Events("copy", tracks, track, whole(table, "t_start_ns"), whole(table, "t_end_ns"), names, name,
                  flow_end=_flow(table), notes=_notes(table, "correlation_id", "bytes"))


def _system(table: pa.Table) -> Events:
    """Single events on a track of their thread, from t_ns on, and the program's own markers on another; sums of a
    sampled interval (T1) end at t_ns."""
    kind = pc.fill_null(table["kind"].cast(pa.string()), "")
    table = table.filter(pc.and_(pc.is_valid(table["dur_ns"]), pc.not_equal(kind, "watched")))
    marked = pc.equal(pc.fill_null(table["kind"].cast(pa.string()), ""), "marker").cast(pa.int64())
    track, keys = _grouped(table.append_column("marked", marked), "process_id", "thread_id", "marked")
    tracks = [Track(_process(None, None, pid), max(pid, 0), ("Markers" if is_own else "Operating system")
                    + (f" of {_thread_name(pid, tid)}" if tid >= 0 else ""), tid + is_own * MARKER_TIDS)
              for pid, tid, is_own in keys]
    kinds, kind = names_of(table["kind"], UNNAMED)
    details, detail = names_of(table["detail"], UNNAMED)
    of_both, name = np.unique(kind * len(details) + detail, return_inverse=True)
    names = [_event(kinds[code // len(details)], details[code % len(details)], code % len(details) < len(details) - 1)
             for code in of_both.tolist()]
    summed = np.asarray(pc.equal(pc.fill_null(table["tier"].cast(pa.string()), ""), "T1"), bool)
    length = whole(table, "dur_ns")
    start = whole(table, "t_ns") - np.where(summed, length, 0)
    return Events("system", tracks, track, start, start + length, names, name,
                  notes=_notes(table, "cpu", "other_process"))


def _event(kind: str, detail: str, detailed: bool) -> str:
    """Return the name of a slice: "switch_involuntary: stress-ng"; of a marker only its text."""
    if not detailed:
        return kind
    return detail if kind == "marker" else f"{kind}: {detail}"


def _gpu_values(table: pa.Table) -> Iterator[Values]:
    table = _timed(table, "t_ns") or table.slice(0, 0)
    for device in np.unique(whole(table, "device_id")).tolist():
        rows = table.filter(pa.array(whole(table, "device_id") == device))
        for name in rows.column_names:
            unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), None)
            if unit and rows[name].null_count < len(rows):
                yield _series(rows, name, Track(*_device(None, None, device), VALUES.get(name, name), device), unit)


def _sampled(table: pa.Table, label: str, device: str | None) -> Iterator[Values]:
    table = table.filter(pc.and_(pc.is_valid(table["t_ns"]), pc.is_valid(table["value"])))
    track, keys = _grouped(table, *([device] if device else []), "process_id")
    names, name = names_of(table[label], UNNAMED)
    for key in np.unique(track * len(names) + name).tolist():
        place, code = divmod(key, len(names))
        rows = table.filter(pa.array((track == place) & (name == code)))
        *on, pid = keys[place]
        head = _device(None, None, on[0]) if on and on[0] >= 0 else (_process(None, None, pid), max(pid, 0))
        unit = rows["unit"].cast(pa.string())[0].as_py() or ""
        yield _series(rows, "value", Track(head[0], head[1], VALUES.get(names[code], names[code]), code), unit)


def _samples(table: pa.Table) -> pa.Table:
    """The rows that are samples: of operating-system events those of T1, since what T2 and T3 record lasts."""
    if "tier" not in table.column_names:
        return table
    return table.filter(pc.equal(pc.fill_null(table["tier"].cast(pa.string()), "T1"), "T1"))


def _series(rows: pa.Table, name: str, track: Track, unit: str) -> Values:
    rows = rows.filter(pc.is_valid(rows[name])).sort_by("t_ns")
    return Values(track, unit, whole(rows, "t_ns"), np.asarray(rows[name].to_numpy(), np.float64))


def _thread(capture: int, rank: int, pid: int, tid: int) -> Track:
    name = _thread_name(pid, tid).capitalize() if tid >= 0 else "Annotations"
    return Track(_process(capture, rank, pid), max(pid, 0), name, tid)


def _thread_name(pid: int, tid: int) -> str:
    """Return what a thread is called: on Linux the first one has the number of its process."""
    return f"{'main thread' if tid == pid else 'thread'} {tid}"


def _queue(what: str, capture: int, rank: int, device: int, queue: int, stream: int, pid: int, tid: int) -> Track:
    """A queue of a device; what ran on no device ran on its thread."""
    if device < 0:
        name = "Executed nodes" if what == "Kernels" else what
        of_thread = f", {_thread_name(pid, tid)}" if tid >= 0 else ""
        return Track(_process(capture, rank, pid), max(pid, 0), name + of_thread, tid)
    place = ", ".join(f"{kind} {number}" for kind, number in (("queue", queue), ("stream", stream)) if number >= 0)
    name = f"{what}, {place}" if place else what
    return Track(*_device(capture, rank, device), name, (queue + 1) * 100_003 + stream + 1)


def device_titles(captures: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return how the devices that captures describe are shown, by the name of their tracks' process."""
    titles = {}
    for capture in captures:
        rank = capture.get("rank")
        for device in capture.get("devices") or []:
            process = _device(capture["index"], rank, device["id"])[0]
            is_gpu = (device.get("arch") or "").startswith(GPU_ARCHITECTURES)
            number = process.removeprefix("Device ")
            titles[process] = f"{'GPU' if is_gpu else 'Device'} {number}: {device.get('name') or device.get('arch')}"
    return {process: title for process, title in titles.items() if not title.endswith(": None")}


def _device(capture: int | None, rank: int | None, device: int) -> tuple[str, int]:
    origin = max(capture or 0, 0)
    return f"Device {device}" + _origin(capture, rank), DEVICE_PIDS + origin * 1000 + max(device, 0)


def _process(capture: int | None, rank: int | None, pid: int) -> str:
    return (HOST if pid >= 0 else "Host") + _origin(capture, rank)


def _origin(capture: int | None, rank: int | None) -> str:
    if rank is not None and rank >= 0:
        return f", rank {rank}"
    return f", capture {capture}" if capture is not None and capture > 0 else ""


def _timed(table: pa.Table, column: str) -> pa.Table | None:
    """The rows that have a time; None where there are none."""
    timed = table.filter(pc.is_valid(table[column]))
    return timed if timed.num_rows else None


def _grouped(table: pa.Table, *columns: str) -> tuple[Ints, list[tuple[int, ...]]]:
    """Per row the position of its combination of the columns, and the combinations; null is -1."""
    keys = np.stack([whole(table, name) for name in columns])
    combined = np.zeros(keys.shape[1], np.int64)
    for row in keys:  # one column at a time keeps the combined number small
        _, code = np.unique(row, return_inverse=True)
        combined = np.unique(combined * (code.max(initial=0) + 1) + code, return_inverse=True)[1]
    first = np.unique(combined, return_index=True)[1]
    return combined, [tuple(keys[:, row].tolist()) for row in first]


def _flow(table: pa.Table) -> Ints:
    """An arrow's id of each row's correlation id, different for different captures; 0 for none."""
    ids, capture = whole(table, "correlation_id"), whole(table, "capture") + 1
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + capture.astype(np.uint64)
    mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(11)
    return np.where(ids > 0, np.maximum(mixed.astype(np.int64), 1), 0)


def _notes(table: pa.Table, *columns: str) -> dict[str, Ints]:
    """The columns that hold anything."""
    return {name: whole(table, name) for name in columns if table[name].null_count < table.num_rows}


def _steps(table: pa.Table) -> Events:
    """The device's part of a serving engine's steps, a line for each capture."""
    table = table.filter(pc.is_valid(table["device_start_ns"]))
    phases, batches = table["phase"].cast(pa.string()).to_pylist(), table["batch"].to_pylist()
    labels = [f"{phase or 'step'}{'' if batch is None else f', batch {batch}'}"
              for phase, batch in zip(phases, batches, strict=True)]
    return _engine(table, "Steps on the device", 0, labels, whole(table, "device_start_ns"),
                   whole(table, "device_end_ns"), "step", "scheduled_tokens", "kernels")


def _layers(table: pa.Table) -> Events:
    """The layers of these steps, from the first kernel's start to the last one's end."""
    spans = table.filter(pc.is_valid(table["layer"])).group_by(["capture", "step", "layer"]).aggregate(
        [("t_start_ns", "min"), ("t_end_ns", "max")]).sort_by("t_start_ns_min")
    labels = [f"layer {layer}" for layer in spans["layer"].to_pylist()]
    return _engine(spans, "Layers", 1, labels, whole(spans, "t_start_ns_min"), whole(spans, "t_end_ns_max"), "step")


def _engine(table: pa.Table, line: str, first: int, labels: Sequence[str], start: Ints, end: Ints, *notes: str
            ) -> Events:
    """Slices of a serving engine, a line for each capture. first: number of the first capture's line; two apart."""
    capture = whole(table, "capture")
    numbers = np.unique(capture)
    tracks = [Track(ENGINE, ENGINE_PID, f"{line}, capture {number}" if len(numbers) > 1 else line,
                    first + 2 * max(0, int(number))) for number in numbers]
    names, name = np.unique(list(labels), return_inverse=True)
    return Events("serving", tracks, np.searchsorted(numbers, capture), start, end, names.tolist(), name,
                  notes=_notes(table, *notes))


_LASTING = {"critical_path": _critical, "inference_iters": _inferences, "api_calls": _calls, "kernels": _kernels,
            "copies": _copies, "system_events": _system, "serving_steps": _steps, "serving_kernels": _layers}
SHOWN = (*_LASTING, "gpu_events", "samples")  # the tables that events and values are of

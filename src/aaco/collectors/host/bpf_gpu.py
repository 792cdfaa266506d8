"""Records trace events of the GPU's drivers: jobs, fences and memory, from the kernel's amdgpu and DRM code.

native/bpf/gpu.bpf.c copies each record unchanged. The `format` files of the kernel that wrote it locate its fields; the
recording keeps them. The events are of the whole machine: the driver's threads emit most of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aaco.collectors import recording
from aaco.collectors.host import bpf, perf_event
from aaco.collectors.host.bpf_ring import HEADER_BYTES, PERIOD_S, BpfRing, Pump
from aaco.collectors.host.tracepoints import COMMON_BYTES, GPU_FIX, Field, TracepointFormat, gpu_events, parse_format
from aaco.collectors.recording import begin
from aaco.core.arrays import Structs
from aaco.core.errors import BadCapture, Missing
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK, FEATURE = "T3", "monotonic", "gpu"
RING_BYTES = 4 << 20
AGAIN = "record it again: aaco run --ebpf"
# A stretch of time: its kind, the events that begin and end it, and the fields that identify it: of the first
# set that both have. The names of gpu_scheduler changed: drivers/gpu/drm/scheduler/gpu_scheduler_trace.h, 6.1 and 6.16.
STRETCHES = (
    ("gpu_queue", ("drm_sched_job", "drm_sched_job_queue"), ("drm_run_job", "drm_sched_job_run")),
    ("gpu_job", ("drm_run_job", "drm_sched_job_run"), ("drm_sched_process_job", "drm_sched_job_done")),
    ("gpu_fence", ("dma_fence_emit",), ("dma_fence_signaled",)),
)
_KEYS = (("fence_context", "fence_seqno"), ("context", "seqno"), ("fence",))
# The one number of an event worth a column, and its unit.
_VALUES = {"gpu_mem_total": ("size", "bytes"), "amdgpu_bo_create": ("pages", "pages"),
           "amdgpu_bo_move": ("bo_size", "bytes")}
# The ring's own header of 8 bytes, then struct copy of native/bpf/gpu.bpf.c.
RECORD = np.dtype([
    ("length", "<u4"), ("page", "<u4"), ("t_ns", "<i8"), ("event", "<u4"), ("lost", "<u4"), ("process", "<u4"),
    ("thread", "<u4"), ("cpu", "<u4"), ("unused", "<u4"), ("content", "u1", (152,))])
_CONTENT_BYTES = RECORD["content"].itemsize
_FORMAT = recording.RecordFormat("GPU tracer", AGAIN, b"AACOBPFG", 1, RECORD)
_TRACEPOINT = 2  # PERF_TYPE_TRACEPOINT


class GpuTracer:
    """Records GPU driver events of the whole machine until `stop`; writes `raw` as it goes. CLOCK_MONOTONIC.

    events: what to record; by default every GPU event that this kernel has.
    """

    def __init__(self, pid: int, *, raw: Path, events: Sequence[TracepointFormat] | None = None,
                 ring_bytes: int = RING_BYTES, host: Host | None = None) -> None:
        self.pid, self.raw, self._ring_bytes, self._host = pid, raw, ring_bytes, host or Host()
        self._events = events
        self._overhead: dict[str, Any] = {"tier": TIER}

    def start(self) -> None:
        """Load the copier and attach it to each event. Raise Missing with the reason, StorageError."""
        events = list(self._events) if self._events is not None else _available_events(self._host)
        with ExitStack() as opened:
            self._feature = opened.enter_context(bpf.Feature(FEATURE, b"", {"ring": self._ring_bytes}))
            self._ring = opened.enter_context(BpfRing(self._feature, self._ring_bytes, RECORD))
            self._pump = Pump([self._ring], opened.enter_context(self._begin(events)), PERIOD_S, bytes)
            for place, event in enumerate(events):
                handle = _open_event(event)
                opened.callback(os.close, handle)
                self._feature.attach_to_event("on_event", handle, place)
            self._opened = opened.pop_all()
        self._began = time.monotonic()
        self._overhead["events"] = [event.name for event in events]
        self._pump.start()

    def stop(self) -> pa.Table:
        """Remove the copier, move what is left and return the whole table. Raise StorageError."""
        with self._opened:
            runs = self._feature.runs()
            self._feature.detach()
            wall_s = time.monotonic() - self._began
            self._pump.stop()
            emitted, lost, *_ = map(sum, zip(*self._feature.per_cpu("accounts"), strict=True))
        self._overhead |= {"wall_s": wall_s, "cpu_s": self._pump.cpu_s, "records": self._ring.consumed,
                           "emitted": emitted, "lost": lost, "missed": sum(missed for _, _, missed in runs.values())}
        if self._pump.failure:
            raise self._pump.failure
        return parse(self.raw)

    @property
    def overhead(self) -> dict[str, Any]:
        """Return the tracer's overhead after `stop`; records read, emitted, lost, and missed because one interrupted
        another; and its events.
        """
        return dict(self._overhead)

    def _begin(self, events: Sequence[TracepointFormat]) -> IO[bytes]:
        described = json.dumps([{"group": event.group, "format": event.text} for event in events]).encode()
        return begin(self.raw, _FORMAT.described(described))


def why_not(host: Host) -> str | None:
    """Return why GPU events cannot be recorded here; None if they can."""
    try:
        bpf.possible(host)
        gpu_events(host)
    except Absent as reason:
        return str(reason)
    return None


def _available_events(host: Host) -> list[TracepointFormat]:
    try:
        return gpu_events(host)
    except Absent as reason:
        raise Missing(f"GPU trace events: {reason}", GPU_FIX) from reason


def _open_event(event: TracepointFormat) -> int:
    """Return the descriptor of a tracepoint by perf_event_open(2).

    BPF attached to it runs on every CPU, independent of the one it is opened on.
    """
    try:
        return perf_event.open_event(perf_event.PerfEvent(_TRACEPOINT, event.number), -1, cpu=0)[0]
    except OSError as error:
        raise bpf.refusal(f"trace event {event.group}:{event.name}", error) from error


def parse(raw: Path) -> pa.Table:
    """Return the system_events of a recording, in order of time. Raise BadCapture.

    Each event is a row of its name; `detail` holds its texts (driver, ring, timeline), `value` its size if it has one.
    If an event's begin and end are both there, a row of kind gpu_queue, gpu_job or gpu_fence spans them.
    """
    tables = fields(raw)
    pieces = [_event_rows(name, table) for name, table in tables.items()]
    pieces += [_stretch_rows(kind, *stretch) for kind, begins, ends in STRETCHES
               for stretch in _find_pairs(tables, begins, ends)]
    if not pieces:
        return SYSTEM_EVENTS.build()
    return pa.concat_tables(pieces).unify_dictionaries().combine_chunks().sort_by("t_ns")


def fields(raw: Path) -> dict[str, pa.Table]:
    """Return by event: t_ns, process_id, thread_id, cpu, lost_before, and each of its fields by name.

    Raise BadCapture. Text beyond the copied part is null.
    """
    events, records = _read_records(raw)
    return {event.name: _decode(event, records[records["event"] == place]) for place, event in enumerate(events)}


def _read_records(raw: Path) -> tuple[list[TracepointFormat], Structs]:
    description, records = _FORMAT.read_described(raw)
    events = _parse_description(raw, description)
    sound = (records["length"] == RECORD.itemsize - HEADER_BYTES) & (records["event"] < len(events)) & (
        records["t_ns"] >= 0)
    if not sound.all():
        raise BadCapture(f"{raw}: holds damaged records", AGAIN)
    return events, records


def _parse_description(raw: Path, content: bytes) -> list[TracepointFormat]:
    try:
        return [parse_format(item["group"], item["format"]) for item in json.loads(content)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadCapture(f"{raw}: its description of events is damaged", AGAIN) from error


def _decode(event: TracepointFormat, records: Structs) -> pa.Table:
    columns = {"t_ns": records["t_ns"], "process_id": records["process"], "thread_id": records["thread"],
               "cpu": records["cpu"], "lost_before": records["lost"]}
    by_field = {field.name: _decode_column(field, records["content"])
                for field in event.fields if field.shape != "bytes"}
    return pa.table(columns | {name: column for name, column in by_field.items() if name not in columns})


def _decode_column(field: Field, contents: npt.NDArray[np.uint8]) -> pa.Array:
    begin = field.offset - COMMON_BYTES
    if begin + field.size > _CONTENT_BYTES:
        return pa.nulls(len(contents), pa.int64() if field.shape == "number" else pa.string())
    held = np.ascontiguousarray(contents[:, begin:begin + field.size])
    if field.shape == "number":
        return pa.array(held.view(f"<{'i' if field.signed else 'u'}{field.size}").ravel())
    if field.shape == "text":
        return pa.array([_decode_text(row.tobytes()) for row in held], pa.string())
    places = held.view("<u4").ravel().tolist()
    return pa.array([_dynamic_text(row, place) for row, place in zip(contents, places, strict=True)], pa.string())


def _dynamic_text(content: npt.NDArray[np.uint8], place: int) -> str | None:
    begin, length = (place & 0xFFFF) - COMMON_BYTES, place >> 16
    if begin < 0 or begin + length > len(content):
        return None
    return _decode_text(content[begin:begin + length].tobytes())


def _decode_text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode(errors="replace")


def _event_rows(name: str, table: pa.Table) -> pa.Table:
    size, unit = _VALUES.get(name, ("", ""))
    has_size = size in table.column_names and pa.types.is_integer(table[size].type)
    return SYSTEM_EVENTS.build(
        **_common_columns(name, table), t_ns=table["t_ns"],
        value=pc.cast(table[size], pa.float64(), safe=False) if has_size else None,
        unit=[unit] * len(table) if has_size else None,
        lost_before=pc.if_else(pc.equal(table["lost_before"], 0), None, table["lost_before"]))


def _common_columns(kind: str, table: pa.Table) -> dict[str, Any]:
    texts = [table[name] for name in table.column_names if pa.types.is_string(table[name].type)]
    count = len(table)
    texts = [pc.fill_null(text, "") for text in texts] or [pa.array([""] * count, pa.string())]
    joined = pc.utf8_trim_whitespace(pc.binary_join_element_wise(*texts, " "))  # one that skips nulls leaves out rows
    detail = pc.if_else(pc.equal(joined, ""), None, joined)
    return {"kind": [kind] * count, "process_id": table["process_id"], "thread_id": table["thread_id"],
            "cpu": table["cpu"], "tier": [TIER] * count, "clock": [CLOCK] * count, "detail": detail}


def _find_pairs(tables: Mapping[str, pa.Table], begins: tuple[str, ...],
                ends: tuple[str, ...]) -> Iterator[tuple[pa.Table, pa.Table, tuple[str, ...]]]:
    """Yield, of the events that may begin and end a stretch, those that this kernel has, and the fields that pair them.
    """
    begin = next((tables[name] for name in begins if name in tables), None)
    end = next((tables[name] for name in ends if name in tables), None)
    if begin is None or end is None:
        return
    shared = set(begin.schema) & set(end.schema)  # with their types
    keys = next((keys for keys in _KEYS if {field.name for field in shared} >= set(keys)), None)
    if keys:
        yield begin, end, keys


def _stretch_rows(kind: str, begin: pa.Table, end: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return rows from a begin to the end that follows it before the next begin of the same; a fence's address is used
    again.
    """
    names = [*keys, "t_ns"]
    both = pa.concat_tables([
        begin.select(names).append_column("place", pa.array(np.arange(len(begin)))),
        end.select(names).append_column("place", pa.array(np.full(len(end), -1)))])
    both = both.sort_by([(name, "ascending") for name in (*keys, "t_ns")])
    places, times = both["place"].to_numpy(), both["t_ns"].to_numpy()
    alike = np.ones(max(0, len(both) - 1), bool)
    for key in keys:
        column = both[key].to_numpy()
        alike &= column[1:] == column[:-1]
    first = np.flatnonzero(alike & (places[:-1] >= 0) & (places[1:] < 0))
    rows = begin.take(pa.array(places[first]))
    return SYSTEM_EVENTS.build(**_common_columns(kind, rows), t_ns=rows["t_ns"], dur_ns=times[first + 1] - times[first])

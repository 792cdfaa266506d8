"""JAX and XLA profiles (*.xplane.pb): streams of GPUs -> kernels and copies, host threads -> api_calls.

Times stand in picoseconds after the begin of their line; a fraction of a ns is rounded down, at begin and end
alike, and counted. Where the profile says when it started, times are on the realtime clock, else as written.
A grid is written in blocks; here it is in work-items. Old ROCm builds of XLA write registers and shared memory from
memory they never set: numbers that no kernel can have are taken for none, with what stands beside them.
Lines of a device other than its streams repeat the same events grouped otherwise (modules, steps), and are left out;
so are devices other than GPUs.
Sources: tsl/profiler/utils/xplane_schema.h and xla/backends/profiler/gpu of openxla/xla.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.tables import API_CALLS, COPIES, KERNELS
from aaco.profiler import jsonfile, xspace
from aaco.profiler.capture import Device, Facts
from aaco.profiler.columns import bare, constant, encoded, integers
from aaco.profiler.ledger import LATEST_NS, Ledger
from aaco.profiler.rocm_labels import direction
from aaco.profiler.xspace import Line, Plane, Space

FORMAT = "xplane"
KERNEL, COPY, CALL, EVENT = "kernel", "copy", "call", "event"
GROUPED = "on a line that groups the events of the streams"
NO_GPU = "of a device that is no GPU"
SUMMED = "it stands for several, without a time of its own"
NO_TIME = "its time is no time of any age"
MOST_REGISTERS = 1024  # of a work-item, on any GPU
PS = 1000
ENVIRONMENT = "Task Environment"
_GPU = re.compile(r"/device:GPU:(\d{1,6})", re.ASCII)
_STREAM = re.compile(r"Stream #(\d{1,18})", re.ASCII)
_DETAIL = re.compile(r"(\w{1,40}):(\S{1,60})", re.ASCII)
_SIZES = re.compile(r"(\d{1,10}),(\d{1,10}),(\d{1,10})", re.ASCII)
_DOMAINS = tuple((re.compile(begin), domain) for begin, domain in (
    (r"hip[A-Z]", "hip"), (r"hsa_", "hsa"), (r"cuda[A-Z]", "cuda_runtime"), (r"cu[A-Z]", "cuda_driver"),
    (r"\$", "python")))


def recognises(path: Path) -> bool:
    """Whether the file begins with a plane of an XLA profile."""
    return xspace.begins(jsonfile.head(path, xspace.LOOKED_AT))


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """kernels, copies and api_calls of the profile, and its Facts. Raises BadCapture."""
    reading = _Reading()
    with xspace.opened(path) as space:
        planes = list(space.planes())
        reading.look(planes)
        for plane in planes:
            yield from reading.tables(space, plane)
    yield reading.facts()


@dataclass(frozen=True)
class _Timed:
    """Events that have a time, each with its statistics, and the columns that they all have."""

    events: list[tuple[Any, dict[str, Any]]]
    columns: dict[str, Any]


class _Reading:
    """The account of a profile, and where its times begin."""

    def __init__(self) -> None:
        self.ledger = Ledger(KERNEL)
        self.devices: list[Device] = []
        self.origin_ns = 0
        self.next = dict.fromkeys((KERNEL, COPY, CALL), 0)
        self.fractions = self.unset = 0

    def look(self, planes: list[Plane]) -> None:
        """Learn when the profile started, and of the devices."""
        for plane in planes:
            start = plane.said.get("profile_start_time")
            if plane.name == ENVIRONMENT and type(start) is int and 0 < start < LATEST_NS:
                self.origin_ns = start
            gpu = _GPU.fullmatch(plane.name)
            if gpu:
                self.devices.append(_device(int(gpu[1]), plane.said))

    def tables(self, space: Space, plane: Plane) -> Iterator[pa.Table]:
        """The events of a plane."""
        gpu = _GPU.fullmatch(plane.name)
        for at in plane.lines:
            line = space.line(at)
            stream = _STREAM.match(line.name)
            for events in space.events(line):
                if gpu and stream:
                    yield from self._device_tables(plane, line, int(gpu[1]), int(stream[1]), events)
                elif plane.name.startswith("/host:"):
                    yield from self._host_tables(plane, line, events)
                else:
                    self.ledger.saw(EVENT, len(events))
                    self.ledger.leave_out(EVENT, GROUPED if gpu else NO_GPU, len(events))

    def facts(self) -> Facts:
        """What the profile says of itself."""
        self.ledger.trouble("events begin or end at a fraction of a ns: rounded down", self.fractions)
        self.ledger.trouble("kernels have registers and shared memory that were never set: read as absent", self.unset)
        return self.ledger.facts(FORMAT, tool="xla", clock="realtime" if self.origin_ns else "unknown",
                                 devices=tuple(sorted(self.devices, key=lambda device: device.id)))

    def _device_tables(self, plane: Plane, line: Line, device: int, stream: int,
                       events: list[Any]) -> Iterator[pa.Table]:
        """A piece of kernels and a piece of copies."""
        groups: dict[str, list[tuple[Any, dict[str, Any]]]] = {KERNEL: [], COPY: []}
        for event in events:
            said = plane.values(event.stats)
            groups[COPY if "memcpy_details" in said or "memset_details" in said else KERNEL].append((event, said))
        where = {"device_id": device, "stream_id": stream}
        for kind, spec, more in ((KERNEL, KERNELS, self._kernel), (COPY, COPIES, _copy)):
            found = self._timed(kind, line, groups[kind])
            rows = [more(plane, event, said) for event, said in found.events]
            columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
            for name in ("kernel_name", "kind"):
                if name in columns:
                    columns[name] = encoded(columns[name])
            yield spec.build(**found.columns, **columns, source=constant(FORMAT, len(rows)),
                             **{name: np.full(len(rows), value) for name, value in where.items()})

    def _host_tables(self, plane: Plane, line: Line, events: list[Any]) -> Iterator[pa.Table]:
        found = self._timed(CALL, line, [(event, plane.values(event.stats)) for event in events])
        names = [plane.events.get(event.metadata_id, "") for event, _ in found.events]
        yield API_CALLS.build(**found.columns, name=encoded(names), domain=encoded([_domain(name) for name in names]),
                              thread_id=np.full(len(names), line.id))

    def _timed(self, kind: str, line: Line, events: list[tuple[Any, dict[str, Any]]]) -> _Timed:
        """The events that have a time, with keys, times and links; the others are entered as left out."""
        self.ledger.saw(kind, len(events))
        single = [entry for entry in events if not entry[0].HasField("num_occurrences")]
        self.ledger.leave_out(kind, SUMMED, len(events) - len(single))
        kept, times = [], []
        for event, said in single:
            start = self.origin_ns * PS + line.timestamp_ns * PS + event.offset_ps
            end = start + event.duration_ps
            if start < 0 or event.duration_ps < 0 or end > LATEST_NS * PS:
                continue
            self.fractions += bool(start % PS or end % PS)
            kept.append((event, said))
            times.append((start // PS, end // PS))
        self.ledger.leave_out(kind, NO_TIME, len(single) - len(kept))
        start_ns, end_ns = np.array(times, np.int64).reshape(-1, 2).T
        if kind == KERNEL:
            self.ledger.kernel_ns += int((end_ns - start_ns).sum())
        first = self.next[kind]
        self.next[kind] += len(kept)
        return _Timed(kept, {
            f"{kind}_id": np.arange(first, first + len(kept)), "t_start_ns": start_ns, "t_end_ns": end_ns,
            "dur_ns": end_ns - start_ns,
            "correlation_id": integers([_integer(said.get("correlation_id")) for _, said in kept])})

    def _kernel(self, plane: Plane, event: Any, said: dict[str, Any]) -> dict[str, Any]:
        """Name and shape of a kernel. Sizes of shared memory are per workgroup, those of scratch per work-item."""
        details = dict(_DETAIL.findall(_text(said.get("kernel_details"))))
        grid, block = _sizes(details.get("grid")), _sizes(details.get("block"))
        registers, shared = _count(details.get("regs")), _shared(details)
        if registers is not None and registers > MOST_REGISTERS:
            self.unset += 1
            registers = shared = None
        occupancy = _count(details.get("occ_pct"))
        return {
            "kernel_name": bare(plane.events.get(event.metadata_id, "")), "vgpr": registers, "lds_bytes": shared,
            "scratch_bytes": _count(details.get("private_mem")), "occupancy_pct": occupancy or None,
            **{f"grid_{axis}": one * other if one is not None and other is not None else None
               for axis, one, other in zip("xyz", grid, block, strict=True)},
            **{f"block_{axis}": one for axis, one in zip("xyz", block, strict=True)},
            "executed_node": _text(said.get("hlo_op")) or None}


def _copy(plane: Plane, event: Any, said: dict[str, Any]) -> dict[str, Any]:
    """Kind and size of a copy; the name says more than the details, which call what ROCm does Unknown."""
    details = dict(_DETAIL.findall(_text(said.get("memcpy_details")) or _text(said.get("memset_details"))))
    name = plane.events.get(event.metadata_id, "")
    kind = "memset" if "memset_details" in said else direction(name)
    return {"kind": kind if kind != "unknown" else direction(details.get("kind", "")),
            "bytes": _count(details.get("size")) or _count(details.get("num_bytes"))}


def _device(number: int, said: dict[str, Any]) -> Device:
    """A GPU by its plane's statistics. What the plane of a device that did nothing lacks is unknown."""
    vendor = said.get("device_vendor")
    return Device(number, name=vendor if isinstance(vendor, str) else None,
                  compute_units=_integer(said.get("core_count")), vram_bytes=_integer(said.get("memory_size")))


def _domain(name: str) -> str:
    return next((domain for begin, domain in _DOMAINS if begin.match(name)), "xla")


def _sizes(text: str | None) -> tuple[int | None, ...]:
    found = _SIZES.fullmatch(text or "")
    return tuple(map(int, found.groups())) if found else (None, None, None)


def _shared(details: dict[str, str]) -> int | None:
    """Shared memory of a workgroup: group_mem in newer profiles of ROCm, else what is static and dynamic together."""
    parts = [_count(details.get(name)) for name in ("static_shared", "dynamic_shared")]
    known = [part for part in parts if part is not None]
    return _count(details.get("group_mem")) if "group_mem" in details else sum(known) if known else None


def _count(text: str | None) -> int | None:
    """A whole number of at most 15 digits."""
    digits = (text or "").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 16 else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LATEST_NS else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

"""JAX and XLA profiles (*.xplane.pb): streams of GPUs -> kernels and copies, host threads -> api_calls.

Times are in picoseconds after the start of their line; a fraction of a ns is rounded down, at begin and end, and
counted. If the profile states its start, times are on the realtime clock, else as written.
A grid is written in blocks; here it is in work-items. Old ROCm builds of XLA write registers and shared memory from
memory they never set: numbers that no kernel can have are dropped, with the shared memory next to them.
Lines of a device other than its streams repeat the same events in other groups (modules, steps), and are left out;
so are devices other than GPUs.
Sources: tsl/profiler/utils/xplane_schema.h and xla/backends/profiler/gpu of openxla/xla.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core.tables import API_CALLS, COPIES, KERNELS
from aaco.profiler.capture import CapturedDevice, CaptureFacts
from aaco.profiler.formats.rocprofv3.rocm_labels import direction
from aaco.profiler.formats.xla import xspace
from aaco.profiler.formats.xla.xspace import XspaceFile, XspaceLine, XspacePlane
from aaco.profiler.io import jsonfile, record_accounting
from aaco.profiler.io.columns import bare, constant, encoded, integers
from aaco.profiler.io.record_accounting import LATEST_NS, RecordAccount

FORMAT = "xplane"
KERNEL, COPY, CALL, EVENT = "kernel", "copy", "call", "event"
GROUPED = "on a line that groups the events of the streams"
NO_GPU = "of a device that is no GPU"
SUMMED = "it stands for several, without a time of its own"
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
    """Return whether the file begins with a plane of an XLA profile."""
    return xspace.begins(jsonfile.head(path, xspace.LOOKED_AT))


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, copies and api_calls of the profile, and its facts. Raise BadCapture."""
    reader = _XplaneReader()
    with xspace.opened(path) as space:
        planes = list(space.planes())
        reader.look(planes)
        for plane in planes:
            yield from reader.tables(space, plane)
    yield reader.facts()


class _TimedEvents(Struct, frozen=True):
    """Events that have a time, each with its statistics, and the columns that they all have."""

    events: list[tuple[Any, dict[str, Any]]]
    columns: dict[str, Any]


class _XplaneReader:
    """The account of a profile, and the origin of its times."""

    def __init__(self) -> None:
        self.account = RecordAccount(KERNEL, from_zero=True)
        self.devices: list[CapturedDevice] = []
        self.origin_ns = 0
        self.next = dict.fromkeys((KERNEL, COPY, CALL), 0)
        self.fractions = self.unset = 0

    def look(self, planes: list[XspacePlane]) -> None:
        """Read when the profile started, and its devices."""
        for plane in planes:
            start = plane.own_stats.get("profile_start_time")
            if plane.name == ENVIRONMENT and type(start) is int and 0 < start < LATEST_NS:
                self.origin_ns = start
            gpu = _GPU.fullmatch(plane.name)
            if gpu:
                self.devices.append(_read_device(int(gpu[1]), plane.own_stats))

    def tables(self, space: XspaceFile, plane: XspacePlane) -> Iterator[pa.Table]:
        """Yield the events of a plane as tables."""
        gpu = _GPU.fullmatch(plane.name)
        for stretch in plane.lines:
            line = space.line(stretch)
            stream = _STREAM.match(line.name)
            for events in space.events(line):
                if gpu and stream:
                    yield from self._device_tables(plane, line, int(gpu[1]), int(stream[1]), events)
                elif plane.name.startswith("/host:"):
                    yield from self._host_tables(plane, line, events)
                else:
                    self.account.skip(EVENT, GROUPED if gpu else NO_GPU, len(events))

    def facts(self) -> CaptureFacts:
        """Return the facts of the profile."""
        self.account.trouble("events begin or end at a fraction of a ns: rounded down", self.fractions)
        self.account.trouble("kernels have registers and shared memory that were never set: read as absent", self.unset)
        return self.account.facts(FORMAT, tool="xla", clock="realtime" if self.origin_ns else "unknown",
                                  devices=tuple(sorted(self.devices, key=lambda device: device.id)))

    def _device_tables(self, plane: XspacePlane, line: XspaceLine, device: int, stream: int,
                       events: list[Any]) -> Iterator[pa.Table]:
        """Yield a piece of kernels and a piece of copies."""
        groups: dict[str, list[tuple[Any, dict[str, Any]]]] = {KERNEL: [], COPY: []}
        for event in events:
            stats = plane.values(event.stats)
            groups[COPY if "memcpy_details" in stats or "memset_details" in stats else KERNEL].append((event, stats))
        place = {"device_id": device, "stream_id": stream}
        for kind, spec, build_row in ((KERNEL, KERNELS, self._kernel), (COPY, COPIES, _copy_row)):
            timed = self._timed(kind, line, groups[kind])
            rows = [build_row(plane, event, stats) for event, stats in timed.events]
            columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
            for name in ("kernel_name", "kind"):
                if name in columns:
                    columns[name] = encoded(columns[name])
            yield spec.build(**timed.columns, **columns, source=constant(FORMAT, len(rows)),
                             **{name: np.full(len(rows), number) for name, number in place.items()})

    def _host_tables(self, plane: XspacePlane, line: XspaceLine, events: list[Any]) -> Iterator[pa.Table]:
        timed = self._timed(CALL, line, [(event, plane.values(event.stats)) for event in events])
        names = [plane.events.get(event.metadata_id, "") for event, _ in timed.events]
        yield API_CALLS.build(**timed.columns, name=encoded(names), domain=encoded([_domain(name) for name in names]),
                              thread_id=np.full(len(names), line.id))

    def _timed(self, kind: str, line: XspaceLine, events: list[tuple[Any, dict[str, Any]]]) -> _TimedEvents:
        """Return the events that have a time, with keys, times and links; the others are counted as left out."""
        self.account.saw(kind, len(events))
        single = [event_and_stats for event_and_stats in events if not event_and_stats[0].HasField("num_occurrences")]
        self.account.leave_out(kind, SUMMED, len(events) - len(single))
        line_ps = (self.origin_ns + line.timestamp_ns) * PS
        starts_ps = [line_ps + event.offset_ps for event, _ in single]
        ends_ps = [start + event.duration_ps for start, (event, _) in zip(starts_ps, single, strict=True)]
        start_ns, end_ns = (record_accounting.integers(integers([time // PS for time in times]))
                            for times in (starts_ps, ends_ps))
        fit = self.account.placed(kind, start_ns, end_ns)
        start_ns, end_ns = start_ns[fit], end_ns[fit]
        kept = list(compress(single, fit))
        self.fractions += sum(bool(start % PS or end % PS) for start, end in compress(
            zip(starts_ps, ends_ps, strict=True), fit))
        if kind == KERNEL:
            self.account.kernel_ns += int((end_ns - start_ns).sum())
        first = self.next[kind]
        self.next[kind] += len(kept)
        return _TimedEvents(kept, {
            f"{kind}_id": np.arange(first, first + len(kept)), "t_start_ns": start_ns, "t_end_ns": end_ns,
            "dur_ns": end_ns - start_ns,
            "correlation_id": integers([_integer_or_none(stats.get("correlation_id")) for _, stats in kept])})

    def _kernel(self, plane: XspacePlane, event: Any, stats: dict[str, Any]) -> dict[str, Any]:
        """Return name and shape of a kernel. Sizes of shared memory are per workgroup, those of scratch per work-item.
        """
        details = dict(_DETAIL.findall(_text(stats.get("kernel_details"))))
        grid, block = _parse_sizes(details.get("grid")), _parse_sizes(details.get("block"))
        registers, shared = _parse_count(details.get("regs")), _shared_bytes(details)
        if registers is not None and registers > MOST_REGISTERS:
            self.unset += 1
            registers = shared = None
        occupancy = _parse_count(details.get("occ_pct"))
        return {
            "kernel_name": bare(plane.events.get(event.metadata_id, "")), "vgpr": registers, "lds_bytes": shared,
            "scratch_bytes": _parse_count(details.get("private_mem")), "occupancy_pct": occupancy or None,
            **{f"grid_{axis}": blocks * items if blocks is not None and items is not None else None
               for axis, blocks, items in zip("xyz", grid, block, strict=True)},
            **{f"block_{axis}": blocks for axis, blocks in zip("xyz", block, strict=True)},
            "executed_node": _text(stats.get("hlo_op")) or None}


def _copy_row(plane: XspacePlane, event: Any, stats: dict[str, Any]) -> dict[str, Any]:
    """Return kind and size of a copy; the name is more specific than the details, which call ROCm's copies Unknown."""
    details = dict(_DETAIL.findall(_text(stats.get("memcpy_details")) or _text(stats.get("memset_details"))))
    name = plane.events.get(event.metadata_id, "")
    kind = "memset" if "memset_details" in stats else direction(name)
    return {"kind": kind if kind != "unknown" else direction(details.get("kind", "")),
            "bytes": _parse_count(details.get("size")) or _parse_count(details.get("num_bytes"))}


def _read_device(number: int, stats: dict[str, Any]) -> CapturedDevice:
    """Return a GPU by its plane's statistics. Fields that the plane of an idle device does not have are unknown."""
    vendor = stats.get("device_vendor")
    return CapturedDevice(number, name=vendor if isinstance(vendor, str) else None,
                          compute_units=_integer_or_none(stats.get("core_count")),
                          vram_bytes=_integer_or_none(stats.get("memory_size")))


def _domain(name: str) -> str:
    return next((domain for begin, domain in _DOMAINS if begin.match(name)), "xla")


def _parse_sizes(text: str | None) -> tuple[int | None, ...]:
    match = _SIZES.fullmatch(text or "")
    return tuple(map(int, match.groups())) if match else (None, None, None)


def _shared_bytes(details: dict[str, str]) -> int | None:
    """Return shared memory of a workgroup: group_mem in newer profiles of ROCm, else the sum of static and dynamic."""
    parts = [_parse_count(details.get(name)) for name in ("static_shared", "dynamic_shared")]
    present = [part for part in parts if part is not None]
    return _parse_count(details.get("group_mem")) if "group_mem" in details else sum(present) if present else None


def _parse_count(text: str | None) -> int | None:
    """Return an integer of at most 15 digits, else None."""
    digits = (text or "").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 16 else None


def _integer_or_none(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < LATEST_NS else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

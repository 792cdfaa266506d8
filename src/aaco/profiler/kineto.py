"""PyTorch's profiler (Kineto) on CUDA and ROCm, PyTorch 1.8 to 2.x: kernels, copies, collectives, allocations and every
host-side call, with correlation ids, streams and arguments.

Work is linked to the call that launched it by correlation id; flow arrows, whose names changed over the years, are not
needed. A replayed graph gives one id to many kernels. Kineto writes one process per file; where several were merged
into one, ids may collide, which the problems say. Ranges that belong to a device (gpu_user_annotation, cuda_sync)
become api_calls with a device and a stream instead of a process and a thread, and never kernels. What Kineto derives
from a kernel's geometry (blocks and warps per SM) is not kept. A grid counts workgroups, but that of a kernel launched
by hipExtModuleLaunchKernel, which takes a global work size, counts work-items: the launch stands before its kernel.
What a collective did is told by its kernel's arguments on CUDA, else by those of the operation that launched it. Times
with an epoch (baseTimeNanoseconds) are on the realtime clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.tables import ALLOCATIONS, COLLECTIVES, COPIES, KERNELS
from aaco.profiler import jsonstream
from aaco.profiler.capture import Device, Facts
from aaco.profiler.chrome import KINETO_MARKS, OTHERS, Event, Groups, Reader, at_once, durations, is_trace
from aaco.profiler.columns import constant, encoded, integers
from aaco.profiler.digits import LARGEST, Microseconds
from aaco.profiler.dispatches import GLOBAL_SIZE
from aaco.profiler.kineto_events import (
    ALLOCATED,
    EXPECTED,
    LAUNCHES,
    RUNTIMES,
    TRANSFERS,
    Allocation,
    Launch,
    Transfer,
)
from aaco.profiler.ledger import Ledger

FORMAT = "kineto"
KERNEL = "kernel"
TOOL = "PyTorch profiler"
CATEGORIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime",
              "Operator": "cpu_op"}  # PyTorch before 1.12
DOMAINS = {"user_annotation": "marker", "gpu_user_annotation": "gpu_marker", "python_function": "python",
           "cpu_instant_event": "marker"}
ON_DEVICE = ("gpu_user_annotation", "cuda_sync")
OWN = ("Spans", "Traces", "")  # where the profiler draws its own doings
MEMORY = "[memory]"
COMMS = "record_param_comms"
LIBRARY = 32  # letters of a kernel's name in which NCCL's or RCCL's stands
MOST_COLLECTIVES = 1_000_000
KINDS = {"htod": "h2d", "dtoh": "d2h", "dtod": "d2d", "ptop": "p2p", "htoh": "h2h", "hosttodevice": "h2d",
         "devicetohost": "d2h", "devicetodevice": "d2d", "peertopeer": "p2p", "hosttohost": "h2h"}
ELEMENT_BYTES = {"double": 8, "long": 8, "int64": 8, "float": 4, "int": 4, "int32": 4, "half": 2, "bfloat16": 2,
                 "short": 2, "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "complexfloat": 8,
                 "complexdouble": 16}
OPERATIONS = {"allgather": "allgather", "allreduce": "allreduce", "reducescatter": "reduce_scatter",
              "alltoall": "alltoall", "broadcast": "broadcast", "barrier": "barrier", "gather": "gather",
              "scatter": "scatter", "reduce": "reduce", "send": "send", "recv": "recv"}

_BASE = "baseTimeNanoseconds"
_EPOCH = 10**18  # ns; a time without an epoch of its own that lies later counts from 1970


def recognises(path: Path) -> bool:
    """Whether the file begins as the traces of PyTorch's profiler do."""
    text = jsonstream.head(path)
    marked = is_trace(text) and any(mark in text for mark in KINETO_MARKS)
    headed = text[:1] == b"{" and b'"schemaVersion"' in text and b'"deviceProperties"' in text
    return (marked or headed) and not any(mark in text for mark in OTHERS)


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Pieces of kernels, copies, api_calls, call_arguments, collectives, allocations and samples, then the Facts.

    Raises BadCapture.
    """
    document, reader = jsonstream.Document(path, Event, expected=EXPECTED), _Kineto(Ledger(KERNEL))
    based = False
    for events in document.batches():
        if not based:
            known, based = _BASE in document.fields, True
            reader.base_ns = _base(document.fields[_BASE] if known else jsonstream.number_behind(path, _BASE))
        yield from reader.pieces(events)
        events = []  # before the next are made: their memory is used again
    reader.close()
    yield from reader.collectives()
    yield reader.facts(document)


@dataclass
class _Kineto(Reader):
    kernel_rows: int = 0
    copy_rows: int = 0
    _comms: dict[int, Launch] = field(default_factory=dict)  # of operations of collectives, by their id
    _untold: list[tuple[int, int]] = field(default_factory=list)  # kernels of collectives that do not say what they do
    _in_items: set[int] = field(default_factory=set)  # launches that were given work-items, until their kernel comes
    processes: set[Any] = field(default_factory=set)

    def canonical(self, category: str | None) -> str | None:
        return CATEGORIES.get(category or "", category)

    def device_pieces(self, groups: Groups) -> Iterator[pa.Table]:
        """Tables of what ran on devices; its events are taken out of the groups, others noted."""
        for key in list(groups):
            if key[0] == "X" and self.canonical(key[1]) in RUNTIMES:
                self._note_sizes([event for event in groups[key] if event.name in GLOBAL_SIZE])
        for key in list(groups):
            category = self.canonical(key[1])
            if key[0] == "X" and category == KERNEL:
                yield from self._kernels(groups.pop(key))
            elif key[0] == "X" and category in ("gpu_memcpy", "gpu_memset"):
                yield from self._copies(groups.pop(key), category)
            elif key[0] == "X" and category in ON_DEVICE:
                events = groups.pop(key)
                yield from self.call_pieces(category, events, durations(events), on_device=True)
            elif key[0] == "X" and category == "cpu_op":
                self._note_comms([event for event in groups[key] if event.name == COMMS])
            elif key[0] == "X" and category in RUNTIMES:
                self.processes.update(event.pid for event in groups[key][:1000])
            elif key[0] in ("X", "i", "I") and category in ("Trace", "cpu_instant_event", None):
                yield from self._own_and_memory(groups, key)

    def domain(self, category: str | None, name: str | None) -> str | None:
        category = self.canonical(category)
        if category in RUNTIMES and name:
            return "hip" if name.startswith("hip") else "hsa" if name.startswith("hsa_") else category
        return DOMAINS.get(category or "", category)

    def facts(self, document: jsonstream.Document[Event]) -> Facts:
        """The capture's own words, once all of it was read."""
        fields, names = document.fields, self.metadata()
        if _BASE in fields and _base(fields[_BASE]) != self.base_ns:
            raise document.bad(f"{_BASE} stands behind the events, too far from the end of the file")
        world = fields.get("distributedInfo")
        world = world if isinstance(world, dict) else {}
        merged = [f"calls of {len(self.processes)} processes in one file: correlation ids may be used twice"
                  ] if len(self.processes) > 1 else []
        return self.ledger.facts(
            FORMAT, (*document.problems, *merged), tool=TOOL,
            clock="realtime" if self.base_ns or self.latest_ns > _EPOCH else "unknown",
            tool_version=_version(fields), devices=_devices(fields.get("deviceProperties")),
            rank=_integer(world.get("rank")), world_size=_integer(world.get("world_size")), metadata=fields | names,
            streams=_streams(names.get("threads", {})))

    def _kernels(self, events: list[Event]) -> Iterator[pa.Table]:
        written = Microseconds([event.dur for event in events])
        self.ledger.kernel_ns += written.total_ns()
        events, start, lasted = self.timed(events, written.ns())
        launches = self.arguments(events, LAUNCHES, Launch)
        keys = np.arange(self.kernel_rows, self.kernel_rows + len(events))
        self.kernel_rows += len(events)
        names = encoded([event.name for event in events])
        blocks = _triples([launch.block for launch in launches])
        sizes = _ones(blocks, np.array([launch.correlation in self._in_items for launch in launches], bool))
        self._in_items.difference_update({launch.correlation for launch in launches})
        yield KERNELS.build(
            kernel_id=keys, kernel_name=names, **self._where(events, launches),
            t_start_ns=start, t_end_ns=start + lasted, dur_ns=lasted,
            **_axes("grid", _triples([launch.grid for launch in launches]), sizes), **_axes("block", blocks),
            vgpr=integers([launch.registers for launch in launches]),
            lds_bytes=integers([launch.shared for launch in launches]),
            occupancy_pct=pa.array([launch.occupancy for launch in launches], pa.float64()),
            external_id=_external(launches), source=constant(FORMAT, len(events)))
        self._note_untold(keys, names, launches)
        if said := [place for place, launch in enumerate(launches) if launch.collective is not None]:
            yield _collectives(keys[said], [launches[place] for place in said])

    def collectives(self) -> Iterator[pa.Table]:
        """What collectives did whose kernels do not say it themselves."""
        told = [(key, self._comms[external]) for key, external in self._untold if external in self._comms]
        if told:
            yield _collectives(np.array([key for key, _ in told], np.int64), [launch for _, launch in told])

    def _note_sizes(self, events: list[Event]) -> None:
        for launch in self.arguments(events, LAUNCHES, Launch) if events else ():
            if launch.correlation is not None:
                self._in_items.add(launch.correlation)

    def _note_comms(self, events: list[Event]) -> None:
        for launch in self.arguments(events, LAUNCHES, Launch) if events else ():
            external = launch.external_id_1 if launch.external_id is None else launch.external_id
            if launch.collective is not None and external is not None and len(self._comms) < MOST_COLLECTIVES:
                self._comms[external] = launch

    def _note_untold(self, keys: np.ndarray, names: pa.DictionaryArray, launches: list[Launch]) -> None:
        of_collectives = [code for code, name in enumerate(names.dictionary.to_pylist())
                          if name and "ccl" in name[:LIBRARY].lower()]
        if not of_collectives or len(self._untold) >= MOST_COLLECTIVES:
            return
        for place in np.flatnonzero(np.isin(names.indices.to_numpy(), of_collectives)).tolist():
            launch = launches[place]
            external = launch.external_id_1 if launch.external_id is None else launch.external_id
            if launch.collective is None and external is not None:
                self._untold.append((int(keys[place]), external))

    def _copies(self, events: list[Event], category: str) -> Iterator[pa.Table]:
        events, start, lasted = self.timed(events, durations(events))
        transfers = self.arguments(events, TRANSFERS, Transfer)
        keys = np.arange(self.copy_rows, self.copy_rows + len(events))
        self.copy_rows += len(events)
        kinds = [_copy_kind(category, event.name or "", transfer.kind or "")
                 for event, transfer in zip(events, transfers, strict=True)]
        where = self._where(events, transfers)
        devices = where["device_id"].to_pylist()
        yield COPIES.build(
            copy_id=keys, kind=encoded(kinds), bytes=integers([transfer.bytes for transfer in transfers]),
            src_device=integers([_end(transfer.source, device, kind in ("d2h", "d2d"))
                                 for transfer, device, kind in zip(transfers, devices, kinds, strict=True)]),
            dst_device=integers([_end(transfer.target, device, kind in ("h2d", "d2d", "memset"))
                                 for transfer, device, kind in zip(transfers, devices, kinds, strict=True)]),
            pinned=pa.array([_pinned(event.name or "") for event in events], pa.bool_()), **where,
            t_start_ns=start, t_end_ns=start + lasted, dur_ns=lasted, source=constant(FORMAT, len(events)))

    def _where(self, events: list[Event], works: list[Any]) -> dict[str, Any]:
        """Device and stream as the arguments say, else as the event's process and thread, which mean them here."""
        devices = [event.pid if work.device is None else work.device for event, work in zip(events, works, strict=True)]
        streams = [event.tid if work.stream is None else work.stream for event, work in zip(events, works, strict=True)]
        return {"device_id": self.numbers(devices), "stream_id": self.numbers(streams),
                "correlation_id": integers([work.correlation for work in works]),
                "graph_id": integers([work.graph for work in works]),
                "graph_node_id": integers([work.node for work in works])}

    def _own_and_memory(self, groups: Groups, key: tuple[str, str | None]) -> Iterator[pa.Table]:
        """Takes out of a group what the profiler says of itself, and allocations."""
        own = [event for event in groups[key] if event.pid in OWN]
        memory = [event for event in groups[key] if event.name == MEMORY and event.pid not in OWN and key[0] != "X"]
        self.ledger.leave_out(self.kind(*key), "the profiler's own span or mark", len(own))
        if own or memory:
            groups[key] = [event for event in groups[key] if event.pid not in OWN and event.name != MEMORY]
        if memory:
            yield self._allocations(memory)

    def _allocations(self, events: list[Event]) -> pa.Table:
        events, start, _ = self.timed(events, at_once(len(events)))
        found = self.arguments(events, ALLOCATED, Allocation)
        return ALLOCATIONS.build(
            t_ns=start, kind=encoded([None if one.bytes is None else "allocate" if one.bytes >= 0 else "free"
                                      for one in found]),
            bytes=integers([None if one.bytes is None else abs(one.bytes) for one in found]),
            address=integers([one.address for one in found]), total_bytes=integers([one.total for one in found]),
            device_id=integers([None if not one.device_type or (one.device or 0) < 0 else one.device for one in found]),
            process_id=self.numbers([event.pid for event in events]),
            thread_id=self.numbers([event.tid for event in events]))


def _collectives(keys: np.ndarray, launches: list[Launch]) -> pa.Table:
    return COLLECTIVES.build(
        kernel_id=keys, operation=encoded([_operation(launch.collective or "") for launch in launches]),
        group=[launch.group for launch in launches], group_size=integers([launch.group_size for launch in launches]),
        sequence=integers([launch.sequence for launch in launches]),
        bytes_in=integers([_message(launch.elements_in, launch.dtype) for launch in launches]),
        bytes_out=integers([_message(launch.elements_out, launch.dtype) for launch in launches]),
        dtype=encoded([launch.dtype for launch in launches]))


def _operation(name: str) -> str:
    """The collective's common name; as the file has it where it is none of the known ones."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((common for part, common in OPERATIONS.items() if part in plain), name)


def _message(elements: int | None, dtype: str | None) -> int | None:
    size = ELEMENT_BYTES.get((dtype or "").lower()) or (1 if (dtype or "").lower().startswith("float8") else None)
    return None if elements is None or size is None else elements * size


def _copy_kind(category: str, name: str, kind: str) -> str:
    if category == "gpu_memset":
        return "memset"
    plain = (kind + name).replace(" ", "").lower()
    return next((common for part, common in KINDS.items() if part in plain), "unknown")


def _end(said: int | None, device: int | None, here: bool) -> int | None:
    return said if said is not None else device if here else None


def _pinned(name: str) -> bool | None:
    return True if "Pinned" in name else False if "Pageable" in name else None


def _triples(values: list[tuple[int, int, int] | None]) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3) of the given triples and which rows have none."""
    absent = np.array([value is None for value in values], bool)
    flat = chain.from_iterable([value or (0, 0, 0) for value in values])
    return np.fromiter(flat, np.int64, 3 * len(values)).reshape(-1, 3), absent


def _ones(triples: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The triples with (1, 1, 1) in these rows."""
    return np.where(rows[:, None], 1, triples[0]), triples[1] & ~rows


def _axes(name: str, *factors: tuple[np.ndarray, np.ndarray]) -> dict[str, pa.Array]:
    """x, y and z of the product of triples; null where one of them is not known."""
    absent = np.logical_or.reduce([missing for _, missing in factors])
    product = np.prod([triple for triple, _ in factors], axis=0)
    return {f"{name}_{axis}": pa.array(product[:, place], pa.int64(), mask=absent) for place, axis in enumerate("xyz")}


def _external(works: list[Any]) -> pa.Array:
    return integers([work.external_id_1 if work.external_id is None else work.external_id for work in works])


def _devices(described: Any) -> tuple[Device, ...]:
    if not isinstance(described, list):
        return ()
    return tuple(_device(one) for one in described if isinstance(one, dict) and _integer(one.get("id")) is not None)


def _streams(threads: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The streams among the named threads: on a device, process and thread are device and stream."""
    places = (place.split("/") for place, name in threads.items() if str(name).startswith("stream "))
    return tuple(sorted((int(device), int(stream)) for device, stream in places
                        if device.isdecimal() and stream.isdecimal()))


def _device(one: Mapping[str, Any]) -> Device:
    """A device as the trace describes it. On ROCm the architecture's stepping is not said, so none is given."""
    major, minor = _integer(one.get("computeMajor")), _integer(one.get("computeMinor"))
    cuda = one.get("warpSize") == 32 and "regsPerMultiprocessor" in one and major is not None and minor is not None
    name = one.get("name") if isinstance(one.get("name"), str) else None
    return Device(int(one["id"]), name or None, f"sm_{major}{minor}" if cuda else None, _integer(one.get("numSms")),
                  _integer(one.get("totalGlobalMem")))


def _version(fields: Mapping[str, Any]) -> str | None:
    """PyTorch's version, which the traces of some benchmarks list among the packages."""
    found: Any = fields
    for name in ("metadata", "system", "pip_packages"):
        found = found.get(name) if isinstance(found, dict) else None
    packages = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
    return next((name.removeprefix("torch==") for name in packages if name.startswith("torch==")), None)


def _base(value: Any) -> int:
    base = _integer(value)
    return base if base is not None and 0 <= base <= LARGEST else 0


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

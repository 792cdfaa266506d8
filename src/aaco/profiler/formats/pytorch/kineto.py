"""PyTorch's profiler (Kineto) on CUDA and ROCm, PyTorch 1.8 to 2.x: kernels, copies, collectives, allocations and every
host-side call, with correlation ids, streams and arguments.

Work is linked to the call that launched it by correlation id; flow arrows, whose names changed over the years, are not
needed. A replayed graph gives one id to many kernels. Kineto writes one process per file; of a file merged from several
ranks each rank becomes a capture of its own (merged_ranks.py). Ranges that belong to a device (gpu_user_annotation,
cuda_sync) become api_calls with a device and a stream instead of a process and a thread, and never kernels. What Kineto
derives from a kernel's geometry (blocks and warps per SM) is not kept. A grid counts workgroups, but that of a kernel
launched by hipExtModuleLaunchKernel, which takes a global work size, counts work-items: the launch precedes its kernel.
The arguments of the kernel describe a collective on CUDA, else those of the operation that launched it. Times with an
epoch (baseTimeNanoseconds) are on the realtime clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import field

from aaco.core import distinct
from aaco.core.tables import ALLOCATIONS, COLLECTIVES, COPIES, KERNELS
from aaco.profiler.capture import CapturedDevice, CaptureFacts, of_part
from aaco.profiler.formats.onnxruntime.ort import begins_profile
from aaco.profiler.formats.pytorch import merged_ranks
from aaco.profiler.formats.pytorch.chrome import (
    KINETO_MARKS,
    OTHERS,
    ChromeEvent,
    ChromeReader,
    Groups,
    at_once,
    durations,
    is_trace,
)
from aaco.profiler.formats.pytorch.kineto_events import (
    ALLOCATED,
    EXPECTED,
    LAUNCHES,
    RUNTIME,
    TRANSFERS,
    AllocationArgs,
    KernelArgs,
    TransferArgs,
)
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import constant, encoded, integers, numbered
from aaco.profiler.io.digits import LARGEST, Microseconds
from aaco.profiler.io.dispatches import GLOBAL_SIZE
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount

FORMAT = "kineto"
KERNEL = "kernel"
TOOL = "PyTorch profiler"
CATEGORIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime",
              "Operator": "cpu_op"}  # PyTorch before 1.12
DOMAINS = {"user_annotation": "marker", "gpu_user_annotation": "gpu_marker", "python_function": "python",
           "cpu_instant_event": "marker"}
ON_DEVICE = re.compile(r"gpu_user_annotation|\w+_sync")
PROFILER_ROWS = ("Spans", "Traces", "")  # rows of the profiler's own activity
MEMORY = "[memory]"
COMMS = "record_param_comms"
LIBRARY = 32  # letters of a kernel's name that contain NCCL's or RCCL's
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
_EPOCH = 10**18  # ns; a later time without an epoch of its own counts from 1970


def recognises(path: Path) -> bool:
    """Return whether the file begins as the traces of PyTorch's profiler do."""
    text = jsonstream.head(path)
    marked = is_trace(text) and any(mark in text for mark in KINETO_MARKS)
    headed = text[:1] == b"{" and b'"schemaVersion"' in text and b'"deviceProperties"' in text
    return (marked or headed) and not any(mark in text for mark in OTHERS) and not begins_profile(text)


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield pieces of kernels, copies, api_calls, call_arguments, collectives, allocations and samples, then the facts.

    Raise BadCapture.
    """
    document, readers = jsonstream.JsonDocument(path, ChromeEvent, expected=EXPECTED), dict[str | None, _KinetoReader]()
    base_ns, fused = None, False
    for events in document.batches():
        if base_ns is None:
            has_base, fused = _BASE in document.fields, merged_ranks.is_fused(events)
            base_ns = _base_time(document.fields[_BASE] if has_base else jsonstream.number_behind(path, _BASE))
        by_label = merged_ranks.split_ranks(events, fused)
        events = []  # before the next are made, so that their memory is reused
        for label in list(by_label):
            reader = readers.setdefault(label, _reader(base_ns))
            yield from (of_part(piece, label) for piece in reader.pieces(by_label.pop(label)))
    for label, reader in (readers or {None: _reader(0)}).items():
        reader.close()
        yield from (of_part(piece, label) for piece in reader.collectives())
        yield reader.facts(document, label, is_first=label == next(iter(readers), None))


def _reader(base_ns: int) -> _KinetoReader:
    """Return a reader of times that count from base_ns, an epoch months before the recording; 0: from its begin."""
    account = RecordAccount(KERNEL, from_zero=not base_ns)
    account.zero_ns = base_ns
    return _KinetoReader(account)


class _KinetoReader(ChromeReader):
    rows_may_be_devices = False  # the category shows it
    kernel_rows: int = 0
    copy_rows: int = 0
    _comms: dict[int, KernelArgs] = field(default_factory=dict)  # of operations of collectives, by their id
    _undescribed: list[tuple[int, int]] = field(default_factory=list)  # kernels of collectives without a description
    _in_items: set[int] = field(default_factory=set)  # launches with sizes in work-items, until their kernel comes
    _launch_ids: dict[int, tuple[int, int]] = field(default_factory=dict)  # of each process the least and the greatest

    def canonical(self, category: str | None) -> str | None:
        plain = (category or "").strip("\0 ")
        return CATEGORIES.get(plain, plain or category)

    def device_pieces(self, groups: Groups) -> Iterator[pa.Table]:
        """Yield tables of device work; remove its events from the groups, and note others."""
        for key in list(groups):
            if key[0] == "X" and _is_runtime(self.canonical(key[1])):
                self._note_sizes([event for event in groups[key] if event.name in GLOBAL_SIZE])
        for key in list(groups):
            category = self.canonical(key[1])
            if key[0] == "X" and category == KERNEL:
                yield from self._kernels(groups.pop(key))
            elif key[0] == "X" and category in ("gpu_memcpy", "gpu_memset"):
                yield from self._copies(groups.pop(key), category)
            elif key[0] == "X" and ON_DEVICE.fullmatch(category or ""):
                events = groups.pop(key)
                yield from self.call_pieces(category, events, durations(events), on_device=True)
            elif key[0] == "X" and category == "cpu_op":
                self._note_comms([event for event in groups[key] if event.name == COMMS])
            elif key[0] in ("X", "i", "I") and category in ("Trace", "cpu_instant_event", None):
                yield from self._take_own_and_memory(groups, key)

    def note_links(self, categories: Sequence[str | None], processes: pa.Array, links: pa.Array) -> None:
        if len(categories) > 1 or not _is_runtime(self.canonical(categories[0])):
            return
        process, link = np.asarray(processes.fill_null(ABSENT)), np.asarray(links.fill_null(0))
        for number in distinct.values(process).tolist():
            if len(used := link[(process == number) & (link != 0)]):
                least, greatest = self._launch_ids.get(number, (int(used[0]), int(used[0])))
                self._launch_ids[number] = min(least, int(used.min())), max(greatest, int(used.max()))

    def _ids_collide(self) -> bool:
        """Return whether two processes use ids of one range; 0 is none."""
        ranges = sorted(self._launch_ids.values())
        return any(later[0] <= earlier[1] for earlier, later in pairwise(ranges))

    def domain(self, category: str | None, name: str | None) -> str | None:
        category = self.canonical(category)
        if _is_runtime(category) and name:
            return "hip" if name.startswith("hip") else "hsa" if name.startswith("hsa_") else category
        return DOMAINS.get(category or "", category)

    def facts(self, document: jsonstream.JsonDocument[ChromeEvent], label: str | None, is_first: bool) -> CaptureFacts:
        """Return the facts of the capture, after all of it was read; of a merged file, those of the rank `label`."""
        fields, names = document.fields, self.metadata()
        if _BASE in fields and _base_time(fields[_BASE]) != self.account.zero_ns:
            raise document.bad(f"{_BASE} stands behind the events, too far from the end of the file")
        world = fields.get("distributedInfo")
        world = world if isinstance(world, dict) else {}
        ambiguous = self._ids_collide()
        merged = [f"{len(self._launch_ids)} processes in this file use the same correlation ids, and no label says of "
                  "which a kernel is: no work is linked to its launch; import the file of each process instead"
                  ] if ambiguous else []
        return self.account.facts(
            FORMAT, (*(document.problems if is_first else ()), *merged), tool=TOOL, part=label, ambiguous_ids=ambiguous,
            clock="realtime" if self.account.zero_ns or self.latest_ns > _EPOCH else "unknown",
            tool_version=_torch_version(fields), devices=_read_devices(fields.get("deviceProperties")),
            rank=merged_ranks.rank_number(label) if label else _integer_or_none(world.get("rank")),
            world_size=_integer_or_none(world.get("world_size")),
            metadata=fields | names,
            streams=_streams(names.get("threads", {})))

    def _kernels(self, events: list[ChromeEvent]) -> Iterator[pa.Table]:
        written = Microseconds([event.dur for event in events])
        placed, start, kernel_durations = self.timed(events, written.ns())
        if placed is not events:
            events, written = placed, Microseconds([event.dur for event in placed])
        self.account.kernel_ns += written.total_ns()
        launches = self.arguments(events, LAUNCHES, KernelArgs)
        keys = np.arange(self.kernel_rows, self.kernel_rows + len(events))
        self.kernel_rows += len(events)
        names = encoded([event.name for event in events])
        blocks = _triples([launch.block for launch in launches])
        in_items = self._take_in_items(launches)
        sizes = np.where(in_items[:, None], 1, blocks[0]), blocks[1] & ~in_items
        yield KERNELS.build(
            kernel_id=keys, kernel_name=names, **self._where(events, launches),
            t_start_ns=start, t_end_ns=start + kernel_durations, dur_ns=kernel_durations,
            **_axes("grid", _triples([launch.grid for launch in launches]), sizes), **_axes("block", blocks),
            vgpr=integers([launch.registers for launch in launches]),
            lds_bytes=integers([launch.shared for launch in launches]),
            occupancy_pct=pa.array([launch.occupancy for launch in launches], pa.float64()),
            external_id=integers([launch.external_id_1 if launch.external_id is None else launch.external_id
                                  for launch in launches]), source=constant(FORMAT, len(events)))
        self._note_undescribed(keys, names, launches)
        if described := [index for index, launch in enumerate(launches) if launch.collective is not None]:
            yield _collectives(keys[described], [launches[index] for index in described])

    def collectives(self) -> Iterator[pa.Table]:
        """Yield the collectives whose kernels do not describe them."""
        described = [(key, self._comms[external]) for key, external in self._undescribed if external in self._comms]
        if described:
            yield _collectives(np.array([key for key, _ in described], np.int64), [launch for _, launch in described])

    def _take_in_items(self, launches: list[KernelArgs]) -> np.ndarray:
        """Return which kernels have a launch with sizes in work-items; these launches are done then."""
        if not self._in_items:
            return np.zeros(len(launches), bool)
        in_items = np.array([launch.correlation in self._in_items for launch in launches], bool)
        self._in_items.difference_update({launch.correlation for launch in launches})
        return in_items

    def _note_sizes(self, events: list[ChromeEvent]) -> None:
        for launch in self.arguments(events, LAUNCHES, KernelArgs) if events else ():
            if launch.correlation is not None:
                self._in_items.add(launch.correlation)

    def _note_comms(self, events: list[ChromeEvent]) -> None:
        for launch in self.arguments(events, LAUNCHES, KernelArgs) if events else ():
            external = launch.external_id_1 if launch.external_id is None else launch.external_id
            if launch.collective is not None and external is not None and len(self._comms) < MOST_COLLECTIVES:
                self._comms[external] = launch

    def _note_undescribed(self, keys: np.ndarray, names: pa.DictionaryArray, launches: list[KernelArgs]) -> None:
        of_collectives = [code for code, name in enumerate(names.dictionary.to_pylist())
                          if name and "ccl" in name[:LIBRARY].lower()]
        if not of_collectives or len(self._undescribed) >= MOST_COLLECTIVES:
            return
        for index in np.flatnonzero(np.isin(names.indices.to_numpy(), of_collectives)).tolist():
            launch = launches[index]
            external = launch.external_id_1 if launch.external_id is None else launch.external_id
            if launch.collective is None and external is not None:
                self._undescribed.append((int(keys[index]), external))

    def _copies(self, events: list[ChromeEvent], category: str) -> Iterator[pa.Table]:
        events, start, copy_durations = self.timed(events, durations(events))
        transfers = self.arguments(events, TRANSFERS, TransferArgs)
        keys = np.arange(self.copy_rows, self.copy_rows + len(events))
        self.copy_rows += len(events)
        kinds = [_copy_kind(category, event.name or "", transfer.kind or "")
                 for event, transfer in zip(events, transfers, strict=True)]
        where = self._where(events, transfers)
        devices = where["device_id"].to_pylist()
        yield COPIES.build(
            copy_id=keys, kind=encoded(kinds), bytes=integers([transfer.bytes for transfer in transfers]),
            src_device=integers([_end_device(transfer.source, device, kind in ("d2h", "d2d"))
                                 for transfer, device, kind in zip(transfers, devices, kinds, strict=True)]),
            dst_device=integers([_end_device(transfer.target, device, kind in ("h2d", "d2d", "memset"))
                                 for transfer, device, kind in zip(transfers, devices, kinds, strict=True)]),
            pinned=pa.array([_is_pinned(event.name or "") for event in events], pa.bool_()), **where,
            t_start_ns=start, t_end_ns=start + copy_durations, dur_ns=copy_durations,
            source=constant(FORMAT, len(events)))

    def _where(self, events: list[ChromeEvent], works: list[Any]) -> dict[str, Any]:
        """Return device and stream by the arguments, else by the event's process and thread, which mean them here."""
        devices = [event.pid if work.device is None else work.device for event, work in zip(events, works, strict=True)]
        streams = [work.stream if work.stream is not None else event.tid if work.queue is None else work.queue
                   for event, work in zip(events, works, strict=True)]
        return {"device_id": self.numbers(devices), "stream_id": self.numbers(streams),
                "correlation_id": integers([work.correlation for work in works]),
                "graph_id": integers([work.graph for work in works]),
                "graph_node_id": integers([work.node for work in works])}

    def _take_own_and_memory(self, groups: Groups, key: tuple[str, str | None]) -> Iterator[pa.Table]:
        """Remove the profiler's own events and allocations from a group; yield the allocations."""
        profiler_events = [event for event in groups[key] if event.pid in PROFILER_ROWS]
        memory_events = [event for event in groups[key] if event.name == MEMORY and event.pid not in PROFILER_ROWS
                         and key[0] != "X"]
        self.account.leave_out(self.kind(*key), "the profiler's own span or mark", len(profiler_events))
        if profiler_events or memory_events:
            groups[key] = [event for event in groups[key] if event.pid not in PROFILER_ROWS and event.name != MEMORY]
        if memory_events:
            yield self._allocations(memory_events)

    def _allocations(self, events: list[ChromeEvent]) -> pa.Table:
        events, start, _ = self.timed(events, at_once(len(events)))
        allocations = self.arguments(events, ALLOCATED, AllocationArgs)
        return ALLOCATIONS.build(
            t_ns=start,
            kind=encoded([None if allocation.bytes is None else "allocate" if allocation.bytes >= 0 else "free"
                          for allocation in allocations]),
            bytes=integers([None if allocation.bytes is None else abs(allocation.bytes) for allocation in allocations]),
            address=integers([allocation.address for allocation in allocations]),
            total_bytes=integers([allocation.total for allocation in allocations]),
            device_id=integers([None if not allocation.device_type or (allocation.device or 0) < 0
                                else allocation.device for allocation in allocations]),
            process_id=self.numbers([event.pid for event in events]),
            thread_id=self.numbers([event.tid for event in events]))


def _is_runtime(category: str | None) -> bool:
    return RUNTIME.fullmatch(category or "") is not None


def _collectives(keys: np.ndarray, launches: list[KernelArgs]) -> pa.Table:
    return COLLECTIVES.build(
        kernel_id=keys, operation=encoded([_collective_operation(launch.collective or "") for launch in launches]),
        group=[launch.group for launch in launches], group_size=integers([launch.group_size for launch in launches]),
        sequence=integers([launch.sequence for launch in launches]),
        bytes_in=integers([_message_bytes(launch.elements_in, launch.dtype) for launch in launches]),
        bytes_out=integers([_message_bytes(launch.elements_out, launch.dtype) for launch in launches]),
        dtype=encoded([launch.dtype for launch in launches]))


def _collective_operation(name: str) -> str:
    """Return the collective's common name; an unknown name as the file has it."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((common for part, common in OPERATIONS.items() if part in plain), name)


def _message_bytes(elements: int | None, dtype: str | None) -> int | None:
    size = ELEMENT_BYTES.get((dtype or "").lower()) or (1 if (dtype or "").lower().startswith("float8") else None)
    return None if elements is None or size is None else elements * size


def _copy_kind(category: str, name: str, kind: str) -> str:
    if category == "gpu_memset":
        return "memset"
    plain = (kind + name).replace(" ", "").lower()
    return next((common for part, common in KINDS.items() if part in plain), "unknown")


def _end_device(stated: int | None, device: int | None, is_here: bool) -> int | None:
    return stated if stated is not None else device if is_here else None


def _is_pinned(name: str) -> bool | None:
    return True if "Pinned" in name else False if "Pageable" in name else None


def _triples(values: list[tuple[int, int, int] | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the triples, shape (n, 3), and a mask of the rows without one."""
    rows, distinct = numbered(values)
    return np.array([*distinct, (0, 0, 0)], np.int64)[rows], rows < 0


def _axes(name: str, *factors: tuple[np.ndarray, np.ndarray]) -> dict[str, pa.Array]:
    """Return x, y and z of the product of triples; null if one of them is unknown."""
    absent = np.logical_or.reduce([missing for _, missing in factors])
    product = np.prod([triple for triple, _ in factors], axis=0)
    return {f"{name}_{axis}": pa.array(product[:, place], pa.int64(), mask=absent) for place, axis in enumerate("xyz")}


def _read_devices(device_maps: Any) -> tuple[CapturedDevice, ...]:
    if not isinstance(device_maps, list):
        return ()
    return tuple({device_map["id"]: _read_device(device_map) for device_map in device_maps
                  if isinstance(device_map, dict) and _integer_or_none(device_map.get("id")) is not None}.values())


def _streams(threads: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Return the streams among the named threads: on a device, process and thread are device and stream."""
    places = (place.split("/") for place, name in threads.items() if str(name).startswith("stream "))
    return tuple(sorted((int(device), int(stream)) for device, stream in places
                        if device.isdecimal() and stream.isdecimal()))


def _read_device(properties: Mapping[str, Any]) -> CapturedDevice:
    """Return a device as the trace describes it. ROCm traces omit the architecture's stepping: then arch is None."""
    major, minor = _integer_or_none(properties.get("computeMajor")), _integer_or_none(properties.get("computeMinor"))
    cuda = (properties.get("warpSize") == 32 and "regsPerMultiprocessor" in properties
            and major is not None and minor is not None)
    name = properties.get("name") if isinstance(properties.get("name"), str) else None
    return CapturedDevice(int(properties["id"]), name or None, f"sm_{major}{minor}" if cuda else None,
                          _integer_or_none(properties.get("numSms")),
                          _integer_or_none(properties.get("totalGlobalMem")))


def _torch_version(fields: Mapping[str, Any]) -> str | None:
    """Return PyTorch's version, which the traces of some benchmarks list among the packages."""
    part: Any = fields
    for name in ("metadata", "system", "pip_packages"):
        part = part.get(name) if isinstance(part, dict) else None
    packages = [name for name in part if isinstance(name, str)] if isinstance(part, list) else []
    return next((name.removeprefix("torch==") for name in packages if name.startswith("torch==")), None)


def _base_time(value: Any) -> int:
    base = _integer_or_none(value)
    return base if base is not None and 0 <= base <= LARGEST else 0


def _integer_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

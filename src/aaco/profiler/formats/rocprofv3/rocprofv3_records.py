"""The arrays of records in rocprofv3's JSON, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import joined
from aaco.core.tables import ALLOCATIONS, API_CALLS, CALL_ARGUMENTS, COPIES, COUNTERS, KERNELS, WAVE_INSTRUCTIONS
from aaco.profiler.formats.code_object import isa
from aaco.profiler.formats.rocprofv3.rocm_labels import allocation, direction
from aaco.profiler.formats.rocprofv3.rocprofv3_known import REGISTERS, ProcessNames, column, numbers
from aaco.profiler.formats.rocprofv3.rocprofv3_types import (
    CountedDispatch,
    CounterValue,
    InstructionSample,
    RocprofAllocation,
    RocprofCall,
    RocprofCopy,
    RocprofDispatch,
    UnreadRecord,
)
from aaco.profiler.formats.rocprofv3.sampling import SampleGroups, word
from aaco.profiler.io.columns import coded, constant, encoded, titled
from aaco.profiler.io.jsonwalk import Walk
from aaco.profiler.io.lookup import PROCESS_IDS, UPPER
from aaco.profiler.io.record_accounting import ABSENT, DEVICE_WORK, RecordAccount, integers, time_columns

SOURCE = "rocprofv3_json"
KERNEL, AGAIN = "kernel", "again"
CALLS = {"hip_api": "hip", "hsa_api": "hsa", "marker_api": "marker", "rccl_api": "rccl", "rocdecode_api": "rocdecode",
         "rocjpeg_api": "rocjpeg"}
SAMPLES = ("pc_sample_host_trap", "pc_sample_stochastic")
FINDINGS = ("code_object", "vaddr", "instruction", "source_line", "dispatch_id", "correlation_id", "issued",
            "issue_type", "stall_reason")
ADDED = "added to the kernel's other values of the same counter"
LONGEST_ARGUMENT = 4096
Tables = Iterator[pa.Table]


class ProcessRecords:
    """The records of one process, array by array; row keys continue from array to array."""

    def __init__(self, path: Path, names: ProcessNames, account: RecordAccount, number: int) -> None:
        self.path, self.names, self.account = path, names, account
        self.base = number * PROCESS_IDS
        self.counted: list[np.ndarray] = []  # numbers of the dispatches that became kernels with their counters
        self.next: dict[str, int] = {}
        self.findings = SampleGroups(FINDINGS)

    def array(self, name: str, walk: Walk) -> Tables:
        """Yield the tables of the array here."""
        readers: dict[str, tuple[Any, Callable[[str, Any], Tables]]] = {
            "kernel_dispatch": (RocprofDispatch, self._dispatches),
            "counter_collection": (CountedDispatch, self._counters),
            "memory_copy": (RocprofCopy, self._copies), "memory_allocation": (RocprofAllocation, self._allocations),
            "scratch_memory": (RocprofAllocation, self._allocations),
            **dict.fromkeys(CALLS, (RocprofCall, self._calls)),
            **dict.fromkeys(SAMPLES, (InstructionSample, self._samples))}
        kind, read = readers.get(name, (UnreadRecord, self._others))
        if not walk.is_array():
            walk.value()
            return
        if name == "kernel_dispatch":
            self.account.saw(KERNEL, 0)
        for batch in walk.objects(kind):
            yield from read(name, batch)

    def rest(self) -> Tables:
        """Yield the tables that had to wait for the last record."""
        for table in self.findings.rest():
            yield self._finding_table(table)

    def _dispatches(self, name: str, batch: list[RocprofDispatch]) -> Tables:
        is_repeated = np.isin(numbers([record.dispatch_info.dispatch_id for record in batch]),
                              joined(self.counted))
        if is_repeated.any():
            repeated = [record for record, seen in zip(batch, is_repeated.tolist(), strict=True) if seen]
            self.account.skip(AGAIN, "the same dispatch stands among the counters", len(repeated), sum(
                max(0, record.end_timestamp - record.start_timestamp) for record in repeated
                if record.start_timestamp and record.end_timestamp))
            batch = [record for record, seen in zip(batch, is_repeated.tolist(), strict=True) if not seen]
        yield from self._kernels(batch)

    def _kernels(self, batch: Sequence[RocprofDispatch]) -> Tables:
        fit = self._timed(KERNEL, batch)
        if not fit:
            return
        infos = [record.dispatch_info for record in fit]
        symbol = column([info.kernel_id for info in infos])
        name_rows = self.names.kernels.rows(symbol)
        self.account.trouble("kernels name a symbol that is not in the file", int((name_rows < 0).sum()))
        yield KERNELS.build(
            kernel_id=self._keys(KERNEL, len(fit)), kernel_name=coded(name_rows, self.names.kernels.names),
            source=constant(SOURCE, len(fit)), timed=constant("execution", len(fit)),
            device_id=self._device([info.agent_id.handle for info in infos], "kernels"),
            queue_id=column([info.queue_id.handle for info in infos]),
            dispatch_id=column([info.dispatch_id for info in infos]),
            lds_bytes=column([info.group_segment_size for info in infos]),
            scratch_bytes=column([info.private_segment_size for info in infos]),
            **{f"grid_{axis}": column([getattr(info.grid_size, axis) for info in infos]) for axis in "xyz"},
            **{f"block_{axis}": column([getattr(info.workgroup_size, axis) for info in infos]) for axis in "xyz"},
            **{name: self.names.registers[name].of(symbol)[0] for name in REGISTERS},
            stream_id=column([record.stream_id.handle for record in fit]),
            external_id=column([_external_id(record.correlation_id.external) for record in fit]),
            **self._linked(fit, "kernels"), **_time_columns(fit))

    def _counters(self, name: str, batch: list[CountedDispatch]) -> Tables:
        """Yield the counted dispatches as kernels, and their counters, those of several channels added up."""
        count = sum(len(record.records) for record in batch)
        self.account.saw("counter", count)
        if KERNEL in self.next and not self.counted:
            self.account.leave_out("counter", "it stands behind the trace, and rocprofv3 writes it before", count)
            return
        for record in batch:
            record.dispatch_data.thread_id, record.dispatch_data.stream_id = record.thread_id, record.stream_id
        dispatches = [record.dispatch_data for record in batch]
        self.counted.append(np.unique(numbers([record.dispatch_info.dispatch_id for record in dispatches])))
        fit = self.account.placeable(KERNEL, *_times(dispatches))
        keys = np.where(fit, self.next.get(KERNEL, 0) + np.cumsum(fit) - 1, ABSENT)
        yield from self._kernels(dispatches)
        yield from self._counter_table([(key, value) for key, record in zip(keys.tolist(), batch, strict=True)
                                        for value in record.records])

    def _counter_table(self, rows: list[tuple[int, CounterValue]]) -> Tables:
        key = np.array([key for key, _ in rows], np.int64)
        counter = self.names.counters.rows(column([value.counter_id.handle for _, value in rows]))
        has_value = np.array([value.value is not None for _, value in rows], bool)
        self.account.leave_out("counter", "its kernel was left out", int((key == ABSENT).sum()))
        kept = key != ABSENT
        self.account.leave_out("counter", "its counter is not in the file", int((kept & (counter < 0)).sum()))
        self.account.leave_out("counter", "it has no value", int((kept & (counter >= 0) & ~has_value).sum()))
        kept &= (counter >= 0) & has_value
        values = np.array([value.value for (_, value), keep in zip(rows, kept.tolist(), strict=True) if keep], float)
        groups, group_of_row = np.unique(np.stack((key[kept], counter[kept]), axis=1), axis=0, return_inverse=True)
        sums = np.zeros(len(groups))
        np.add.at(sums, group_of_row, values)
        self.account.leave_out("counter", ADDED, len(values) - len(groups))
        if len(groups):
            yield COUNTERS.build(kernel_id=groups[:, 0] + self.base, value=sums,
                                 counter=coded(groups[:, 1], self.names.counters.names))

    def _copies(self, name: str, batch: list[RocprofCopy]) -> Tables:
        fit = self._timed("copy", batch)
        if not fit:
            return
        source = self._device([record.src_agent_id.handle for record in fit], "copies")
        target = self._device([record.dst_agent_id.handle for record in fit], "copies")
        yield COPIES.build(
            copy_id=self._keys("copy", len(fit)), kind=encoded([
                _copy_kind(direction(self.names.operation(record.kind, record.operation) or ""), source_id, target_id)
                for record, source_id, target_id in zip(fit, source.to_pylist(), target.to_pylist(), strict=True)]),
            bytes=column([record.bytes for record in fit]), src_device=source, dst_device=target,
            device_id=pc.coalesce(target, source), source=constant(SOURCE, len(fit)),
            stream_id=column([record.stream_id.handle for record in fit]), **self._linked(fit, "copies"),
            **_time_columns(fit))

    def _allocations(self, name: str, batch: list[RocprofAllocation]) -> Tables:
        fit = self._timed("allocation", batch)
        if fit:
            when, linked = _time_columns(fit), self._linked(fit)
            kinds = [allocation(self.names.operation(record.kind, record.operation) or "unknown") for record in fit]
            yield ALLOCATIONS.build(
                t_ns=when["t_start_ns"], dur_ns=when["dur_ns"], kind=encoded(kinds),
                bytes=column([record.allocation_size for record in fit]),
                address=column([_parse_address(record.address) for record in fit]),
                device_id=self._device([record.agent_id.handle for record in fit], "allocations"), **linked)

    def _calls(self, name: str, batch: list[RocprofCall]) -> Tables:
        fit = self._timed(CALLS[name], batch)
        if not fit:
            return
        keys = self._keys("call", len(fit))
        names = encoded([self.names.operation(record.kind, record.operation) for record in fit])
        if name == "marker_api":
            messages = self.names.messages.of(column([record.correlation_id.internal for record in fit]))
            names = titled(messages.cast(pa.string()), names.indices.fill_null(-1).to_numpy(), names.dictionary)
        yield API_CALLS.build(
            call_id=keys, name=names,
            domain=encoded([self.names.domain(record.kind) or CALLS[name] for record in fit]),
            external_id=column([_external_id(record.correlation_id.external) for record in fit]), **self._linked(fit),
            **_time_columns(fit))
        args_by_key = [(key, record.args) for key, record in zip(keys.tolist(), fit, strict=True) if record.args]
        if args_by_key:
            yield CALL_ARGUMENTS.build(call_id=[key for key, _ in args_by_key],
                                       arguments=[self._encode_arguments(args) for _, args in args_by_key])

    def _encode_arguments(self, args: list[Any]) -> str:
        texts = {arg.name: arg.value if isinstance(arg.value, (str, int, float)) else str(arg.value) for arg in args}
        long = [name for name, value in texts.items() if isinstance(value, str) and len(value) > LONGEST_ARGUMENT]
        self.account.trouble(f"arguments are longer than {LONGEST_ARGUMENT} characters: cut", len(long))
        texts |= {name: str(texts[name])[:LONGEST_ARGUMENT] for name in long}
        return msgspec.json.encode(texts).decode()

    def _samples(self, name: str, batch: list[InstructionSample]) -> Tables:
        self.account.saw("sample", len(batch))
        records = [sample.record for sample in batch]
        lines = [self.names.instruction(sample.inst_index) for sample in batch]
        issued = [None if record.wave_issued is None else bool(record.wave_issued) for record in records]
        block = pa.table({
            "code_object": column([record.pc.code_object_id for record in records]),
            "vaddr": column([record.pc.code_object_offset for record in records]),
            "instruction": pa.array([text for text, _ in lines], pa.string()),
            "source_line": pa.array([line for _, line in lines], pa.string()),
            "dispatch_id": column([record.dispatch_id for record in records]),
            "correlation_id": column([record.corr_id.internal for record in records]),
            "issued": pa.array(issued, pa.bool_()),
            "issue_type": pa.array([word(record.inst_type) if on else None
                                    for record, on in zip(records, issued, strict=True)], pa.string()),
            "stall_reason": pa.array([word(record.snapshot.stall_reason) if on is False else None
                                      for record, on in zip(records, issued, strict=True)], pa.string()),
            "samples": pa.array(np.ones(len(batch), np.int64)),
            "active_waves": column([record.wave_cnt for record in records])})
        for table in self.findings.add(block):
            yield self._finding_table(table)

    def _finding_table(self, groups: pa.Table) -> pa.Table:
        linked = integers(groups["correlation_id"].combine_chunks())
        is_absent = (linked == ABSENT) | (linked <= 0)
        columns = {name: groups[name] for name in groups.column_names} | {
            "category": encoded([isa.category(text) if text else None for text in groups["instruction"].to_pylist()]),
            "correlation_id": pa.array(np.where(is_absent, 0, linked) + self.base, mask=is_absent)}
        return WAVE_INSTRUCTIONS.build(**columns)

    def _others(self, name: str, batch: list[UnreadRecord]) -> Tables:
        self.account.skip(name[:64], "records of this array are not read", len(batch))
        if DEVICE_WORK.search(name):
            self.account.unread(name[:64], len(batch))
        yield from ()

    def _timed(self, kind: str, batch: Sequence[Any]) -> list[Any]:
        """Return the records that can be placed in time; account for the others."""
        fit = self.account.timed(kind, *_times(batch))
        return [record for record, good in zip(batch, fit.tolist(), strict=True) if good]

    def _keys(self, kind: str, count: int) -> np.ndarray:
        first = self.next.get(kind, 0)
        self.next[kind] = first + count
        return np.arange(first, first + count) + self.base

    def _device(self, handles: list[int | None], what: str) -> pa.Array:
        devices, dangling = self.names.device.of(column(handles))
        self.account.trouble(f"{what} name an agent that is not in the file", dangling)
        return devices

    def _linked(self, batch: Sequence[Any], what: str | None = None) -> dict[str, Any]:
        """Return process, thread and correlation id; an id of 0 is none."""
        ids = integers(column([record.correlation_id.internal for record in batch]))
        is_absent = (ids <= 0) | (ids >= UPPER)
        if what:
            self.account.trouble(f"{what} have no correlation id, so no call can be found for them",
                                 int(is_absent.sum()))
        return {"correlation_id": pa.array(np.where(is_absent, 0, ids) + self.base, mask=is_absent),
                "process_id": column([self.names.metadata.pid] * len(batch)),
                "thread_id": column([record.thread_id for record in batch])}


def _times(batch: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    return (column([record.start_timestamp for record in batch]), column([record.end_timestamp for record in batch]))


def _time_columns(batch: Sequence[Any]) -> dict[str, Any]:
    return time_columns(dict(zip(("start", "end"), _times(batch), strict=True)))


def _copy_kind(kind: str, source: int | None, target: int | None) -> str:
    """Return the kind of a copy by its name, but p2p between two devices; without a name, by its devices."""
    if source is not None and target is not None and kind in ("d2d", "unknown"):
        return "d2d" if source == target else "p2p"
    return kind


def _external_id(external: Any) -> int | None:
    """Return the id that the program pushed; 0 is none."""
    return external if type(external) is int and external else None


def _parse_address(address: Any) -> int | None:
    """Return an address, written in hexadecimal."""
    if isinstance(address, str):
        try:
            return int(address, 16) if len(address) < 32 else None
        except ValueError:
            return None
    return address if type(address) is int else None

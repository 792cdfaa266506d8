"""The records of rocprofv3's JSON, as far as they are read (rocm-systems, rocprofiler-sdk/cxx/serialization/save.hpp).

Every field may be missing: a record without its times is left out; other missing fields become null.
"""

from __future__ import annotations

from typing import Any

import msgspec

Number = int | float | None


class Handle(msgspec.Struct, gc=False, frozen=True):
    """A wrapped id."""

    handle: int | None = None


class Correlation(msgspec.Struct, gc=False, frozen=True):
    """internal is the tool's own id, external the id that the program pushed."""

    internal: int | None = None
    external: Any = None


class WorkItemSizes(msgspec.Struct, gc=False, frozen=True):
    """Sizes in work-items."""

    x: int | None = None
    y: int | None = None
    z: int | None = None


NONE, NO_ID, NO_SIZE = Handle(), Correlation(), WorkItemSizes()


class DispatchInfo(msgspec.Struct, gc=False):
    """The dispatched kernel and its sizes."""

    agent_id: Handle = NONE
    queue_id: Handle = NONE
    kernel_id: int | None = None
    dispatch_id: int | None = None
    private_segment_size: int | None = None
    group_segment_size: int | None = None
    workgroup_size: WorkItemSizes = NO_SIZE
    grid_size: WorkItemSizes = NO_SIZE


class RocprofDispatch(msgspec.Struct, gc=False):
    """A dispatch, of the trace or in a record of counters."""

    thread_id: int | None = None
    correlation_id: Correlation = NO_ID
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: DispatchInfo = msgspec.field(default_factory=DispatchInfo)
    stream_id: Handle = NONE


class CounterValue(msgspec.Struct, gc=False):
    """One counter of a dispatch, or of one channel of it."""

    counter_id: Handle = NONE
    value: Number = None


class CountedDispatch(msgspec.Struct, gc=False):
    """The counters of a dispatch."""

    thread_id: int | None = None
    dispatch_data: RocprofDispatch = msgspec.field(default_factory=RocprofDispatch)
    records: list[CounterValue] = []
    stream_id: Handle = NONE


class CallArgument(msgspec.Struct, gc=False):
    """An argument of a call, as text."""

    name: str = ""
    value: Any = None


class TracedOperation(msgspec.Struct, gc=False):
    """What calls, copies and allocations have in common: operation, thread, times."""

    kind: int = -1
    operation: int = -1
    thread_id: int | None = None
    correlation_id: Correlation = NO_ID
    start_timestamp: int | None = None
    end_timestamp: int | None = None


class RocprofCall(TracedOperation, gc=False):
    """A call of an API, or a marker."""

    args: list[CallArgument] = []


class RocprofCopy(TracedOperation, gc=False):
    """A copy of memory."""

    src_agent_id: Handle = NONE
    dst_agent_id: Handle = NONE
    bytes: int | None = None
    stream_id: Handle = NONE


class RocprofAllocation(TracedOperation, gc=False):
    """An allocation or release, also of scratch memory."""

    agent_id: Handle = NONE
    address: Any = None
    allocation_size: int | None = None


class CodeOffset(msgspec.Struct, gc=False, frozen=True):
    """A place in a code object."""

    code_object_id: int | None = None
    code_object_offset: int | None = None


class StallSnapshot(msgspec.Struct, gc=False, frozen=True):
    """The finding of stochastic sampling."""

    stall_reason: str = ""


class SampleRecord(msgspec.Struct, gc=False):
    """A sample of the program counter; wave_issued is missing if a host trap took it."""

    pc: CodeOffset = CodeOffset()
    dispatch_id: int | None = None
    corr_id: Correlation = NO_ID
    wave_issued: int | None = None
    inst_type: str = ""
    wave_cnt: int | None = None
    snapshot: StallSnapshot = StallSnapshot()


class InstructionSample(msgspec.Struct, gc=False):
    """A sample, and the index of its instruction in the list of instructions."""

    record: SampleRecord = msgspec.field(default_factory=SampleRecord)
    inst_index: int = -1


class UnreadRecord(msgspec.Struct, gc=False):
    """A record of a kind that is only counted."""


class KernelSymbol(msgspec.Struct, gc=False):
    """A kernel in a code object."""

    kernel_id: int | None = None
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None
    sgpr_count: int | None = None


class RocprofCounter(msgspec.Struct, gc=False):
    """A hardware counter."""

    id: Handle = NONE
    name: str = ""


class RecordKind(msgspec.Struct, gc=False):
    """The name of a kind of record, and of its operations in order."""

    kind: str = ""
    operations: list[str] = []


class MarkerMessage(msgspec.Struct, gc=False):
    """The text of a marker, by its internal correlation id."""

    key: int = -1
    value: str = ""


class RocprofStrings(msgspec.Struct, gc=False):
    """The file's names."""

    buffer_records: list[RecordKind] = []
    marker_api: list[MarkerMessage] = []
    pc_sample_instructions: list[str] = []
    pc_sample_comments: list[str] = []


class HostNode(msgspec.Struct, gc=False):
    """The machine."""

    hostname: str = ""


class ProcessMetadata(msgspec.Struct, gc=False):
    """The process."""

    node: HostNode = msgspec.field(default_factory=HostNode)
    pid: int | None = None
    init_time: int | None = None
    fini_time: int | None = None
    command: list[str] = []

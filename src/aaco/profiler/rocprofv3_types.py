"""The records of rocprofv3's JSON, as far as they are read (rocm-systems, rocprofiler-sdk/cxx/serialization/save.hpp).

Every field may be missing: a record that lacks its times is left out, and what else is missing is null.
"""

from __future__ import annotations

from typing import Any

import msgspec

Number = int | float | None


class Handle(msgspec.Struct, gc=False, frozen=True):
    """A wrapped id."""

    handle: int | None = None


class Correlation(msgspec.Struct, gc=False, frozen=True):
    """internal is the tool's own id, external what the program pushed."""

    internal: int | None = None
    external: Any = None


class Sizes(msgspec.Struct, gc=False, frozen=True):
    """In work-items."""

    x: int | None = None
    y: int | None = None
    z: int | None = None


NONE, NO_ID, NO_SIZE = Handle(), Correlation(), Sizes()


class Info(msgspec.Struct, gc=False):
    """What was dispatched."""

    agent_id: Handle = NONE
    queue_id: Handle = NONE
    kernel_id: int | None = None
    dispatch_id: int | None = None
    private_segment_size: int | None = None
    group_segment_size: int | None = None
    workgroup_size: Sizes = NO_SIZE
    grid_size: Sizes = NO_SIZE


class Dispatch(msgspec.Struct, gc=False):
    """A dispatch, of the trace or in a record of counters."""

    thread_id: int | None = None
    correlation_id: Correlation = NO_ID
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: Info = msgspec.field(default_factory=Info)
    stream_id: Handle = NONE


class Value(msgspec.Struct, gc=False):
    """One counter of a dispatch, or of one channel of it."""

    counter_id: Handle = NONE
    value: Number = None


class Counted(msgspec.Struct, gc=False):
    """The counters of a dispatch."""

    thread_id: int | None = None
    dispatch_data: Dispatch = msgspec.field(default_factory=Dispatch)
    records: list[Value] = []
    stream_id: Handle = NONE


class Argument(msgspec.Struct, gc=False):
    """An argument of a call, as text."""

    name: str = ""
    value: Any = None


class Traced(msgspec.Struct, gc=False):
    """What calls, copies and allocations say of themselves alike: what was done, by whom, when."""

    kind: int = -1
    operation: int = -1
    thread_id: int | None = None
    correlation_id: Correlation = NO_ID
    start_timestamp: int | None = None
    end_timestamp: int | None = None


class Call(Traced, gc=False):
    """A call of an API, or a marker."""

    args: list[Argument] = []


class Copy(Traced, gc=False):
    """A copy of memory."""

    src_agent_id: Handle = NONE
    dst_agent_id: Handle = NONE
    bytes: int | None = None
    stream_id: Handle = NONE


class Allocation(Traced, gc=False):
    """An allocation or release, also of scratch memory."""

    agent_id: Handle = NONE
    address: Any = None
    allocation_size: int | None = None


class Place(msgspec.Struct, gc=False, frozen=True):
    """Where in the code."""

    code_object_id: int | None = None
    code_object_offset: int | None = None


class Snapshot(msgspec.Struct, gc=False, frozen=True):
    """What stochastic sampling saw."""

    stall_reason: str = ""


class Sampled(msgspec.Struct, gc=False):
    """A sample of the program counter; wave_issued is missing where a host trap took it."""

    pc: Place = Place()
    dispatch_id: int | None = None
    corr_id: Correlation = NO_ID
    wave_issued: int | None = None
    inst_type: str = ""
    wave_cnt: int | None = None
    snapshot: Snapshot = Snapshot()


class Sample(msgspec.Struct, gc=False):
    """A sample, and which of the listed instructions it is of."""

    record: Sampled = msgspec.field(default_factory=Sampled)
    inst_index: int = -1


class Other(msgspec.Struct, gc=False):
    """A record of a kind that is only counted."""


class Symbol(msgspec.Struct, gc=False):
    """A kernel in a code object."""

    kernel_id: int | None = None
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None
    sgpr_count: int | None = None


class Counter(msgspec.Struct, gc=False):
    """A hardware counter."""

    id: Handle = NONE
    name: str = ""


class Kind(msgspec.Struct, gc=False):
    """The name of a kind of record, and of its operations in order."""

    kind: str = ""
    operations: list[str] = []


class Message(msgspec.Struct, gc=False):
    """The text of a marker, by its internal correlation id."""

    key: int = -1
    value: str = ""


class Strings(msgspec.Struct, gc=False):
    """The file's names."""

    buffer_records: list[Kind] = []
    marker_api: list[Message] = []
    pc_sample_instructions: list[str] = []
    pc_sample_comments: list[str] = []


class Node(msgspec.Struct, gc=False):
    """The machine."""

    hostname: str = ""


class Metadata(msgspec.Struct, gc=False):
    """The process."""

    node: Node = msgspec.field(default_factory=Node)
    pid: int | None = None
    init_time: int | None = None
    fini_time: int | None = None
    command: list[str] = []

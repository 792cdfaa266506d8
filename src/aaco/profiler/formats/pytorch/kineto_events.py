"""The types of events that PyTorch's profiler writes; chrome.py has those of any trace."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from aaco.profiler.formats.pytorch.chrome import PhasedEvent

RUNTIME = re.compile(r"\w+_(runtime|driver)|hpu_op")  # of any kind of device: xpu_runtime, privateuse1_driver

_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Triple = tuple[_Size, _Size, _Size]


class PytorchEvent(PhasedEvent, gc=False):
    """An event of a category that PyTorch writes."""

    cat: Literal["kernel", "ac2g", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op",
                 "python_function",
                 "user_annotation", "gpu_user_annotation", "cpu_instant_event", "overhead", "fwdbwd", "cuda_sync",
                 "Trace", "Kernel", "Memcpy", "Memset", "Runtime", "Operator", "async_cpu_to_gpu", "async_gpu",
                 "hip_runtime"] | None = None


class DeviceWorkArgs(msgspec.Struct, gc=False):
    """Arguments of work on a device."""

    device: int | None = None
    stream: int | None = None
    queue: int | str | None = msgspec.field(name="sycl queue", default=None)
    correlation: int | None = None
    external_id: int | None = msgspec.field(name="External id", default=None)
    external_id_1: int | None = msgspec.field(name="external id", default=None)
    graph: int | None = msgspec.field(name="graph id", default=None)
    node: int | None = msgspec.field(name="graph node id", default=None)


class KernelArgs(DeviceWorkArgs, gc=False):
    """Arguments of a kernel."""

    grid: _Triple | None = None
    block: _Triple | None = None
    registers: int | None = msgspec.field(name="registers per thread", default=None)
    shared: int | None = msgspec.field(name="shared memory", default=None)
    occupancy: float | None = msgspec.field(name="est. achieved occupancy %", default=None)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    elements_in: int | None = msgspec.field(name="In msg nelems", default=None)
    elements_out: int | None = msgspec.field(name="Out msg nelems", default=None)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_size: int | None = msgspec.field(name="Group size", default=None)
    sequence: int | None = msgspec.field(name="Seq", default=None)
    dtype: str | None = None


class TransferArgs(DeviceWorkArgs, gc=False):
    """Arguments of a copy or fill."""

    bytes: int | None = None
    kind: str | None = None
    source: int | None = msgspec.field(name="fromDevice", default=None)
    target: int | None = msgspec.field(name="toDevice", default=None)


class AllocationArgs(msgspec.Struct, gc=False):
    """Arguments of an allocation (positive bytes) or release (negative)."""

    bytes: int | None = msgspec.field(name="Bytes", default=None)
    address: int | None = msgspec.field(name="Addr", default=None)
    total: int | None = msgspec.field(name="Total Allocated", default=None)
    device: int | None = msgspec.field(name="Device Id", default=None)
    device_type: int | None = msgspec.field(name="Device Type", default=None)


EXPECTED = (PytorchEvent,)  # faster to read than any event

LAUNCHES = msgspec.json.Decoder(list[KernelArgs], strict=False)
TRANSFERS = msgspec.json.Decoder(list[TransferArgs], strict=False)
ALLOCATED = msgspec.json.Decoder(list[AllocationArgs], strict=False)

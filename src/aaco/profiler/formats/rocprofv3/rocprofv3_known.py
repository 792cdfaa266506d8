"""Agents, kernels, counters and operations of a process in rocprofv3's JSON, by the ids in its records."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.profiler.capture import CapturedDevice
from aaco.profiler.formats.rocprofv3 import rocm_agent
from aaco.profiler.formats.rocprofv3.rocm_labels import domain
from aaco.profiler.formats.rocprofv3.rocprofv3_types import (
    KernelSymbol,
    ProcessMetadata,
    RecordKind,
    RocprofCounter,
    RocprofStrings,
)
from aaco.profiler.io.columns import bare
from aaco.profiler.io.jsonwalk import Walk
from aaco.profiler.io.lookup import Reference
from aaco.profiler.io.names import NamesById

GPU = 2  # ROCPROFILER_AGENT_TYPE_GPU
PARTS = {"metadata": ProcessMetadata, "agents": list[dict[str, Any]], "counters": list[RocprofCounter],
         "strings": RocprofStrings,
         "kernel_symbols": list[KernelSymbol]}
REGISTERS = {"vgpr": "arch_vgpr_count", "agpr": "accum_vgpr_count", "sgpr": "sgpr_count"}
LARGEST_ID = 1 << 63


class ProcessNames:
    """Collects the parts of a process that are not records; complete before the first query."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def take(self, key: str, walk: Walk) -> None:
        """Read the value under a key of the process; skip it if it is not needed."""
        if key in PARTS:
            self._parts[key] = walk.decoded(PARTS[key])
        else:
            walk.value()

    def complete(self) -> bool:
        """Return whether all of the parts are read."""
        return PARTS.keys() <= self._parts.keys()

    def fill_up(self, names: ProcessNames) -> None:
        """Add the missing parts from a pass over the whole file."""
        self._parts = names._parts | self._parts

    @property
    def metadata(self) -> ProcessMetadata:
        """Return the process."""
        return self._parts.get("metadata") or ProcessMetadata()

    @property
    def strings(self) -> RocprofStrings:
        """Return the file's names."""
        return self._parts.get("strings") or RocprofStrings()

    def devices(self) -> list[CapturedDevice]:
        """Return the GPUs, by their number among those of the node."""
        return [rocm_agent.device(agent, number) for agent, number in self._gpus()]

    @cached_property
    def device(self) -> Reference:
        """Return the number of a GPU by its agent's handle; null for the host."""
        gpus = {_handle(agent): number for agent, number in self._gpus()}
        handles = [handle for agent in self._agents() if (handle := _handle(agent)) is not None]
        return Reference(handles, [gpus.get(handle) for handle in handles])

    @cached_property
    def kernels(self) -> NamesById:
        """Return the names of kernels by kernel id."""
        symbols = self._symbols()
        return NamesById([symbol.kernel_id or 0 for symbol in symbols], [
            bare(symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name) or None
            for symbol in symbols])

    @cached_property
    def registers(self) -> dict[str, Reference]:
        """Return registers by kernel id."""
        symbols = self._symbols()
        return {name: Reference([symbol.kernel_id or 0 for symbol in symbols],
                                [_int64_or_none(getattr(symbol, field)) for symbol in symbols])
                for name, field in REGISTERS.items()}

    @cached_property
    def counters(self) -> NamesById:
        """Return the names of counters by handle."""
        counters = [counter for counter in self._parts.get("counters", [])
                    if _int64_or_none(counter.id.handle) is not None]
        return NamesById([counter.id.handle for counter in counters],
                         [counter.name[:256] or None for counter in counters])

    @cached_property
    def messages(self) -> NamesById:
        """Return the texts of markers by internal correlation id."""
        messages = [message for message in self.strings.marker_api if _int64_or_none(message.key) is not None]
        return NamesById([message.key for message in messages], [message.value or None for message in messages])

    def operation(self, kind: int, operation: int) -> str | None:
        """Return the name of a kind's operation."""
        names = self._kind(kind).operations
        return names[operation] or None if 0 <= operation < len(names) else None

    def domain(self, kind: int) -> str | None:
        """Return the domain of calls of a kind."""
        name = self._kind(kind).kind
        return domain(name) if name else None

    def instruction(self, index: int) -> tuple[str | None, str | None]:
        """Return the text of a sampled instruction, and its place in the source."""
        texts, comments = self.strings.pc_sample_instructions, self.strings.pc_sample_comments
        return (texts[index] or None if 0 <= index < len(texts) else None,
                comments[index] or None if 0 <= index < len(comments) else None)

    def _kind(self, kind: int) -> RecordKind:
        kinds = self.strings.buffer_records
        return kinds[kind] if 0 <= kind < len(kinds) else RecordKind()

    def _symbols(self) -> list[KernelSymbol]:
        return [symbol for symbol in self._parts.get("kernel_symbols", [])
                if _int64_or_none(symbol.kernel_id) is not None]

    def _agents(self) -> list[dict[str, Any]]:
        return self._parts.get("agents", [])

    def _gpus(self) -> list[tuple[dict[str, Any], int]]:
        """Return the GPU agents, each with its number among those of the node."""
        gpus = [agent for agent in self._agents() if agent.get("type") == GPU]
        numbers = [agent.get("logical_node_type_id") for agent in gpus]
        ids = [number for number in numbers if type(number) is int and 0 <= number < 1 << 31]
        return list(zip(gpus, ids if len(ids) == len(gpus) else range(len(gpus)), strict=True))


def numbers(values: list[Any]) -> np.ndarray:
    """Return integers as int64; others become the number that means null."""
    return np.array([value if _int64_or_none(value) is not None else -LARGEST_ID for value in values], np.int64)


def column(values: list[Any]) -> pa.Array:
    """Return integers as a column; others, and those that do not fit, are null."""
    return pa.array([_int64_or_none(value) for value in values], pa.int64())


def _int64_or_none(value: Any) -> int | None:
    return value if type(value) is int and -LARGEST_ID <= value < LARGEST_ID else None


def _handle(agent: dict[str, Any]) -> int | None:
    handle = agent.get("id")
    return _int64_or_none(handle.get("handle")) if isinstance(handle, dict) else None

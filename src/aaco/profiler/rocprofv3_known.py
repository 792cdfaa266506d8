"""What a process in rocprofv3's JSON says of its agents, kernels, counters and operations, by ids of its records."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.profiler import rocm_agent
from aaco.profiler.capture import Device
from aaco.profiler.columns import bare
from aaco.profiler.jsonwalk import Walk
from aaco.profiler.lookup import Reference
from aaco.profiler.names import Names
from aaco.profiler.rocm_labels import domain
from aaco.profiler.rocprofv3_types import Counter, Kind, Metadata, Strings, Symbol

GPU = 2  # ROCPROFILER_AGENT_TYPE_GPU
PARTS = {"metadata": Metadata, "agents": list[dict[str, Any]], "counters": list[Counter], "strings": Strings,
         "kernel_symbols": list[Symbol]}
REGISTERS = {"vgpr": "arch_vgpr_count", "agpr": "accum_vgpr_count", "sgpr": "sgpr_count"}
LARGEST_ID = 1 << 63


class Known:
    """Takes in the parts of a process that are no records; asked only when those are in."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def take(self, key: str, walk: Walk) -> None:
        """Read the value under a key of the process; what is not needed is passed over."""
        if key in PARTS:
            self._parts[key] = walk.decoded(PARTS[key])
        else:
            walk.value()

    def complete(self) -> bool:
        """Whether all of the parts are in."""
        return PARTS.keys() <= self._parts.keys()

    def fill_up(self, other: Known) -> None:
        """Take what is missing from a pass over the whole file."""
        self._parts = other._parts | self._parts

    @property
    def metadata(self) -> Metadata:
        """The process."""
        return self._parts.get("metadata") or Metadata()

    @property
    def strings(self) -> Strings:
        """The file's names."""
        return self._parts.get("strings") or Strings()

    def devices(self) -> list[Device]:
        """The GPUs, by their number among those of the node."""
        return [rocm_agent.device(agent, number) for agent, number in self._gpus()]

    @cached_property
    def device(self) -> Reference:
        """The number of a GPU by its agent's handle; null for the host."""
        gpus = {_handle(agent): number for agent, number in self._gpus()}
        handles = [handle for agent in self._agents() if (handle := _handle(agent)) is not None]
        return Reference(handles, [gpus.get(handle) for handle in handles])

    @cached_property
    def kernels(self) -> Names:
        """Kernels' names by kernel id."""
        found = self._symbols()
        return Names([symbol.kernel_id or 0 for symbol in found], [
            bare(symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name) or None
            for symbol in found])

    @cached_property
    def registers(self) -> dict[str, Reference]:
        """Registers by kernel id."""
        found = self._symbols()
        return {ours: Reference([symbol.kernel_id or 0 for symbol in found],
                                [_fits(getattr(symbol, theirs)) for symbol in found])
                for ours, theirs in REGISTERS.items()}

    @cached_property
    def counters(self) -> Names:
        """Counters' names by handle."""
        found = [counter for counter in self._parts.get("counters", []) if _fits(counter.id.handle) is not None]
        return Names([counter.id.handle for counter in found], [counter.name[:256] or None for counter in found])

    @cached_property
    def messages(self) -> Names:
        """The texts of markers by internal correlation id."""
        found = [message for message in self.strings.marker_api if _fits(message.key) is not None]
        return Names([message.key for message in found], [message.value or None for message in found])

    def operation(self, kind: int, operation: int) -> str | None:
        """The name of a kind's operation."""
        names = self._kind(kind).operations
        return names[operation] or None if 0 <= operation < len(names) else None

    def domain(self, kind: int) -> str | None:
        """The domain of calls of a kind."""
        name = self._kind(kind).kind
        return domain(name) if name else None

    def instruction(self, index: int) -> tuple[str | None, str | None]:
        """The text of a sampled instruction, and its place in the source."""
        texts, comments = self.strings.pc_sample_instructions, self.strings.pc_sample_comments
        return (texts[index] or None if 0 <= index < len(texts) else None,
                comments[index] or None if 0 <= index < len(comments) else None)

    def _kind(self, kind: int) -> Kind:
        kinds = self.strings.buffer_records
        return kinds[kind] if 0 <= kind < len(kinds) else Kind()

    def _symbols(self) -> list[Symbol]:
        return [symbol for symbol in self._parts.get("kernel_symbols", []) if _fits(symbol.kernel_id) is not None]

    def _agents(self) -> list[dict[str, Any]]:
        return self._parts.get("agents", [])

    def _gpus(self) -> list[tuple[dict[str, Any], int]]:
        """The agents that are GPUs, each with its number among those of the node."""
        gpus = [agent for agent in self._agents() if agent.get("type") == GPU]
        told = [agent.get("logical_node_type_id") for agent in gpus]
        ids = [number for number in told if type(number) is int and 0 <= number < 1 << 31]
        return list(zip(gpus, ids if len(ids) == len(gpus) else range(len(gpus)), strict=True))


def numbers(values: list[Any]) -> np.ndarray:
    """Integers, or what stands for null, as int64."""
    return np.array([value if _fits(value) is not None else -LARGEST_ID for value in values], np.int64)


def column(values: list[Any]) -> pa.Array:
    """Integers as a column; what is none, or does not fit, is null."""
    return pa.array([_fits(value) for value in values], pa.int64())


def _fits(value: Any) -> int | None:
    return value if type(value) is int and -LARGEST_ID <= value < LARGEST_ID else None


def _handle(agent: dict[str, Any]) -> int | None:
    handle = agent.get("id")
    return _fits(handle.get("handle")) if isinstance(handle, dict) else None

"""How ROCm's tools label a device, the direction of a copy, an allocation and a domain of calls, in all spellings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aaco.profiler.capture import CapturedDevice
from aaco.profiler.formats.rocprofv3 import rocm_agent

AGENT = re.compile(r"\s*(?:(agent|gpu|cpu)[\s_-]*)?\[?(\d{1,9})\]?\s*", re.IGNORECASE | re.ASCII)
DIRECTIONS = {"hosttodevice": "h2d", "devicetohost": "d2h", "devicetodevice": "d2d", "hosttohost": "h2h",
              "fill": "memset", "memset": "memset"}
DOMAINS = {"hip": "hip", "hsa": "hsa", "marker": "marker", "roctx": "marker", "rccl": "rccl", "python": "python"}
ALLOCATIONS = {"SCRATCH_MEMORY_ALLOC": "scratch_allocate", "MEMORY_ALLOCATION_VMEM_ALLOCATE": "virtual_allocate",
               "MEMORY_ALLOCATION_VMEM_FREE": "virtual_free"}


def direction(name: str) -> str:
    """Return the kind of a copy by its name: MEMORY_COPY_HOST_TO_DEVICE, CopyHostToDevice, FillBuffer."""
    plain = name.replace("_", "").lower()
    return next((kind for part, kind in DIRECTIONS.items() if part in plain), "unknown")


def allocation(name: str) -> str:
    """Return the kind of an allocation by the name of its operation: MEMORY_ALLOCATION_FREE, SCRATCH_MEMORY_ALLOC."""
    plain = name.removeprefix("MEMORY_ALLOCATION_").replace("SCRATCH_MEMORY", "scratch").lower()
    return ALLOCATIONS.get(name) or plain


def domain(category: str) -> str:
    """Return the domain of calls in a category: HIP_RUNTIME_API_EXT is hip, rocm_rccl_api rccl."""
    word = category.lower().removeprefix("rocm_")
    return DOMAINS.get(word.partition("_")[0]) or word.removesuffix("_ext").removesuffix("_api")


class RocmAgents:
    """The devices of a run, and the meaning of their labels in its rows.

    A CPU agent is the host, not a device. A label does not state which agents are CPUs; without a description they
    count as devices.
    """

    def __init__(self) -> None:
        self._described: list[dict[str, Any]] = []
        self._hosts: set[int] = set()
        self._by_type = False

    def describe(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows of agent_info.csv, under its plain headers."""
        self._described += rows
        self._hosts |= {_node_id(row) for row in rows if row["agent_type"] == "CPU"}

    def id(self, label: str) -> int | None:
        """Return the device of a label: "Agent 4", "GPU-0" or "4"; None for the host and for other texts."""
        match = AGENT.fullmatch(label)
        if match is None:
            return None
        word, number = (match[1] or "").lower(), int(match[2])
        self._by_type |= word in ("gpu", "cpu")
        return None if word == "cpu" or (word != "gpu" and number in self._hosts) else number

    def devices(self) -> tuple[CapturedDevice, ...]:
        """Return the GPUs, numbered as the rows number them."""
        gpus = sorted((row for row in self._described if row["agent_type"] == "GPU"), key=_node_id)
        return tuple(rocm_agent.device(row, index if self._by_type else _node_id(row))
                     for index, row in enumerate(gpus))


def _node_id(row: dict[str, Any]) -> int:
    return int(row.get("logical_node_id") or row.get("node_id") or 0)

"""What ROCm's tools call a device, the direction of a copy, an allocation and a domain of calls, in all spellings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aaco.profiler import rocm_agent
from aaco.profiler.capture import Device

AGENT = re.compile(r"\s*(?:(agent|gpu|cpu)[\s_-]*)?\[?(\d{1,9})\]?\s*", re.IGNORECASE | re.ASCII)
DIRECTIONS = {"hosttodevice": "h2d", "devicetohost": "d2h", "devicetodevice": "d2d", "hosttohost": "h2h",
              "fill": "memset", "memset": "memset"}
DOMAINS = {"hip": "hip", "hsa": "hsa", "marker": "marker", "roctx": "marker", "rccl": "rccl", "python": "python"}
ALLOCATIONS = {"SCRATCH_MEMORY_ALLOC": "scratch_allocate", "MEMORY_ALLOCATION_VMEM_ALLOCATE": "virtual_allocate",
               "MEMORY_ALLOCATION_VMEM_FREE": "virtual_free"}


def direction(name: str) -> str:
    """The kind of a copy by its name: MEMORY_COPY_HOST_TO_DEVICE, CopyHostToDevice, FillBuffer."""
    plain = name.replace("_", "").lower()
    return next((kind for part, kind in DIRECTIONS.items() if part in plain), "unknown")


def allocation(name: str) -> str:
    """The kind of an allocation by the name of its operation: MEMORY_ALLOCATION_FREE, SCRATCH_MEMORY_ALLOC."""
    plain = name.removeprefix("MEMORY_ALLOCATION_").replace("SCRATCH_MEMORY", "scratch").lower()
    return ALLOCATIONS.get(name) or plain


def domain(category: str) -> str:
    """The domain of calls in a category: HIP_RUNTIME_API_EXT is hip, rocm_rccl_api rccl."""
    word = category.lower().removeprefix("rocm_")
    return DOMAINS.get(word.partition("_")[0]) or word.removesuffix("_ext").removesuffix("_api")


class Agents:
    """The devices of a run, and what their labels in its rows mean.

    An agent that is a CPU is the host, no device. A label does not say which are; without a description they stand as
    devices.
    """

    def __init__(self) -> None:
        self._described: list[dict[str, Any]] = []
        self._hosts: set[int] = set()
        self._by_type = False

    def describe(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take in rows of agent_info.csv, under its plain headers."""
        self._described += rows
        self._hosts |= {_number(row) for row in rows if row["agent_type"] == "CPU"}

    def id(self, label: str) -> int | None:
        """The device of a label: "Agent 4", "GPU-0" or "4"; None for the host and for what is no label."""
        found = AGENT.fullmatch(label)
        if found is None:
            return None
        word, number = (found[1] or "").lower(), int(found[2])
        self._by_type |= word in ("gpu", "cpu")
        return None if word == "cpu" or (word != "gpu" and number in self._hosts) else number

    def devices(self) -> tuple[Device, ...]:
        """The GPUs, numbered as the rows number them."""
        gpus = sorted((row for row in self._described if row["agent_type"] == "GPU"), key=_number)
        return tuple(rocm_agent.device(row, index if self._by_type else _number(row)) for index, row in enumerate(gpus))


def _number(row: dict[str, Any]) -> int:
    return int(row.get("logical_node_id") or row.get("node_id") or 0)

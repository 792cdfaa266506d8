"""Agents as rocprofiler-sdk writes them (rocprofiler_agent_t as JSON), in rocpd's extdata and in its JSON output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aaco.profiler.capture import CapturedDevice

LOCAL_MEMORY = (1, 2)  # heap types of the kernel driver: frame buffer, visible to the host or not


def device(agent: Mapping[str, Any], number: int) -> CapturedDevice:
    """Return the device of an agent; a field that is missing or of an unexpected type is None."""
    return CapturedDevice(number, name=_text(agent.get("product_name")) or _text(agent.get("name")),
                          arch=architecture(agent), compute_units=_count(agent.get("cu_count")),
                          vram_bytes=local_memory(agent))


def architecture(agent: Mapping[str, Any]) -> str | None:
    """Return `gfx942` for the driver's number 90402: major, minor and step, each to the base 100."""
    version, name = agent.get("gfx_target_version"), _text(agent.get("name"))
    if type(version) is int and version > 0:
        return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"
    return name if name and name.startswith("gfx") else None


def local_memory(agent: Mapping[str, Any]) -> int | None:
    """Return the bytes of the memory banks that are local to the device."""
    banks = agent.get("mem_banks")
    local_banks = [bank for bank in banks if isinstance(bank, dict) and bank.get("heap_type") in LOCAL_MEMORY] \
        if isinstance(banks, list) else []
    return sum(_count(bank.get("size_in_bytes")) or 0 for bank in local_banks) or None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None

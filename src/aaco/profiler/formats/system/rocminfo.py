"""The text of rocminfo: the agents of a machine; GPU agents are devices.

Lines are `Name: value`, indented under `Agent N`, its pools and its instruction sets. Sizes read `64(0x40) KB`: both
spellings of a number must agree, or it is invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.core.tables import DEVICE_FACTS
from aaco.profiler.capture import CapturedDevice, CaptureFacts, Subtotal
from aaco.profiler.io import jsonfile

FORMAT = "rocminfo"
MOST_BYTES = 16 << 20
FIX = "record it again: rocminfo > rocminfo.txt"
LAST = "*** Done ***"
PROCESSORS = "agent: a processor, not a device"
# Fact, its line, and the unit that the line has.
FACTS = (("simd_per_cu", "SIMDs per CU", ""), ("shader_engines", "Shader Engines", ""),
         ("wave_size", "Wavefront Size", ""), ("max_waves_per_cu", "Max Waves Per CU", ""),
         ("workgroup_max_size", "Workgroup Max Size", ""), ("max_clock_mhz", "Max Clock Freq. (MHz)", ""),
         ("l1_bytes", "L1", "KB"), ("l2_bytes", "L2", "KB"), ("l3_bytes", "L3", "KB"), ("lds_bytes", "GROUP", "KB"))
_AGENT = re.compile(r"Agent (\d{1,9})\s*", re.ASCII)
_LINE = re.compile(r"\s*([^:]{1,60}):+\s*(.{0,4000}?)\s*", re.ASCII)
_NUMBER = re.compile(r"(\d{1,20})(?:\(0x([0-9a-fA-F]{1,16})\))?\s*(KB)?", re.ASCII)
_TITLES = (b"HSA System Attributes", b"HSA Agents")


class _RocminfoAgent(Struct):
    """lines: of the agent itself, of a repeated one the first. pools: size in KB by segment, the first of each."""

    lines: dict[str, str] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)


def recognises(path: Path) -> bool:
    """Return whether the file begins as rocminfo prints."""
    head = jsonfile.head(path, 4096)
    return any(title in head for title in _TITLES) and b"\0" not in head


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield device_facts of every GPU, and facts with the GPUs by their node. Raise BadCapture."""
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    agents, problems = _read_agents(text), list[str]()
    if not agents:
        raise BadCapture(f"{path}: no agent in it", FIX)
    gpus = [agent for agent in agents if agent.lines.get("Device Type") == "GPU"]
    devices = tuple(_read_device(agent, problems) for agent in gpus)
    rows = [row for agent in gpus for row in _read_facts(agent, problems)]
    with jsonfile.sound(path, FIX):
        yield DEVICE_FACTS.build(device_id=[row[0] for row in rows], name=[row[1] for row in rows],
                                 value=[row[2] for row in rows], text=[row[3] for row in rows])
    if not text.rstrip().endswith(LAST):
        problems.append(f"it does not end with {LAST!r}: it may be cut short")
    others = len(agents) - len(gpus)
    yield CaptureFacts(format=FORMAT, tool="rocminfo", records={"agent": len(agents)}, devices=devices,
                       left_out={PROCESSORS: Subtotal(others, 0)} if others else {}, problems=tuple(problems))


def number(text: str | None, unit: str = "") -> int | None:
    """Return `64(0x40) KB` as 65536 with the unit "KB"; None without a text. Raise ValueError for any other text."""
    if text is None:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or (match[3] or "") != unit:
        raise ValueError(f"{text[:60]!r} is no number{' of ' + unit if unit else ''}")
    if match[2] and int(match[1]) != int(match[2], 16):
        raise ValueError(f"{text[:60]!r} is two numbers")
    return int(match[1]) * (1024 if unit else 1)


def _read_facts(agent: _RocminfoAgent, problems: list[str]) -> Iterator[tuple[int, str, float | None, str | None]]:
    node = _read_number(agent, "Node", "", problems) or 0
    for name, line, unit in FACTS:
        number = _read_number(agent, line, unit, problems)
        if number is not None:
            yield node, name, float(number), None
    for isa in agent.sets:
        yield node, "isa", None, isa


def _read_device(agent: _RocminfoAgent, problems: list[str]) -> CapturedDevice:
    arch = agent.lines.get("Name", "")
    return CapturedDevice(
        _read_number(agent, "Node", "", problems) or 0, name=agent.lines.get("Marketing Name") or None,
        arch=arch if arch.startswith("gfx") else None, compute_units=_read_number(agent, "Compute Unit", "", problems),
        vram_bytes=_read_number(agent, "GLOBAL; FLAGS: COARSE GRAINED", "KB", problems))


def _read_number(agent: _RocminfoAgent, line: str, unit: str, problems: list[str]) -> int | None:
    try:
        return number(agent.lines.get(line, agent.pools.get(line)), unit)
    except ValueError as error:
        problem = f"node {agent.lines.get('Node', '?')[:20]}: {line}: {error}"
        if problem not in problems:
            problems.append(problem)
        return None


def _read_agents(text: str) -> list[_RocminfoAgent]:
    """Return every agent with its lines. A pool begins with `Segment`, the instruction sets with `ISA Info`."""
    agents: list[_RocminfoAgent] = []
    segment, in_sets = None, False
    for line in text.splitlines():
        if _AGENT.fullmatch(line):
            agents.append(_RocminfoAgent())
            segment, in_sets = None, False
        match = _LINE.fullmatch(line)
        if not agents or match is None:
            continue
        name, line_value, agent = match[1], match[2], agents[-1]
        in_sets = in_sets or name == "ISA Info"
        segment = line_value if name == "Segment" else segment
        if in_sets and name == "Name":
            agent.sets.append(line_value)
        elif segment is not None and name == "Size":
            agent.pools.setdefault(segment, line_value)
        elif not in_sets:
            agent.lines.setdefault(name, line_value)
    return agents

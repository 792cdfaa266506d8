"""XLA profiles written byte by byte, by the rules of the wire format alone: what the reader must make sense of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIRST_EVENT, FIRST_STAT = 7, 3


def number(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def whole(field: int, value: int) -> bytes:
    """A field that holds a number."""
    return number(field << 3) + number(value)


def part(field: int, content: bytes | str) -> bytes:
    """A field that holds bytes, a text or a message."""
    text = content.encode() if isinstance(content, str) else content
    return number(field << 3 | 2) + number(len(text)) + text


def stat(index: int, value: Any) -> bytes:
    """XStat: the statistic by its number, and a text or a number."""
    return whole(1, index) + (part(5, value) if isinstance(value, str) else whole(4, value))


def event(index: int, offset_ps: int, duration_ps: int, stats: Sequence[bytes] = ()) -> bytes:
    """XEvent."""
    return whole(1, index) + whole(2, offset_ps) + whole(3, duration_ps) + b"".join(part(4, one) for one in stats)


def line(name: str, timestamp_ns: int, events: Sequence[bytes], line_id: int = 1) -> bytes:
    """XLine, its fields in the order of their numbers, as the library writes them."""
    return whole(1, line_id) + part(2, name) + whole(3, timestamp_ns) + b"".join(part(4, one) for one in events)


def table(field: int, names: Sequence[str], first: int) -> bytes:
    """A map from numbers to names: XEventMetadata (4) or XStatMetadata (5) of a plane."""
    return b"".join(part(field, whole(1, at) + part(2, whole(1, at) + part(2, name)))
                    for at, name in enumerate(names, start=first))


def plane(name: str, lines: Sequence[bytes], events: Sequence[str] = (), stats: Sequence[str] = (),
          said: Sequence[bytes] = ()) -> bytes:
    """XPlane: events are numbered from FIRST_EVENT on, statistics from FIRST_STAT on."""
    return (whole(1, 2) + part(2, name) + b"".join(part(3, one) for one in lines) + table(4, events, FIRST_EVENT)
            + table(5, stats, FIRST_STAT) + b"".join(part(6, one) for one in said))


def space(*planes: bytes) -> bytes:
    """XSpace."""
    return b"".join(part(1, one) for one in planes)


def example(path: Path) -> Path:
    """A profile of a host thread that launches two kernels on a GPU."""
    shape = "grid:16,1,1 block:64,1,1 private_mem:0 group_mem:0"
    launched = [event(FIRST_EVENT, 1000 * at, 500, (stat(FIRST_STAT, at),)) for at in (1, 2)]
    kernels = [event(FIRST_EVENT, 9000 * at, 4000, (stat(FIRST_STAT, at), stat(FIRST_STAT + 1, shape)))
               for at in (1, 2)]
    names = ("correlation_id", "kernel_details")
    path.write_bytes(space(
        plane("/host:CPU", [line("python", 10, launched, 42)], ("hipModuleLaunchKernel",), names),
        plane("/device:GPU:0", [line("Stream #1(Kernel)", 10, kernels)], ("fusion.kd",), names)))
    return path

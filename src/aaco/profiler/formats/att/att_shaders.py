"""A thread trace of whole shader engines: the lifetimes of waves, states over time, and clocks.

rocprofv2 and the first rocprofv3 pack an event of occupancy.json into one number: kernel in bits 0-11, SIMD in 12-13,
slot in 14-17, begin or end in 18, compute unit in 19-22, time / 8 from 23 on. Kernel, begin and time are documented
(rocprofiler/plugin/att/drawing.py); SIMD, slot and compute unit were inferred from the captures, where every slot
alternates between begin and end under this reading and every traced wave is found. Later captures write the fields one
by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from aaco.core.arrays import Ints
from aaco.core.tables import OCCUPANCY, SHADER_CLOCKS, WAVE_STATE_COUNTS
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.att.att_waves import NONE, STATES, TraceCounts, words
from aaco.profiler.io import jsonfile, jsonints

MOST_BYTES = 256 << 20
FIX = "decode the trace again: rocprofv3 --att"
OLD_COUNTS = "wave state count: in the form of rocprofv2, which this version does not read"
_WSTATES = re.compile(r"wstates(\d{1,2})\.json", re.ASCII)
_ENGINE_FILE = re.compile(r"_se(\d{1,9})\.att", re.ASCII)


class _OccupancyKernels(msgspec.Struct):
    dispatches: dict[str, str] | None = None
    names: list[str] | None = None


class _States(msgspec.Struct):
    state: msgspec.Raw = NONE
    time: msgspec.Raw = NONE
    data: msgspec.Raw = NONE


class _Frequency(msgspec.Struct):
    frequency: int | None = None


class _Clocks(msgspec.Struct):
    metadata: _Frequency | None = None


def tables(folder: Path, files: Sequence[str], counts: TraceCounts) -> Iterator[pa.Table]:
    """Yield occupancy, wave_state_counts and shader_clocks, as far as the folder has them. Raise BadCapture."""
    if "occupancy.json" in files:
        yield from _occupancy(folder / "occupancy.json", counts)
    for name in files:
        match = _WSTATES.fullmatch(name)
        if match:
            yield _states(folder / name, int(match[1]), counts)
    if "realtime.json" in files:
        yield from _clocks(folder / "realtime.json", counts)


def _occupancy(path: Path, counts: TraceCounts) -> Iterator[pa.Table]:
    kernels = jsonfile.decode(path, _OccupancyKernels, MOST_BYTES, FIX)
    lists = jsonfile.decode(path, dict[str, msgspec.Raw], MOST_BYTES, FIX)
    for key, events in lists.items():
        if not key.isdecimal():
            continue
        with jsonfile.sound(path, FIX):
            for block in _read_events(events):
                counts.add("occupancy event", len(block))
                yield _occupancy_table(_shader_engine(int(key), kernels.names), block, kernels.dispatches or {})


def _occupancy_table(engine: int, block: Ints, kernels: dict[str, str]) -> pa.Table:
    cycle, cu, simd, slot, begins, kernel = block.T[:6]
    name_by_kernel = {int(key): name for key, name in kernels.items() if key.isdecimal()}
    return OCCUPANCY.build(
        shader_engine=np.full(len(block), engine), cycle=cycle, cu=cu, simd=simd, slot=slot, begins=begins != 0,
        kernel_name=[name_by_kernel.get(int(number)) for number in kernel])


def _read_events(text: msgspec.Raw) -> Iterator[Ints]:
    """Yield blocks of rows, shape (n, 6): cycle, compute unit, SIMD, slot, begins, kernel."""
    if bytes(memoryview(text)[:99]).translate(None, b" \t\r\n").startswith(b"[["):
        yield from jsonints.rows(text, at_least=6)
        return
    packed = jsonints.flat(text)
    yield np.stack((packed >> 23 << 3, packed >> 19 & 15, packed >> 12 & 3, packed >> 14 & 15, packed >> 18 & 1,
                    packed & 0xFFF), axis=1)


def _shader_engine(index: int, names: list[str] | None) -> int:
    """Return the shader engine. rocprofv2 numbers the lists by its files, whose names have the engine; rocprofv3 by
    engine.
    """
    match = _ENGINE_FILE.search(names[index]) if names and index < len(names) else None
    return int(match[1]) if match else index


def _states(path: Path, state: int, counts: TraceCounts) -> pa.Table:
    document = jsonfile.decode(path, _States, MOST_BYTES, FIX)
    with jsonfile.sound(path, FIX):
        cycle, waves, old = (jsonints.flat(part) for part in (document.time, document.state, document.data))
        if len(cycle) != len(waves):
            raise ValueError("as many times as counts belong in it")
        counts.add("wave state count", len(cycle) + len(old))
        if len(old):
            before = counts.left_out.get(OLD_COUNTS, Subtotal(0, 0))
            counts.left_out[OLD_COUNTS] = Subtotal(before.count + len(old), 0)
        names = words(np.full(len(cycle), state), STATES, "state")
        return WAVE_STATE_COUNTS.build(state=names, cycle=cycle, waves=waves)


def _clocks(path: Path, counts: TraceCounts) -> Iterator[pa.Table]:
    """Yield pairs of shader clock and constant clock, by shader engine: {"SE0": [[cycle, ticks], ...], "metadata":
    ...}.
    """
    metadata = jsonfile.decode(path, _Clocks, MOST_BYTES, FIX).metadata
    hertz = metadata.frequency if metadata else None
    for key, pairs in jsonfile.decode(path, dict[str, msgspec.Raw], MOST_BYTES, FIX).items():
        if not (key.startswith("SE") and key[2:].isdecimal()):
            continue
        with jsonfile.sound(path, FIX):
            for block in jsonints.rows(pairs, at_least=2):
                counts.add("clock pair", len(block))
                yield SHADER_CLOCKS.build(
                    shader_engine=np.full(len(block), int(key[2:])), cycle=block[:, 0], realtime_ticks=block[:, 1],
                    realtime_hz=[hertz] * len(block))

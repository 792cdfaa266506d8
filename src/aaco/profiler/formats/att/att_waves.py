"""The waves of a thread trace (`se*_sm*_sl*_wv*.json`, one file each): every instruction, state and resolved wait.

Sources: rocm-systems, att-tool/wave.cpp and trace_decoder_types.h; for rocprofv2, rocprofiler/plugin/att/stitch.py and
trace_view.py. rocprofv2 always writes a stall of 0: it is null here.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from aaco.core.arrays import Ints
from aaco.core.tables import WAVE_STATES, WAVE_TRACE, WAVE_WAITS, WAVES
from aaco.profiler.capture import Subtotal
from aaco.profiler.io import jsonfile, jsonints
from aaco.profiler.io.jsonfile import Int64

MOST_BYTES = 256 << 20
NAME = re.compile(r"se(\d{1,9})_sm(\d{1,9})_sl(\d{1,9})_wv(\d{1,9})\.json", re.ASCII)
STATES = ("empty", "idle", "exec", "wait", "stall")
_BOTH = ("none", "smem", "salu", "vmem", "flat", "lds", "valu", "jump", "next", "immed")
KINDS = {"rocprofv2": (*_BOTH, "branch", "getpc", "setpc", "swappc", "laneio", "pcinfo", "wave_ended"),
         "rocprofv3": (*_BOTH, "context", "message", "bvh", "matrix")}
FIX = "decode the trace again: rocprofv3 --att"
NONE = msgspec.Raw(b"null")


class _Wave(msgspec.Struct):
    begin: Int64
    end: Int64
    cu: Int64 | None = None
    simd: Int64 | None = None
    slot: Int64 | None = None
    instructions: msgspec.Raw = NONE
    timeline: msgspec.Raw = NONE
    waitcnt: msgspec.Raw = NONE


class _WaveFile(msgspec.Struct):
    wave: _Wave


class WavePlace(Struct, frozen=True):
    """A wave as the capture's index lists it."""

    file: str
    begin: int | None
    end: int | None
    shader_engine: int
    simd: int
    slot: int
    wave: int


class TraceCounts(Struct):
    """The records read by kind, executions of each instruction, records left out, and contradictions."""

    records: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, Subtotal] = field(default_factory=dict)
    hits: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int) -> None:
        """Count records of a kind."""
        self.records[kind] = self.records.get(kind, 0) + count


def place(name: str) -> WavePlace | None:
    """Return where a wave ran, by the name of its file; None for any other name."""
    match = NAME.fullmatch(name)
    return WavePlace(name, None, None, *map(int, match.groups())) if match else None


def tables(folder: Path, places: Sequence[WavePlace], tool: str, counts: TraceCounts) -> Iterator[pa.Table]:
    """Yield all tables of the waves, file by file, and last the waves themselves. Raise BadCapture."""
    rows: list[tuple[int | None, ...]] = []
    for wave_id, place in enumerate(places):
        path = folder / place.file
        if not path.is_file():
            rows.append((place.shader_engine, None, place.simd, place.slot, place.wave, place.begin, place.end, None))
            continue
        wave = jsonfile.decode(path, _WaveFile, MOST_BYTES, FIX).wave
        if (place.begin, place.end) not in ((None, None), (wave.begin, wave.end)):
            counts.problems.append(f"{place.file}: begins and ends otherwise than the capture's index says")
        with jsonfile.sound(path, FIX):
            executed = yield from _executed_instructions(wave_id, wave, tool, counts)
            yield _states(wave_id, wave, counts)
            yield _waits(wave_id, wave, counts)
        rows.append((place.shader_engine, wave.cu, place.simd, place.slot, place.wave, wave.begin, wave.end, executed))
    counts.add("wave", len(rows))
    with jsonfile.sound(folder, FIX):
        yield _waves(rows)


def _waves(rows: Sequence[tuple[int | None, ...]]) -> pa.Table:
    names = ("shader_engine", "cu", "simd", "slot", "wave", "begin_cycle", "end_cycle", "instructions")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return WAVES.build(wave_id=np.arange(len(rows)), **columns)


def _executed_instructions(wave_id: int, wave: _Wave, tool: str, counts: TraceCounts) -> Generator[pa.Table, None, int]:
    """Yield the executed instructions of the wave, in blocks; return their number."""
    executed = 0
    for block in jsonints.rows(wave.instructions, at_least=5):
        cycle, kind, stall, latency, instruction = block.T[:5]
        executed += len(block)
        for position, count in zip(*np.unique(instruction, return_counts=True), strict=True):
            counts.hits[int(position)] = counts.hits.get(int(position), 0) + int(count)
        yield WAVE_TRACE.build(
            wave_id=np.full(len(block), wave_id), cycle=cycle, instruction_id=instruction, latency_cycles=latency,
            kind=words(kind, KINDS[tool], "kind"), **({} if tool == "rocprofv2" else {"stall_cycles": stall}))
    counts.add("executed instruction", executed)
    return executed


def _states(wave_id: int, wave: _Wave, counts: TraceCounts) -> pa.Table:
    blocks = list(jsonints.rows(wave.timeline, at_least=2))
    state, cycles = np.concatenate(blocks)[:, :2].T if blocks else np.zeros((2, 0), np.int64)
    counts.add("wave state", len(state))
    return WAVE_STATES.build(wave_id=np.full(len(state), wave_id), state=words(state, STATES, "state"), cycles=cycles,
                             begin_cycle=wave.begin + np.cumsum(cycles) - cycles)


def _waits(wave_id: int, wave: _Wave, counts: TraceCounts) -> pa.Table:
    """Return the waits, each written as [instruction, [[instruction waited for, how many were in flight], ...]]."""
    numbers, depth, first = jsonints.tree(wave.waitcnt)
    waits, links = (depth == 2) & first, (depth == 4) & first
    if (waits | links | ((depth == 4) & ~first)).sum() != len(numbers):
        raise ValueError("a wait is not an instruction and those it waits for")
    wait = np.cumsum(waits) - 1
    waiting = numbers[waits]
    without_links = np.setdiff1d(np.arange(len(waiting)), wait[links])
    wait_of_row = np.concatenate((wait[links], without_links))
    order = np.argsort(wait_of_row, kind="stable")
    waited = pa.array(np.concatenate((numbers[links], np.zeros_like(without_links)))[order],
                      mask=np.concatenate((np.zeros(links.sum(), bool), np.ones(len(without_links), bool)))[order])
    counts.add("wait", len(wait_of_row))
    return WAVE_WAITS.build(wave_id=np.full(len(wait_of_row), wave_id), wait=wait_of_row[order],
                            instruction_id=waiting[wait_of_row[order]],
                            waited_for=waited)


def words(codes: Ints, names: Sequence[str], what: str) -> pa.Array:
    """Return numbers as their words; a number without a word keeps it: `kind 17`."""
    unknown = sorted({int(code) for code in np.unique(codes)} - set(range(len(names))))
    all_names = [*names, *(f"{what} {code}" for code in unknown)]
    indices = np.where(np.isin(codes, unknown), len(names) + np.searchsorted(unknown, codes),
                       codes) if unknown else codes
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(all_names, pa.string()))

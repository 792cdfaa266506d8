"""The waves of a thread trace (`se*_sm*_sl*_wv*.json`, one file each): every instruction, state and resolved wait.

Sources: rocm-systems, att-tool/wave.cpp and trace_decoder_types.h; for rocprofv2, rocprofiler/plugin/att/stitch.py and
trace_view.py. rocprofv2 writes a stall of 0 always: it is null here.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from aaco.core.tables import WAVE_STATES, WAVE_TRACE, WAVE_WAITS, WAVES
from aaco.profiler import jsonfile, jsonints
from aaco.profiler.capture import Part

MOST_BYTES = 256 << 20
NAME = re.compile(r"se(\d{1,9})_sm(\d{1,9})_sl(\d{1,9})_wv(\d{1,9})\.json", re.ASCII)
STATES = ("empty", "idle", "exec", "wait", "stall")
_BOTH = ("none", "smem", "salu", "vmem", "flat", "lds", "valu", "jump", "next", "immed")
KINDS = {"rocprofv2": (*_BOTH, "branch", "getpc", "setpc", "swappc", "laneio", "pcinfo", "wave_ended"),
         "rocprofv3": (*_BOTH, "context", "message", "bvh", "matrix")}
FIX = "decode the trace again: rocprofv3 --att"
NONE = msgspec.Raw(b"null")


class _Wave(msgspec.Struct):
    begin: int
    end: int
    cu: int | None = None
    simd: int | None = None
    slot: int | None = None
    instructions: msgspec.Raw = NONE
    timeline: msgspec.Raw = NONE
    waitcnt: msgspec.Raw = NONE


class _File(msgspec.Struct):
    wave: _Wave


@dataclass(frozen=True)
class Place:
    """A wave as the capture's index lists it."""

    file: str
    begin: int | None
    end: int | None
    shader_engine: int
    simd: int
    slot: int
    wave: int


@dataclass
class Counts:
    """What was read: records by kind, executions of each instruction, records left out, and what does not fit."""

    records: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, Part] = field(default_factory=dict)
    hits: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int) -> None:
        """Count records of a kind."""
        self.records[kind] = self.records.get(kind, 0) + count


def place(name: str) -> Place | None:
    """Where a wave ran, by the name of its file; None for any other name."""
    found = NAME.fullmatch(name)
    return Place(name, None, None, *map(int, found.groups())) if found else None


def tables(folder: Path, places: Sequence[Place], tool: str, counts: Counts) -> Iterator[pa.Table]:
    """All tables of the waves, file by file, and last the waves themselves. Raises BadCapture."""
    rows: list[tuple[int | None, ...]] = []
    for wave_id, at in enumerate(places):
        path = folder / at.file
        if not path.is_file():
            rows.append((at.shader_engine, None, at.simd, at.slot, at.wave, at.begin, at.end, None))
            continue
        wave = jsonfile.decode(path, _File, MOST_BYTES, FIX).wave
        if (at.begin, at.end) not in ((None, None), (wave.begin, wave.end)):
            counts.problems.append(f"{at.file}: begins and ends otherwise than the capture's index says")
        with jsonfile.sound(path, FIX):
            executed = yield from _trace(wave_id, wave, tool, counts)
            yield _states(wave_id, wave, counts)
            yield _waits(wave_id, wave, counts)
        rows.append((at.shader_engine, wave.cu, at.simd, at.slot, at.wave, wave.begin, wave.end, executed))
    counts.add("wave", len(rows))
    with jsonfile.sound(folder, FIX):
        yield _waves(rows)


def _waves(rows: Sequence[tuple[int | None, ...]]) -> pa.Table:
    names = ("shader_engine", "cu", "simd", "slot", "wave", "begin_cycle", "end_cycle", "instructions")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return WAVES.build(wave_id=np.arange(len(rows)), **columns)


def _trace(wave_id: int, wave: _Wave, tool: str, counts: Counts) -> Generator[pa.Table, None, int]:
    """The instructions the wave executed, in blocks; returns how many."""
    executed = 0
    for block in jsonints.rows(wave.instructions, at_least=5):
        cycle, kind, stall, latency, instruction = block.T[:5]
        executed += len(block)
        for at, count in zip(*np.unique(instruction, return_counts=True), strict=True):
            counts.hits[int(at)] = counts.hits.get(int(at), 0) + int(count)
        yield WAVE_TRACE.build(
            wave_id=np.full(len(block), wave_id), cycle=cycle, instruction_id=instruction, latency_cycles=latency,
            kind=words(kind, KINDS[tool], "kind"), **({} if tool == "rocprofv2" else {"stall_cycles": stall}))
    counts.add("executed instruction", executed)
    return executed


def _states(wave_id: int, wave: _Wave, counts: Counts) -> pa.Table:
    blocks = list(jsonints.rows(wave.timeline, at_least=2))
    state, cycles = np.concatenate(blocks)[:, :2].T if blocks else np.zeros((2, 0), np.int64)
    counts.add("wave state", len(state))
    return WAVE_STATES.build(wave_id=np.full(len(state), wave_id), state=words(state, STATES, "state"), cycles=cycles,
                             begin_cycle=wave.begin + np.cumsum(cycles) - cycles)


def _waits(wave_id: int, wave: _Wave, counts: Counts) -> pa.Table:
    """Each wait is [instruction, [[instruction waited for, how many were in flight], ...]]."""
    value, depth, first = jsonints.tree(wave.waitcnt)
    waits, links = (depth == 2) & first, (depth == 4) & first
    if (waits | links | ((depth == 4) & ~first)).sum() != len(value):
        raise ValueError("a wait is not an instruction and those it waits for")
    wait = np.cumsum(waits) - 1
    waiting = value[waits]
    alone = np.setdiff1d(np.arange(len(waiting)), wait[links])
    of = np.concatenate((wait[links], alone))
    order = np.argsort(of, kind="stable")
    waited = pa.array(np.concatenate((value[links], np.zeros_like(alone)))[order],
                      mask=np.concatenate((np.zeros(links.sum(), bool), np.ones(len(alone), bool)))[order])
    counts.add("wait", len(of))
    return WAVE_WAITS.build(wave_id=np.full(len(of), wave_id), wait=of[order], instruction_id=waiting[of[order]],
                            waited_for=waited)


def words(codes: jsonints.Integers, known: Sequence[str], what: str) -> pa.Array:
    """Numbers as the words they stand for; a number without one keeps it: `kind 17`."""
    unknown = sorted({int(code) for code in np.unique(codes)} - set(range(len(known))))
    names = [*known, *(f"{what} {code}" for code in unknown)]
    at = np.where(np.isin(codes, unknown), len(known) + np.searchsorted(unknown, codes), codes) if unknown else codes
    return pa.DictionaryArray.from_arrays(pa.array(at, pa.int32()), pa.array(names, pa.string()))

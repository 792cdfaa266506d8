"""Cycles of the instructions that traced waves executed, and which loads their waits waited for.

An instruction owns the cycles from its first attempt to issue to that of the wave's next instruction, so the parts sum
to the wave's time exactly: stalled, issuing, and idle between two instructions. Decoders let a few instructions overlap
the next by some cycles; those cycles are the later one's.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Ints


class Executed(Struct, frozen=True):
    """Executions in the order of each wave's time, one value each. stall is None where the decoder does not say.

    end: when the instruction was done by the decoder's word. latency + idle = what the instruction owns; stall is part
    of its latency.
    """

    wave: Ints
    instruction: Ints
    begin: Ints
    end: Ints
    latency: Ints
    stall: Ints | None
    idle: Ints

    def __len__(self) -> int:
        return len(self.wave)


def executed(wave_trace: pa.Table) -> Executed:
    """Return the executions of one capture, from the columns wave_id, cycle, instruction_id, stall_cycles,
    latency_cycles.

    Rows without one of the first three or a latency are left out.
    """
    complete = wave_trace
    for name in ("wave_id", "cycle", "instruction_id", "latency_cycles"):
        complete = complete.filter(pc.is_valid(complete[name]))
    wave, begin, instruction, latency = (complete[name].to_numpy() for name in
                                         ("wave_id", "cycle", "instruction_id", "latency_cycles"))
    says = complete["stall_cycles"].null_count == 0 and len(complete) > 0
    stall = complete["stall_cycles"].to_numpy() if says else np.zeros(len(wave), np.int64)
    order = np.lexsort((begin, wave))
    wave, begin, instruction, latency, stall = (column[order] for column in (wave, begin, instruction, latency, stall))
    end = begin + np.maximum(latency, 0)
    follows = np.append(wave[1:] == wave[:-1], False)
    until = np.where(follows, np.append(begin[1:], 0), end)
    owned = until - begin
    busy = np.minimum(end - begin, owned)
    return Executed(wave, instruction, begin, end, busy, np.clip(stall, 0, busy) if says else None, owned - busy)


class Waits(Struct, frozen=True):
    """Waits of one capture, one value each, and the load that each was bound by: the youngest that it waited for.

    row, load: positions in Executed; load is -1 where nothing was in flight or the link cannot be resolved.
    unmatched: waits in the capture that no execution could be found for, because their numbers differ.
    """

    row: Ints
    load: Ints
    unmatched: int


def waits(executions: Executed, wave_waits: pa.Table) -> Waits:
    """Return the capture's waits, in the order of each wave's time, matched with the executions of the waiting
    instructions.

    A decoder writes one wait per execution, or one per counter that is waited for: then the same number for each.
    """
    links = _Links.of(wave_waits)
    rows, unmatched = _rows_of_waits(executions, links)
    is_matched = rows[links.wait] >= 0
    row, target = rows[links.wait][is_matched], links.target[is_matched]
    load = _last_before(executions, row, target)
    distinct_rows, place = np.unique(row, return_inverse=True)
    youngest = np.full(len(distinct_rows), -1, np.int64)
    np.maximum.at(youngest, place, load)  # rows rise with time within a wave
    return Waits(distinct_rows, youngest, unmatched)


class _Links(Struct, frozen=True):
    """wave, instruction: of each wait. wait, target: of each link the wait's index, and what was waited for or -1."""

    wave: Ints
    instruction: Ints
    wait: Ints
    target: Ints

    @classmethod
    def of(cls, wave_waits: pa.Table) -> _Links:
        wave, wait, instruction = (wave_waits[name].to_numpy() for name in ("wave_id", "wait", "instruction_id"))
        target = pc.fill_null(wave_waits["waited_for"], -1).to_numpy()
        order = np.lexsort((wait, wave))
        wave, wait, instruction, target = (column[order] for column in (wave, wait, instruction, target))
        new = np.append(True, (wave[1:] != wave[:-1]) | (wait[1:] != wait[:-1])) if len(wave) else np.zeros(0, bool)
        return cls(wave[new], instruction[new], np.cumsum(new) - 1, target)


def _rows_of_waits(executions: Executed, links: _Links) -> tuple[Ints, int]:
    """Return the execution of each wait, -1 where it has none: the k-th wait of an instruction is its k-th execution.
    """
    codes, ours = _codes(executions, links.wave, links.instruction)
    where = np.argsort(codes, kind="stable")
    sorted_codes = codes[where]
    first, after = np.searchsorted(sorted_codes, ours, "left"), np.searchsorted(sorted_codes, ours, "right")
    executions_of, (_, place, waits_of) = after - first, np.unique(ours, return_inverse=True, return_counts=True)
    share = waits_of[place] // np.maximum(executions_of, 1)
    sound = (executions_of > 0) & (share * executions_of == waits_of[place])
    nth = _rank(ours) // np.maximum(share, 1)
    rows = np.full(len(ours), -1, np.int64)
    rows[sound] = where[(first + nth)[sound]]
    return rows, int((~sound).sum())


def _last_before(executions: Executed, row: Ints, target: Ints) -> Ints:
    """Return the last execution of each target in the row's wave before the row; -1 where there is none."""
    codes, target_codes = _codes(executions, executions.wave[row], target)
    size = len(executions) + 1
    places = np.sort(codes * size + np.arange(len(codes)))
    if not len(places):
        return np.full(len(row), -1, np.int64)
    at = np.searchsorted(places, target_codes * size + row) - 1
    last_place = places[np.maximum(at, 0)]
    return np.where((at >= 0) & (last_place // size == target_codes), last_place % size, -1)


def _codes(executions: Executed, wave: Ints, instruction: Ints) -> tuple[Ints, Ints]:
    """Return one number for each pair of wave and instruction, of the executions and of what is looked for."""
    pairs = np.stack((np.append(executions.wave, wave), np.append(executions.instruction, instruction)), axis=1)
    codes = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    return codes[:len(executions)], codes[len(executions):]


def _rank(values: Ints) -> Ints:
    """Return how many equal values precede each."""
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    new = np.append(True, sorted_values[1:] != sorted_values[:-1]) if len(sorted_values) else np.zeros(0, bool)
    starts = np.flatnonzero(new)
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return rank

"""Cycles, waits and occupancy of waves against slow, obvious counting; no cycle is lost."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.instructions.execution import executed, waits
from aaco.analytics.instructions.presence import occupancy
from aaco.core.tables import OCCUPANCY, WAVE_TRACE, WAVE_WAITS

STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(-3, 6), st.integers(0, 9)), max_size=12)


def trace(waves):
    """Rows (wave, cycle, instruction, stall, latency), each wave's in its order of time."""
    rows = []
    for wave, steps in enumerate(waves):
        at = 100 * wave
        for instruction, latency, gap, stall in steps:
            rows.append((wave, at, instruction, min(stall, latency), latency))
            at += max(1, latency + gap)
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    names = ("wave_id", "cycle", "instruction_id", "stall_cycles", "latency_cycles")
    return rows, WAVE_TRACE.build(**dict(zip(names, map(list, columns), strict=True)))


@given(st.lists(STEPS, max_size=4), st.randoms(use_true_random=False))
def test_parts_are_those_of_a_walk_and_sum_to_the_wave(waves, random):
    """Mutation: `owned = end - begin`, which counts the idle cycles before the next instruction for nobody."""
    rows, table = trace(waves)
    order = list(range(len(rows)))
    random.shuffle(order)
    ran = executed(table.take(pa.array(order, pa.int64())))
    for wave in range(len(waves)):
        mine = [row for row in rows if row[0] == wave]
        here = ran.wave == wave
        life = mine[-1][1] + mine[-1][4] - mine[0][1] if mine else 0
        assert int((ran.latency[here] + ran.idle[here]).sum()) == life
        for index, (_, cycle, _, stall, latency) in enumerate(mine):
            until = mine[index + 1][1] if index + 1 < len(mine) else cycle + latency
            busy = min(latency, until - cycle)
            at = np.flatnonzero(here)[index]
            assert (ran.latency[at], ran.idle[at], ran.stall[at]) == (busy, until - cycle - busy, min(stall, busy))


@given(st.lists(STEPS, max_size=4), st.sampled_from([1, 2]))
def test_each_wait_finds_its_execution_and_its_youngest_load(waves, times):
    """Instructions 4 and 5 wait, each for every kind of load issued before it in its wave, and for one that was not.

    Mutation: searchsorted without `- 1`, which takes the next execution of the load; `nth` without the division.
    """
    rows, table = trace(waves)
    links, expected = [], []
    numbers = Counter()
    seen = defaultdict(dict)
    for place, (wave, _, instruction, *_) in enumerate(rows):
        if instruction >= 4:
            for _ in range(times):
                links += [(wave, numbers[wave], instruction, target) for target in (*seen[wave], 9)]
                numbers[wave] += 1
            expected.append((place, max(seen[wave].values(), default=-1)))
        else:
            seen[wave][instruction] = place
    names = ("wave_id", "wait", "instruction_id", "waited_for")
    found = waits(executed(table), WAVE_WAITS.build(**dict(zip(
        names, map(list, zip(*links, strict=True)) if links else [[]] * 4, strict=True))))
    assert list(zip(found.row.tolist(), found.load.tolist(), strict=True)) == expected
    assert found.unmatched == 0


def test_waits_that_no_execution_explains_are_counted_and_left_out():
    _, table = trace([[(4, 2, 0, 0)]])
    links = WAVE_WAITS.build(wave_id=[0, 0, 0], wait=[0, 1, 2], instruction_id=[5, 7, 4], waited_for=[None, 1, None])
    found = waits(executed(table), links)
    assert (found.unmatched, found.row.tolist(), found.load.tolist()) == (2, [0], [-1])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3),
                          st.lists(st.integers(1, 30), min_size=1, max_size=5)), max_size=8,
                unique_by=lambda row: row[:3]))
def test_occupancy_is_that_of_counting_every_cycle(slots):
    """Mutation: `_peak` sorted with beginnings before ends, which sees one wave too many where one follows another."""
    events, alive = [], Counter()
    for engine, unit, slot, lengths in slots:
        at = 0
        for length in lengths:
            events += [(engine, at, unit, 0, slot, True), (engine, at + length, unit, 0, slot, False)]
            alive.update(((engine, unit), cycle) for cycle in range(at, at + length))
            at += length + (length % 2)
    names = ("shader_engine", "cycle", "cu", "simd", "slot", "begins")
    columns = map(list, zip(*events, strict=True)) if events else [[]] * 6
    found = occupancy(OCCUPANCY.build(**dict(zip(names, columns, strict=True))))
    if not events:
        assert found is None
        return
    span = max(event[1] for event in events)
    units = {key for key, _ in alive}
    assert found is not None
    assert (found.waves, found.compute_units, found.unpaired) == (len(events) // 2, len(units), 0)
    assert found.span_cycles == span
    assert found.peak_waves == max(alive.values())
    np.testing.assert_allclose(found.mean_waves, sum(alive.values()) / span / len(units))
    np.testing.assert_allclose(np.mean(found.course), found.mean_waves)

"""Lanes: every lane nests, and a viewer that closes the last opened slice reads back every slice as it was."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.tracelake.perfetto_export.nesting import lay

slices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8)), max_size=25)


@given(slices)
def test_a_viewer_reads_back_every_slice(rows):
    """Mutations: begins before ends at equal times; lanes not separated; depth left out of the order."""
    track, start, took = (np.array(column, np.int64) for column in (zip(*rows, strict=True) if rows else ([], [], [])))
    end = start + took
    laid = lay(track, start, end)
    events = [(int(start[row]), int(laid.begin[row]), "begin", row) for row in range(len(rows))]
    events += [(int(end[row]), int(laid.end[row]), "end", row) for row in range(len(rows))]
    assert sorted(event[1] for event in events) == list(range(2 * len(rows)))
    stacks: dict[tuple[int, int], list[int]] = {}
    for _, _, what, row in sorted(events):
        stack = stacks.setdefault((int(track[row]), int(laid.lane[row])), [])
        if what == "begin":
            stack.append(row)
        else:
            assert stack.pop() == row
    assert not any(stacks.values())


@given(slices)
def test_slices_that_nest_need_one_lane(rows):
    nested = [(track, 0, 100 - index) for index, (track, _, _) in enumerate(rows)]
    if nested:
        track, start, end = (np.array(column, np.int64) for column in zip(*nested, strict=True))
        assert not lay(track, start, end).lane.any()

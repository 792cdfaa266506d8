"""Kernels summed by name against plain Python over every duration."""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.kernels import kernel_groups
from aaco.core.tables import KERNELS

ROWS = st.lists(st.tuples(st.sampled_from([None, "gemm", "copy"]), st.sampled_from([None, "a", "b", "c", "d"]),
                          st.one_of(st.none(), st.integers(-50, 50), st.integers(0, 10**15))), max_size=60)


def batches(rows, size):
    """The rows in batches of one and the same dictionaries."""
    table = KERNELS.build(family=[row[0] for row in rows], kernel_name=[row[1] for row in rows],
                          dur_ns=pa.array([row[2] for row in rows], pa.int64()))
    return lambda: iter(table.select(kernel_groups.COLUMNS).to_batches(size))


def in_pieces(batches, window, size):
    """The table as a session's is made: durations sorted outside, and handed over in pieces."""
    grouping = kernel_groups.Grouping()
    rows = [row for batch in batches() for row in zip(*(part.tolist() for part in grouping.add(batch)), strict=True)]
    durations = [duration for _, duration in sorted(rows, key=lambda row: (row[0], -row[1]))]
    return grouping.table([np.array(durations[at:at + size]) for at in range(0, len(durations), size)], window)


def oracle(rows):
    found = {}
    for family, name, duration in rows:
        found.setdefault((family, name), []).append(duration)
    return found


@settings(max_examples=200, deadline=None)
@given(ROWS, st.integers(1, 20), st.sampled_from([1, 5, 1 << 20]))
def test_every_statistic_is_that_of_the_durations(rows, size, pieces):
    """Mutations seen to fail: a kernel without a duration counted as 0, a piece's last group left out of the squares,
    a quantile without its upper neighbour, n for n - 1."""
    table = in_pieces(batches(rows, size), 1000, pieces)
    assert table.equals(kernel_groups.group(batches(rows, size), 1000)) or pieces < 1 << 20
    wanted = oracle(rows)
    everything = sum(row[2] or 0 for row in rows)
    assert table.num_rows == len(wanted)
    for row in table.to_pylist():
        durations = wanted[row["family"], row["kernel_name"]]
        known = [duration for duration in durations if duration is not None]
        assert row["calls"] == len(durations)
        assert row["total_ns"] == (sum(known) if known else None)
        assert (row["min_ns"], row["max_ns"]) == ((min(known), max(known)) if known else (None, None))
        if known:
            assert row["mean_ns"] == pytest.approx(statistics.mean(known))
            assert row["p50_ns"] == pytest.approx(np.quantile(known, 0.5))
            assert row["pct_of_window"] == pytest.approx(sum(known) / 10)
        assert row["std_ns"] == (pytest.approx(statistics.stdev(known), rel=1e-6) if len(known) > 1 else None)
        if known and everything:
            assert row["pct_of_kernel_time"] == pytest.approx(100 * sum(known) / everything)
        assert row["p99_ns"] is None
    totals = [-10**18 if total is None else total for total in table["total_ns"].to_pylist()]
    assert totals == sorted(totals, reverse=True)


def test_calls_and_time_of_an_inference():
    """Mutation: the number of groups in place of that of inferences."""
    rows = [("gemm", "a", 10), ("gemm", "a", 30), ("copy", "b", None), ("gemm", "a", 50), ("copy", "b", None)]
    found = {row["kernel_name"]: (row["calls_per_iteration"], row["ns_per_iteration"])
             for row in kernel_groups.group(batches(rows, 2), None, 4).to_pylist()}
    assert found == {"a": (0.75, 22.5), "b": (0.5, None)}
    assert kernel_groups.group(batches(rows, 2), None)["calls_per_iteration"].null_count == 2


def test_the_99th_percentile_wants_a_hundred_calls():
    rows = [("gemm", "a", duration) for duration in range(100)] + [("gemm", "b", duration) for duration in range(99)]
    found = {row["kernel_name"]: row["p99_ns"] for row in kernel_groups.group(batches(rows, 7), None).to_pylist()}
    assert found == {"a": pytest.approx(np.quantile(range(100), 0.99)), "b": None}

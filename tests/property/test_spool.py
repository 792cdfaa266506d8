"""The external sort against Python's own sort of everything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.tracelake.ingest.external_sort import Order, Spool, concat

FAR = 2**63 - 1
TIMES = st.one_of(st.none(), st.integers(0, 6), st.integers(-FAR, FAR - 1))
ROWS = st.lists(st.tuples(TIMES, st.one_of(st.none(), st.integers(0, 4), st.integers(-FAR, FAR))), max_size=60)
PIECES = st.lists(ROWS, max_size=8)


def table(rows, first):
    return pa.table({"start": pa.array([row[0] for row in rows], pa.int64()),
                     "end": pa.array([row[1] for row in rows], pa.int64()),
                     "arrival": pa.array(range(first, first + len(rows)), pa.int64()),
                     "text": [f"{'x' * 40}{row}" for row in rows]})


def spooled(pieces, order, folder, **sizes):
    spool, first = Spool(order, folder, **sizes), 0
    for rows in pieces:
        spool.add(table(rows, first))
        first += len(rows)
    buckets = list(spool.buckets())
    assert arrivals(spool.buckets()) == arrivals(buckets)
    spool.close()
    assert not list(folder.iterdir())
    return buckets


def expected(pieces):
    rows = [row for piece in pieces for row in piece]

    def key(at):
        start, end = rows[at]
        return (start is None, start or 0, end is None, -(end or 0), at)

    return sorted(range(len(rows)), key=key)


def arrivals(buckets):
    listed = list(buckets)
    return concat(listed)["arrival"].to_pylist() if listed else []


@settings(max_examples=120, deadline=None)
@given(PIECES, st.sampled_from([1, 700, 1 << 20]), st.sampled_from([1, 7, 1 << 16]))
def test_every_row_once_in_order(tmp_path_factory, pieces, run_bytes, bucket_rows):
    """Runs of one piece, of a few, and one in memory. Mutations seen to fail: an unstable sort of ties, `right` for
    `left` in a bound, a null key sorted first, the last run in memory forgotten, or read only
    once, runs read newest first."""
    folder = tmp_path_factory.mktemp("spool")
    buckets = spooled(pieces, Order("start", "end"), folder, run_bytes=run_bytes, bucket_rows=bucket_rows)
    assert arrivals(buckets) == expected(pieces)
    texts = concat(buckets)["text"].to_pylist() if buckets else []
    rows = [row for piece in pieces for row in piece]
    assert texts == [f"{'x' * 40}{rows[at]}" for at in expected(pieces)]


@settings(max_examples=100, deadline=None)
@given(PIECES, st.sampled_from([1, 700]))
def test_without_a_key_rows_stay_as_they_came(tmp_path_factory, pieces, run_bytes):
    buckets = spooled(pieces, Order(), tmp_path_factory.mktemp("spool"), run_bytes=run_bytes)
    assert arrivals(buckets) == list(range(sum(map(len, pieces))))


def test_pieces_stay_small_whatever_the_keys_are(tmp_path):
    """Random times, few distinct times, and all the same time: no piece is much larger than asked for."""
    generator = np.random.default_rng(0)
    for limit in (1 << 40, 3, 1):
        pieces = [[(int(start), 0) for start in generator.integers(0, limit, 500)] for _ in range(40)]
        buckets = spooled(pieces, Order("start", "end"), tmp_path, run_bytes=40_000, bucket_rows=600)
        assert sum(bucket.num_rows for bucket in buckets) == 20_000
        assert max(bucket.num_rows for bucket in buckets) < 10_000
        assert arrivals(buckets) == expected(pieces)


def test_a_column_that_some_pieces_lack_is_null_there(tmp_path):
    spool = Spool(Order("start"), tmp_path, run_bytes=1)
    spool.add(pa.table({"start": [2, 4], "extra": ["b", "d"]}))
    spool.add(pa.table({"start": [1, 3]}))
    rows = concat(spool.buckets())
    assert (rows["start"].to_pylist(), rows["extra"].to_pylist()) == ([1, 2, 3, 4], [None, "b", None, "d"])
    spool.close()

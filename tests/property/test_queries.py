"""Reads of stretches of time against a look at every row."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aaco.core.session import Session
from aaco.core.tables import API_CALLS, KERNELS, SAMPLES
from aaco.tracelake import queries, store
from aaco.tracelake.ingest.lake import Writer
from aaco.tracelake.queries import QueryableSession

SPANS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 30)), st.one_of(st.none(), st.integers(0, 12))),
                 max_size=30)


def made(folder: Path, kernels, calls=(), samples=()) -> QueryableSession:
    """A session whose row groups have three rows each."""
    session = Session.create(folder, {"model": "m", "imports": []}, "", "0")
    with pytest.MonkeyPatch.context() as patch, Writer(session) as writer:
        patch.setattr(store, "ROW_GROUP", 3)
        kernel_names = [f"k{at % 4}" for at in range(len(kernels))]
        writer.add(KERNELS.build(kernel_id=range(len(kernels)), kernel_name=kernel_names, **spans(kernels)), 0)
        writer.add(API_CALLS.build(call_id=range(len(calls)), **spans(calls)), 0)
        writer.add(SAMPLES.build(t_ns=pa.array([start for start, _ in samples], pa.int64())), 0)
        writer.write([None])
    return QueryableSession.open(session.folder)


def spans(drawn):
    ends = [None if start is None or length is None else start + length for start, length in drawn]
    return {"t_start_ns": pa.array([start for start, _ in drawn], pa.int64()), "t_end_ns": pa.array(ends, pa.int64()),
            "dur_ns": pa.array([length for _, length in drawn], pa.int64())}


def reaches(row, start, end):
    begin, stop = row["t_start_ns"], row["t_end_ns"]
    if begin is None or begin >= end:
        return False
    return begin >= start or (stop is not None and stop > start)


@settings(max_examples=100, deadline=None)
@given(SPANS, st.integers(-2, 40), st.integers(-2, 40))
@example([(0, 10), (0, 11), (10, 0), (12, 1)], 10, 12)
@example([(0, 20)], 10, 12)
def test_a_window_holds_what_reaches_into_it(tmp_path_factory, kernels, start, end):
    """Mutations seen to fail: rows that began before it left out, row groups chosen by their starts alone, a row that
    ends where the window begins taken in."""
    session = made(tmp_path_factory.mktemp("s"), kernels)
    everything = session.kernels(["kernel_id", "t_start_ns", "t_end_ns"]).to_pylist()
    wanted = [row["kernel_id"] for row in everything if start < end and reaches(row, start, end)]
    found = session.window(start, end, columns=["kernel_id", "kernel_name"]) if start < end else None
    assert (found["kernel_id"].to_pylist() if found is not None else []) == wanted


@settings(max_examples=100, deadline=None)
@given(SPANS, SPANS, SPANS)
@example([(2**60 + 1, 0), (2**60 + 2, 0), (None, 0)], [(2**60, 0), (2**60 + 1, 5)], [])
def test_slices_tile_the_capture_and_hold_every_timed_row_once(tmp_path_factory, kernels, calls, samples):
    """Mutations seen to fail: a slice ends at a row group's last start (its row then starts in none), what is left of a
    row group forgotten, times made floats where some are missing."""
    session = made(tmp_path_factory.mktemp("s"), kernels, calls, samples)
    asked = {"kernels": ["kernel_id", "t_start_ns"], "api_calls": ["t_start_ns"], "samples": ["t_ns"],
             "copies": ["bytes"]}
    slices = list(session.slices(asked))
    assert all(before.end_ns == after.start_ns for before, after in pairwise(slices))
    for name, columns in asked.items():
        time = columns[-1]
        for one in slices:
            assert all(one.start_ns <= at < one.end_ns for at in one.tables[name][time].to_pylist() if name != "copies")
        rows = [row for one in slices for row in one.tables[name].to_pylist()]
        assert rows == [row for row in session.table(name, columns).to_pylist() if row[time] is not None]


def test_a_window_reads_only_the_row_groups_it_needs(tmp_path, monkeypatch):
    session = made(tmp_path, [(10 * at, 5) for at in range(30)])
    read = []
    monkeypatch.setattr(queries, "_batch", lambda file, spec, group, wanted, real=queries._batch:
                        read.append(group) or real(file, spec, group, wanted))
    assert session.window(100, 130)["kernel_id"].to_pylist() == [10, 11, 12]
    assert read == [3, 4]

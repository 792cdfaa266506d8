"""Pieces -> tables: order, numbering, references, call trees, names, ranks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aaco.analytics.streaming.launch_ids import LaunchFinder
from aaco.core.session import Session
from aaco.core.tables import (
    API_CALLS,
    CALL_ARGUMENTS,
    COPIES,
    COUNTERS,
    KERNELS,
    SAMPLES,
    WAVE_INSTRUCTIONS,
)
from aaco.tracelake import queries, store
from aaco.tracelake.ingest import external_sort, lake
from aaco.tracelake.ingest.lake import Writer


@pytest.fixture
def session(tmp_path):
    return Session.create(tmp_path, {"model": "m", "imports": []}, "", "0")


@pytest.fixture(params=["in memory", "on disk"])
def anywhere(request, monkeypatch):
    """The same with everything in memory, and with a run on disk for every piece."""
    if request.param == "on disk":
        monkeypatch.setattr(external_sort.Spool.__init__, "__defaults__", (1, 2))
        monkeypatch.setattr(lake.store, "ROW_GROUP", 3)


def kernels(ids, starts, names=None, **more):
    ends = [None if start is None else start + 10 for start in starts]
    return KERNELS.build(kernel_id=ids, kernel_name=names or [f"k{key}" for key in ids], t_start_ns=starts,
                         t_end_ns=ends, dur_ns=[10] * len(ids), **more)


def written(session, spec):
    return store.read(session, spec).to_pylist()


@pytest.mark.usefixtures("anywhere")
def test_rows_of_all_captures_are_numbered_in_the_order_they_start(session):
    with Writer(session) as writer:
        writer.add(kernels([7, 8], [300, 100], names=["c", "a"]), 0)
        writer.add(kernels([7, 9, 3], [200, None, 400], names=["b", "last", "d"]), 1)
        assert writer.write([None, 5]) == {"kernels": 5}
    rows = written(session, KERNELS)
    assert [row["kernel_id"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["kernel_name"] for row in rows] == ["a", "b", "c", "d", "last"]
    assert [row["capture"] for row in rows] == [0, 1, 0, 1, 1]
    assert [row["rank"] for row in rows] == [None, 5, None, 5, 5]
    assert not [path for path in session.folder.rglob(".*") if path.is_file()]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("scale", [1, 2**40])
def test_references_follow_the_rows_they_name(session, scale):
    """Keys that lie close together, and keys that are scattered. Mutations seen to fail: the keys of one capture used
    for another, the new key off by one, a reference to nothing given some row's key."""
    with Writer(session) as writer:
        writer.add(COUNTERS.build(kernel_id=[2 * scale, scale], counter=["X", "Y"], value=[2.0, 1.0]), 0)
        writer.add(kernels([scale, 2 * scale], [900, 100], names=["late", "early"]), 0)
        writer.add(kernels([scale], [500], names=["other"]), 1)
        writer.add(COUNTERS.build(kernel_id=[scale, 3 * scale, None], counter=["Z", "none", "none"],
                                  value=[3.0, 0.0, 0.0]), 1)
        writer.write([None, None])
        assert writer.dangling == {"counters": 2}
    names = {row["kernel_id"]: row["kernel_name"] for row in written(session, KERNELS)}
    found = [(names.get(row["kernel_id"]), row["counter"]) for row in written(session, COUNTERS)]
    assert found == [("early", "X"), ("other", "Z"), ("late", "Y"), (None, "none"), (None, "none")]


def test_fills_are_told_apart_from_copies(session):
    """Mutation: leave `fill_ns` out of the tally; a report then shows memsets as copies."""
    with Writer(session) as writer:
        writer.add(COPIES.build(copy_id=[0, 1, 2], kind=["memset", "h2d", None], dur_ns=[5, 7, 1],
                                t_start_ns=[0, 10, 20], t_end_ns=[5, 17, 21]), 0)
        tally = writer.tallies["copies"][0]
    assert (tally.rows, tally.ns, tally.fills, tally.fill_ns) == (3, 13, 1, 5)


@pytest.mark.usefixtures("anywhere")
def test_kernels_and_copies_name_the_call_that_launched_them(session):
    """Ids are of a capture; those of capture 2 are not unique. Mutations: another capture's call, the call's old key,
    the call that only waits."""
    def calls(capture):
        return API_CALLS.build(call_id=[7, 8, 9], name=["cudaMemcpyAsync", "cudaDeviceSynchronize", "cudaLaunchKernel"],
                               domain=["cuda_runtime"] * 3, thread_id=[1] * 3, correlation_id=[5, 6, 4],
                               t_start_ns=[300 + capture, 10 + capture, 20 + capture],
                               t_end_ns=[350 + capture, 15 + capture, 25 + capture])

    with Writer(session, launches=LaunchFinder()) as writer:
        for capture in range(3):
            writer.add(kernels([1, 2, 3], [100 + capture, 200 + capture, None], device_id=[0] * 3,
                               correlation_id=[4, 6, 4]), capture)
            writer.add(COPIES.build(copy_id=[1], kind=["h2d"], correlation_id=[5], t_start_ns=[400], t_end_ns=[500]),
                       capture)
            writer.add(calls(capture), capture)
        writer.write([None] * 3, unlinked={2})
    starts = {row["call_id"]: row["t_start_ns"] for row in written(session, API_CALLS)}
    launched = [(row["capture"], row["kernel_name"], starts.get(row["launch_id"])) for row in written(session, KERNELS)]
    assert launched == [(0, "k1", 20), (1, "k1", 21), (2, "k1", None), *((capture, "k2", None) for capture in range(3)),
                        *((capture, "k3", None) for capture in range(3))]
    assert [starts.get(row["launch_id"]) for row in written(session, COPIES)] == [300, 301, None]


@pytest.mark.usefixtures("anywhere")
def test_calls_have_their_tree_and_arguments(session):
    def calls(ids, starts, ends, thread, **more):
        return API_CALLS.build(call_id=ids, name=[f"c{key}" for key in ids], thread_id=[thread] * len(ids),
                               t_start_ns=starts, t_end_ns=ends, **more)

    with Writer(session) as writer:
        writer.add(CALL_ARGUMENTS.build(call_id=[12, 10], arguments=["twelve", "ten"]), 0)
        writer.add(calls([12, 11], [30, 20], [40, 50], 1), 0)
        writer.add(calls([10], [10], [90], 1), 0)
        writer.add(calls([1, 2], [15, 20], [25, 30], 2), 0)
        writer.add(calls([1], [11], [12], 1), 1)  # the same thread number in another capture is another thread
        writer.add(calls([3, 4, 5], [16, None, 18], [None, 19, 17], 2), 0)
        writer.write([None, None])
    rows = {(row["capture"], row["name"]): row for row in written(session, API_CALLS)}
    ids = {key: row["call_id"] for key, row in rows.items()}
    shape = {key: (row["parent_id"], row["preorder"], row["subtree_size"]) for key, row in rows.items()}
    assert shape == {
        (0, "c10"): (None, 0, 3), (0, "c11"): (ids[0, "c10"], 1, 2), (0, "c12"): (ids[0, "c11"], 2, 1),
        (0, "c1"): (None, 0, 1), (0, "c2"): (None, 1, 1), (1, "c1"): (None, 0, 1),
        (0, "c3"): (None, None, None), (0, "c4"): (None, None, None), (0, "c5"): (None, None, None)}
    arguments = {row["call_id"]: row["arguments"] for row in written(session, CALL_ARGUMENTS)}
    assert arguments == {ids[0, "c10"]: "ten", ids[0, "c12"]: "twelve"}


@pytest.mark.usefixtures("anywhere")
def test_a_kernels_family_is_asked_for_once_per_distinct_name(session):
    """Rows without a name have none. Mutations seen to fail: asked per piece, codes of names used as codes of
    families, a first piece without names leaving the families without a dictionary."""
    asked = []

    def families(names):
        asked.append(names.to_pylist())
        return pa.array([{"a": "gemm", "b": "copy"}.get(name, "gemm") for name in names.to_pylist()], pa.string())

    with Writer(session, families) as writer:
        writer.add(KERNELS.build(kernel_id=[0], t_start_ns=[1], t_end_ns=[2]), 0)
        writer.add(kernels([1, 2, 3], [10, 20, 30], names=["b", "a", "b"]), 0)
        writer.add(kernels([4, 5], [40, 50], names=["c", "b"]), 0)
        writer.write([None])
    assert asked == [["b", "a", "c"]]
    assert [row["family"] for row in written(session, KERNELS)] == [None, "copy", "gemm", "copy", "gemm", "copy"]


def test_a_family_that_the_capture_says_stays(session):
    with Writer(session, lambda names: pa.array(["unknown"] * len(names))) as writer:
        writer.add(kernels([1], [10], names=["a"], family=["gemm"]), 0)
        writer.write([None])
    assert [row["family"] for row in written(session, KERNELS)] == ["gemm"]


def test_calls_without_a_thread_are_in_no_tree(session):
    with Writer(session) as writer:
        writer.add(API_CALLS.build(call_id=[0, 1], name=["a", "b"], t_start_ns=[0, 1], t_end_ns=[9, 2]), 0)
        writer.write([None])
    for row in written(session, API_CALLS):
        assert row["parent_id"] is row["preorder"] is row["subtree_size"] is None


@pytest.mark.usefixtures("anywhere")
def test_names_have_one_dictionary_for_the_whole_file(session):
    """Also in row groups that use few of them or none; codes are then the same everywhere."""
    with Writer(session) as writer:
        for piece in range(4):
            writer.add(kernels([2 * piece, 2 * piece + 1], [piece * 20, piece * 20 + 5],
                               names=["same", f"only {piece}"], family=[None, "late" if piece == 3 else None]), 0)
        writer.write([None])
    batches = list(queries.batches(session, KERNELS, ["kernel_name", "family"]))
    for column, names in (("kernel_name", ["same", *(f"only {piece}" for piece in range(4))]), ("family", ["late"])):
        assert queries.names(session, KERNELS, column) == names
        assert all(batch[column].dictionary.to_pylist() == names for batch in batches)
    with (session.folder / KERNELS.file).open("rb") as file:
        assert pq.ParquetFile(file).metadata.num_rows == 8


def test_a_table_without_time_keeps_its_order_and_samples_go_by_theirs(session):
    with Writer(session) as writer:
        writer.add(WAVE_INSTRUCTIONS.build(vaddr=[3, 1], instruction=["b", "a"]), 0)
        writer.add(WAVE_INSTRUCTIONS.build(vaddr=[2], instruction=["c"]), 0)
        writer.add(SAMPLES.build(t_ns=[5, None, 1], name=["x"] * 3, value=[5.0, 0.0, 1.0]), 0)
        writer.write([None])
    assert [row["vaddr"] for row in written(session, WAVE_INSTRUCTIONS)] == [3, 1, 2]
    assert [row["t_ns"] for row in written(session, SAMPLES)] == [1, 5, None]


def test_what_no_spec_made_is_refused(session):
    with Writer(session) as writer, pytest.raises(TypeError, match="not a piece"):
        writer.add(KERNELS.build(kernel_id=[1]).drop(["rank"]), 0)


def test_tallies_are_exact_beyond_64_bits(session):
    with Writer(session) as writer:
        writer.add(KERNELS.build(kernel_id=[0, 1, 2], dur_ns=[2**62, 2**62, 2**62], t_start_ns=[5, None, 3],
                                 t_end_ns=[6, 9, None]), 0)
        tally = writer.tallies["kernels"][0]
    assert (tally.rows, tally.ns, tally.start_ns, tally.end_ns) == (3, 3 * 2**62, 3, 9)

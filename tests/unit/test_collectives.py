"""Collectives over ranks whose times were planted, and the one in a real trace."""

import gzip
import json

import numpy as np
import pytest

from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline.collectives import CollectiveCollector
from aaco.core.tables import COLLECTIVES
from tests import kineto_rows, timed
from tests.timed import at

RANKS = 4
MiB = 2**20


def kernels_of(count=10, late=2, delay=700, took=1000, shift=(0, 0, 0, 0), spread=0, size=RANKS):
    """Rows of `count` operations over four ranks, one capture each: rank `late` starts `delay` after the others, and
    all end together, `took` after it starts; what a rank's clock shows is off by its shift."""
    rows = []
    for turn in range(count):
        begin = 100_000 * turn
        for rank in range(size):
            own = begin + (delay if rank == late else spread * rank)
            rows.append(at(own + shift[rank], begin + delay + took + shift[rank], capture=rank, device_id=rank,
                           kernel_name="ncclDevKernel", turn=turn))
    return rows


def gather(rows, operation="allreduce", group_size=RANKS, given=True, ranks=None, **sizes):
    """The answer over these kernels; `given`: whether the capture numbers its operations."""
    turns = {(row["capture"], row["t_start_ns"]): row.pop("turn") for row in rows}
    kernels = timed.kernels(*rows)
    found = kernels.to_pylist()
    sequence = [turns[row["capture"], row["t_start_ns"]] if given else None for row in found]
    sent = {name: [value(row) if callable(value) else value for row in found] for name, value in sizes.items()}
    table = COLLECTIVES.build(kernel_id=kernels["kernel_id"], operation=[operation] * len(found),
                              group=["0"] * len(found), group_size=[group_size] * len(found), sequence=sequence, **sent)
    gathering, lanes = CollectiveCollector(table), WorkReader(kernels["kernel_id"].to_numpy())
    for low in range(0, len(found), 7):
        gathering.feed(lanes.work(kernels.slice(low, 7), None))
    return gathering.result(lanes.devices.known, ranks or {rank: rank for rank in range(RANKS)})


@pytest.mark.parametrize("given", [True, False])
def test_latency_skew_bandwidth_and_straggler(given):
    """Mutations: np.minimum.reduceat(duration) -> maximum, 2.0 -> 1.0 of allreduce, _last_of without its start."""
    found = gather(kernels_of(), given=given, bytes_in=MiB, bytes_out=MiB)
    (row,) = found.operations
    assert (row.count, row.complete, row.bounded, row.bytes, row.group_size) == (10, 10, False, MiB, 4)
    assert (row.latency_p50_ns, row.start_skew_p50_ns, row.start_skew_max_ns) == (1000, 700, 700)
    assert row.end_skew_p50_ns == 0
    assert row.algorithm_bytes_per_s == pytest.approx(MiB / 1e-6)
    assert row.bus_bytes_per_s == pytest.approx(MiB / 1e-6 * 2 * 3 / 4)
    assert [one.last for one in found.participants] == [0, 0, 10, 0]
    assert [one.waited_ns for one in found.participants] == [7000, 7000, 0, 7000]
    assert [one.rank for one in found.participants] == [0, 1, 2, 3]
    assert {(late.start_skew_ns, late.straggler) for late in found.latest} == {(700, 2)}
    assert (found.shifts, found.incomplete, found.kernels) == ((), 0, 40)


@pytest.mark.parametrize(("operation", "factor", "counted"), [
    ("allreduce", 2 * 3 / 4, "bytes_in"), ("allgather", 3 / 4, "bytes_out"), ("reduce_scatter", 3 / 4, "bytes_in"),
    ("alltoall", 3 / 4, "bytes_in"), ("broadcast", 1, "bytes_out"), ("send", 1, "bytes_out")])
def test_bus_bandwidth_counts_as_nccl_tests_do(operation, factor, counted):
    sizes = {"bytes_in": 1000, "bytes_out": 4000} if counted == "bytes_out" else {"bytes_in": 4000, "bytes_out": 1000}
    (row,) = gather(kernels_of(), operation, **sizes).operations
    assert row.bytes == 4000
    assert row.bus_bytes_per_s == pytest.approx(4000 / 1e-6 * factor)


def test_an_unknown_operation_has_no_bus_bandwidth():
    (row,) = gather(kernels_of(), "something_new", bytes_in=10, bytes_out=10).operations
    assert (row.bus_bytes_per_s, row.latency_p50_ns) == (None, 1000)


def test_without_sizes_there_is_no_bandwidth():
    (row,) = gather(kernels_of()).operations
    assert (row.bytes, row.algorithm_bytes_per_s, row.bus_bytes_per_s, row.imbalance) == (None, None, None, None)


def test_clocks_that_differ_are_brought_together_by_the_ends():
    """Mutation: `offset_ns` added with the wrong sign."""
    found = gather(kernels_of(shift=(0, 5_000_000, -3_000_000, 77)), bytes_in=MiB, bytes_out=MiB)
    assert [(one.capture, one.offset_ns, one.residual_ns, one.worst_ns, one.operations) for one in found.shifts] == [
        (1, -5_000_000, 0, 0, 10), (2, 3_000_000, 0, 0, 10), (3, -77, 0, 0, 10)]
    (row,) = found.operations
    assert (row.latency_p50_ns, row.start_skew_p50_ns, row.end_skew_p50_ns) == (1000, 700, None)
    assert [one.last for one in found.participants] == [0, 0, 10, 0]


def test_clocks_that_drift_apart_are_brought_together():
    """20 ppm over 20 s are 400 us: a skew of 700 ns is seen all the same."""
    rows = kernels_of(count=200, shift=(0, 7_000_000, 0, 0))
    for row in rows:
        row["t_start_ns"], row["t_end_ns"] = (1000 * row[name] for name in ("t_start_ns", "t_end_ns"))
        if row["capture"] == 1:
            row["t_start_ns"], row["t_end_ns"] = (
                time + round(20e-6 * time) for time in (row["t_start_ns"], row["t_end_ns"]))
    found = gather(rows, bytes_in=MiB, bytes_out=MiB)
    assert found.shifts[0].drift_ppm == pytest.approx(-20, abs=0.01)
    assert found.shifts[0].worst_ns < 100
    assert found.operations[0].start_skew_p50_ns == pytest.approx(700_000, rel=0.01)
    assert found.participants[2].last == 200


def test_ranks_that_are_in_no_capture_leave_an_upper_bound():
    rows = [row for row in kernels_of() if row["capture"] != 2]
    found = gather(rows, bytes_in=MiB, bytes_out=MiB)
    (row,) = found.operations
    assert (row.complete, row.bounded, row.latency_p50_ns, found.incomplete) == (0, True, 1700, 10)


def test_one_rank_waits_for_no_one_that_is_seen():
    found = gather([row for row in kernels_of() if row["capture"] == 0], group_size=None, bytes_in=8, bytes_out=8)
    (row,) = found.operations
    assert (row.start_skew_p50_ns, row.bus_bytes_per_s, row.bounded) == (None, None, True)
    assert [(one.last, one.waited_ns) for one in found.participants] == [(None, None)]


def test_uneven_messages_of_an_alltoall():
    found = gather(kernels_of(), "alltoall", bytes_in=lambda row: 4000 if row["capture"] == 1 else 0,
                   bytes_out=lambda row: 1000)
    assert found.operations[0].imbalance == 4


def test_message_sizes_are_rows_of_their_own():
    found = gather(kernels_of(), bytes_in=lambda row: 100 + (row["t_start_ns"] // 500_000), bytes_out=1)
    assert [(row.bytes, row.count) for row in found.operations] == [(100, 5), (101, 5)]


@pytest.mark.captures
def test_the_allgather_of_a_real_trace():
    """kineto/b200_eager_trace: 25,136 bf16 in, 201,088 out, over 8 ranks of which this is one."""
    name = "kineto/b200_eager_trace.json.gz"
    kernels = kineto_rows.read(name)["kernels"]
    events = json.loads(gzip.decompress(kineto_rows.path(name).read_bytes()))["traceEvents"]
    (event,) = (event for event in events if event.get("cat") == "kernel" and "Collective name" in event["args"])
    (row,) = np.flatnonzero([text == event["name"] for text in kernels["kernel_name"].to_pylist()])
    given = event["args"]
    table = COLLECTIVES.build(kernel_id=[row], operation=["allgather"], group=[given["Process Group Name"]],
                              group_size=[given["Group size"]], bytes_in=[2 * given["In msg nelems"]],
                              bytes_out=[2 * given["Out msg nelems"]])
    gathering, lanes = CollectiveCollector(table), WorkReader()
    gathering.feed(lanes.work(kernels, None))
    (found,) = gathering.result(lanes.devices.known, {}).operations
    assert (found.bytes, found.group_size, found.latency_min_ns, found.bounded) == (402_176, 8, 21_953, True)
    assert found.bus_bytes_per_s == pytest.approx(402_176 / 21_953e-9 * 7 / 8)

"""What the devices' time went to, against painting every nanosecond; and the budget against its own sums."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.bottleneck.budget import HOST, _scaled, budget
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import COLUMNS, DeviceWork, Working, device_work
from aaco.analytics.roofline import limiters
from aaco.analytics.roofline.limiters import Limiter
from aaco.analytics.timeline.trace import trace
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.documents import decode, encode

FAMILIES = ["conv", "softmax", "sort", None, "collective"]
KINDS = ["h2d", "d2h", "d2d", "memset"]
FIRST = {name: place for place, name in enumerate((
    "compute", "memory", "memory_latency", "kernel", "communication", "local_copy", "transfer"))}
rows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 1), st.integers(0, 8)), max_size=25)


def built(found):
    """Kernels and copies tables in start order, of (start, length, device, kind) rows; kinds from 5 on are copies."""
    found = sorted(found)
    kernels, copies = [row for row in found if row[3] < 5], [row for row in found if row[3] >= 5]
    times = [{"t_start_ns": [row[0] for row in part], "t_end_ns": [row[0] + row[1] for row in part],
              "dur_ns": [row[1] for row in part], "device_id": [row[2] for row in part]} for part in (kernels, copies)]
    return (tables.KERNELS.build(kernel_id=range(len(kernels)), kernel_name=["KL"[row[3] == 2] for row in kernels],
                                 family=[FAMILIES[row[3]] for row in kernels], **times[0]),
            tables.COPIES.build(copy_id=range(len(copies)), kind=[KINDS[row[3] - 5] for row in copies],
                                bytes=[row[1] for row in copies], **times[1]))


def painted(found):
    """Time of each limiter by colouring every ns of every device with the first limiter that works in it."""
    of_kind = ["compute", "memory", "memory_latency", "kernel", "communication", "transfer", "transfer", "local_copy",
               "local_copy"]
    colours = {}
    for start, length, device, kind in found:
        for ns in range(start, start + length):
            mine = FIRST[of_kind[kind]]
            colours[device, ns] = min(mine, colours.get((device, ns), mine))
    names = list(FIRST)
    return {name: sum(names[colour] == name for colour in colours.values()) for name in names}


@given(rows)
def test_every_nanosecond_goes_to_the_first_limiter_that_works_in_it(found):
    """Mutation: `level <= each` as `level == each` in _Nested counts overlaps twice."""
    kernels, copies = built(found)
    working = Working({"L": ("memory_latency", "counters")})
    working.feed(kernels, copies, tables.API_CALLS.build())
    result = working.result()
    if not found:
        assert result is None
        return
    assert dict(result.parts_ns) == painted(found)
    assert result.kernels == kernels.num_rows and result.kernel_ns == sum(row[1] for row in found if row[3] < 5)
    assert sum(result.family_ns.values()) == result.kernel_ns
    assert sum(each.count for each in result.copies) == copies.num_rows
    assert decode(encode(result), DeviceWork) == result


@given(rows.filter(bool), st.integers(0, 70))
def test_slices_give_what_the_whole_gives(found, cut):
    """Mutation: keeping no reach between calls of feed."""
    kernels, copies = built(found)
    whole, sliced = Working(), Working()
    calls = tables.API_CALLS.build()
    whole.feed(kernels, copies, calls)
    for early in (True, False):
        chosen = [pa.array([(start < cut) == early for start in table["t_start_ns"].to_pylist()], pa.bool_())
                  for table in (kernels, copies)]
        parts = [table.filter(rows_) for table, rows_ in zip((kernels, copies), chosen, strict=True)]
        sliced.feed(*parts, calls)
    assert whole.result() == sliced.result()


@given(rows.filter(lambda found: any(row[3] < 5 for row in found)), st.none() | st.floats(1e-6, 1e-3))
def test_a_budget_sums_to_its_wall(found, latency_ms):
    """Mutation: leaving `kernel_wait` out of the idle parts."""
    kernels, copies = built(found)
    known = Unprofiled(1, latency_ms, "") if latency_ms else None
    trace_, work = trace(kernels, Analysis(), copies), device_work(kernels, copies)
    made = budget(trace_, work, known)
    assert sum(made.parts_ns.values()) == made.wall_ns
    assert all(part >= 0 for part in made.parts_ns.values())
    assert made.busy_ns == trace_.sum("busy_ns") == work.busy_ns
    if not made.unprofiled:
        assert made.wall_ns == trace_.sum("span_ns")
    assert set(HOST) <= made.parts_ns.keys()


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 10**13))
def test_scaling_keeps_proportions_and_the_sum(parts, total):
    named = {str(index): part for index, part in enumerate(parts)}
    scaled = _scaled(named, total)
    assert sum(scaled.values()) == total
    if sum(parts):
        for name, part in named.items():
            assert abs(scaled[name] - part * total / sum(parts)) <= len(parts)


def test_a_nearly_empty_device_waits_for_reads_unless_it_multiplies_matrices():
    """A single warp's occupancy rounds to 0, which profilers also say where they do not know: its grid tells.
    Mutation: `occupancy_pct >= 0` takes a cluster launch of unknown occupancy for an empty device."""
    occupancy, length = np.array([1.0, 1.0, 50.0, np.nan, 0.0, 0.0]), np.full(6, 50_000)
    items = np.array([np.nan, np.nan, np.nan, np.nan, 32, 50_000])
    limiter = np.array([Limiter.KERNEL, Limiter.COMPUTE, *[Limiter.KERNEL] * 4])
    assert limiters.of_launch(limiter, occupancy, items, length).tolist() == [
        Limiter.MEMORY_LATENCY, Limiter.COMPUTE, Limiter.KERNEL, Limiter.KERNEL, Limiter.MEMORY_LATENCY, Limiter.KERNEL]


@pytest.mark.parametrize(("name", "part"), [
    ("at::cuda::(anonymous namespace)::spin_kernel(long)", "kernel"), ("chase(int*, long)", "memory_latency")])
def test_a_kernel_that_waits_for_the_clock_does_not_wait_for_reads(name, part):
    """PyTorch's sleep on the device has one thread. Mutation: it makes a rank that it delays memory-latency-bound."""
    kernels = tables.KERNELS.build(kernel_id=[0], kernel_name=[name], family=["unknown"], occupancy_pct=[1.0],
                                   t_start_ns=[0], t_end_ns=[50_000], dur_ns=[50_000], device_id=[0])
    found = device_work(kernels, tables.COPIES.build()).parts_ns
    assert {key: ns for key, ns in found.items() if ns} == {part: 50_000}


def test_a_product_without_shapes_is_told_by_its_tile():
    """Mutation: `max(sides)` takes a decoding step's 192x8 tile for arithmetic."""
    found = [limiters.of_name("gemm", tile) for tile in ("320x128x64", "192x8x64", None, "odd")]
    assert found == [Limiter.COMPUTE, Limiter.MEMORY, Limiter.KERNEL, Limiter.KERNEL]
    assert limiters.of_name("attention", None) == Limiter.KERNEL and limiters.of_name("conv", None) == Limiter.COMPUTE


def test_the_columns_read_are_the_tables():
    assert all(set(columns) <= set(tables.ALL[name].columns) for name, columns in COLUMNS.items())

"""Counters decide what limits a kernel before shapes and names do.

Mutations that these tests caught: `bound` before `measured_bound`, FAR left out, `low == high` -> `low <= high`,
the select of `own` and `alike` exchanged, in work.py `measured` after the shapes.
"""

import numpy as np
import pyarrow as pa

from aaco.analytics.bottleneck import by_counters
from aaco.analytics.bottleneck.by_counters import OWN_WAITS
from aaco.analytics.bottleneck.costs import NO_SIDE
from aaco.analytics.bottleneck.limiters import Limiter
from aaco.analytics.bottleneck.work import Working
from aaco.core import tables
from aaco.core.tables import replaced


def roofline(*rows):
    """Rows of (kernel_id, kernel_name, bound, measured_bound, region, memory_wait_share: may be left out)."""
    columns = zip(*((*row, None)[:len(by_counters.COLUMNS)] for row in rows), strict=True)
    return tables.KERNEL_ROOFLINE.build(**dict(zip(by_counters.COLUMNS, map(list, columns), strict=True)))


def kernels(*rows, dur_ns=20_000):
    """Kernels one after another of (kernel_id, kernel_name, family)."""
    ids, names, families = (list(column) for column in zip(*rows, strict=True))
    start = [100_000 * place for place in range(len(rows))]
    return tables.KERNELS.build(kernel_id=ids, kernel_name=names, family=families, device_id=[0] * len(rows),
                                t_start_ns=start, t_end_ns=[one + dur_ns for one in start], dur_ns=[dur_ns] * len(rows))


def test_the_ceiling_that_bounds_a_kernel_is_its_side():
    found = by_counters.sides([roofline((4, "a", "compute", None, "compute_bound"),
                                        (2, "b", "compute", "dram", "optimal")),
                               roofline((3, "c", "lds", None, "memory_bound"), (7, "d", "l2", None, "latency_bound"),
                                        (8, "e", None, None, None))])
    asked = kernels((2, "b", None), (3, "c", None), (4, "a", None), (7, "d", None), (8, "e", None), (9, "z", None))
    assert found.of_kernels(asked).tolist() == [Limiter.MEMORY, Limiter.KERNEL, Limiter.COMPUTE, Limiter.KERNEL,
                                                NO_SIDE, NO_SIDE]


def test_a_kernel_without_counters_is_judged_by_its_name_where_that_is_of_one_mind():
    found = by_counters.sides([roofline((1, "a", "dram", None, "memory_bound"), (2, "a", "l1", None, "optimal"),
                                        (3, "b", "dram", None, "optimal"), (4, "b", "compute", None, "optimal"))])
    asked = kernels((10, "a", None), (4, "b", None), (11, "b", None), (12, None, None))
    assert found.of_kernels(asked).tolist() == [Limiter.MEMORY, Limiter.COMPUTE, NO_SIDE, NO_SIDE]


def test_without_counters_nothing_is_said():
    assert by_counters.sides([]).of_kernels(kernels((1, "a", None))).tolist() == [NO_SIDE]
    unplaced = roofline((1, "a", None, None, None))
    assert by_counters.sides([unplaced]).of_kernels(kernels((1, "a", None))).tolist() == [NO_SIDE]


def test_counters_are_believed_before_shapes_and_shapes_before_names():
    """Three convolutions, whose family computes: one is counted, of one the shapes are known."""
    working = Working()
    rows = kernels((1, "k", "conv"), (2, "k", "conv"), (3, "k", "conv"))
    shapes = np.array([Limiter.COMPUTE, Limiter.MEMORY, NO_SIDE])
    counted = np.array([Limiter.MEMORY, NO_SIDE, NO_SIDE])
    working.feed(rows, tables.COPIES.build(), tables.API_CALLS.build(), shapes, counted)
    found = working.result()
    assert found.parts_ns["memory"] == 40_000 and found.parts_ns["compute"] == 20_000
    assert found.told_by_ns == {"counters": 20_000, "shapes": 20_000, "names": 20_000}


def test_what_a_kernel_far_from_every_roof_waits_for():
    """Of others it says nothing. Mutations: near a roof, too; waits for memory taken for its own."""
    found = by_counters.sides([roofline((1, "a", "dram", None, "latency_bound", 0.1),
                                        (2, "b", "dram", None, "latency_bound", 0.5),
                                        (3, "c", "dram", None, "latency_bound", None),
                                        (4, "d", "dram", None, "memory_bound", 0.1))])
    asked = kernels((1, "a", None), (2, "b", None), (3, "c", None), (4, "d", None), (5, "a", None))
    assert found.of_kernels(asked).tolist() == [OWN_WAITS, Limiter.KERNEL, Limiter.KERNEL, Limiter.MEMORY, OWN_WAITS]


def test_a_kernel_that_waits_for_itself_is_of_no_side_however_few_its_waves():
    """Mutation: the launch asked."""
    rows = kernels((1, "k", "conv"), (2, "k", "conv"))
    working = Working()
    few = replaced(rows, "occupancy_pct", pa.array([1.0, 1.0], rows.schema.field("occupancy_pct").type))
    working.feed(few, tables.COPIES.build(), tables.API_CALLS.build(), np.array([Limiter.COMPUTE, NO_SIDE]),
                 np.array([OWN_WAITS, Limiter.KERNEL]))
    found = working.result()
    assert found.parts_ns["kernel"] == found.parts_ns["memory_latency"] == 20_000
    assert found.told_by_ns["counters"] == 40_000


def test_far_from_every_roof_the_launch_may_tell():
    rows = kernels((1, "k", "conv"), (2, "k", "conv"))
    rows = rows.set_column(rows.schema.get_field_index("occupancy_pct"), rows.schema.field("occupancy_pct"),
                           pa.array([1.0, 80.0]).cast(rows.schema.field("occupancy_pct").type))
    working = Working()
    far = np.array([Limiter.KERNEL, Limiter.KERNEL])
    working.feed(rows, tables.COPIES.build(), tables.API_CALLS.build(), None, far)
    found = working.result().parts_ns
    assert found["memory_latency"] == found["kernel"] == 20_000 and not found["compute"]

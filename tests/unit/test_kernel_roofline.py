"""analytics.roofline.placement: kernels under ceilings, against the formulas written out for one kernel at a time."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.roofline import placement, summary
from aaco.analytics.roofline.counted import Work
from aaco.analytics.roofline.devices.ceilings import Ceilings
from aaco.analytics.roofline.placement import FLOATS, Kernels, place
from aaco.core.readings import Absent

THEORY = Ceilings("a board", {"vector_f32": 1e12, "matrix_f16": 16e12, "matrix_f32": 4e12},
                  {"dram": 1e12, "l2": 4e12, "l1": 8e12, "lds": 8e12})
NOTHING = Ceilings(absent={"rates": "not measured", "dram": "not measured"})
ZERO = dict.fromkeys(FLOATS, 0.0) | dict.fromkeys(placement.QUANTITIES, 0.0)


def placed(*kernels, time_ns=1000.0, theory=THEORY, measured=NOTHING, absent=None, unknown=None):
    """Rows of kernels given as {quantity: value}; a quantity that none has is absent."""
    names = {name for kernel in kernels for name in kernel}
    quantities = {name: np.array([kernel.get(name, math.nan) for kernel in kernels]) for name in names}
    times = np.broadcast_to(np.array(time_ns, float), len(kernels)).copy()
    why = {name: f"{name} not recorded" for name in (*FLOATS, *placement.QUANTITIES) if name not in names}
    work = Work(quantities, why | (absent or {}), np.array(unknown or [False] * len(kernels)))
    names = pa.array([f"k{at}" for at in range(len(kernels))]).dictionary_encode()
    table, impossible = place(Kernels(pa.array(range(len(kernels))), names, 0, 1, times), work, theory, measured)
    return table.to_pylist(), impossible


def test_a_kernel_below_the_memory_roof():
    """500 kB in 1 us are half of 1 TB/s."""
    (row,), impossible = placed(ZERO | {"vector_f32": 100_000.0, "dram_read_bytes": 300_000.0,
                                        "dram_written_bytes": 200_000.0, "l2_bytes": 1_000_000.0})
    assert (row["bound"], row["roof_share"], row["region"]) == ("dram", 0.5, "memory_bound")
    assert (row["dram_intensity"], row["l2_intensity"], row["lds_intensity"]) == (0.2, 0.1, None)
    assert row["flops_per_s"] == 1e11 and row["dram_bytes_per_s"] == 5e11
    assert (row["compute_share"], row["l2_share"]) == (pytest.approx(0.1), 0.25)
    assert not impossible and row["why_absent"] is None and row["uncounted"] is None


def test_types_of_a_unit_add_up_and_units_run_side_by_side():
    """Mutations: the greatest type instead of the sum; the sum over both units."""
    (row,), _ = placed(ZERO | {"matrix_f16": 6.4e6, "matrix_f32": 1.6e6, "vector_f32": 0.5e6, "dram_read_bytes": 1.0})
    assert row["compute_share"] == pytest.approx(6.4e6 / 16e12 * 1e6 + 1.6e6 / 4e12 * 1e6)
    assert (row["bound"], row["region"], row["flops"]) == ("compute", "optimal", 8.5e6)
    assert row["dominant"] == "vector_f32"


@pytest.mark.parametrize(("change", "ceiling", "factor"), [
    ({"vector_f32": 3e6}, "compute", 3.0), ({"dram_read_bytes": 2e6}, "dram", 2.0), ({"l2_bytes": 5e6}, "l2", 1.25),
    ({"lds_bytes": 9e6}, "lds", 1.125)])
def test_beyond_a_theoretical_ceiling_is_an_error_and_nothing_is_printed(change, ceiling, factor):
    """Mutation: print the share all the same, or clip it at 1."""
    rows, impossible = placed(ZERO | change, ZERO | {"dram_read_bytes": 1000.0})
    wrong, right = rows
    assert ceiling in wrong["error"] and wrong["why_absent"] == wrong["error"]
    for name in ("bound", "roof_share", "flops_per_s", "dram_bytes_per_s", "region", *(
            f"{each}_share" for each in placement.BOUNDS)):
        assert wrong[name] is None, name
    (told,) = impossible
    assert (told.ceiling, told.kernels, told.kernel_name, told.factor) == (ceiling, 1, "k0", pytest.approx(factor))
    assert told.achieved / told.peak == pytest.approx(factor)
    assert right["error"] is None and right["bound"] == "dram"


def test_a_cache_before_the_memory_may_serve_more_than_the_memory():
    """Up to what the cache can: beyond that it is an error like any other. Mutation: always take the cache's."""
    theory = Ceilings(None, THEORY.rates, THEORY.bandwidths | {"memory_side_cache": 4e12})
    rows, impossible = placed(ZERO | {"dram_read_bytes": 2e6}, ZERO | {"dram_read_bytes": 0.5e6},
                              ZERO | {"dram_read_bytes": 5e6}, theory=theory)
    assert [row["dram_share"] for row in rows] == [0.5, 0.5, None]
    assert [one.kernels for one in impossible] == [1]


@pytest.mark.parametrize(("given_away", "why"), [
    ("vector_f32", "vector_f32 not recorded"), ("dram_read_bytes", "dram_read_bytes not recorded")])
def test_what_was_not_counted_leaves_no_place(given_away, why):
    kernel = {name: value for name, value in ZERO.items() if name != given_away}
    (row,), _ = placed(kernel | {"dram_written_bytes": 5.0})
    assert row["bound"] is None and row["why_absent"] == why


def test_types_that_were_not_counted_are_named():
    kernel = {name: value for name, value in ZERO.items() if name != "matrix_f8"}
    (row,), _ = placed(kernel | {"dram_read_bytes": 5.0})
    assert row["uncounted"] == "matrix_f8" and row["bound"] == "dram"


def test_other_reasons():
    assert placed(ZERO, time_ns=math.nan)[0][0]["why_absent"] == placement.NO_TIME
    assert placed(ZERO, time_ns=0.0)[0][0]["why_absent"] == placement.NO_TIME
    assert placed(ZERO, unknown=[True])[0][0]["why_absent"] == placement.UNKNOWN_MATRIX
    assert placed({"l2_bytes": math.nan})[0][0]["why_absent"] == placement.NO_COUNTERS
    no_clock = Ceilings(absent={"rates": "no clock", "dram": "no data sheet"})
    assert placed(ZERO | {"vector_f32": 1.0}, theory=no_clock)[0][0]["why_absent"] == "no clock"
    assert placed(ZERO, theory=no_clock)[0][0]["why_absent"] == "no data sheet"
    assert placed(ZERO | {"matrix_f8": 1.0})[0][0]["why_absent"] == "the peak of a type that it used is not known"


def test_measured_ceilings_stand_beside_theoretical_ones_and_may_be_beaten():
    slow = Ceilings(rates={"vector_f32": 0.5e12}, bandwidths={"dram": 0.4e12})
    (row,), impossible = placed(ZERO | {"dram_read_bytes": 0.5e6}, measured=slow)
    assert (row["roof_share"], row["measured_roof_share"]) == (0.5, 1.25)
    assert row["region"] == "optimal" and not impossible


amounts = st.floats(0, 1e7, allow_nan=False)


@given(st.lists(st.fixed_dictionaries({
    "vector_f32": amounts, "matrix_f16": amounts, "matrix_f32": amounts, "dram_read_bytes": amounts,
    "dram_written_bytes": amounts, "l2_bytes": amounts, "l1_bytes": amounts, "lds_bytes": amounts}), min_size=1,
    max_size=6), st.floats(1, 1e5))
def test_the_roof_is_the_slowest_ceiling(kernels, time_ns):
    """Against the definition written out per kernel."""
    rows, impossible = placed(*(ZERO | kernel for kernel in kernels), time_ns=time_ns)
    for row, kernel in zip(rows, kernels, strict=True):
        matrix = kernel["matrix_f16"] / 16e12 + kernel["matrix_f32"] / 4e12
        ideal = {"compute": max(kernel["vector_f32"] / 1e12, matrix),
                 "dram": (kernel["dram_read_bytes"] + kernel["dram_written_bytes"]) / 1e12,
                 "l2": kernel["l2_bytes"] / 4e12, "l1": kernel["l1_bytes"] / 8e12, "lds": kernel["lds_bytes"] / 8e12}
        share = {name: 1e9 * seconds / time_ns for name, seconds in ideal.items()}
        if max(share.values()) > 1 + 1e-12:
            assert row["error"] and row["roof_share"] is None
        elif max(share.values()) < 1 - 1e-12:
            assert row["roof_share"] == pytest.approx(max(share.values()))
            assert share[row["bound"]] == pytest.approx(max(share.values()))
    assert sum(one.kernels for one in impossible) >= sum(row["error"] is not None for row in rows)


def table(*kernels, **others):
    """As `placed`, but the table itself."""
    return pa.Table.from_pylist(placed(*kernels, **others)[0], schema=placement.KERNEL_ROOFLINE.schema)


def test_sums():
    rows = table(ZERO | {"dram_read_bytes": 0.5e6}, ZERO | {"dram_read_bytes": 0.25e6}, ZERO | {"l2_bytes": 8e6},
                 time_ns=[1000.0, 2000.0, 500.0])
    totals = summary.Totals()
    totals.add(rows.slice(0, 1))
    totals.add(rows.slice(1))
    found = totals.document()
    assert (found["kernels"], found["placed"], found["total_ns"], found["placed_ns"]) == (3, 2, 3500, 3000)
    assert found["ideal_ns"] == pytest.approx(750)
    assert [part["count"] for part in found["not_placed"].values()] == [1]
    envelope = summary.envelope(found)
    assert envelope.ideal_ns / envelope.time_ns == pytest.approx(0.25)
    with pytest.raises(Absent, match="no ceilings were measured"):
        summary.envelope(found, "measured_")


def test_by_symbol_weighs_by_time():
    rows = table(ZERO | {"vector_f32": 1e5, "dram_read_bytes": 0.5e6},
                 ZERO | {"vector_f32": 3e5, "dram_read_bytes": 1e6}, time_ns=[1000.0, 4000.0])
    rows = rows.set_column(rows.column_names.index("kernel_name"), "kernel_name", pa.array(["k", "k"]))
    (found,) = summary.by_symbol(rows)
    assert (found["calls"], found["total_ns"], found["bound"]) == (2, 5000, "dram")
    assert found["intensity"] == pytest.approx(4e5 / 1.5e6)
    assert found["flops_per_s"] == pytest.approx(4e5 / 5e-6)
    assert found["roof_share"] == pytest.approx((0.5 * 1000 + 0.25 * 4000) / 5000)


def test_by_symbol_has_no_rates_of_what_cannot_be():
    """Mutation: rate the operations of kernels beyond a ceiling too."""
    rows = table(*(ZERO | {"vector_f32": done, "dram_read_bytes": 1.0} for done in (5e6, 1e5)))
    found = {one["kernel_name"]: one for one in summary.by_symbol(rows)}
    assert found["k0"]["flops_per_s"] is None and found["k0"]["error"] and found["k0"]["flops"] == 5e6
    assert found["k1"]["flops_per_s"] == pytest.approx(1e11)

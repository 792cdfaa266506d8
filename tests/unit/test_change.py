"""The exact decomposition of a change, against sums worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from aaco.core.readings import Absent
from aaco.core.tables import KERNELS
from aaco.governance.change import attribute, combine, profile_of
from aaco.tracelake.history.replicates import KernelSum, Profile


def profile(inferences, gaps_ns=0, overlap_ns=0, **families):
    total = sum(ns for _, ns in families.values())
    return Profile(inferences=inferences, window_ns=total + gaps_ns - overlap_ns, gaps_ns=gaps_ns,
                   overlap_ns=overlap_ns, kernels=tuple(
                       KernelSum(family=name, kernel_name=name, calls=calls, total_ns=ns)
                       for name, (calls, ns) in families.items()))


def kernels(*rows):
    """Rows of (name, family, iteration, start, end)."""
    name, family, iteration, start, end = zip(*rows, strict=True)
    return KERNELS.build(kernel_name=name, family=family, iteration=iteration, t_start_ns=start, t_end_ns=end,
                         dur_ns=np.subtract(end, start))


def test_count_and_duration_are_told_apart():
    change = attribute(profile(1, gemm=(10, 1000), conv=(4, 400)), profile(1, gemm=(15, 1500), conv=(4, 600)))
    conv, gemm = change.families
    assert (gemm.delta_count_ns, gemm.delta_duration_ns) == (500, 0)
    assert (conv.delta_count_ns, conv.delta_duration_ns) == (0, 200)
    assert change.delta_ns == 700 and change.delta_pct == pytest.approx(50.0)
    assert [(part.family, part.kind, part.delta_ns) for part in change.parts] == [
        ("gemm", "count", 500), ("conv", "duration", 200)]


def test_both_at_once_split_at_the_midpoint():
    row, = attribute(profile(1, a=(10, 1000)), profile(1, a=(20, 3000))).families  # means 100 and 150
    assert (row.delta_count_ns, row.delta_duration_ns) == (10 * 125, 15 * 50)


def test_different_numbers_of_inferences_meet_at_their_common_multiple():
    change = attribute(profile(4, a=(4, 403)), profile(6, a=(12, 1209)))
    assert change.inferences == 12
    assert change.delta_ns == 2 * 1209 - 3 * 403
    row, = change.families
    assert (row.count_before, row.count_after) == (12, 24)
    assert row.delta_count_ns + row.delta_duration_ns == change.delta_ns


def test_a_family_on_one_side_changed_by_count():
    change = attribute(profile(1, gone=(3, 300)), profile(1, new=(2, 500)))
    assert [(row.family, row.delta_count_ns, row.delta_duration_ns) for row in change.families] == [
        ("gone", -300, 0), ("new", 500, 0)]
    assert change.largest.family == "new"


def test_gaps_and_overlap_are_parts_of_their_own():
    before = profile(1, gaps_ns=10, overlap_ns=5, a=(1, 100))
    change = attribute(before, profile(1, gaps_ns=40, overlap_ns=25, a=(1, 100)))
    assert change.delta_ns == 10
    assert {part.kind: part.delta_ns for part in change.parts} == {"gaps": 30, "overlap": -20}
    assert change.largest.kind == "gaps"


def test_the_largest_is_weighed_by_its_net_change():
    """`a` has the largest single part, but its two parts cancel; `b` moved the window."""
    change = attribute(profile(1, a=(10, 1000), b=(1, 100)), profile(1, a=(20, 1010), b=(1, 300)))
    assert change.parts[0].family == "a" and change.largest.family == "b"


def test_no_change_has_no_largest():
    change = attribute(profile(1, a=(1, 10)), profile(2, a=(2, 20)))
    assert change.parts == () and change.largest is None


def test_sessions_add_up():
    both = combine([profile(2, gaps_ns=3, a=(2, 20)), profile(3, overlap_ns=4, a=(1, 5), b=(1, 7))])
    assert (both.inferences, both.window_ns, both.gaps_ns, both.overlap_ns) == (5, 23 + 8, 3, 4)
    assert {kernel.family: (kernel.calls, kernel.total_ns) for kernel in both.kernels} == {"a": (3, 25), "b": (1, 7)}


def test_a_profile_is_read_per_inference_so_that_time_between_inferences_is_no_gap():
    found = profile_of(kernels(("k", "gemm", 0, 0, 10), ("k", "gemm", 0, 15, 20), ("j", None, 1, 1000, 1010),
                               ("x", "copy", None, 500, 900)))
    assert (found.inferences, found.window_ns, found.gaps_ns, found.overlap_ns) == (2, 30, 5, 0)
    assert [(kernel.family, kernel.kernel_name, kernel.calls, kernel.total_ns) for kernel in found.kernels] == [
        ("gemm", "k", 2, 15), ("j", "j", 1, 10)]


def test_kernels_side_by_side_overlap():
    found = profile_of(kernels(("a", "x", 0, 0, 10), ("b", "x", 0, 5, 20), ("c", "x", 0, 25, 30)))
    assert (found.window_ns, found.gaps_ns, found.overlap_ns) == (30, 5, 5)


@pytest.mark.parametrize(("rows", "why"), [
    ([("a", "x", None, 0, 10)], "no kernel belongs"), ([("a", "x", 0, 5, 5)], "shorter than the capture's clock"),
])
def test_a_capture_without_usable_kernels_says_so(rows, why):
    with pytest.raises(Absent, match=why):
        profile_of(kernels(*rows))


def test_kernels_without_times_are_absent():
    with pytest.raises(Absent, match="without times"):
        profile_of(KERNELS.build(kernel_name=["a"], iteration=[0]))


def test_a_profile_that_does_not_conserve_is_refused():
    with pytest.raises(ValidationError, match="not the sum"):
        Profile(inferences=1, window_ns=11, gaps_ns=0, overlap_ns=0,
                kernels=(KernelSum(family="a", kernel_name="a", calls=1, total_ns=10),))

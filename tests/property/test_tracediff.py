"""Trace differences: the account is exact for any two traces, and planted changes are named."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.governance.contexts import Contexts
from aaco.governance.tracediff import OUTSIDE, Trace, compare

PURPOSES = (("aten::linear", "gemm"), ("aten::linear", "norm"), ("", "gemm"))
NAMES = ("gemm", "softmax", "add", "copy")


@st.composite
def traces(draw, streams: int = 2):
    """Small traces with nested calls, kernels that some of them launched, on two devices and streams."""
    parents = draw(st.lists(st.integers(-1, 30), max_size=12))
    parent = np.array([up if up < row else -1 for row, up in enumerate(parents)], np.int64)
    rows = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(0, 30), st.integers(0, 1),
                                   st.integers(0, streams - 1), st.integers(-1, 11)), min_size=1, max_size=25))
    rows.sort(key=lambda row: row[1])
    kernel, start, took, device, stream, launch = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    launch = np.where(launch < len(parent), launch, -1)
    call = np.array([row % 3 for row in range(len(parent))], np.int64)
    return Trace(NAMES, kernel, start, start + took, device, stream, launch, ("step#1", "op", "launch"), call, parent,
                 draw(st.integers(1, 4)), PURPOSES, kernel % 3)


def path(trace: Trace, call: int) -> tuple[str, ...]:
    """The oracle: the names from the root to the call, one step at a time."""
    found = []
    while call >= 0:
        found.append({"step#1": "step#*"}.get(trace.call_names[trace.call[call]], trace.call_names[trace.call[call]]))
        call = int(trace.parent[call])
    return tuple(reversed(found))


def sums(trace: Trace) -> dict[tuple[tuple[str, ...], str], tuple[int, int]]:
    counts, totals = Counter(), Counter()
    for row in range(len(trace.kernel)):
        launch = int(trace.launch[row])
        key = path(trace, int(trace.parent[launch]) if launch >= 0 else -1), NAMES[trace.kernel[row]]
        counts[key] += 1
        totals[key] += int(trace.end[row] - trace.start[row])
    return {key: (counts[key], totals[key]) for key in counts}


def span(trace: Trace) -> int:
    return sum(int(trace.end[trace.device == device].max() - trace.start[trace.device == device].min())
               for device in set(trace.device.tolist()))


@given(traces(), traces())
def test_the_account_is_exact(before, after):
    """Mutations: scaling one side's gaps by the other's steps; grouping by kernel alone."""
    found = compare(before, after)
    scale_a, scale_b = found.steps // before.steps, found.steps // after.steps
    assert found.delta_ns == scale_b * span(after) - scale_a * span(before)
    parts = sum(group.delta_ns for group in found.groups)
    assert parts + found.delta_gaps_ns - found.delta_overlap_ns == found.delta_ns
    for group in found.groups:
        assert group.delta_count_ns + group.delta_duration_ns == group.delta_ns
    old, new = sums(before), sums(after)
    for group in found.groups:
        key = tuple(group.context), group.kernel
        count, ns = old.get(key, (0, 0))
        assert (group.count_before, group.ns_before) == (scale_a * count, scale_a * ns)
        count, ns = new.get(key, (0, 0))
        assert (group.count_after, group.ns_after) == (scale_b * count, scale_b * ns)
    assert len(found.groups) == len({*old, *new})


@given(traces(), traces())
def test_the_account_by_family_and_operator_is_exact_too(before, after):
    """Mutations: one side not scaled (compare raises); parts of one family summed over operators."""
    found = compare(before, after)
    parts = sum(part.delta_ns for part in found.purposes)
    assert parts + found.delta_gaps_ns - found.delta_overlap_ns == found.delta_ns
    for part in found.purposes:
        assert part.delta_count_ns + part.delta_duration_ns == part.delta_ns
        for trace, scale, count, ns in ((before, found.steps // before.steps, part.count_before, part.ns_before),
                                        (after, found.steps // after.steps, part.count_after, part.ns_after)):
            mine = [row for row in range(len(trace.kernel))
                    if PURPOSES[trace.kernel[row] % 3] == (part.operator, part.family)]
            assert count == scale * len(mine)
            assert ns == scale * sum(int(trace.end[row] - trace.start[row]) for row in mine)


def gaps(trace: Trace) -> int:
    """The oracle: ns inside the devices' spans in which none of their kernels runs."""
    idle = 0
    for device in set(trace.device.tolist()):
        mine = trace.device == device
        busy = {ns for start, end in zip(trace.start[mine], trace.end[mine], strict=True) for ns in range(start, end)}
        idle += int(trace.end[mine].max() - trace.start[mine].min()) - len(busy)
    return idle


@given(traces(), traces(), st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_causes_of_gaps_sum_to_the_gaps_or_are_not_told(before, after, beyond, waited, wrong):
    """`beyond`: copies before the first kernel, in the device's span but in no gap. Mutations: the span of the kernels
    not added to OUTSIDE; no check of the sum in `_parts`."""
    def known(trace: Trace, off: int) -> Trace:
        return replace(trace, waits={"host_wait": gaps(trace) - waited + off, "copies": beyond + waited,
                                     OUTSIDE: -span(trace) - beyond})

    found = compare(known(before, 0), known(after, int(wrong)))
    if wrong:
        assert not found.waits
    else:
        assert sum(wait.delta_ns for wait in found.waits) == found.delta_gaps_ns
    assert not compare(before, known(after, 0)).waits


@given(traces(), traces())
def test_every_kernel_is_the_same_or_replaced(before, after):
    """Mutation: leaving out streams that have no partner loses their kernels."""
    found = compare(before, after)
    assert found.same + sum(len(item.before) * item.times for item in found.replacements) == len(before.kernel)
    assert found.same + sum(len(item.after) * item.times for item in found.replacements) == len(after.kernel)
    changed = sum(item.ns_after - item.ns_before for item in found.replacements)
    whole = int((after.end - after.start).sum() - (before.end - before.start).sum())
    assert changed + found.same_delta_ns == whole


@given(traces())
def test_a_trace_does_not_differ_from_itself(trace):
    found = compare(trace, trace)
    assert found.delta_ns == 0 and not found.replacements and not any(group.delta_ns for group in found.groups)


@given(traces(), traces())
def test_contexts_are_equal_exactly_where_paths_are(before, after):
    contexts = Contexts()
    numbers = [contexts.number(trace.call_names, trace.call, trace.parent) for trace in (before, after)]
    for trace, numbered in zip((before, after), numbers, strict=True):
        for call, number in enumerate(numbered.tolist()):
            assert contexts.path(number) == path(trace, call)
    known = {contexts.path(number) for side in numbers for number in side.tolist()}
    assert len(known) == len({number for side in numbers for number in side.tolist()})


def chain(kernels: list[tuple[str, int]], gap: int = 5) -> Trace:
    """Kernels one after the other on one stream."""
    names = sorted({name for name, _ in kernels})
    took = np.array([ns for _, ns in kernels])
    start = np.cumsum(took + gap) - took
    zero = np.zeros(len(kernels), np.int64)
    return Trace(names, np.array([names.index(name) for name, _ in kernels]), start, start + took, zero, zero, zero - 1)


def test_a_fusion_is_found_as_a_replacement():
    """Three kernels of every layer became one: one replacement, as often as there are layers."""
    before = chain([("gemm", 100), ("bias", 10), ("gelu", 20), ("scale", 5)] * 24)
    after = chain([("gemm", 100), ("fused", 22)] * 24)
    found = compare(before, after)
    item = found.replacements[0]
    assert (item.before, item.after, item.times) == (["bias", "gelu", "scale"], ["fused"], 24)
    assert item.ns_after - item.ns_before == 24 * (22 - 35)
    assert (found.same, found.same_delta_ns, len(found.replacements)) == (24, 0, 1)

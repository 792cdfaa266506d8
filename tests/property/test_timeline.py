"""The timeline of any intervals, however they are sliced, is what counting every nanosecond gives.

Mutations that these tests caught: `np.maximum(rows.start, before)` -> `rows.start` (overlaps counted twice),
`running[first] = np.maximum(...)` left out of reach_before (the slice before forgotten), `kind <= each` ->
`kind == each`, `_named(rows["kind"], MEMSET)` -> False (fills counted as copies).
"""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline import timeline
from aaco.analytics.timeline.timeline import Timeline
from tests import timed

NAMES = ("gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
ROWS = st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 25), st.sampled_from(["compute", "comm", "copy", "fill"]),
                          st.integers(0, 2), st.sampled_from([None, 0, 1])), min_size=1, max_size=30)


def tables_of(rows):
    """Kernels and copies from (start, length, kind, device, capture)."""
    kernels = [timed.at(start, start + length, kernel_name=NAMES[kind == "comm"], device_id=device, capture=capture)
               for start, length, kind, device, capture in rows if kind in ("compute", "comm")]
    copies = [timed.at(start, start + length, device_id=device, capture=capture,
                       kind={"copy": "h2d", "fill": "memset"}[kind])
              for start, length, kind, device, capture in rows if kind in ("copy", "fill")]
    return {"kernels": timed.kernels(*kernels), "copies": timed.copies(*copies)}


def run(rows, cuts):
    lanes, found = WorkReader(), Timeline()
    for _, part in timed.sliced(tables_of(rows), cuts):
        found.feed(lanes.work(part["kernels"], part["copies"]))
    return found.devices(lanes.devices.known), lanes


def by_the_nanosecond(rows):
    """(compute, exposed comm, exposed copy, exposed fill, idle) per (capture, device), by looking at every ns."""
    doing = defaultdict(lambda: defaultdict(set))
    span = {}
    for start, length, kind, device, capture in rows:
        if length < 0:
            continue
        first, last = span.get((capture, device), (start, start + length))
        span[capture, device] = min(first, start), max(last, start + length)
        for ns in range(start, start + length):
            doing[capture, device][ns].add(kind)
    found = {}
    for key, (first, last) in span.items():
        what = [doing[key][ns] for ns in range(first, last)]
        found[key] = (sum("compute" in now for now in what),
                      sum("comm" in now and "compute" not in now for now in what),
                      sum("copy" in now and not now & {"compute", "comm"} for now in what),
                      sum(now == {"fill"} for now in what), sum(not now for now in what))
    return found


@given(ROWS, st.lists(st.integers(0, 90), max_size=6))
def test_the_parts_are_those_of_counting_every_nanosecond(rows, cuts):
    devices, lanes = run(rows, cuts)
    found = {(device.capture, device.device_id): (device.compute_ns, device.exposed_communication_ns,
                                                  device.exposed_copy_ns, device.exposed_fill_ns,
                                                  device.idle_ns) for device in devices}
    assert found == by_the_nanosecond(rows)
    assert all(sum(found[device.capture, device.device_id]) == device.span_ns for device in devices)
    placed = [row for row in rows if row[1] >= 0]
    assert sum(device.kernels + device.copies + device.fills for device in devices) == len(placed)
    worked = sum(device.kernel_ns + device.copy_ns + device.fill_ns for device in devices)
    assert worked == sum(row[1] for row in placed)
    assert lanes.left_out == len(rows) - len(placed)


@given(ROWS, st.lists(st.integers(0, 90), max_size=6), st.integers(1, 4))
def test_the_course_over_time_adds_up_and_does_not_depend_on_the_slices(rows, cuts, width):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "FIRST_WIDTH_NS", width)
        patch.setattr(timeline, "BINS", 8)
        whole, cut = run(rows, [])[0], run(rows, cuts)[0]
    for device in whole:
        assert sum(device.course.compute_ns) == device.compute_ns
        assert sum(device.course.exposed_communication_ns) == device.exposed_communication_ns
        assert sum(device.course.exposed_copy_ns) == device.exposed_copy_ns
        assert sum(device.course.exposed_fill_ns) == device.exposed_fill_ns
        assert max(device.course.compute_ns, default=0) <= device.course.bin_ns
    key = lambda device: (device.capture is None, device.capture, device.device_id)  # noqa: E731
    assert sorted(whole, key=key) == sorted(cut, key=key)

"""Whatever integers and names a capture holds, a trace of it is examined without an error, and its parts add up.

Mutation that this test caught: FARTHEST_NS = 2**63 - 1 (a span that no int64 holds).
"""

import json

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.timeline.trace import COLLECTIVE_COLUMNS, COLUMNS, DeviceTrace, Examination
from aaco.core import tables
from aaco.core.config import Analysis
from tests import timed

TIMES = st.one_of(st.integers(0, 50), st.sampled_from([-2**63, -2**61, 2**61 - 1, 2**61, 2**62, 2**63 - 1, -1]))
IDS = st.one_of(st.none(), st.integers(0, 4), st.sampled_from([-2**63, -1, 2**63 - 1]))
NAMES = st.one_of(st.none(), st.sampled_from(["", "k", "ncclDevKernel", "cudaLaunchKernel", "hipMemcpy", "step 1",
                                              "cudaStreamSynchronize", "iteration 99999999999999999999", "\x00" * 9]))
WORK = st.lists(st.fixed_dictionaries({
    "t_start_ns": TIMES, "t_end_ns": TIMES, "kernel_name": NAMES, "device_id": IDS, "queue_id": IDS, "stream_id": IDS,
    "correlation_id": IDS, "iteration": IDS, "capture": IDS}), max_size=12)
CALLS = st.lists(st.fixed_dictionaries({
    "t_start_ns": TIMES, "t_end_ns": TIMES, "name": NAMES, "process_id": IDS, "thread_id": IDS, "correlation_id": IDS,
    "domain": st.sampled_from([None, "hip", "cuda_runtime", "marker", "x"]), "capture": IDS}), max_size=12)
COLLECTIVES = st.lists(st.fixed_dictionaries({
    "kernel_id": IDS, "operation": NAMES, "group": NAMES, "group_size": IDS, "sequence": IDS, "bytes_in": IDS,
    "bytes_out": IDS}), max_size=8)


def safe(rows):
    """Rows whose duration, which is not read, fits its column."""
    return [row | {"dur_ns": None} for row in rows]


def table(spec, rows):
    rows = sorted(rows, key=lambda row: row.get("t_start_ns", 0))
    columns = {name: [row.get(name) for row in rows] for name in spec.columns if rows and name in rows[0]}
    return spec.build(**columns)


@given(WORK, WORK, CALLS, COLLECTIVES, st.lists(st.integers(-5, 60), max_size=3))
def test_any_integers_are_examined_and_the_parts_add_up(kernels, copies, calls, collectives, cuts):
    numbered = [row | {"kernel_id": number} for number, row in enumerate(safe(kernels))]
    given_ = {"kernels": table(tables.KERNELS, numbered),
              "copies": table(tables.COPIES, [{name: value for name, value in row.items() if name != "kernel_name"}
                                              for row in safe(copies)]),
              "api_calls": table(tables.API_CALLS, safe(calls))}
    said = table(tables.COLLECTIVES, collectives).select(COLLECTIVE_COLUMNS)
    examination = Examination(Analysis(), said, ranks={0: 0, 1: 5})
    for until, part in timed.sliced(given_, cuts) if cuts else ((2**62, given_),):
        rows = {name: part[name].select(columns) for name, columns in COLUMNS.items()}
        examination.feed(rows["kernels"], rows["copies"], rows["api_calls"], None if until == 2**62 else until)
    found = examination.result()
    if found is None:
        return
    for device, lane in zip(found.devices, found.idle.devices, strict=True):
        assert device.idle_ns >= 0 and lane.idle_ns == device.idle_ns
        assert device.span_ns == (device.compute_ns + device.exposed_communication_ns + device.exposed_copy_ns
                                  + device.exposed_fill_ns + device.idle_ns)
    assert DeviceTrace.of(json.loads(json.dumps(found.documents(), allow_nan=False))) == found

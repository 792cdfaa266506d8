"""Whatever tables there are: each reading has a finite value or a reason, and the diagnosis an answer in valid JSON."""

import json
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.diagnosis import UNKNOWN, diagnose
from aaco.analytics.measure import measure
from aaco.core import registry, tables
from aaco.core.config import Analysis

TRACED = ("kernels", "copies", "api_calls", "gpu_events", "inference_iters", "system_events")
times = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=8)


@st.composite
def sessions(draw):
    """Small tables of a trace, any of which may be missing, empty, or without the columns that join them."""
    device, linked = draw(st.sampled_from([None, 0, 1])), draw(st.booleans())
    rows = {name: sorted(draw(times)) for name in ("kernels", "copies", "api_calls")}
    found = {name: tables.ALL[name].build(**_spans(rows[name])) for name in rows}
    count = len(rows["kernels"])
    found["kernels"] = tables.KERNELS.build(
        **_spans(rows["kernels"]), kernel_id=range(count), kernel_name=["k"] * count, device_id=[device] * count,
        family=[draw(st.sampled_from(["gemm", "softmax", None])) for _ in range(count)],
        correlation_id=list(range(count)) if linked else None)
    calls = len(rows["api_calls"])
    found["api_calls"] = tables.API_CALLS.build(
        **_spans(rows["api_calls"]), call_id=range(calls), domain=["cuda_runtime"] * calls,
        name=[draw(st.sampled_from(["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "x"]))
              for _ in range(calls)], correlation_id=list(range(calls)), thread_id=[1] * calls)
    moved = len(rows["copies"])
    found["copies"] = tables.COPIES.build(
        **_spans(rows["copies"]), copy_id=range(moved), device_id=[device] * moved,
        kind=[draw(st.sampled_from(["h2d", "d2d", None])) for _ in range(moved)],
        bytes=[draw(st.sampled_from([0, 4, 10**8, None])) for _ in range(moved)])
    for name in ("gpu_events", "inference_iters", "system_events"):
        found[name] = tables.ALL[name].build()
    kept = draw(st.sets(st.sampled_from(TRACED)))
    latency = draw(st.none() | st.floats(1e-6, 1e3))
    return {name: found[name] for name in kept}, Unprofiled(1, latency, "") if latency else None


def _spans(rows):
    start = np.array([row[0] for row in rows], np.int64)
    length = np.array([row[1] for row in rows], np.int64)
    return {"t_start_ns": start, "t_end_ns": start + length, "dur_ns": length}


@settings(max_examples=60, deadline=None)
@given(sessions())
def test_any_tables_give_readings_and_an_answer(session):
    """Mutation: `Budget.pct` without its guard divides by a wall of zero."""
    found, unprofiled = session
    readings = measure(found, None, Analysis(), examined={"unprofiled": unprofiled})
    assert set(readings) == set(registry.METRICS)
    for reading in readings.values():
        assert (reading.value is None) == bool(reading.why_absent)
        assert reading.value is None or math.isfinite(reading.value)
    shares = [readings[name].value for name in ("device_limited_pct", "transfer_limited_pct", "host_limited_pct")]
    assert sum(share for share in shares if share is not None) <= 100 + 1e-6
    diagnosis = diagnose(readings)
    document = json.loads(json.dumps(diagnosis.document(), allow_nan=False))
    assert (diagnosis.label == UNKNOWN) == bool(document["abstained_because"])
    assert (document["confidence"] is None) == bool(document["confidence_why_absent"])
    assert all(one["gain_pct"] is None or one["gain_pct"] <= one["share_pct"] + 1e-9
               for one in document["optimization_priority"])

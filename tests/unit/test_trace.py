"""One pass over a whole trace: what its readings say, how it goes into documents and back, and what is absent."""

import json

import pyarrow as pa
import pytest

from aaco.analytics import measure as measuring
from aaco.analytics.timeline import trace as tracing
from aaco.analytics.timeline.trace import COLUMNS, DeviceTrace, Examination
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.errors import BadBundle
from aaco.core.readings import Absent
from tests import kineto_rows, timed
from tests.timed import at

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def small():
    """Two devices: compute, exposed communication and copy, gaps, and a launch for most of it."""
    kernels = timed.kernels(
        at(100_000, 200_000, correlation_id=1), at(190_000, 250_000, kernel_name=NCCL, correlation_id=2, stream_id=8),
        at(300_000, 304_000, correlation_id=3), at(100_000, 500_000, device_id=1))
    copies = timed.copies(at(304_000, 324_000, correlation_id=4, stream_id=8))
    calls = timed.calls(at(90_000, 95_000, correlation_id=1), at(96_000, 99_000, correlation_id=2),
                        at(290_000, 296_000, correlation_id=3),
                        at(296_000, 299_000, name="cudaMemcpyAsync", correlation_id=4))
    return {"kernels": kernels, "copies": copies, "api_calls": calls}


def measure(**found):
    return measuring.measure(found, None, Analysis(), {})


def test_readings_of_a_trace():
    readings = {name: reading.value for name, reading in measure(**small()).items()}
    span = 224_000 + 400_000
    expected = {
        "gpu_active_ratio": (150_000 + 4_000 + 400_000) / span, "gpu_concurrency": (164_000 + 400_000) / 554_000,
        "exposed_communication_pct": 100 * 50_000 / span, "exposed_copy_pct": 100 * 20_000 / span,
        "device_idle_pct": 100 * 50_000 / span, "idle_host_wait_pct": 100 * 50_000 / span, "idle_unknown_pct": 0,
        "launch_tax_pct": 100 * 50_000 / span, "microkernel_pct": 25, "launch_rate_hz": 1e9 * 4 / span,
        "kernel_mean_us": 564 / 4, "queue_length_max": 1}
    assert {name: readings[name] for name in expected} == pytest.approx(expected)


def test_what_has_no_source_is_absent_and_says_why():
    readings = measure(**small())
    assert "were recorded" in readings["idle_noise_pct"].why_absent
    assert "telemetry" in readings["idle_throttled_pct"].why_absent
    assert "no markers of steps" in readings["kernels_per_step"].why_absent
    assert readings["kernel_amplification_ratio"].value is None and readings["kernel_amplification_ratio"].why_absent


def test_without_calls_only_what_a_launch_tells_is_absent():
    readings = measure(kernels=small()["kernels"])
    assert readings["device_idle_pct"].value == pytest.approx(100 * 50_000 / 604_000)
    assert readings["idle_unknown_pct"].value == readings["device_idle_pct"].value
    for name in ("idle_host_wait_pct", "launch_delay_us", "queue_length_mean", "launch_tax_pct"):
        assert readings[name].why_absent == "no launch call of the device's work is in the capture"


def test_a_session_of_the_host_has_no_trace():
    readings = measure(kernels=timed.kernels(at(0, 10, device_id=None)))
    for name in ("device_idle_pct", "gpu_active_ratio", "launch_tax_pct", "step_ms"):
        assert readings[name].why_absent == "no GPU kernels: every kernel of this session ran on the host CPU"


def test_dispatches_of_the_host_are_not_the_devices_work():
    rows = timed.kernels(at(0, 10, device_id=None, timed="dispatch", provider="CUDAExecutionProvider"))
    assert "times the host's dispatch" in measure(kernels=rows)["device_idle_pct"].why_absent


def test_work_without_times_is_no_trace():
    with pytest.raises(Absent, match="no device work"):
        tracing.trace(timed.kernels(at(10, 5)), Analysis())


def test_it_goes_into_documents_and_comes_back():
    found = tracing.trace(**small(), settings=Analysis())
    documents = json.loads(json.dumps(found.documents(), allow_nan=False))
    assert {document["schema_version"] for document in documents.values()} == {1}
    assert DeviceTrace.of(documents) == found
    bare = [lane | {"causes": {}} for lane in documents["idle"]["devices"]]
    for broken in ({"timeline": {"devices": [{}]}}, {"timeline": documents["timeline"] | {"devices": []}}, {"idle": 7},
                   {"idle": documents["idle"] | {"devices": bare}}, {"launches": {}}):
        with pytest.raises(BadBundle, match="aaco analyze SESSION"):
            DeviceTrace.of(documents | broken)


def in_slices(found, rows, **more):
    """The trace as a session gives it: slices of a few rows."""
    examination = Examination(Analysis(), **more)
    cuts = [row.as_py() for name in COLUMNS for row in found[name]["t_start_ns"][::rows]]
    for until, part in timed.sliced(found, cuts):
        examination.feed(*(part[name].select(columns) for name, columns in COLUMNS.items()),
                         None if until == 2**62 else until)
    return examination.result()


@pytest.mark.captures
@pytest.mark.parametrize("name", ["kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
                                  "h200/torch_scenarios/transfer_resnet50_b32_pageable.trace.json.gz"])
@pytest.mark.parametrize("rows", [40, 700])
def test_real_traces_in_slices_are_the_same_as_whole(name, rows):
    found = kineto_rows.read(name)
    assert in_slices(found, rows) == tracing.trace(**found, settings=Analysis())


def test_an_empty_trace_has_no_answer():
    nothing = {name: tables.ALL[name].build().select(columns) for name, columns in COLUMNS.items()}
    examination = Examination(Analysis())
    examination.feed(*nothing.values(), None)
    assert examination.result() is None
    assert isinstance(nothing["kernels"], pa.Table)

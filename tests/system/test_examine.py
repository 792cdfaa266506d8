"""Real captures imported: their documents and readings are those of the tables in memory, and come again."""

import json
import subprocess
import sys

import pytest

from aaco import pipeline
from aaco.analytics.bottleneck.ranks import Windows
from aaco.analytics.timeline import trace as tracing
from aaco.analytics.timeline.trace import COLUMNS, DeviceTrace
from aaco.core.config import Analysis, resolve
from aaco.core.documents import decode
from aaco.steps import seal
from aaco.steps.findings import trace as examination
from aaco.tracelake import layout, queries
from tests import kineto_rows

QWEN = "kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"


def imported(tmp_path, *names):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    return pipeline.import_captures([kineto_rows.path(name) for name in names], settings), settings


@pytest.mark.captures
def test_documents_are_those_of_the_tables_in_memory(tmp_path):
    run, settings = imported(tmp_path, QWEN)
    session = queries.QueryableSession(run.session.folder)
    documents = {name: session.read_json(file) for name, file in layout.TRACE.items()
                 if (session.folder / file).is_file()}
    assert set(documents) == set(layout.TRACE) - {"collectives"}
    found = DeviceTrace.of(documents)
    whole = {name: session.table(name, columns) for name, columns in COLUMNS.items()}
    assert found == tracing.trace(whole["kernels"].append_column("timed", [[None] * whole["kernels"].num_rows]),
                                  Analysis(), whole["copies"], whole["api_calls"])
    (device,) = found.devices
    assert (device.kernels, device.kernel_ns, device.kernel_union_ns) == (1516, 43_062_042, 43_062_042)
    assert (device.busy_ns, device.span_ns) == (43_062_802, 47_085_800)
    assert found == examination.find(session, settings.config.analysis)
    (rank,) = decode(run.session.read_json(layout.finding("windows")), Windows).ranks
    assert rank.time.span_ns < device.span_ns and rank.time.kernels < device.kernels  # without what is not judged
    assert run.metrics["gpu_active_ratio"].value == pytest.approx(rank.time.kernel_union_ns / rank.time.span_ns)


@pytest.mark.captures
def test_documents_of_an_examination_before_do_not_stay(tmp_path):
    run, settings = imported(tmp_path, QWEN)
    run.session.write_json(layout.TRACE["collectives"], {"schema_version": 1})
    seal.seal(run.session, settings)
    assert not (run.session.folder / layout.TRACE["collectives"]).exists()


@pytest.mark.captures
def test_two_captures_of_one_import_are_two_devices(tmp_path):
    run, _ = imported(tmp_path, QWEN, "kineto/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    devices = run.explanation.trace.devices
    assert sorted((device.capture, device.device_id, device.kernel_ns) for device in devices) == [
        (0, 2, 43_062_042), (1, 0, 45_432_698)]


@pytest.mark.captures
def test_analyze_applies_the_thresholds_anew(tmp_path):
    run, _ = imported(tmp_path, QWEN)
    before = run.metrics["microkernel_pct"].value
    again = resolve(overrides={"analysis": {"microkernel_us": 30.0}}, environment={})
    seal.seal(run.session, again)
    assert pipeline.explain(run.session, again).readings["microkernel_pct"].value > before
    assert run.session.read_json(layout.TRACE["timeline"])["short_kernels"]["below_ns"] == 30_000


@pytest.mark.captures
def test_a_trace_without_device_work_has_no_documents_and_says_why(tmp_path):
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.0, "args": {}}]}))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    run = pipeline.import_captures([path], settings)
    assert run.explanation.trace is None
    assert not [file for file in layout.TRACE.values() if (run.session.folder / file).exists()]
    assert run.metrics["device_idle_pct"].why_absent == "imported capture: it holds no work of a device"


def test_a_long_trace_is_examined_in_little_time_and_memory():
    """200,000 kernels and 600,000 calls: the second half costs what the first does, and memory stays flat."""
    made = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True, timeout=200)
    first, second, megabytes = map(float, made.stdout.split())
    assert second < 2 * first and megabytes < 120


LONG = """
import resource, time
import numpy as np, pyarrow as pa
from aaco.analytics.timeline.trace import COLUMNS, Examination
from aaco.core import tables
from aaco.core.config import Analysis

STEP, ROWS = 40, 20_000

def names(codes, known):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(known))

def piece(first):
    at = np.arange(first, first + ROWS)
    start = 10_000 * at
    none = np.zeros(ROWS, np.int64)
    kernels = tables.KERNELS.build(kernel_id=at, kernel_name=names(at % STEP, [f"k{n}" for n in range(STEP)]),
        device_id=none, stream_id=none, correlation_id=at + 1, t_start_ns=start + 6_000, t_end_ns=start + 9_000,
        dur_ns=none + 3_000, capture=none)
    called = ["aten::mm", "cudaGetDevice", "cudaLaunchKernel"]
    calls = tables.API_CALLS.build(name=names(np.tile([0, 1, 2], ROWS), called),
        domain=names(np.tile([0, 1, 1], ROWS), ["cpu_op", "cuda_runtime"]), process_id=np.repeat(none, 3),
        thread_id=np.repeat(none, 3), correlation_id=np.repeat(at, 3) + 1, t_start_ns=np.repeat(start, 3) +
        np.tile([0, 100, 200], ROWS), t_end_ns=np.repeat(start, 3) + np.tile([5_000, 150, 3_000], ROWS),
        capture=np.repeat(none, 3))
    return kernels.select(COLUMNS["kernels"]), calls.select(COLUMNS["api_calls"])

copies = tables.COPIES.build().select(COLUMNS["copies"])
examination = Examination(Analysis())
before, spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for first in range(0, 200_000, ROWS):
    kernels, calls = piece(first)
    begun = time.process_time()
    examination.feed(kernels, copies, calls, 10_000 * (first + ROWS))
    spent.append(time.process_time() - begun)
found = examination.result()
assert found.launches.linked == 200_000 and found.blocks.blocks[0].kernels == STEP
half = len(spent) // 2
print(np.median(spent[:half]), np.median(spent[half:]),
      (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""

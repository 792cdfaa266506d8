"""The page on the operating-system plane, executed; and the plane end to end: recorded, killed, derived again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from aaco.analytics import metrics
from aaco.core import registry
from aaco.core.config import Analysis

PAGE = (Path(__file__).parents[2] / "docs/concepts/os-plane.md").read_text()


@pytest.fixture(scope="module")
def page(walked):
    found = walked("docs/concepts/os-plane.md")
    return found.aaco, found.said


def test_the_page_does_what_it_says(page):
    aaco, said = page
    by_command = {line.split('"')[0].strip(): text for line, text in said.items()}
    assert "the operating system was recorded by T" in " ".join(by_command["aaco report"].split())
    assert "scheduler_interference" in by_command["aaco explain SII"]
    assert "analysis.pressure_cpu_pct" in by_command["aaco config show"]
    marked = next(text for line, text in said.items() if "marker" in line)
    for words in ("phase: load", "iteration", "prefill", "decode", "token"):
        assert words in marked
    trace = json.loads((aaco.folder / "trace.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in trace if event.get("name") == "thread_name"}
    assert any(name.startswith("Markers") for name in tracks)
    assert {"phase: load", "prefill"} <= {event.get("name") for event in trace}


def test_every_reading_named_on_the_page_exists():
    named = re.findall(r"`([a-z]+_[a-z_]+)`(?: \(|,| \|)", PAGE.partition("## Readings")[2].partition("## Markers")[0])
    assert {"scheduler_interference", "fault_penalty", "interrupt_share"} <= set(named)
    registry.load(metrics, "aaco.metrics")
    assert set(named) <= registry.METRICS.keys()
    limited = {name for name, value in Analysis().model_dump().items() if isinstance(value, tuple)}
    assert limited <= registry.METRICS.keys()


def told(aaco):
    return json.loads((aaco.latest / "runtime/ort_config.json").read_text())["passes"][0]["telemetry"]


def test_a_run_marks_its_phases_and_its_inferences(aaco):
    """Each inference's range holds its latency, and nothing of the next. Mutations: a mark per inference written where
    nobody records it; the range inside the two clock readings; the empty loop's turns marked too."""
    aaco("run", "gpt2-tiny", "--telemetry", "--warmup", 3, "--iterations", 20, "--no-profile", "--processes", 2)
    events = pq.read_table(aaco.latest / "telemetry/system_events.parquet")
    marks = events.filter(pc.equal(events["kind"].cast("string"), "marker"))
    details = marks["detail"].cast("string")
    phases = [text for text in details.to_pylist() if text.startswith("phase")]
    assert phases == ["phase: load", "phase: warmup", "phase: measurement"] * 2
    turns = marks.filter(pc.equal(details, "iteration")).sort_by("t_ns")
    rows = pq.read_table(aaco.latest / "metrics/inference_iters.parquet").sort_by("t_start_ns")
    assert turns["value"].to_pylist() == rows["iteration"].to_pylist()
    begin, length = turns["t_ns"].to_numpy(), turns["dur_ns"].to_numpy()
    assert (begin <= rows["t_start_ns"].to_numpy()).all() and (begin + length >= rows["t_end_ns"].to_numpy()).all()
    assert (begin[1:] >= rows["t_end_ns"].to_numpy()[:-1]).all()
    aaco("run", "gpt2-tiny", "--warmup", 3, "--iterations", 20, "--no-profile")
    assert not (aaco.latest / "telemetry/raw").exists()


def test_single_events_lie_in_the_iterations(aaco):
    """Mutations: T2 not asked for by --telemetry; overlap not derived."""
    # On any machine as long as some sampled intervals.
    aaco("run", "gpt2-tiny", "--telemetry", "--iterations", 1_000_000, "--budget", 1.0, "--no-profile")
    achieved = told(aaco)["achieved"]
    if achieved != "T2":
        pytest.skip(f"T2 is not to be had here: {told(aaco)['why_not']}")
    overlap = pq.read_table(aaco.latest / "telemetry/iteration_overlap.parquet")
    iterations = pq.read_table(aaco.latest / "metrics/inference_iters.parquet")
    assert overlap["iteration"].to_pylist() == iterations["iteration"].to_pylist()
    assert set(overlap["tier"].to_pylist()) == {"T2"}
    assert overlap["preempted_ns"].null_count == 0
    assert overlap["run_queue_wait_ns"].null_count == overlap.num_rows
    features = pq.read_table(aaco.latest / "metrics/iteration_features.parquet")
    assert features["preempted_ns"].to_pylist() == overlap["preempted_ns"].to_pylist()
    readings = json.loads((aaco.latest / "metrics/derived_metrics.json").read_text())
    assert readings["preemptions_per_s"]["method"].startswith("T2")
    assert readings["scheduler_interference"]["method"].startswith("T1")


def test_killed_it_keeps_what_it_recorded_and_derives_it_again(aaco):
    """Mutation: raw files written at the end only."""
    running = subprocess.Popen(aaco.command("run", "gpt2-tiny", "--iterations", 10_000_000, "--ebpf", "--no-profile"),
                               cwd=aaco.folder, env=aaco.environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    rows = "runtime/iterations-000000.i64"

    def wait_until(holds):
        until = time.monotonic() + 120
        while not holds():
            assert running.poll() is None and time.monotonic() < until
            time.sleep(0.05)

    wait_until(lambda: (aaco.latest / rows).exists() and (aaco.latest / rows).stat().st_size > 32 * 60)
    sizes = {path: path.stat().st_size for path in (aaco.latest / "telemetry/raw").iterdir()}
    assert sizes
    wait_until(lambda: all(path.stat().st_size > size for path, size in sizes.items()))
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    aaco.inside("analyze")
    table = pq.read_table(aaco.latest / "telemetry/system_events.parquet")
    assert "T1" in pc.unique(table["tier"]).to_pylist()
    first = pc.min(pq.read_table(aaco.latest / "metrics/inference_iters.parquet")["t_end_ns"]).as_py()
    assert pc.max(table["t_ns"]).as_py() > first  # it was written while they ran
    if {"T2", "T3"} & set(pc.unique(table["tier"]).to_pylist()):
        overlap = pq.read_table(aaco.latest / "telemetry/iteration_overlap.parquet")
        assert overlap["switches_voluntary"].null_count < overlap.num_rows

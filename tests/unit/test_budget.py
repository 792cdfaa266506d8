"""The time budget on our own recordings: waits, co-tenants, how steps are counted, and the critical path beside it."""

import gzip
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from aaco import pipeline
from aaco.analytics.bottleneck.budget import budget, count_steps
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import DeviceWork
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.timeline.trace import PARTS, DeviceTrace
from aaco.core.config import resolve
from aaco.core.documents import decode
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.report.sections import budget as budget_words
from aaco.tracelake import documents, layout
from benchmarks.diagnosis.agreement import disagreements

OWN = Path(__file__).parents[1] / "captures"
SHARED = OWN / "torch_shared"


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Imports recordings, each once."""
    root, runs = tmp_path_factory.mktemp("budget"), {}

    def run(path, **given):
        key = path, tuple(sorted(given.items()))
        if key not in runs:
            settings = resolve(overrides={"storage": {"sessions_dir": str(root)}}, environment={})
            runs[key] = pipeline.import_captures([path], settings, **given)
        return runs[key]
    return run


def trace_of(run):
    """The devices' trace and the work of an imported session."""
    read = lambda name: json.loads((run.session.folder / "metrics" / f"{name}.json").read_text())  # noqa: E731
    return DeviceTrace.of({name: read(name) for name in PARTS}), decode(read("device_work"), DeviceWork)


@pytest.mark.parametrize("name", ["alone_item_1m_1", "alone_item_small_1", "alone_item_mlp_1"])
def test_reading_a_value_after_every_operation_is_waiting(imported, name):
    """A device graph cannot hold the waits, so it is no advice. Mutation: `> values["launch_tax_pct"]` -> `> 100`.
    """
    readings = imported(SHARED / f"{name}.trace.json.gz").metrics
    found = diagnose(readings)
    assert found.label == "sync_bound"
    assert found.recommendations[0].name == "remove_waits"
    assert "device_graph" not in {advice.name for advice in found.recommendations}
    assert 0 < readings["removable_wait_pct"].value < readings["sync_limited_pct"].value


def test_work_of_the_host_after_a_read_is_its_own(imported):
    assert diagnose(imported(SHARED / "alone_loader_after_item_1.trace.json.gz").metrics).label == "cpu_bound"


@pytest.mark.parametrize("name", ["shared_item_1m_0", "shared_item_1m_1", "shared_gemm_sync_1"])
def test_a_co_tenant_is_told_from_the_trace_alone(imported, name):
    run = imported(SHARED / f"{name}.trace.json.gz")
    found = diagnose(run.metrics)
    assert found.label == "shared_device_bound" and found.recommendations[0].name == "have_the_device"
    assert "times launched work did not begin" in run.metrics["shared_device_limited_pct"].method


def test_two_launches_that_do_not_begin_may_be_anything(imported):
    """Mutation: `FEWEST_UNSTARTED = 3` -> `FEWEST_UNSTARTED = 1`."""
    run = imported(SHARED / "shared_item_mlp_0.trace.json.gz")
    assert run.metrics["shared_device_limited_pct"].value == 0.0 and diagnose(run.metrics).label == "unknown"
    trace, work = trace_of(run)
    held = sum(lane.unstarted_ns for lane in trace.idle.devices)
    parts = [budget(trace, work, None, others).parts_ns for others in (None, 0.0, 60.0)]
    assert [part["shared_device"] for part in parts] == [0, 0, held]
    assert all(sum(part.values()) == trace.sum("span_ns") for part in parts)


def test_telemetry_without_others_overrules_the_trace(imported):
    """Mutation: `others_pct < OTHERS_PCT` -> `others_pct < 0`."""
    trace, work = trace_of(imported(SHARED / "shared_item_1m_1.trace.json.gz"))
    assert budget(trace, work).parts_ns["shared_device"] > 0
    assert budget(trace, work, None, 0.0).parts_ns["shared_device"] == 0


def test_a_repeated_layer_is_not_a_step(imported):
    """Six steps of six equal layers: the kernels repeat 36 times. Mutation: `STRETCH[0] <= stretch` -> `0 <= stretch`.
    """
    path = SHARED / "alone_item_mlp_1.trace.json.gz"
    (block,) = trace_of(imported(path))[0].blocks.blocks
    assert block.repeats == 36
    refused = imported(path, latency="0.47").metrics["unprofiled_busy_ratio"]
    assert refused.value is None and "may be a layer" in refused.why_absent and "--steps N" in refused.why_absent
    assert "not used" in imported(path, latency="0.47").metrics["device_limited_pct"].method
    given = imported(path, latency="0.47", steps=6).metrics
    busy = trace_of(imported(path))[0].sum("busy_ns")
    assert given["unprofiled_busy_ratio"].value == pytest.approx(busy / (6 * 0.47e6))


def test_repetition_counts_steps_only_where_the_latency_fits(imported):
    trace, _ = trace_of(imported(SHARED / "alone_item_mlp_1.trace.json.gz"))
    layer_ms = trace.sum("span_ns") / 36e6
    assert count_steps(trace, Unprofiled(1, layer_ms / 2, "")) == 36
    for wrong in (layer_ms * 1.2, layer_ms / 7):
        with pytest.raises(Absent, match="may be a layer, or several steps"):
            count_steps(trace, Unprofiled(1, wrong, ""))
    with pytest.raises(Absent):
        count_steps(trace)


def test_steps_without_a_latency_are_refused(imported):
    with pytest.raises(UsageError, match="no latency is given"):
        imported(SHARED / "alone_item_mlp_1.trace.json.gz", steps=6)


def test_every_part_of_a_ranks_budget_has_words(imported):
    """Mutation: a part that budget.py has and the section of ranks does not."""
    run = imported(SHARED / "alone_item_mlp_1.trace.json.gz")
    (parts,) = json.loads((run.session.folder / "metrics" / "windows.json").read_text())["budgets_ns"]
    assert set(parts) <= set(budget_words.WORDS)


def test_a_path_that_computes_more_than_the_device_is_told(imported):
    run = imported(OWN / "torch_scenarios/memory_softmax.trace.json.gz")
    document = json.loads((run.session.folder / "metrics" / "critical_path.json").read_text())
    trace = trace_of(run)[0]
    document["paths"][0]["bound_by_ns"] = dict.fromkeys(document["paths"][0]["bound_by_ns"], 0) | {
        "compute": trace.sum("busy_ns") + 1}
    told = list(disagreements(trace, decode(document, CriticalPaths)))
    assert len(told) == 2 and "more than" in told[0] and "idle" in told[1]


def test_the_recordings_are_what_their_page_says():
    """Six steps a trace, without markers of steps."""
    events = json.loads(gzip.decompress((SHARED / "alone_item_mlp_1.trace.json.gz").read_bytes()))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 6 * 6 * 3
    assert not any("ProfilerStep" in event.get("name", "") for event in events)


@pytest.mark.parametrize(("latency_ms", "why"), [
    (0.99, "the device's work alone takes 1.1 ms of a traced step, and 0.99 ms were given"), (1.1, ""), (7.4, ""),
    (7.6, "a traced step takes 2 ms, a profiler makes none shorter, and 7.6 ms were given")])
def test_a_latency_of_other_steps_is_refused(latency_ms, why):
    """Such as one in seconds, or of another batch. Of 5 steps of 2 ms. Mutation: every latency is taken."""
    given = Unprofiled(1, latency_ms, "")
    with pytest.raises(Absent, match=why) if why else nullcontext():
        given.refuse_others(5, 1, 10e6, 5.5e6)
    Unprofiled(1, 90.0, "").refuse_others(1, 1, 2e6, 1e6)  # of one step the host's part is not in the trace


def test_no_share_is_of_a_latency_of_other_steps(imported):
    """Mutation: the budget takes a latency of a hundred times the traced steps."""
    path = SHARED / "alone_item_mlp_1.trace.json.gz"
    found = imported(path, latency="470", steps=6).metrics["host_limited_pct"]
    assert found.method.startswith("profiled trace") and "a profiler makes none shorter" in found.method


@pytest.mark.parametrize(("latency", "unprofiled"), [("1000", False), ("0.0001", False), ("1.5", True)])
def test_no_ceiling_is_of_a_latency_of_other_steps(imported, latency, unprofiled):
    """Mutation: the floors take every latency, and a graph gains a thousand times."""
    run = imported(SHARED.parent / "torch_scenarios/launch_tiny_mlp.trace.json.gz", latency=latency)
    document = documents.read(run.session, layout.finding("floors"))
    assert document["unprofiled"] is unprofiled and ("graph" in document["expected"]) is unprofiled

"""Sessions that an earlier version wrote still open, report and compare, from their tables alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aaco import pipeline
from aaco.analytics.diagnosis import diagnose
from aaco.core.config import Settings, resolve
from aaco.core.session import Session
from aaco.core.tables import COPIES, CRITICAL_PATH, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.report.renderers import output_formats
from aaco.steps import make_findings
from aaco.steps.findings.workload_facts import find
from aaco.steps.readings import RENAMED
from aaco.tracelake import documents, layout, queries, store
from aaco.workflows import compare_traces, judge, share_bundle
from aaco.workflows.compare_runs import DiffRequest

BUNDLES = Path(__file__).parent.parent / "captures/sessions_0_1_0"
TRACE = Path(__file__).parent.parent / "captures/torch_h200/resnet50_nchw.json.gz"
MOST_BYTES = 1 << 30


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    storage = {"sessions_dir": tmp_path / "sessions", "baselines_dir": tmp_path / "baselines"}
    return resolve(overrides={"storage": storage}, environment={})


def opened(name: str, settings: Settings) -> Session:
    return share_bundle.import_(BUNDLES / f"{name}.tar.zst", settings, MOST_BYTES)


NAMES = {earlier: name for name, earlier in RENAMED.items()}


@pytest.mark.parametrize("name", ["run1", "nchw"])
def test_an_old_session_says_what_it_said_without_its_capture(name: str, settings: Settings) -> None:
    """Every reading that was sealed equals it; metrics that are younger than the session may have values, too.

    Mutation: a view of a run's tables is left out.
    """
    session = opened(name, settings)
    shutil.rmtree(session.folder / layout.RAW, ignore_errors=True)
    explanation = pipeline.explain(session, settings)
    sealed = documents.read(session, layout.DERIVED_METRICS)
    for metric in sealed.keys() - {"schema_version", *RENAMED}:
        reading = explanation.readings[NAMES.get(metric, metric)]
        assert reading.value == pytest.approx(sealed[metric]["value"]), metric
        assert (reading.why_absent or None) == sealed[metric]["why_absent"], metric
    sealed_class = documents.read(session, layout.BOTTLENECK)["bottleneck_class"]
    diagnosis = explanation.diagnosis  # a run on CPUs had no class then; a trace alone may not tell host from device
    assert sealed_class in ("unknown", diagnosis.label) or "--latency" in diagnosis.abstained_because
    for form in output_formats.SUFFIXES:
        if form != "pdf":
            assert session.id in output_formats.render(explanation, form, "plain")


def test_findings_on_a_session_without_launch_ids_are_the_same(settings: Settings) -> None:
    """Tables of an older version name no launches: they are found by correlation ids then."""
    session = pipeline.import_captures([TRACE], settings).session
    found = found_again(session, settings)
    for spec in (KERNELS, COPIES):
        table = store.read(session, spec)
        assert table["launch_id"].null_count < table.num_rows
        pq.write_table(table.drop_columns("launch_id"), session.folder / spec.file, row_group_size=store.ROW_GROUP)
    assert not queries.has_launches(session)
    assert found_again(session, settings) == found


def found_again(session: Session, settings: Settings) -> dict[str, object]:
    """Make what depends on launches again."""
    for name in ("trace", "attribution", "windows", "critical_path"):
        make_findings.make_one(session, name, settings.config.analysis)
    files = [*layout.TRACE.values(), *map(layout.finding, ("windows", "attribution", "critical_path"))]
    found = {file: documents.read(session, file) for file in files if documents.holds(session, file)}
    return found | {spec.name: store.read(session, spec) for spec in (OP_TO_KERNEL_MAP, OPERATORS, CRITICAL_PATH)}


def test_advice_on_an_old_session_depends_on_the_facts_in_its_tables(settings: Settings) -> None:
    """It has a run of ONNX Runtime on the CPU. Mutation: facts are read from the document alone, which it lacks."""
    session = opened("run1", settings)
    facts = find(session)
    assert facts is not None and not documents.holds(session, layout.finding("workload_facts"))
    assert facts.values["framework"] == {"onnxruntime"} and facts.values["vendor"] == {"cpu"}
    explanation = pipeline.explain(session, settings)
    again = diagnose(explanation.readings, facts.values)
    assert explanation.diagnosis.withheld == again.withheld
    assert [advice.name for advice in explanation.diagnosis.recommendations] == [
        advice.name for advice in again.recommendations]
    advice = [text for verdict in explanation.diagnosis.considered for text in verdict.advice]
    assert advice and not any("torch" in text for text in advice)


def test_two_old_runs_compare(settings: Settings) -> None:
    first, second = opened("run1", settings), opened("run2", settings)
    verdict = judge.diff(str(first.folder), second, settings, DiffRequest(5.0))
    assert verdict.metric and verdict.status in ("equivalent", "inconclusive", "regressed", "improved")


def test_an_old_trace_compares_with_itself(settings: Settings) -> None:
    session = opened("nchw", settings)
    change = compare_traces.difference(session, session)
    assert change.delta_ns == 0 and change.kernels_before == change.kernels_after > 0

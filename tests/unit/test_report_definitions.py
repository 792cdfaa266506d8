"""Definitions of metrics: `aaco explain` and the generated reference page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aaco.analytics import metrics
from aaco.core import registry, tables
from aaco.core.readings import Reading
from aaco.report import format
from aaco.report.docs import metric_docs, schemas, table_docs
from aaco.report.sections import definition

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
registry.load(metrics, "aaco.metrics")


def test_the_reference_page_is_current(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE, metric_docs.render())


def test_the_reference_page_names_every_metric_once() -> None:
    lines = metric_docs.render().splitlines()
    assert sorted(line[3:] for line in lines if line.startswith("## ") and line[3:] in registry.METRICS) == \
        sorted(name for name, metric in registry.METRICS.items() if metric.compute.__module__.startswith("aaco."))


@pytest.mark.parametrize("declared", [*registry.METRICS.values(), *registry.RULES.values()],
                         ids=lambda declared: getattr(declared, "name", "") or declared.label)
def test_what_a_definition_names_can_be_read(declared) -> None:
    """Its source and words name no paper of ours that is not among the pages. Mutation: a source that is none."""
    assert not re.search(r"\bMETHODS\b|[Tt]he mission", f"{declared.source} {declared.meaning}")
    for page in re.findall(r"docs/[\w/-]+\.md", declared.source):
        assert (PAGE.parents[2] / page).is_file(), page


def test_an_explanation_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    metric = registry.find_metric("KAR")
    assert metric
    golden("report/explain_kar.txt", definition.render(metric, Reading(metric.name, "ratio", 1.3, band="good")))


@pytest.mark.parametrize("name", sorted(registry.METRICS))
def test_every_metric_can_be_explained_and_traced_to_files(name: str) -> None:
    metric = registry.METRICS[name]
    text = definition.render(metric, Reading(name, metric.unit, None, "not recorded"))
    assert max(map(format.cells, text.splitlines())) <= definition.WIDTH
    assert text.splitlines()[0] == name
    assert text.endswith("  value     n/a: not recorded\n")
    assert "value" not in definition.render(metric, None).splitlines()[-1][:8]
    files = {*(spec.file for spec in tables.ALL.values()), *definition.DOCUMENTS.values()}
    assert set(definition.files(metric)) <= files
    assert definition.files(metric) or not metric.inputs


def test_an_input_is_traced_through_views_and_metrics() -> None:
    assert definition.origins("latencies_ms") == [tables.INFERENCE_ITERS.file]
    assert definition.origins("dispatch_overhead_pct") == [tables.KERNELS.file, tables.API_CALLS.file]
    assert "this machine's measured ceilings (aaco calibrate)" in definition.origins("roofline")


def test_the_page_of_tables_is_current(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE.with_name("tables.md"), table_docs.render())


def test_the_schemas_are_current(golden: Callable[[Path, str], None]) -> None:
    for name, text in schemas.render().items():
        golden(PAGE.parent / "schemas" / name, text)

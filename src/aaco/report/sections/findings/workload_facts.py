"""What a workload already does, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.workload.facts import NAME, WorkloadFact, WorkloadFacts
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

TITLE = "What the workload already does"
LABELS = {"product_type": "Type of products", "element_type": "Type of other kernels",
          "eight_bit_units": "Eight-bit matrix units", "data_loader": "DataLoader"}


@finding_view(NAME, "facts of the workload that advice depends on, each with its evidence", place=8)
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The one section: the facts that are known, and in one line those that are not."""
    facts = WorkloadFacts.of(document).facts
    rows = [Row(_label(fact.name), _text(fact)) for fact in facts if fact.value is not None]
    if unknown := [fact.name.replace("_", " ") for fact in facts if fact.value is None]:
        rows.append(Row("Not known", f"{', '.join(unknown)} (metrics/{NAME}.json says why)"))
    yield TITLE, rows


def _label(name: str) -> str:
    return LABELS.get(name) or name.replace("_", " ").capitalize()


def _text(fact: WorkloadFact) -> str:
    values = ", ".join(fact.values or (fact.value or "",)).replace("_", " ")
    return f"{values}: {fact.evidence}" if fact.evidence else values

"""What a workload already does, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.workload.facts import NAME, WorkloadFact, WorkloadFacts
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

LABELS = {"product_type": "Type of products", "element_type": "Type of other kernels",
          "eight_bit_units": "Eight-bit units", "tf32_units": "TF32 units", "data_loader": "DataLoader",
          "python_frames": "Frames of Python", "blas_library": "Library of products", "aiter": "AITER"}


@finding_view(NAME, "facts of the workload that advice depends on, each with its evidence", place=8,
              title="What the workload already does", form=WorkloadFacts)
def _rows(facts: WorkloadFacts) -> Iterator[Row]:
    """Yield the facts that are known, and in one line those that are not."""
    yield from (Row(_label(fact.name), _text(fact)) for fact in facts.facts if fact.value is not None)
    if unknown := [fact.name.replace("_", " ") for fact in facts.facts if fact.value is None]:
        yield Row("Not known", f"{', '.join(unknown)} (metrics/{NAME}.json says why)")


def _label(name: str) -> str:
    return LABELS.get(name) or name.replace("_", " ").capitalize()


def _text(fact: WorkloadFact) -> str:
    values = ", ".join(fact.values or (fact.value or "",)).replace("_", " ")
    return f"{values}: {fact.evidence}" if fact.evidence else values

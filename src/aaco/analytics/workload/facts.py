"""The document of the facts of a workload: each with its evidence, or absent with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from aaco.core import documents
from aaco.core.advice import FactValues
from aaco.tracelake import layout

NAME = "workload_facts"


class WorkloadFact(Struct, frozen=True):
    """One fact. value: null where it is absent, for the reason in why_absent.

    values: all that hold, the value first; more than one only of frameworks and graphs. parts: what the
    value was read from, each with its amount in `unit` (ns, count, bytes). share_ratio: the part that speaks for the
    value. source: where it was read.
    """

    name: str
    value: str | None
    values: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    unit: str = "count"
    share_ratio: float | None = None
    source: str = ""
    evidence: str = ""
    why_absent: str = ""


@documents.document(layout.finding(NAME), version=1)
class WorkloadFacts(Struct, frozen=True):
    """workload_facts.json: what the capture shows of how the workload runs."""

    facts: tuple[WorkloadFact, ...]

    @property
    def values(self) -> FactValues:
        """The values of each fact that is known."""
        return {fact.name: frozenset(fact.values or (fact.value,)) for fact in self.facts if fact.value is not None}

    def document(self) -> dict[str, Any]:
        """Return the content of workload_facts.json."""
        return documents.encode(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> WorkloadFacts:
        """Return the facts that this document was made of. Raise BadBundle."""
        return documents.decode(document, cls)


def absent(name: str, why: str) -> WorkloadFact:
    """Return a fact that nothing shows."""
    return WorkloadFact(name, None, why_absent=why)

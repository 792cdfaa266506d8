"""The document of the diagnosis: the class with its evidence, and what is advised."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from aaco.core.documents import Document, Part, Real, document
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.trace_check import Trusted


class WeighedSignal(Part):
    """A reading compared with a threshold. holds: null where there is no reading, for the reason in why_absent."""

    signal: str | None = None
    value: Real | None = None
    unit: str | None = None
    why_absent: str | None = None
    caveat: str | None = None
    method: str | None = None
    threshold: int | Real | None = None
    direction: str | None = None
    weight: int | Real | None = None
    essential: bool | None = None
    holds: bool | None = None
    because: str | None = None
    source: str | None = None


class JudgedClass(Part):
    """A class or a condition with its evidence. support: the weight of what holds, of all that is known."""

    label: str
    stands: bool
    support: str
    evidence: list[WeighedSignal]
    advice: list[str]


class Confirmation(Part):
    """The metric that shows whether an action worked, and where it goes then."""

    metric: str
    direction: str


class ExpectedGain(Part):
    """How many times faster a step becomes, with the ends of a 90 % interval, by recorded changes of this kind.

    own: whether all of these are of this very kind; else of several. samples: times as many in a step as before; then
    the factor is per sample.
    """

    factor: Real
    low: Real
    high: Real
    pairs: int
    workloads: int
    own: bool
    samples: Real = 1.0
    here: bool = Field(default=False, description="whether it rests on trials of this advice on this machine alone")
    chance: Real | None = Field(default=None, description="the share of these changes that gain anything here")


class Recommended(Part):
    """An action; where a time budget says so, what it gains. A rule gives only its title.

    share_pct: of the time that it acts on; evidence says it in words. gain_pct: what it may remove of the time: as
    recorded changes make likely, else at most. mechanism: the kind of change. accuracy, memory: what it costs there.
    speedup_at_most: the step's time over floor_ms, what must stay of it; ceiling_of says of which step. Of a run on
    CPUs it is of the share. tried: how it fared where `aaco try` tried it.
    """

    model_config = ConfigDict(populate_by_name=True)

    action: str
    title: str
    share_pct: Real | None = None
    feasible_ratio: Real | None = None
    why_feasible: str | None = None
    gain_pct: Real | None
    speedup_at_most: Real | None = None
    effort: str | None = None
    evidence: str | None = None
    accuracy: str | None = None
    memory: str | None = None
    mechanism: str | None = None
    attempt: str | None = Field(default=None, validation_alias="try", serialization_alias="try")
    confirm: Confirmation | None = None
    targets: list[str] | None = None
    ceiling_of: str | None = None
    floor_ms: Real | None = None
    why_no_ceiling: str | None = None
    expected: ExpectedGain | None = None
    tried: str | None = None


class Together(Part):
    """The first actions done together: how many times faster a step can become at most, and what must stay of it."""

    actions: list[str]
    ceiling: Real
    floor_ms: Real


class NotOffered(Part):
    """An action that would gain something by the readings, and the fact of the workload that speaks against it."""

    action: str
    title: str
    gain_pct: Real
    because: str


@document(layout.BOTTLENECK)
class Bottleneck(Document):
    """bottleneck.json: for other programs; a report recomputes it from the readings. trust: of an untrusted trace."""

    bottleneck_class: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None
    confidence_why_absent: str | None = None
    support: str | None = None
    top_evidence: list[WeighedSignal]
    secondary: list[JudgedClass] | None = None
    conditions: list[JudgedClass] | None = None
    optimization_priority: list[Recommended] | None = None
    not_offered: list[NotOffered] | None = None
    together: Together | None = None
    abstained_because: str | None = None
    trust: Trusted | None = None

"""The lines of a session's log of searches: what a search for changes that pay settled, tried, measured and decided."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel, TypeAdapter

from aaco.core.candidate import Candidate, Inapplicable
from aaco.core.documents import FrozenModel

Pct = float | None
SHORTEST_LIMIT_S = 30.0
PROCESSES_S = "seconds that each of its processes took, in their order"


class LedgerLine(FrozenModel):
    """A step of a search."""

    schema_version: Literal[1] = 1
    search: str = Field(description="which search this step is of")
    took_s: float = Field(default=0.0, ge=0, description="seconds that the step took")


class SearchOrigin(FrozenModel):
    """What a search is of; one that finds another origin does not go on with it."""

    model_sha256: str
    config_hash: str
    machine: str
    versions: dict[str, str]


class SearchTerms(FrozenModel):
    """What a search is judged by, settled before anything is measured."""

    seed: int
    alpha: float = Field(default=0.05, gt=0, lt=1, description="chance that a search keeps a change that is no gain")
    least_gain_pct: float = Field(default=2.0, ge=0, description="a smaller gain is not kept")
    finalists: int = Field(default=4, ge=1, description="how many changes are confirmed at most")
    screen_processes: int = Field(default=2, ge=2)
    processes: int = Field(default=5, ge=5, description="of a confirmation, at least")
    most_processes: int = Field(default=12, ge=5, description="of a confirmation, at most")
    pairs: int = Field(default=30, ge=1, description="per process")
    process_s: float = Field(default=0.0, ge=0, description="what a process is expected to take before one was timed")
    budget_s: float = Field(default=600.0, gt=0)
    slo_ms: float | None = Field(default=None, gt=0, description="what a larger batch may take")
    accept_error: float = Field(default=0.0, ge=0, description="share of an output's largest element that a change of "
                                                               "the arithmetic may differ by")

    @property
    def limit_s(self) -> float:
        """After how long a process is ended. A change is confirmed and measured again in 20 processes at least: with
        slower ones the budget would not suffice.
        """
        return max(SHORTEST_LIMIT_S, 10 * self.process_s, self.budget_s / 20)


class SearchBegun(LedgerLine):
    """The first line of a search: what it is of, its terms and its candidates."""

    step: Literal["begun"] = "begun"
    origin: SearchOrigin
    terms: SearchTerms
    announced_s: float = Field(description="what it takes at most on an idle machine; 0: the budget has no room")
    candidates: list[Candidate]
    inapplicable: list[Inapplicable]
    expected: dict[str, str] = Field(default={}, description="by change, what earlier trials on this machine say")


class OutputsChecked(LedgerLine):
    """Whether a change loads, runs and computes the same."""

    step: Literal["checked"] = "checked"
    change: str
    passed: bool
    why: str
    error: float | None = Field(default=None, description="largest difference, as a share of the largest element")
    peak_rss_bytes: list[int] = Field(default=[], description="one for each set of inputs")


class FirstLook(LedgerLine):
    """A first look at the time, which decides only what is confirmed."""

    step: Literal["screened"] = "screened"
    change: str
    session: str
    log_ratios: list[float] = Field(description="per process, log(time after / time before) of the same samples; none "
                                                "where it did not run")
    why: str = Field(default="", description="what kept it from running")
    processes_s: list[float] = Field(default=[], description=PROCESSES_S)
    by_device: bool = Field(default=False, description="whether the device's time fills the latency of the baseline")


class ConfirmationPlanned(LedgerLine):
    """What is confirmed, and how long one must look."""

    step: Literal["planned"] = "planned"
    finalists: list[str]
    processes: int
    level: float = Field(description="of each interval, so that all of the search hold together")
    detectable_pct: Pct = Field(description="the gain that so many processes show with a chance of 80 %")


class GuardedMetric(FrozenModel):
    """A metric that must not get worse."""

    metric: str
    worse: bool
    why: str


class TurnsMeasured(LedgerLine):
    """A comparison in turns with fresh processes: the confirmation, or the last one against the untouched baseline."""

    step: Literal["confirmed", "again"]
    change: str
    session: str = Field(description="empty: the comparison failed")
    gain_pct: Pct = Field(description="time saved per sample, per cent of the baseline's; null: could not be estimated")
    low_pct: Pct
    high_pct: Pct
    level: float
    processes: int
    guards: list[GuardedMetric]
    passed: bool
    why: str
    processes_s: list[float] = Field(default=[], description=PROCESSES_S)


class SearchDecided(LedgerLine):
    """The end of a search."""

    step: Literal["decided"] = "decided"
    kept: str | None = Field(description="the change; null: no change")
    why: str
    settings: dict[str, str] = Field(default={})
    model: str | None = Field(default=None, description="the model file, where the change rewrites it")


Line = Annotated[SearchBegun | OutputsChecked | FirstLook | ConfirmationPlanned | TurnsMeasured | SearchDecided,
                 Field(discriminator="step")]


class LedgerRow(RootModel[Line]):
    """A line of a search."""

    model_config = ConfigDict(defer_build=True)


LINE: TypeAdapter[Any] = TypeAdapter(Line, config=ConfigDict(defer_build=True))

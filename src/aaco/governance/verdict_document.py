"""What verdict.json holds. verdict.py computes it: who only reads it imports no statistics.

The schema of the document is RegressionVerdict.model_json_schema(). Every null has its reason in `why_absent`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from aaco.core import notebook
from aaco.core.documents import FrozenModel, document
from aaco.tracelake import layout
from aaco.tracelake.history.measures import LATENCY, MEASURES

Decision = Literal["regressed", "improved", "equivalent", "inconclusive"]
Status = Literal["regressed", "improved", "equivalent", "inconclusive", "no_baseline", "error"]
Severity = Literal["none", "low", "medium", "high", "critical"]
Direction = Literal["lower_is_better", "higher_is_better"]
CALIBRATED = ("the probability that the status is right, calibrated on comparisons whose answer is known "
              "(docs/concepts/regressions.md gives its reliability)")
DETECTABLE = 2.8  # z(0.975) + z(0.80): a true change this many standard errors long is seen four times in five
ESTIMATOR = "ratio of geometric means of per-process median latency"


class EnvironmentDifference(FrozenModel):
    """A fact that differs between the sides; null = not recorded."""

    fact: str
    baseline: str | None
    current: str | None
    blocks: bool = Field(description="the comparison was made only because it was forced")


class Counts(FrozenModel):
    """How many of something each side has."""

    baseline: int
    current: int


class Cause(FrozenModel):
    """One addend of the change of the profiled window; all of them sum to it exactly, in whole ns."""

    family: str | None = Field(description="kernel family; null for gaps and overlap")
    kind: Literal["count", "duration", "gaps", "overlap"]
    delta_ns: int = Field(description="summed over `inferences` inferences")
    inferences: int = Field(ge=1)
    share_pct: float | None = Field(description="of the window's change; null when that is 0")


class Duet(FrozenModel):
    """How a comparison in turns was made, and what its interval rests on."""

    processes: int = Field(description="that measured both sides")
    controls: int = Field(description="that measured one side against itself")
    pairs: int = Field(description="that the processes' medians are of")
    disturbed_pairs: int = Field(description="pairs during which a fixed piece of work took longer than usual")
    only_quiet: bool = Field(
        description="whether the latency leaves those out, as it does where a device did the work; its time does not")
    look: int = Field(description="which of the planned looks this is, from 1")
    looks: int
    look_alpha: float = Field(description="share of the false alarms that this look may raise; ci is at it")
    stopped_by: Literal["settled", "precision", "budget", "processes"]
    degrees: float | None = Field(description="of freedom of the interval, the prior's among them")
    prior_degrees: float = Field(description="what earlier runs' controls on this machine are worth; 0: not used")
    prior_runs: int
    why_no_prior: str
    order_effect_pct: float | None = Field(description="of being created later, by the controls; already subtracted")
    traced: int = Field(default=0, description="processes in which a tracer recorded what the device did; it costs a "
                        "launch some of the host's time (about 15 % on an H200), of either side alike")


class MetricVerdict(FrozenModel):
    """One metric of a comparison, judged by itself and then, by its q-value, among all of them.

    Figures that are null together are so for the reason in `why`.
    """

    metric: str
    unit: str
    direction: Direction
    status: Decision
    why: str
    baseline_value: float
    current_value: float
    effect_pct: float = Field(description="positive is worse; of a rate, that of the time it stands for")
    ci: tuple[float, float] | None
    p_value: float | None
    q_value: float | None
    p_regression: float | None
    mde80_pct: float | None
    sigma_session: float | None
    n_units: Counts
    replication_unit: Literal["process", "session", "block"]


@document(layout.VERDICT)
class RegressionVerdict(FrozenModel):
    """verdict.json. Fields are added, never renamed; `schema_version` rises when meaning changes.

    2: p_regression is the calibrated probability of a regression; what it was before is p_tolerance. mde80_pct is
    exact; the approximation that it was before is mde80_normal_pct.
    """

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        effect = "" if self.effect_pct is None else f"{self.effect_pct:+.2f} % (positive is worse)"
        interval = self.ci and f"[{self.ci[0]:+.2f}, {self.ci[1]:+.2f}] %"
        return notebook.table((("verdict", self.status), ("why", self.why), (self.metric, effect),
                               ("interval", interval), ("next", self.recommendation)))

    schema_version: Literal[1, 2] = 2
    status: Status
    why: str = Field(description="what decided the status")
    regression: bool
    severity: Severity
    confidence: float | None = Field(default=None, description="probability that the status is right")
    confidence_why: str = CALIBRATED
    latency_delta_pct: float | None = Field(default=None, description="effect_pct, under the name of old")
    suspected_cause: str | None = None
    evidence: dict[str, str] = Field(default={}, description="signed changes per inference in the profiled pass")
    recommendation: str
    warnings: list[str] = Field(default=[], description="what was recorded that may have made the change by itself")
    metric: str = Field(default=LATENCY, description="latency_ms; in a comparison in turns device_time_ms where that "
                        "is measured; or another metric that regressed where it did not")
    unit: str = MEASURES[LATENCY].unit
    direction: Direction = MEASURES[LATENCY].direction
    baseline_value: float | None = Field(default=None, description="geometric mean of the processes' values")
    current_value: float | None = None
    effect_pct: float | None = Field(default=None, description="positive is worse")
    ci: tuple[float, float] | None = Field(default=None, description="confidence interval of effect_pct")
    level: float | None = None
    tolerance_pct: float | None = None
    p_regression: float | None = Field(
        default=None, description="calibrated probability that the true change is worse than the tolerance")
    p_tolerance: float | None = Field(default=None, description="one-sided p-value of no more than the tolerance")
    p_value: float | None = Field(default=None, description="two-sided p-value of no change")
    q_value: float | None = Field(default=None, description="p_value adjusted for `metrics` (Benjamini-Hochberg)")
    mde80_pct: float | None = Field(
        default=None, description="smallest change seen at `level` with 80 % power, by the noncentral t distribution")
    mde80_normal_pct: float | None = Field(
        default=None,
        description=f"the same by {DETECTABLE} x sigma_session x sqrt(1/a + 1/b) over n_units: for level 0.95 and many "
                    "degrees of freedom; too small by 14 % with 5 + 5 units")
    sigma_session: float | None = Field(default=None, description="relative standard deviation of one unit")
    n_sessions: Counts | None = Field(default=None, description="processes measured")
    n_units: Counts | None = Field(default=None, description="units of replication that the interval rests on")
    n_iterations: Counts | None = None
    n_history: int | None = Field(default=None, description="further sessions that the spread is known from")
    replication_unit: Literal["process", "session", "block"] | None = None
    design: str = ""
    order_randomised: bool = False
    estimator: str = ESTIMATOR
    baseline_name: str | None = None
    baseline_ids: list[str] = Field(default=[])
    session_ids: list[str] = Field(default=[])
    env_diff: list[EnvironmentDifference] = Field(default=[])
    change_point: dict[str, Any] | None = None
    confirmed_by: list[str] = Field(default=[], description="sessions of fresh processes that show it, too (aaco ci)")
    causes: list[Cause] = Field(default=[])
    metrics: list[MetricVerdict] = Field(default=[], description="every metric that both sides have")
    metrics_absent: dict[str, str] = Field(default={}, description="metrics that were not compared, and why")
    unknown_mass: None = None
    seed: int | None = Field(default=None, description="of the order in which things were measured")
    duet: Duet | None = None
    tool_version: str
    reproduce_command: str
    why_absent: dict[str, str] = Field(default={}, description="the reason of every null")

    @model_validator(mode="after")
    def _hangs_together(self) -> RegressionVerdict:
        if self.effect_pct is not None and (self.baseline_value is None or self.current_value is None):
            raise ValueError("an effect without the values it is of")
        if self.ci is not None and (self.effect_pct is None or self.level is None):
            raise ValueError("an interval without its effect or its level")
        return self

"""Steps of a rising load on a server: from which on it does not keep up, and where more load brings less.

A step with a rate is saturated where its backlog surely grows, or requests fail. A step with so many requests open has
no backlog: it is saturated where it answers less than 10 % more per doubling than the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from aaco.analytics.llm.backlog import Backlog
from aaco.analytics.what_if.sweep import SATURATED_PCT, Gain, gains_between, knee_of
from aaco.core import documents
from aaco.core.readings import Estimate, Reading
from aaco.core.words import in_percent
from aaco.tracelake import layout

NAME = "load_sweep"
Over = Literal["rate", "poisson", "concurrency"]
FAILED_PCT = 1.0  # of requests: more do not fail by chance
FIRST = "there is no step before it"
# Readings of a load that a table of several has too, where the devices or the processor were recorded.
ENERGY = ("device_power_mean_w", "device_energy_per_output_token_j", "package_power_mean_w",
          "package_energy_per_output_token_j")


class StepFigure(Struct, frozen=True):
    """A figure of a step with its interval, or why there is none."""

    name: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    why_absent: str

    @property
    def reading(self) -> Reading:
        """Return it as the session of the step has it."""
        return Reading(self.name, self.unit, self.value, self.why_absent, self.low, self.high)


class LoadStep(Struct, frozen=True):
    """A session with one load: requests per second, or open at once. between: it narrows down what earlier
    steps left open, not as a next one."""

    load: float
    between: bool
    session_id: str
    requests: int
    failed: int
    backlog: Backlog
    figures: list[StepFigure]

    @property
    def failed_pct(self) -> float:
        """Return the share of requests that failed."""
        return 100 * self.failed / self.requests

    @property
    def readings(self) -> dict[str, Reading]:
        """Return the figures by name."""
        return {figure.name: figure.reading for figure in self.figures}

    @property
    def answered(self) -> Estimate | None:
        """Return the answers per second; None: not known, or none at all."""
        backlog = self.backlog
        if not backlog.answered_per_s:
            return None
        return Estimate(backlog.answered_per_s, backlog.answered_low, backlog.answered_high)


@documents.document(layout.LOAD_STEPS)
class LoadSteps(Struct, frozen=True):
    """runtime/load_steps.json, of the last session of a sweep: what every step measured, in the order of asking.

    over: what rose: the rate of requests at equal or (poisson) random times, or the requests that are open at once.
    """

    over: Over
    steps: list[LoadStep]


class JudgedStep(Struct, frozen=True):
    """A step, and whether the server is saturated at it; null: not known, why says why."""

    step: LoadStep
    saturated: bool | None
    why: str


@documents.document(layout.finding(NAME))
class LoadSweep(Struct, frozen=True):
    """metrics/load_sweep.json: how a server answers a rising load. Steps are in the order of their loads.

    sustained: the largest load below every saturated one that the server keeps up with; saturated_from: the smallest at
    which it is saturated. knee: the load at which the gain of answers per doubling drops most. most_answered_per_s: of
    any step, with its interval.
    """

    over: Over
    steps: list[JudgedStep]
    sustained: float | None
    saturated_from: float | None
    knee: float | None
    why_no_knee: str
    most_answered_per_s: float | None
    most_answered_low: float | None
    most_answered_high: float | None


def sweep_of(measured: LoadSteps) -> LoadSweep:
    """Return what the steps say together."""
    steps = sorted(measured.steps, key=lambda step: step.load)
    judged = [JudgedStep(step, *_judged(step, steps[:index], measured.over)) for index, step in enumerate(steps)]
    saturated = [each.step.load for each in judged if each.saturated]
    below = [each.step.load for each in judged
             if each.saturated is False and (not saturated or each.step.load < min(saturated))]
    rising = [(step.load, answered) for step in steps if not step.between and (answered := step.answered)]
    knee = knee_of(gains_between(rising), "knee", "load", "loads", "requests")
    most = max((answered for step in steps if (answered := step.answered)), key=lambda answered: answered.value,
               default=None)
    return LoadSweep(measured.over, judged, max(below, default=None), min(saturated, default=None), knee.value,
                     knee.why_absent, *((most.value, most.low, most.high) if most else (None, None, None)))


def _judged(step: LoadStep, below: Sequence[LoadStep], over: Over) -> tuple[bool | None, str]:
    """Return whether the server is saturated at a step, and why. below: the steps with less load."""
    if step.failed_pct > FAILED_PCT:
        return True, f"{in_percent(step.failed_pct, 3)} of the requests failed"
    if over == "concurrency":
        return _by_gain(step, below)
    backlog = step.backlog
    if backlog.is_over_saturated is None:
        return None, backlog.why_no_growth
    grows = f"{backlog.growth_per_s:+.3g} /s ({backlog.growth_low:+.3g} .. {backlog.growth_high:+.3g})"
    return backlog.is_over_saturated, f"requests under way: {grows}"


def _by_gain(step: LoadStep, below: Sequence[LoadStep]) -> tuple[bool | None, str]:
    """Return whether a step answers hardly more than the one before it."""
    if not below:
        return None, FIRST
    if not (before := below[-1].answered) or not (after := step.answered):
        return None, step.backlog.why_no_rate or below[-1].backlog.why_no_rate
    gain: Gain = gains_between([(below[-1].load, before), (step.load, after)])[0]
    return gain.pct.value < SATURATED_PCT, f"{in_percent(gain.pct.value, 3, '+')} more answers per doubling"

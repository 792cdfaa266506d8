"""Recommend actions: how much of the time each acts on, and how much faster a step can become by it at most.

The ceiling of an action on a device is that of its mechanism: the step's time over what must stay of it. Where no floor
is known there is no ceiling, and the reason is told. Actions are ranked as all changes are (expected.py). One that
cannot gain LEAST_GAIN, or is expected to gain less, is not offered. `confirm` names the reading that shows the effect,
and its direction.

What is already so, what the framework or the device does not have, and what cannot work here is not offered: each
action, and each thing to try, declares on which facts of the workload it depends (analytics/workload).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.advice.action import ACTS_ON, BUSY, COMPUTES, EFFORTS, LEAST_PCT, USUAL, Action
from aaco.analytics.advice.expected import LEAST_GAIN, Expected, RankedChange, ranked
from aaco.analytics.advice.floor import ceiling, ceiling_of, kept_ns
from aaco.analytics.advice.floors import NO_FLOORS, Floors
from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.core.advice import NOTHING, FactCondition, FactValues, Step, offered
from aaco.core.readings import Reading
from aaco.core.records import as_dict
from aaco.tracelake.document_schemas.answers import Confirmation, ExpectedGain, NotOffered, Recommended, Together

USUALLY = "what such changes usually take off the device's work, or off the host's waits"
MOST_TARGETS = 5
WAITING = ("remove_syncs", "whole_graph")  # the kinds of changes that take the host's waits out of a step
MOST_TOGETHER = 3
GROWING = {"growing"}  # of what keeps a step out of a graph: a cache; without one there is none to keep
ALIKE = 1.05  # times: a ceiling so much above what a share explains is not told apart from it


class Withheld(Struct, frozen=True):
    """An action that could gain something by the readings and is not offered, and why.

    by_gain: whether its ceiling, or what is expected of it, speaks against it; else a fact of the workload does.
    """

    name: str
    title: str
    gain_pct: float
    why: str
    by_gain: bool = False

    def entry(self) -> NotOffered:
        """Return the entry of not_offered in bottleneck.json."""
        return NotOffered(action=self.name, title=self.title, gain_pct=self.gain_pct, because=self.why)


class Recommendation(Struct, frozen=True):
    """An action with its possible gain in this session.

    share_pct: of the time that it acts on. tries: what to try here. targets: nodes or kernels that it acts on, those
    that take most first. ceiling, ceiling_of, floor_ms, why_no_ceiling, tried: as in
    `Recommended`. at_most_pct: of the wall that it removes at most by the readings. of_limit: whether the share is that
    of a reading of what limits the session, for it is not what the work of its steps shows. confirm: the metric that
    shows the effect here.
    works_pct: of a step in which the device's own work runs; None where that is not known, or is of one of the streams
    that its targets run in at once. usual: as in `Floors`, at most what the readings leave.
    """

    action: Action
    share_pct: float
    feasible_ratio: float
    tries: tuple[str, ...]
    targets: tuple[str, ...] = ()
    ceiling: float | None = None
    ceiling_of: str = ""
    floor_ms: float | None = None
    why_no_ceiling: str = ""
    expected: Expected | None = None
    tried: str = ""
    at_most_pct: float = 100.0
    of_limit: bool = False
    confirm: str = ""
    works_pct: float | None = None
    usual: float | None = None

    @property
    def name(self) -> str:
        """The action's name."""
        return self.action.name

    @property
    def mechanism(self) -> str:
        """The kind of change; empty of actions on runs on CPUs."""
        return self.action.mechanism

    @property
    def takes_waits(self) -> bool:
        """Whether what it acts on is where the host waits."""
        return self.mechanism in WAITING

    @property
    def attempt(self) -> str:
        """What to try, in one line."""
        return "; ".join(self.tries)

    @property
    def change(self) -> RankedChange:
        """The action as ranking sees it."""
        return RankedChange(self.name, self.ceiling, self.expected, EFFORTS.index(self.action.effort),
                            self.share_pct * self.feasible_ratio, self.usual, self.action.surpasses)

    @property
    def gain_pct(self) -> float:
        """The share of the wall that it removes: as recorded changes make likely, else the share that it acts on, under
        the ceiling; of a run on CPUs the bound."""
        gain = self.change.gain
        return 100.0 if gain is None else max(0.0, 100 * (1 - 1 / gain))

    @property
    def most_pct(self) -> float:
        """The share of the wall that it removes at most, whatever trials gained."""
        return replace(self, expected=None).gain_pct

    @property
    def speedup(self) -> float | None:
        """How many times faster the session can become, at most; None if that is not known."""
        if self.mechanism:
            return self.ceiling
        return None if self.most_pct >= 100 else replace(self, expected=None).change.gain

    def entry(self) -> Recommended:
        """Return the entry of optimization_priority in bottleneck.json."""
        action = self.action
        return Recommended(
            action=action.name, title=action.title, share_pct=self.share_pct, feasible_ratio=self.feasible_ratio,
            why_feasible=action.why_feasible, gain_pct=self.gain_pct, speedup_at_most=self.speedup,
            effort=action.effort, attempt=self.attempt, evidence=self.evidence, accuracy=action.accuracy or None,
            memory=action.memory or None, mechanism=action.mechanism or None,
            confirm=Confirmation(metric=self.confirm, direction=action.direction),
            targets=list(self.targets) or None, ceiling_of=self.ceiling_of or None, floor_ms=self.floor_ms,
            why_no_ceiling=self.why_no_ceiling or None,
            expected=ExpectedGain(**as_dict(self.expected)) if self.expected else None, tried=self.tried or None)

    @property
    def acts(self) -> str:
        """The share of the time that it acts on, in words."""
        return f"{self.share_pct:.0f} % of the time {self.action.of_limit if self.of_limit else self.action.evidence}"

    @property
    def evidence(self) -> str:
        """What of this session speaks for the action, in a sentence; where its ceiling is above what the share alone
        explains, with the device's part of a step, for the ceiling of a change may take the rest, or be of that part.
        """
        works = self.works_pct
        if self.ceiling is None or works is None or self._explains(100 - self.share_pct):
            return self.acts
        takes = self.action.ceiling_takes
        more = f", and the ceiling {takes}" if takes and not self._explains(works) else ""
        return f"{self.acts}; the device works {works:.0f} % of it{more}"

    def _explains(self, left_pct: float) -> bool:
        """Return whether the ceiling is no more than what a step gains of which so much is left."""
        return self.ceiling is not None and left_pct * self.ceiling <= 100 * ALIKE


# Actions on nodes of a run on CPUs, by the side of the nodes.
NODES_OF = {"int8_nodes": "compute", "fuse_nodes": "memory"}


def with_targets(recommendations: tuple[Recommendation, ...], cpu_budget: Mapping[str, Any]
                 ) -> tuple[Recommendation, ...]:
    """Return the recommendations with the nodes that they act on. cpu_budget: content of cpu_budget.json."""
    by_side: dict[str, list[str]] = {}
    for node in cpu_budget["largest"]:
        by_side.setdefault(node["side"], []).append(node["name"])
    return tuple(replace(advice, targets=tuple(by_side.get(NODES_OF.get(advice.name, ""), ())[:MOST_TARGETS]))
                 for advice in recommendations)


def with_fallen_back(recommendations: tuple[Recommendation, ...], nodes: Sequence[str]) -> tuple[Recommendation, ...]:
    """Return the recommendations, that for nodes on the CPU with their names, those that take most time first."""
    return tuple(replace(advice, targets=tuple(nodes[:MOST_TARGETS])) if advice.name == "nodes_on_device" else advice
                 for advice in recommendations)


def with_waits(recommendations: tuple[Recommendation, ...], places: Sequence[str]) -> tuple[Recommendation, ...]:
    """Return the recommendations, those that take waits out with the places in the program where the host waits."""
    return tuple(replace(advice, targets=tuple(places[:MOST_TARGETS])) if advice.takes_waits and places else advice
                 for advice in recommendations)


def gaining(readings: Mapping[str, Reading], facts: FactValues | None = None, floors: Floors | None = None
            ) -> tuple[Recommendation, ...]:
    """Return the actions that gain something in this session, best first, without ceilings.

    facts: of the workload; None if they were not looked for, and then nothing is left out for them. floors: of the
    session; the kernels that a mechanism acts on are known by it.
    """
    return in_order(advice for action in ACTIONS
                    if not action.why_not(facts) and (advice := _gaining(action, readings, facts, floors)))


def with_trials(recommendations: tuple[Recommendation, ...], trials: Mapping[str, Any]
                ) -> tuple[Recommendation, ...]:
    """Return the recommendations with how they fared where they were tried. trials: content of trials.json."""
    rows = trials.get("trials", ())
    return tuple(replace(advice, tried=_fared([row for row in rows if advice.name in row["advice"]]))
                 for advice in recommendations)


def with_machine_gains(recommendations: tuple[Recommendation, ...], gains: Mapping[str, Any]
                       ) -> tuple[Recommendation, ...]:
    """Return the recommendations, each with what its trials on this machine make likely in place of what others
    recorded, in the order that follows. gains: content of machine_gains.json.
    """
    by_name = {advice.name: advice if (gain := gains.get("gains", {}).get(advice.name)) is None else replace(
        advice, expected=_of_machine(gain, advice.ceiling)) for advice in recommendations}
    return tuple(by_name[change.name] for change in ranked((advice.change for advice in by_name.values()), 0.0))


def _of_machine(gain: Mapping[str, Any], ceiling: float | None) -> Expected:
    factor, low, high = (min(gain[name], ceiling or math.inf) for name in ("factor", "low", "high"))
    return Expected(factor, low, high, gain["models"], gain["models"], own=True, here=True)


def _fared(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the outcome of the trial of an advice that came farthest, in words; empty without one."""
    if not rows:
        return ""
    best = max(rows, key=lambda row: (row["outcome"] == "kept", row["gain_pct"] is not None, row["gain_pct"] or 0.0))
    return f"{best['change']}: {best['outcome']}; {best['why']}"


def in_order(recommendations: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return the recommendations as changes are ranked; those that gain nothing are left out."""
    by_name = {advice.name: advice for advice in recommendations}
    return tuple(by_name[change.name] for change in ranked((advice.change for advice in by_name.values()), 1.0))


def bounded(recommendations: tuple[Recommendation, ...], floors: Floors | None
            ) -> tuple[tuple[Recommendation, ...], tuple[Withheld, ...]]:
    """Return the recommendations with their ceilings, in their order, and those that have nothing to gain.

    floors: of the session; None if they were not looked for.
    """
    under = [advice if not advice.mechanism else _under_floor(advice, floors) for advice in recommendations]
    timed = floors is not None and floors.unprofiled
    useful = [advice for advice in under if not _why_useless(advice, timed)]
    spent = [Withheld(advice.name, advice.action.title, advice.gain_pct, reason, by_gain=True) for advice in under
             if (reason := _why_useless(advice, timed))]
    return in_order(_without_needless(useful)), tuple(spent)


def _without_needless(recommendations: Sequence[Recommendation]) -> list[Recommendation]:
    """Return the recommendations without those that combine others and gain no more than one of these does."""
    among_usual = any(advice.usual is not None for advice in recommendations)
    likely = {advice.name: advice.change.likely_gain(among_usual) for advice in recommendations}
    return [advice for advice in recommendations
            if all(likely[advice.name] >= LEAST_GAIN * likely.get(part, 0.0) for part in advice.action.combines)]


def together(recommendations: Sequence[Recommendation], floors: Floors | None) -> Together | None:
    """Return the most of the first recommendations that have a floor done together; None where there is none."""
    for count in range(min(MOST_TOGETHER, len(recommendations)), 1, -1):
        first = recommendations[:count]
        floor = floors.done_together([advice.mechanism for advice in first]) if floors else None
        if floors and floor and (kept := kept_ns(floors.step, floor)):
            return Together(actions=[advice.name for advice in first], ceiling=ceiling(floors.step, floor) or 1.0,
                            floor_ms=kept / 1e6)
    return None


def _why_useless(advice: Recommendation, timed: bool) -> str:
    """Return why an action is not worth a try; empty if it is, or if nothing says what it can gain.

    timed: whether the step was timed without a profiler, which stretches what else a step does.
    """
    if advice.ceiling is not None and advice.ceiling < LEAST_GAIN:
        return (f"nothing to gain: {advice.floor_ms:.3f} ms of {advice.ceiling_of} must stay, at most "
                f"{advice.ceiling:.2f} x faster")
    if advice.expected and (advice.expected.factor < LEAST_GAIN or advice.expected.rarely_gains):
        low, high = f"{advice.expected.low:.2f}", f"{advice.expected.high:.2f}"
        interval = f"{low} to {high}, " * (low != high)  # without width it is a bound and no certainty
        return f"{advice.expected.factor:.2f} x expected ({interval}{advice.expected.pairs} recorded changes)"
    if timed and advice.mechanism and advice.change.gain is not None and advice.change.gain < LEAST_GAIN:
        return f"too little to gain: {advice.acts}"
    return ""


def _under_floor(advice: Recommendation, floors: Floors | None) -> Recommendation:
    if floors is None:
        return replace(advice, why_no_ceiling=NO_FLOORS)
    floor, most = floors.under(advice.mechanism), floors.ceiling(advice.mechanism)
    likely = replace(advice, expected=_at_most(floors.expected.get(advice.mechanism), advice.at_most_pct),
                     usual=_usual(floors.usual.get(advice.mechanism), advice.at_most_pct),
                     targets=tuple(target.name for target in floor.targets[:MOST_TARGETS]))
    if most is None or (kept := kept_ns(floors.step, floor)) is None:
        return replace(likely, why_no_ceiling=floor.why_absent or "what must stay of the step is too little to tell")
    works_pct = max(floors.works_pct, advice.works_pct or 0.0)
    return replace(likely, ceiling=most, ceiling_of=ceiling_of(floors.step, floor), floor_ms=kept / 1e6,
                   works_pct=works_pct if floor.acted_ns <= floors.chain_ns else None)


def _usual(gain: float | None, removed_pct: float) -> float | None:
    """Return a usual gain that removes no more of the wall than this."""
    return gain if gain is None or removed_pct >= 100 else min(gain, 1 / (1 - removed_pct / 100))


def _at_most(likely: Expected | None, removed_pct: float) -> Expected | None:
    """Return an expected gain that removes no more of the wall than this."""
    if likely is None or removed_pct >= 100:
        return likely
    most = 1 / (1 - removed_pct / 100)
    return replace(likely, factor=min(likely.factor, most), low=min(likely.low, most), high=min(likely.high, most))


def worth_trying(steps: Iterable[Step], readings: Mapping[str, Reading], facts: FactValues | None) -> tuple[str, ...]:
    """Return the texts of the steps that are offered in a workload with these facts and can gain something.

    Without a reading of its share a step is taken to act on everything.
    """
    texts = offered(steps, facts)
    shares = {step.text: reading.value for step in steps if (reading := readings.get(step.acts_on))}
    useful = ranked(RankedChange(text, None, None, share_pct=100.0 if (share := shares.get(text)) is None else share)
                    for text in texts)
    return tuple(text for text in texts if text in {change.name for change in useful})


def withheld(readings: Mapping[str, Reading], facts: FactValues | None, floors: Floors | None = None
             ) -> tuple[Withheld, ...]:
    """Return the actions that gain something by the readings and that a fact speaks against, the largest first.

    An action on what the workload or the device does not have, such as attention, TF32 or float64, is none of them, nor
    one of another vendor's.
    """
    found = [Withheld(action.name, action.title, advice.gain_pct, reason) for action in ACTIONS
             if (reason := action.why_not(facts)) and not _has_nothing_to_act_on(action, facts)
             and (advice := _gaining(action, readings, facts, floors))]
    return tuple(sorted(found, key=lambda entry: (-entry.gain_pct, entry.name)))


def _has_nothing_to_act_on(action: Action, facts: FactValues | None) -> bool:
    known: FactValues = facts or {}
    return any(not condition.holds(known) and _is_of_another(condition, known.get(condition.fact, frozenset()))
               for condition in action.applies_if)


def _is_of_another(condition: FactCondition, values: frozenset[str]) -> bool:
    """Return whether these values of its fact, none if it is not known, mean that an action on others has no object."""
    if condition.fact == "element_type":  # elements of another type, or of none that shows
        return True
    return bool(values) and (values <= NOTHING or condition.fact == "vendor" or condition.values == GROWING)


def why_not_advised(mechanisms: Iterable[str], facts: FactValues | None) -> str:
    """Return by which facts of the workload none of the actions of these kinds of changes is offered; empty where one
    is, or where no action is of such a kind.
    """
    reasons = [action.why_not(facts) for action in ACTIONS if action.mechanism in {*mechanisms}]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def _gaining(action: Action, readings: Mapping[str, Reading], facts: FactValues | None, floors: Floors | None
             ) -> Recommendation | None:
    """Return the action's gain in this session; None if its limit was not measured, if the work shows that there is
    nothing to change, or if the gain is not worth a line.
    """
    values = {name: reading.value for name, reading in readings.items() if reading.value is not None}
    if floors:
        works_pct = sum(values.get(name, 0.0) for name in ("device_limited_pct", "transfer_limited_pct"))
        values |= {ACTS_ON + name: share for name, share in floors.acts_on_pct(works_pct).items()}
        values |= {BUSY: floors.busy_pct, COMPUTES: floors.computes_pct}
        values |= {USUAL + name: gain for name, gain in floors.usual.items()}
    if values.get(ACTS_ON + action.mechanism) == 0:
        return None
    try:
        share, feasible, at_most = action.share(values), action.feasible(values), action.at_most(values)
    except KeyError:
        return None
    saved_pct = floors.saved_pct(action.mechanism) if floors else None
    if saved_pct is not None and share:
        action = replace(action, why_feasible=USUALLY)
        feasible = saved_pct / share
    advice = Recommendation(action, min(100.0, max(0.0, share)), min(1.0, max(0.0, feasible)),
                            offered(action.attempts, facts), at_most_pct=at_most,
                            of_limit=bool(action.of_limit) and share != values.get(ACTS_ON + action.mechanism),
                            confirm=action.confirmed_by(values), works_pct=values.get("device_limited_pct"))
    return advice if advice.gain_pct >= LEAST_PCT else None

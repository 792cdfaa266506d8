"""What changes gained where they were measured: residuals of steps after recorded changes, and the host's habits.

A residual is log(measured / predicted) of the time after a change. Mechanisms with OWN_WORKLOADS workloads have their
own, apart for steps that wait for the device or for the host afterwards. The others share theirs with those that leave
a step waiting for the same, and are one kind of change alone, or several together, as they are. Workloads are families:
programs of one kind of model count once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.achieved import ChangedStep
from aaco.core.readings import Absent
from aaco.core.statistics import t_quantile

OWN_WORKLOADS = 9
LEVEL = 0.9
# Of the recorded changes, where an interval is to hold LEVEL of those of a program that was not recorded: families
# differ from each other by more than their own changes do (benchmarks.advice_expected leaves each family out).
LEARNED_LEVEL = 0.92
NOTABLY_LEFT = 0.95  # a change that leaves more of the host's calls says nothing about what saving one saves
SHORTEST_NS = 1000.0  # no step is shorter
DEVICE, HOST = "device", "host"  # what a step waits for
ALIKE = {"tf32": "narrower_types"}  # kinds that err alike: the same products, in a type of another rate


class HostHabits(Struct, frozen=True):
    """How the host's path follows its calls. call_ns: an operator's call, with what the program does between two.

    saved_share: the part of a call's mean time that a call which is gone saves: what remains has more to do each.
    traced_share: the path of a host that the device hides, in the time in which it launches a traced step; 0 if that is
    not known, and each call counts as long as the others.
    """

    call_ns: float
    saved_share: float
    traced_share: float = 0.0

    def host_ns(self, changed: ChangedStep, step_ns: float) -> float:
        """Return the host's path after a change, per sample: waits gone, calls gone, the rest shared by the samples.

        Calls that are gone save none of what the host does between them, such as loading and decoding; turns of a loop
        that are gone save all of it, and their part of the waits.
        """
        if changed.replayed:
            return self.call_ns * changed.replays
        hidden_ns = min(step_ns, self.traced_share * changed.launching_ns or self.call_ns * changed.calls)
        path_ns = hidden_ns if changed.host_ns is None else changed.host_ns
        if changed.whole_calls:
            return path_ns * changed.calls_left / changed.samples
        working_ns = max(0.0, path_ns - changed.waits_ns)
        share = 1.0 if changed.calls_left > 1 and changed.samples > 1 else self.saved_share
        saved = share * (1 - changed.calls_left)
        left_ns = working_ns - saved * max(0.0, working_ns - changed.paused_ns)
        return _per_sample(left_ns, changed)

    def kept_ns(self, changed: ChangedStep, step_ns: float) -> float:
        """Return the host's own work that stays in its path, per sample; 0 where the step waits for the device then."""
        if changed.replayed or changed.whole_calls or changed.handed or self.bound(changed, step_ns) == DEVICE:
            return 0.0
        return min(self.host_ns(changed, step_ns), _per_sample(changed.paused_ns, changed))

    def untouched_ns(self, changed: ChangedStep) -> float:
        """Return the part of the host's path that no call which is gone takes along, per sample: what other calls take.
        0 where the device hides that path.
        """
        if changed.replayed or changed.host_ns is None:
            return 0.0
        return _per_sample(max(0.0, changed.host_ns - changed.waits_ns) * changed.calls_left, changed)

    def after_ns(self, changed: ChangedStep, step_ns: float) -> float:
        """Return the step after a change: the longest of the device's chain, the host's path and what others do for it.
        """
        return max(changed.device_ns, self.host_ns(changed, step_ns), changed.loading_ns, SHORTEST_NS)

    def bound(self, changed: ChangedStep, step_ns: float) -> str:
        """Return what the step waits for after a change."""
        return DEVICE if changed.device_ns >= max(self.host_ns(changed, step_ns), changed.loading_ns) else HOST


def _per_sample(path_ns: float, changed: ChangedStep) -> float:
    """Return what each sample has of a path of the host's: long operators on its own tensors take as long for each."""
    grows_ns = min(path_ns, changed.growing_ns)
    return grows_ns + (path_ns - grows_ns) / changed.samples


class RecordedChange(Struct, frozen=True):
    """A change that was measured: its step before and after, ns per sample of before, and what was made of the trace.

    workload: the family that is left out as a whole where the track record is judged.
    """

    workload: str
    before: str
    change: str
    mechanisms: tuple[str, ...]
    step_ns: float
    after_ns: float
    floor_ns: float
    changed: ChangedStep


class Residual(Struct, frozen=True):
    """log(measured / predicted) of the time after a recorded change. bound: what the predicted step waits for."""

    workload: str
    before: str
    change: str
    mechanism: str
    bound: str
    log_residual: float


class GainSpread(Struct, frozen=True):
    """The residuals that an advice is held against, of so many workloads: their median, and the ends of 90 %."""

    residuals: tuple[float, ...]
    middle: float
    low: float
    high: float
    workloads: int
    own: bool


class TrackRecord(Struct, frozen=True):
    """The residuals of all recorded changes, and the habits of the host that they were computed with."""

    habits: HostHabits
    residuals: tuple[Residual, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TrackRecord:
        """Return the track record of a document."""
        return cls(HostHabits(**document["habits"]), tuple(Residual(**row) for row in document["residuals"]))

    def spread(self, mechanisms: Iterable[str], bound: str) -> GainSpread:
        """Return the residuals of such changes, or of all that have no record of their own. Raise Absent without any.

        bound: what the step after the change waits for; a rate of the device errs otherwise than the host's path.
        Several kinds together err otherwise than one.
        """
        kinds: dict[tuple[str, str], list[Residual]] = {}
        for row in self.residuals:
            kinds.setdefault(_kind(row.mechanism, row.bound), []).append(row)
        sufficient = {kind for kind, rows in kinds.items() if len({row.workload for row in rows}) >= OWN_WORKLOADS}
        kind = _kind(mechanism_name(mechanisms), bound)
        own = kind in sufficient
        others = [row for row in self.residuals
                  if row.bound == bound and _kind(row.mechanism, row.bound) not in sufficient
                  and ("+" in row.mechanism) == ("+" in kind[0])]
        rows = kinds[kind] if own else others or self.residuals
        if len(rows) < 2:
            raise Absent("no changes of this kind were recorded")
        values = tuple(row.log_residual for row in rows)
        return GainSpread(values, median(values), *prediction_interval(values, LEARNED_LEVEL),
                          len({row.workload for row in rows}), own)


def _kind(mechanism: str, bound: str) -> tuple[str, str]:
    return ALIKE.get(mechanism, mechanism), bound


def mechanism_name(mechanisms: Iterable[str]) -> str:
    """Return the name of several mechanisms together, in whatever order they are named."""
    return " + ".join(sorted(mechanisms))


def predicted_ns(changed: ChangedStep, step_ns: float, floor_ns: float, habits: HostHabits) -> float:
    """Return the step after a change before any residual: never less than its floor."""
    return max(floor_ns, habits.after_ns(changed, step_ns))


def learn(changes: Sequence[RecordedChange]) -> TrackRecord:
    """Return the track record of recorded changes: habits first, then the residuals with them."""
    habits = _habits(changes)
    return TrackRecord(habits, tuple(_residual(change, habits) for change in changes))


def _residual(change: RecordedChange, habits: HostHabits) -> Residual:
    predicted = predicted_ns(change.changed, change.step_ns, change.floor_ns, habits)
    return Residual(change.workload, change.before, change.change, mechanism_name(change.mechanisms),
                    habits.bound(change.changed, change.step_ns), math.log(change.after_ns / predicted))


def _habits(changes: Sequence[RecordedChange]) -> HostHabits:
    """Return the habits as medians over steps that wait for the host. Raise Absent without such steps."""
    befores = {change.before: _path_of_calls_ns(change) / change.changed.calls for change in changes
               if change.changed.host_ns is not None and change.changed.calls}
    traced = {change.before: _path_of_calls_ns(change) / change.changed.launching_ns for change in changes
              if change.before in befores and change.changed.launching_ns}
    saved = [_saved_share(change) for change in changes
             if change.changed.host_ns is not None and not change.changed.replayed and not change.changed.waits_ns
             and not change.changed.whole_calls
             and change.changed.calls_left < NOTABLY_LEFT]
    if not befores or not saved:
        raise Absent("no step that waits for the host was recorded with a change that saves calls")
    return HostHabits(median(befores.values()), min(1.0, max(0.0, median(saved))),
                      median(traced.values()) if traced else 0.0)


def _saved_share(change: RecordedChange) -> float:
    after_ns = change.after_ns * change.changed.samples
    return (change.step_ns - after_ns) / _path_of_calls_ns(change) / (1 - change.changed.calls_left)


def _path_of_calls_ns(change: RecordedChange) -> float:
    """Return the host's path before a change without its own work."""
    return max(SHORTEST_NS, change.step_ns - change.changed.paused_ns)


def prediction_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Return an interval that holds the next value in `level` of cases, if it is exchangeable with these.

    Order statistics where they reach so far (conformal prediction: Vovk, Gammerman and Shafer 2005), else Student's t.
    """
    count, tail = len(values), (1 - level) / 2
    rank = math.floor(tail * (count + 1) + 1e-9)
    if rank >= 1:
        ordered = sorted(values)
        return ordered[rank - 1], ordered[count - rank]
    half = t_quantile(1 - tail, count - 1) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / count)
    return float(np.mean(values)) - half, float(np.mean(values)) + half

"""How far units of replication scatter, and what difference between two sides is beyond it: analysis of variance.

A side is a list of sessions, each an array of log values, one per process. What else is known of the same benchmark on
the same machine (its history, in epochs of one level each) takes part in the variance and in nothing else: a level may
have moved, the scatter around it is taken to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

Unit = Literal["process", "session"]
Sessions = Sequence[Reals]

ROUNDING = 1e-12  # medians whose logarithms agree to this are equal: a double's logarithm carries no more
ALONE = 8  # so many sessions (for the spread alone: processes) make up for fewer than five on the other side
# From so many degrees of freedom between sessions on, they are taken to differ where chance alone would make them
# differ so with less than this probability. Simulated for sessions of 5 processes and any scatter between them, false
# alarms stay at 3.7-6.3 % for a nominal 5 %. With fewer degrees even a ratio of 1 tells: 13 % at worst (2 + 1).
DIFFER = ((12, 0.15), (4, 0.25))
PAIRS = 5  # neighbours in time, one of each side: so many are compared pair by pair


class Spread(Struct, frozen=True):
    """The difference of the sides' means on the log scale, and the scatter of one unit of replication.

    units: over how many each side is averaged. history: sessions beside the two sides that the scatter is known from.
    """

    unit: Unit
    sigma: float
    degrees: float
    units: tuple[int, int]
    effect: float
    design: str
    history: int = 0

    @property
    def standard_error(self) -> float:
        """Of the difference of the two sides' means."""
        return self.sigma * math.sqrt(1 / self.units[0] + 1 / self.units[1])


class _Squares(Struct, frozen=True):
    """Sums of squares of sessions around their group, and of processes around their session, with their degrees."""

    between: float
    within: float
    degrees_between: int
    degrees_within: int
    per_session: float  # processes of a typical session: E(between / degrees) = within + per_session x variance

    @property
    def mean_between(self) -> float:
        return self.between / self.degrees_between

    @property
    def mean_within(self) -> float:
        return self.within / self.degrees_within


def estimate(baseline: Sessions, current: Sessions, history: Sequence[Sessions] = ()) -> Spread:
    """Return the difference of the sides' means and the scatter behind it.

    One-way analysis of variance over sessions within groups (the sides, and the epochs of the history), one variance
    for all. Where sessions scatter more than their processes explain (DIFFER) the session is the unit, its value the
    mean of its processes, and the variance of that is s^2 + w^2 / processes, with Satterthwaite's degrees of freedom
    where sessions are of unequal size; otherwise the session makes no visible difference, the two mean squares estimate
    the same variance, and the process is the unit with both pooled (Bancroft 1964, "sometimes pool"). With one session
    on each side and no history the scatter between sessions is unknown: `design` says so.

    Raise Absent where no spread can be known: one process against fewer than ALONE, and no history of ALONE sessions.
    """
    counts = (sum(map(len, baseline)), sum(map(len, current)))
    epochs = [epoch for epoch in history if len(epoch)]
    known = sum(map(len, epochs))
    if min(counts) == 1 and max(counts) < ALONE and known < ALONE:
        raise Absent(f"{counts[0]} against {counts[1]} process(es): one process has no spread, and against it "
                     f"{ALONE} are needed")
    squares = _squares([baseline, current, *epochs])
    differ, design = _sessions_differ(squares, (len(baseline), len(current)), known)
    if differ:
        return replace(_over_sessions(squares, baseline, current), design=design, history=known)
    return replace(_over_processes(squares, baseline, current), design=design, history=known)


def in_pairs(baseline: Sessions, current: Sessions, order: Sequence[bool]) -> Spread | None:
    """Return the difference from session to session where the sides took turns; None where they did not.

    order: of all sessions in time, whether each is of the current side. Sessions that can be cut into neighbours, one
    of each side, are compared pair by pair: what drifts slowly is in both of a pair, and cancels.
    """
    flags = np.asarray(order, bool)
    pairs = len(baseline)
    if pairs != len(current) or pairs < PAIRS or len(flags) != 2 * pairs or (flags[::2] == flags[1::2]).any():
        return None
    if not 0 < flags[::2].sum() < pairs:  # always the same side first: a drift does not cancel
        return None
    off = np.array([one.mean() for one in current]) - np.array([one.mean() for one in baseline])
    sigma = max(float(off.std(ddof=1)) / math.sqrt(2), ROUNDING)
    return Spread("session", sigma, pairs - 1, (pairs, pairs), float(off.mean()),
                  f"sessions in turns, {pairs} consecutive pairs in either order: slow drift cancels")


def epochs(samples: pa.Table, accepted: Iterable[str], without: Iterable[str], worse: int) -> list[list[Reals]]:
    """Return a key's history as groups of sessions of one level each: it moves where a shift was accepted.

    samples: session_id and value, in time order. accepted: the sessions from which on the level is another one.
    without: sessions that are not history, because they are judged. worse: 1 where higher values are worse, else -1.
    Values without a logarithm are left out.
    """
    moved, left_out = set(accepted), set(without)
    sessions: dict[str, list[float]] = {}
    for name, value in zip(samples["session_id"].to_pylist(), samples["value"].to_pylist(), strict=True):
        sessions.setdefault(name, []).append(value)
    found: list[list[Reals]] = [[]]
    for name, values in sessions.items():
        if name in moved:
            found.append([])
        kept = np.array([value for value in values if 0 < value < math.inf])
        if len(kept) and name not in left_out:
            found[-1].append(worse * np.log(kept))
    return [epoch for epoch in found if epoch]


def _squares(groups: Sequence[Sessions]) -> _Squares:
    sessions = [session for group in groups for session in group]
    sizes = [sum(map(len, group)) for group in groups]
    degrees = sum(len(group) - 1 for group in groups)
    lost = math.fsum(sum(len(session) ** 2 for session in group) / size
                     for group, size in zip(groups, sizes, strict=True))
    return _Squares(math.fsum(map(_between, groups)), math.fsum(map(_around, sessions)), degrees,
                    sum(sizes) - len(sessions), (sum(sizes) - lost) / degrees if degrees else 1.0)


def _sessions_differ(found: _Squares, sessions: tuple[int, int], known: int) -> tuple[bool, str]:
    """Return whether sessions scatter more than their processes explain, and the design in words."""
    shape = f"{sessions[0]} + {sessions[1]} sessions" + (f" and {known} of the history" if known else "")
    if not found.degrees_between:
        return False, "unpaired processes, one session each: drift of the machine between sessions is not covered"
    if not found.degrees_within:
        return False, f"unpaired processes, {shape} of one process each"
    chance = next((chance for least, chance in DIFFER if found.degrees_between >= least), None)
    ratio = statistics.f_quantile(1 - chance, found.degrees_between, found.degrees_within) if chance else 1.0
    if found.mean_between > ratio * found.mean_within + ROUNDING**2:
        return True, f"unpaired sessions, {shape}: they scatter more than their processes explain"
    return False, f"unpaired processes, {shape}: they scatter no more than their processes explain"


def _over_processes(found: _Squares, baseline: Sessions, current: Sessions) -> Spread:
    before, after = np.concatenate(baseline), np.concatenate(current)
    degrees = found.degrees_between + found.degrees_within
    sigma = max(math.sqrt((found.between + found.within) / degrees), ROUNDING)
    return Spread("process", sigma, degrees, (len(before), len(after)), float(after.mean() - before.mean()), "")


def _over_sessions(found: _Squares, baseline: Sessions, current: Sessions) -> Spread:
    """Variance components by the method of moments (Searle, Casella & McCulloch 1992, section 3.6)."""
    before, after = _means(baseline), _means(current)
    units = 1 / len(before) + 1 / len(after)
    processes = sum(float(np.mean([1 / len(session) for session in side])) / len(side) for side in (baseline, current))
    of_between = units / found.per_session  # variance of the difference = of_between x MS_between + of_within x ...
    of_within = processes - of_between
    parts = of_between * found.mean_between, of_within * found.mean_within if found.degrees_within else 0.0
    variance = sum(parts)
    degrees = variance**2 / (parts[0] ** 2 / found.degrees_between
                             + (parts[1] ** 2 / found.degrees_within if found.degrees_within else 0.0))
    if math.isclose(degrees, found.degrees_between, rel_tol=1e-9):
        degrees = found.degrees_between  # sessions of equal size: exactly these
    sigma = max(math.sqrt(variance / units), ROUNDING)
    return Spread("session", sigma, degrees, (len(before), len(after)), float(after.mean() - before.mean()), "")


def _between(side: Sessions) -> float:
    middle = np.concatenate(side).mean()
    return float(sum(len(session) * (session.mean() - middle) ** 2 for session in side))


def _means(side: Sessions) -> Reals:
    return np.array([session.mean() for session in side])


def _around(values: Reals) -> float:
    return float(((values - values.mean()) ** 2).sum())

"""Where a change of latency sits: an exact sum, in whole nanoseconds, over kernel families and the gaps between them.

Both sides are brought to the same number of inferences (the least common multiple of theirs), so that every total is
an integer and the parts add up to the change with nothing left over. A family's part splits at the midpoint,
delta(count x mean) = delta count x average mean + average count x delta mean, which does not depend on which side comes
first (the two-factor case of Shorrocks 2013; Kitagawa 1955).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.core.inputs import union_ns
from aaco.core.readings import Absent
from aaco.tracelake.history.replicates import KernelSum, Profile

Kind = Literal["count", "duration", "gaps", "overlap"]


class FamilyChange(Struct, frozen=True):
    """A kernel family's part of the change, over `Change.inferences`: executions, time, and the two parts of delta.

    A family that is on one side only changed by its count: it has no mean duration to compare.
    """

    family: str
    count_before: int
    count_after: int
    ns_before: int
    ns_after: int
    delta_count_ns: int
    delta_duration_ns: int


class Part(Struct, frozen=True):
    """One addend of the change; `family` is empty for gaps and overlap."""

    family: str
    kind: Kind
    delta_ns: int

    @property
    def place(self) -> tuple[str, str]:
        """The family, or which of the two is outside all families."""
        return (self.family, "") if self.family else ("", self.kind)


class Change(Struct, frozen=True):
    """The change of the profiled window, every figure summed over the same number of `inferences` on both sides."""

    inferences: int
    window_before_ns: int
    window_after_ns: int
    families: tuple[FamilyChange, ...]
    delta_gaps_ns: int
    delta_overlap_ns: int

    @property
    def delta_ns(self) -> int:
        """Window after less window before."""
        return self.window_after_ns - self.window_before_ns

    @property
    def delta_pct(self) -> float:
        """The change in percent of the window before."""
        return 100 * self.delta_ns / self.window_before_ns

    @property
    def parts(self) -> tuple[Part, ...]:
        """The addends that are not zero, largest first; they sum to delta_ns exactly. Overlap counts against."""
        found = [Part(row.family, "count", row.delta_count_ns) for row in self.families]
        found += [Part(row.family, "duration", row.delta_duration_ns) for row in self.families]
        found += [Part("", "gaps", self.delta_gaps_ns), Part("", "overlap", -self.delta_overlap_ns)]
        return tuple(sorted((part for part in found if part.delta_ns), key=_size))

    @property
    def largest(self) -> Part | None:
        """The family (or gaps, overlap) that moved the window most in the direction it moved, by its larger part.

        A family is weighed by its net change: many more but shorter executions may cancel. None when nothing changed.
        """
        if not self.delta_ns:
            return None
        sign = 1 if self.delta_ns > 0 else -1
        nets: dict[tuple[str, str], int] = {}
        for part in self.parts:
            nets[part.place] = nets.get(part.place, 0) + sign * part.delta_ns
        winner = max(nets, key=lambda place: nets[place])
        return max((part for part in self.parts if part.place == winner), key=lambda part: sign * part.delta_ns)


def attribute(before: Profile, after: Profile) -> Change:
    """Return the exact decomposition of the change of the profiled window from `before` to `after`."""
    inferences = lcm(before.inferences, after.inferences)
    scale_before, scale_after = inferences // before.inferences, inferences // after.inferences
    old, new = _by_family(before, scale_before), _by_family(after, scale_after)
    families = tuple(split(name, old.get(name, (0, 0)), new.get(name, (0, 0))) for name in sorted({*old, *new}))
    change = Change(inferences, before.window_ns * scale_before, after.window_ns * scale_after, families,
                    after.gaps_ns * scale_after - before.gaps_ns * scale_before,
                    after.overlap_ns * scale_after - before.overlap_ns * scale_before)
    if sum(part.delta_ns for part in change.parts) != change.delta_ns:
        raise ArithmeticError("the parts of a change do not sum to it: a defect in aaco")
    return change


def profile_of(kernels: pa.Table) -> Profile:
    """Sums over the kernels that belong to a measured inference. Raise Absent when there are none.

    kernels: the `kernels` table; a kernel without a family counts under its own name.
    """
    measured = kernels.filter(pc.is_valid(kernels["iteration"]))
    if not measured.num_rows:
        raise Absent("no kernel belongs to a measured inference")
    if measured["t_start_ns"].null_count or measured["t_end_ns"].null_count:
        raise Absent("the capture gives kernels without times")
    start, end = measured["t_start_ns"].to_numpy(), measured["t_end_ns"].to_numpy()
    windows = list(_windows(measured["iteration"].to_numpy(), start, end))
    window, union = sum(span for span, _ in windows), sum(busy for _, busy in windows)
    if not window:
        raise Absent("the kernels are shorter than the capture's clock can tell")
    return Profile(inferences=len(windows), window_ns=window, gaps_ns=window - union,
                   overlap_ns=int((end - start).sum()) - union, kernels=_kernel_sums(measured))


def combine(profiles: Sequence[Profile]) -> Profile:
    """Several profiles as one: every total, and the number of inferences, added up. At least one."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for kernel in (kernel for profile in profiles for kernel in profile.kernels):
        calls, total = totals.get((kernel.family, kernel.kernel_name), (0, 0))
        totals[kernel.family, kernel.kernel_name] = calls + kernel.calls, total + kernel.total_ns
    return Profile(inferences=sum(profile.inferences for profile in profiles),
                   window_ns=sum(profile.window_ns for profile in profiles),
                   gaps_ns=sum(profile.gaps_ns for profile in profiles),
                   overlap_ns=sum(profile.overlap_ns for profile in profiles),
                   kernels=tuple(KernelSum(family=family, kernel_name=name, calls=calls, total_ns=total)
                                 for (family, name), (calls, total) in sorted(totals.items())))


def split(name: str, before: tuple[int, int], after: tuple[int, int]) -> FamilyChange:
    """Return the change of one group of executions, (count, ns) before and after, split into its two parts."""
    (old_count, old_ns), (new_count, new_ns) = before, after
    delta = new_ns - old_ns
    if old_count and new_count:
        middle = (Fraction(old_ns, old_count) + Fraction(new_ns, new_count)) / 2
        by_count = round((new_count - old_count) * middle)  # half to even, so swapping the sides only flips the sign
    else:
        by_count = delta
    return FamilyChange(name, old_count, new_count, old_ns, new_ns, by_count, delta - by_count)


def _by_family(profile: Profile, scale: int) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for kernel in profile.kernels:
        calls, total = found.get(kernel.family, (0, 0))
        found[kernel.family] = calls + kernel.calls * scale, total + kernel.total_ns * scale
    return found


def _windows(iteration: Ints, start: Ints, end: Ints) -> Iterator[tuple[int, int]]:
    """Per inference: first start to last end, and the time at least one kernel ran, in ns."""
    order = np.argsort(iteration, kind="stable")
    cuts = np.flatnonzero(np.diff(iteration[order])) + 1
    for rows in np.split(order, cuts):
        yield int(end[rows].max() - start[rows].min()), union_ns(start[rows], end[rows])


def _kernel_sums(measured: pa.Table) -> tuple[KernelSum, ...]:
    import duckdb  # here, because whoever only reads a verdict has no use for it

    rows = duckdb.execute("""
        SELECT coalesce(family, kernel_name, 'unnamed')::VARCHAR, coalesce(kernel_name, 'unnamed')::VARCHAR, count(*),
               sum(t_end_ns - t_start_ns)::BIGINT
        FROM measured GROUP BY ALL ORDER BY ALL""").fetchall()
    return tuple(KernelSum(family=family, kernel_name=name, calls=calls, total_ns=total)
                 for family, name, calls, total in rows)


def _size(part: Part) -> tuple[int, str, str]:
    return -abs(part.delta_ns), part.family, part.kind

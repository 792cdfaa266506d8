"""Where two traces differ: an exact account of the difference, and the stretches of kernels that changed.

The account: the span of each device's work is kernel time + gaps - overlap, on each side; kernel time is a sum over
(context, kernel) groups, where the context is the path of host calls that launched it. Each group's difference splits
into delta(count) x mean + count x delta(mean), and everything together sums to the differences of the devices' spans in
whole ns. The spans are listed per device: devices work at the same time, and a sum of spans is not a time.
Where the traces hold different numbers of steps, both sides are scaled to the least common multiple of them.

The stretches: the kernels of matching streams, in order, aligned as sequences of integers. What is not the same on both
sides is a replacement: these kernels became those, so many times, and that cost so much.

Traces of different vendors share no kernel names. What they share is what a kernel computes and which operator of the
framework asked for it: over (operator, family) the kernel time is split once more, into parts that both sides have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm
from typing import Any

import numpy as np
from msgspec import Struct, field

from aaco.analytics.streaming.alignment import align
from aaco.core.arrays import Ints
from aaco.core.documents import encode
from aaco.core.inputs import union_ns
from aaco.governance.change import split
from aaco.governance.contexts import NOWHERE, Contexts
from aaco.tracelake.document_schemas.regressions import (
    ChangedFamily,
    ChangedGap,
    ChangedKernel,
    ChangedKernelsLeftOut,
    ChangedSpan,
    KernelReplacement,
    SessionDifference,
)

OUTSIDE = "outside"  # of the kernels: copies or fills before the first or after the last one


class Trace(Struct, frozen=True):
    """One side. Per kernel, in start order: `kernel` (code in `kernel_names`), `start`, `end` (ns), `device` and
    `stream` (any integers; equal ones are the same place), `launch` (row of the launching call, -1 where unknown).
    Per call: `call` (code in `call_names`) and `parent` (row of the enclosing call, -1 for none).
    steps: how many steps of the workload the trace marks; 0 where it marks none. purpose: per kernel the place in
    `purposes` of its (outermost operator, "" where none is known; family). waits: what the devices did from the first
    start to the last end of any of their work, in ns, while no kernel ran: idle by cause, only copies, only fills; and
    minus those spans together as OUTSIDE. None where that is not known.
    """

    kernel_names: Sequence[str]
    kernel: Ints
    start: Ints
    end: Ints
    device: Ints
    stream: Ints
    launch: Ints
    call_names: Sequence[str] = ()
    call: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    parent: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    steps: int = 1
    purposes: Sequence[tuple[str, str]] = (("", "unknown"),)
    purpose: Ints | None = None
    waits: Mapping[str, int] | None = None


class TraceChange(Struct, frozen=True):
    """The difference of two traces. The spans after less those before = sum of groups + delta_gaps - delta_overlap, and
    the purposes sum to what the groups sum to. warnings: what a reader must know before any figure of it."""

    steps: int
    steps_before: int
    steps_after: int
    spans: tuple[ChangedSpan, ...]
    kernels_before: int
    kernels_after: int
    groups: tuple[ChangedKernel, ...]
    purposes: tuple[ChangedFamily, ...]
    waits: tuple[ChangedGap, ...]  # sums to delta_gaps_ns; empty where the causes of one side's gaps are not known
    delta_gaps_ns: int
    delta_overlap_ns: int
    same: int
    same_delta_ns: int
    replacements: tuple[KernelReplacement, ...]  # as traced, not scaled
    warnings: tuple[str, ...] = ()

    @property
    def delta_ns(self) -> int:
        """Spans after less spans before."""
        return sum(span.after_ns - span.before_ns for span in self.spans)

    def document(self, most: int = 1000) -> dict[str, Any]:
        """For diff.json: every total, and the `most` largest groups and replacements with the sum of the rest."""
        shown, rest = self.groups[:most], self.groups[most:]
        only = self.spans[0] if len(self.spans) == 1 else None
        return encode(SessionDifference(
            warnings=list(self.warnings),
            steps=self.steps, steps_before=self.steps_before, steps_after=self.steps_after,
            span_before_ns=only.before_ns if only else None, span_after_ns=only.after_ns if only else None,
            delta_ns=self.delta_ns,
            spans=list(self.spans),
            kernels_before=self.kernels_before, kernels_after=self.kernels_after, delta_gaps_ns=self.delta_gaps_ns,
            delta_overlap_ns=self.delta_overlap_ns,
            delta_kernels_ns=sum(group.delta_ns for group in self.groups),
            groups=list(shown),
            groups_not_shown=ChangedKernelsLeftOut(count=len(rest), delta_ns=sum(group.delta_ns for group in rest)),
            families=list(self.purposes), gaps=list(self.waits),
            same_kernels=self.same, same_kernels_delta_ns=self.same_delta_ns,
            replacements=list(self.replacements[:most])))


def compare(before: Trace, after: Trace) -> TraceChange:
    """Return the difference of two traces, exact in ns; both mark at least one step.

    Raise ArithmeticError if the account did not sum: a defect.
    """
    steps = lcm(before.steps, after.steps)
    scales = steps // before.steps, steps // after.steps
    (spans_a, gaps_a, overlap_a), (spans_b, gaps_b, overlap_b) = _busy(before), _busy(after)
    same, same_delta, replacements = _replacements(before, after)
    waits = _waits([_parts(before, sum(spans_a.values()), gaps_a),
                    _parts(after, sum(spans_b.values()), gaps_b)], scales)
    spans = tuple(ChangedSpan(device=device, before_ns=scales[0] * spans_a.get(device, 0),
                              after_ns=scales[1] * spans_b.get(device, 0)) for device in sorted({**spans_a, **spans_b}))
    change = TraceChange(
        steps, before.steps, after.steps, spans, len(before.kernel), len(after.kernel),
        _groups(before, after, scales), _purposes(before, after, scales), waits,
        gaps_b * scales[1] - gaps_a * scales[0], overlap_b * scales[1] - overlap_a * scales[0], same, same_delta,
        replacements)
    beside = change.delta_gaps_ns - change.delta_overlap_ns
    parts = {sum(part.delta_ns for part in split_) + beside for split_ in (change.groups, change.purposes)}
    if parts != {change.delta_ns}:
        raise ArithmeticError("the parts of a difference do not sum to it: a defect in aaco")
    return change


def _busy(trace: Trace) -> tuple[dict[int, int], int, int]:
    """The span of each device, and gaps and overlap of all, in ns: span = kernel time + gaps - overlap."""
    spans, gaps, overlap = dict[int, int](), 0, 0
    for rows in _places(trace.device):
        start, end = trace.start[rows], trace.end[rows]
        busy, whole = union_ns(start, end), int(end.max() - start.min())
        spans[int(trace.device[rows[0]])] = whole
        gaps, overlap = gaps + whole - busy, overlap + int((end - start).sum()) - busy
    return spans, gaps, overlap


def _groups(before: Trace, after: Trace, scales: tuple[int, int]) -> tuple[ChangedKernel, ...]:
    """Return every (context, kernel) group of either side, the largest difference first."""
    contexts, kernels = Contexts(), dict[str, int]()
    sums = [_sums(trace, contexts, kernels, scale) for trace, scale in zip((before, after), scales, strict=True)]
    names = list(kernels)
    found = []
    for context, kernel in {**sums[0], **sums[1]}:
        old, new = (side.get((context, kernel), (0, 0)) for side in sums)
        found.append(ChangedKernel(context=list(contexts.path(context)), kernel=names[kernel],
                                   **_changed(names[kernel], old, new)))
    return tuple(sorted(found, key=lambda group: (-abs(group.delta_ns), group.kernel, group.context)))


def _parts(trace: Trace, span: int, gaps: int) -> dict[str, int]:
    """Return the gaps of the kernels by cause; empty where the causes are not known, or are not of these gaps."""
    if trace.waits is None:
        return {}
    parts = {**trace.waits, OUTSIDE: trace.waits[OUTSIDE] + span}
    return parts if sum(parts.values()) == gaps else {}


def _waits(parts: Sequence[Mapping[str, int]], scales: tuple[int, int]) -> tuple[ChangedGap, ...]:
    if not all(parts):
        return ()
    found = []
    for cause in {**parts[0], **parts[1]}:
        before, after = (scale * side.get(cause, 0) for side, scale in zip(parts, scales, strict=True))
        if before or after:
            found.append(ChangedGap(cause=cause, before_ns=before, after_ns=after, delta_ns=after - before))
    return tuple(sorted(found, key=lambda wait: -abs(wait.delta_ns)))


def _purposes(before: Trace, after: Trace, scales: tuple[int, int]) -> tuple[ChangedFamily, ...]:
    """Return every (operator, family) of either side, the largest difference first."""
    sums = [_by_purpose(trace, scale) for trace, scale in zip((before, after), scales, strict=True)]
    found = (ChangedFamily(operator=operator, family=family,
                           **_changed(family, *(side.get((operator, family), (0, 0)) for side in sums)))
             for operator, family in {**sums[0], **sums[1]})
    return tuple(sorted(found, key=lambda part: (-abs(part.delta_ns), part.family, part.operator)))


def _by_purpose(trace: Trace, scale: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Executions and ns, scaled."""
    codes = np.zeros(len(trace.kernel), np.int64) if trace.purpose is None else trace.purpose
    count, total = (np.zeros(len(trace.purposes), np.int64) for _ in range(2))
    np.add.at(count, codes, 1)
    np.add.at(total, codes, trace.end - trace.start)
    return {purpose: (scale * executions, scale * ns) for purpose, executions, ns
            in zip(trace.purposes, count.tolist(), total.tolist(), strict=True) if executions}


def _sums(trace: Trace, contexts: Contexts, kernels: dict[str, int],
          scale: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Per (context, kernel code over both sides): executions and ns, scaled."""
    numbered = np.append(contexts.number(trace.call_names, trace.call, trace.parent), NOWHERE)
    # The context of a kernel is what called the launch: the launch call itself differs by vendor and version only.
    above = np.append(trace.parent, -1)
    launched = np.where(trace.launch < 0, -1, above[trace.launch])
    codes = _codes(trace, kernels)
    width = max(1, len(kernels))
    keys, position, counts = np.unique(numbered[launched] * width + codes, return_inverse=True, return_counts=True)
    totals = np.zeros(len(keys), np.int64)
    np.add.at(totals, position, trace.end - trace.start)
    pairs = (divmod(key, width) for key in keys.tolist())
    return {pair: (scale * count, scale * total)
            for pair, count, total in zip(pairs, counts.tolist(), totals.tolist(), strict=True)}


def _replacements(before: Trace, after: Trace) -> tuple[int, int, tuple[KernelReplacement, ...]]:
    """Kernels that stayed the same, how much longer they took, and the stretches that did not stay."""
    kernels: dict[str, int] = {}
    codes = _codes(before, kernels), _codes(after, kernels)
    same = same_delta = 0
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    took = before.end - before.start, after.end - after.start
    for rows_a, rows_b in _matching_streams(before, after):
        for stretch in align(codes[0][rows_a], codes[1][rows_b]):
            old, new = rows_a[stretch.a0:stretch.a1], rows_b[stretch.b0:stretch.b1]
            ns = int(took[0][old].sum()), int(took[1][new].sum())
            if stretch.same:
                same, same_delta = same + len(old), same_delta + ns[1] - ns[0]
                continue
            firsts = [int(rows[0]) if len(rows) else -1 for rows in (old, new)]
            row = found.setdefault((tuple(codes[0][old].tolist()), tuple(codes[1][new].tolist())), [0, 0, 0, *firsts])
            row[0], row[1], row[2] = row[0] + 1, row[1] + ns[0], row[2] + ns[1]
    names = list(kernels)
    items = (KernelReplacement(before=[names[code] for code in old], after=[names[code] for code in new], times=times,
                               ns_before=ns_before, ns_after=ns_after, first_before=first_a, first_after=first_b)
             for (old, new), (times, ns_before, ns_after, first_a, first_b) in found.items())
    return same, same_delta, tuple(sorted(items, key=lambda item: (-abs(item.ns_after - item.ns_before), item.before,
                                                                   item.after)))


def _codes(trace: Trace, kernels: dict[str, int]) -> Ints:
    """Per kernel, the code of its name in a table that both sides share."""
    shared = np.array([kernels.setdefault(name, len(kernels)) for name in trace.kernel_names], np.int64)
    return shared[trace.kernel] if len(shared) else np.zeros(0, np.int64)


def _matching_streams(before: Trace, after: Trace) -> Iterator[tuple[Ints, Ints]]:
    """Rows of the streams of both sides, the busiest of one with the busiest of the other: their ids mean nothing.

    A stream without a partner is paired with nothing.
    """
    sides = [sorted(_places(trace.device, trace.stream), key=lambda rows: (-len(rows), int(rows[0])))
             for trace in (before, after)]
    none = np.zeros(0, np.int64)
    for index in range(max(map(len, sides))):
        yield (sides[0][index] if index < len(sides[0]) else none, sides[1][index] if index < len(sides[1]) else none)


def _places(*columns: Ints) -> list[Ints]:
    """Rows that are equal in all the columns, in row order, as one array per distinct combination."""
    if not len(columns[0]):
        return []
    order = np.lexsort(columns[::-1])
    changed = np.zeros(len(order) - 1, bool)
    for column in columns:
        changed |= np.diff(column[order]) != 0
    return np.split(order, np.flatnonzero(changed) + 1)


def _changed(family: str, before: tuple[int, int], after: tuple[int, int]) -> dict[str, int]:
    """Return the fields of a ChangedWork, of (count, ns) before and after."""
    change = split(family, before, after)
    return {"count_before": change.count_before, "count_after": change.count_after, "ns_before": change.ns_before,
            "ns_after": change.ns_after, "delta_ns": change.ns_after - change.ns_before,
            "delta_count_ns": change.delta_count_ns, "delta_duration_ns": change.delta_duration_ns}

"""Times between events with content: per token where the server counts them (ITL), else between chunks (ICL).

The gap before a chunk of several tokens is shared by them. The first chunk of an answer has no gap before it: what
passes until then is the time to the first token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.llm.decoding import ContextSums
from aaco.analytics.llm.points import NS_PER_MS, UNKNOWN, Points
from aaco.core.arrays import Flags, Ints, Ints32, Reals, joined

COLUMNS = ("request_id", "t_ns", "earliest_ns", "delay_ns", "kind", "tokens")


@dataclass
class EventTally:
    """Sums over the events of a client, fed in pieces that are in the order of its reads."""

    points: Points
    included: Flags  # requests of which latencies are taken
    window_ns: tuple[int, int]  # of the rates
    in_window: Ints = field(init=False)  # events with content in it, by request
    tokens_in_window: Ints = field(init=False)  # their tokens, as far as the server counts them
    content: int = 0
    merged: int = 0
    events: int = 0
    uncounted: int = 0  # events with content of requests that are included, without a count of their own tokens
    gaps: list[Ints | Ints32] = field(default_factory=list)
    narrower: list[Ints] = field(default_factory=list)  # how much shorter, and longer, each of them may be
    wider: list[Ints] = field(default_factory=list)
    is_exact: bool = True  # whether every gap is between times that are known
    weights: list[Ints32] = field(default_factory=list)  # tokens of the chunk behind the gap; UNKNOWN: not counted
    delays_us: list[NDArray[np.float32]] = field(default_factory=list)

    contexts: ContextSums = field(init=False)

    def __post_init__(self) -> None:
        self.contexts = ContextSums(self.points, self.included)
        requests = len(self.included)
        self.in_window, self.tokens_in_window = np.zeros(requests, np.int64), np.zeros(requests, np.int64)
        self._last, self._last_earliest = np.full(requests, UNKNOWN), np.full(requests, UNKNOWN)

    def feed(self, events: pa.RecordBatch | pa.Table) -> None:
        """Add rows of llm_events."""
        request, at, earliest, delay, tokens = (
            np.asarray(pc.fill_null(events[name], UNKNOWN).to_numpy(zero_copy_only=False), np.int64)
            for name in ("request_id", "t_ns", "earliest_ns", "delay_ns", "tokens"))
        content = np.asarray(pc.equal(events["kind"].cast(pa.string()), "content").to_numpy(zero_copy_only=False))
        self.events += len(request)
        self.delays_us.append((delay[delay != UNKNOWN] / 1e3).astype(np.float32))
        request, at, earliest, tokens = (column[content] for column in (request, at, earliest, tokens))
        self.content += len(request)
        self.merged += int((earliest != UNKNOWN).sum())
        self._count(request, at, tokens)
        is_included = self.included[request]
        order = np.argsort(request[is_included], kind="stable")
        earliest = np.where(earliest == UNKNOWN, at, earliest)
        self._add_gaps(*(column[is_included][order] for column in (request, at, earliest, tokens)))

    def _count(self, request: Ints, at: Ints, tokens: Ints) -> None:
        inside = (at >= self.window_ns[0]) & (at < self.window_ns[1])
        np.add.at(self.in_window, request[inside], 1)
        np.add.at(self.tokens_in_window, request[inside], np.maximum(tokens[inside], 0))

    def _add_gaps(self, request: Ints, at: Ints, earliest: Ints, tokens: Ints) -> None:
        """Add the gap before each event, which are sorted by request and time in it."""
        if not len(request):
            return
        begins = np.append(True, request[1:] != request[:-1])
        ends = np.append(begins[1:], True)
        before, before_earliest = (np.where(begins, last[request], np.append(UNKNOWN, column[:-1]))
                                   for last, column in ((self._last, at), (self._last_earliest, earliest)))
        self._last[request[ends]], self._last_earliest[request[ends]] = at[ends], earliest[ends]
        self.contexts.add(request, at, before, tokens, (earliest == at) & (before == before_earliest))
        self.uncounted += int((tokens <= 0).sum())
        has_gap = before != UNKNOWN
        gap, least = (at - before)[has_gap], np.maximum(earliest - before, 0)[has_gap]
        self.gaps.append(gap.astype(np.int32) if gap.max(initial=0) < 1 << 31 else gap)  # half the memory
        narrower, wider = gap - least, (before - before_earliest)[has_gap]
        self.is_exact = self.is_exact and not narrower.any() and not wider.any()
        self.narrower.append(narrower if narrower.any() else np.broadcast_to(0, len(gap)))  # without memory of its own
        self.wider.append(wider if wider.any() else np.broadcast_to(0, len(gap)))
        self.weights.append(tokens[has_gap].astype(np.int32))

    @property
    def is_counted(self) -> bool:
        """Return whether the server says of each event with content how many tokens it has."""
        return bool(self.gaps) and not self.uncounted

    def icl(self) -> tuple[Reals, Reals, Reals]:
        """Return the gaps between chunks, the least and the most that each can be, ms."""
        gaps = joined(self.gaps)
        ms = gaps / NS_PER_MS
        if self.is_exact:
            return ms, ms, ms
        return ms, (gaps - joined(self.narrower)) / NS_PER_MS, (gaps + joined(self.wider)) / NS_PER_MS

    def itl(self) -> tuple[Reals, Reals, Reals]:
        """Return the same for each token. Needs `is_counted`."""
        weights, icl = np.concatenate(self.weights), self.icl()
        if (weights == 1).all():
            return icl
        ms, least, most = (np.repeat(gaps / weights, weights) for gaps in icl)
        return ms, least, most

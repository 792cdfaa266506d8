"""The clock points of requests, and the latencies between them.

TTFT runs to the first event with content, request latency to the last. TPOT of a request is the time from its first to
its last event with content over its tokens less one: a request with one token has none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Flags, Ints, Reals

UNKNOWN = -1
NS_PER_MS = 1e6


class LatencyBounds(Struct, frozen=True):
    """Latencies in ms, and the least and the most that each can have been: where reads were merged they differ."""

    ms: Reals
    least: Reals
    most: Reals

    def of(self, included: Flags) -> LatencyBounds:
        """Return those of some requests, of which they are known."""
        included = included & ~np.isnan(self.ms)
        return LatencyBounds(self.ms[included], self.least[included], self.most[included])


class Points(Struct, frozen=True):
    """Requests as columns: CLOCK_MONOTONIC ns, and counts; UNKNOWN where there is none.

    has_clock: whether the times of all requests are on one clock.
    """

    intended: Ints
    send: Ints
    cpu_wait: Ints  # of the client's thread, of the time between those two, ns
    first: Ints
    first_earliest: Ints
    last: Ints
    last_earliest: Ints
    end: Ints
    tokens: Ints
    prompt: Ints
    cached: Ints
    chunks: Ints
    turn: Ints  # how many answers of its conversation come before a request
    is_ok: Flags
    has_clock: bool

    def ttft(self, since: Ints) -> LatencyBounds:
        """Return the time to the first token since the intended, or the actual, dispatch; NaN where one is unknown."""
        return self._until(self.first, self.first_earliest, since)

    def latency(self, since: Ints) -> LatencyBounds:
        """Return the time to the last token, with the same meaning of since."""
        return self._until(self.last, self.last_earliest, since)

    def _until(self, point: Ints, earliest: Ints, since: Ints) -> LatencyBounds:
        lower = np.where(earliest == UNKNOWN, point, np.maximum(earliest, since))
        ms = np.where((point == UNKNOWN) | (since == UNKNOWN), np.nan, (point - since) / NS_PER_MS)
        return LatencyBounds(ms, (lower - since) / NS_PER_MS, ms)

    @property
    def has_tpot(self) -> Flags:
        """Return which requests have a time per output token."""
        return np.asarray(self.is_ok & (self.tokens > 1) & (self.first != UNKNOWN))

    @property
    def tpot(self) -> LatencyBounds:
        """Return the time per output token after the first."""
        between = np.maximum(self.tokens - 1, 1) * NS_PER_MS
        first = np.where(self.first_earliest == UNKNOWN, self.first, self.first_earliest)
        last = np.where(self.last_earliest == UNKNOWN, self.last, self.last_earliest)
        least = np.maximum(last - self.first, 0) / between
        return LatencyBounds((self.last - self.first) / between, least, (self.last - first) / between)


def points_of(requests: pa.Table) -> Points:
    """Return the columns of the table of requests."""
    def numbers(name: str) -> Ints:
        return np.asarray(pc.fill_null(requests[name], UNKNOWN).to_numpy(), np.int64)

    names = {"intended": "t_intended_ns", "send": "t_send_ns", "cpu_wait": "cpu_wait_ns",
             "first": "t_first_ns", "first_earliest": "t_first_earliest_ns", "last": "t_last_ns",
             "last_earliest": "t_last_earliest_ns", "end": "t_end_ns", "tokens": "output_tokens",
             "prompt": "prompt_tokens", "cached": "cached_tokens", "chunks": "chunks", "turn": "turn"}
    ok = pc.equal(requests["status"].cast(pa.string()), "ok")
    has_clock = requests["t_send_ns"].null_count < len(requests) and not pc.any(requests["from_send"]).as_py()
    return Points(**{field: numbers(name) for field, name in names.items()}, is_ok=np.asarray(ok.to_numpy(), bool),
                  has_clock=has_clock)

"""Slow tokens of a load, explained by what the server's engine did in that time.

The time from one token to the next is cut where a step, or the device's part of one, begins or ends. What remains above
the parts of ordinary gaps (those nearest to the median) names the cause:

- prefill: the device ran a step that computed prompts, other requests' for a token that is not the first
- device: the device ran a step of decoding for longer
- host: a step was under way and the device had nothing to do
- queue: no step was under way: the engine's scheduler, its queue, or the way between server and client

Which request a step was of is not in a trace: parts are by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.llm.load import EndpointLoad
from aaco.core import documents
from aaco.core.arrays import Flags, Ints, Reals
from aaco.tracelake import layout

NAME = "slow_tokens"
CAUSES = ("prefill", "device", "host", "queue")
ORDINARY, LISTED, TIMES_MEDIAN = 64, 20, 2.0
UNKNOWN, NS_PER_MS = -1, 1e6


class SlowToken(Struct, frozen=True):
    """A token that came late. event: number of its event in the answer. excess_ms: by part, above ordinary gaps."""

    request: int
    event: int
    t_ns: int
    gap_ms: float
    cause: str
    parts_ms: dict[str, float]
    excess_ms: dict[str, float]


@documents.document(layout.finding(NAME))
class SlowTokens(Struct, frozen=True):
    """metrics/slow_tokens.json: tokens that took more than twice the median gap, the longest first, and why.

    gaps, slow: between events with content of answered requests; those that long. unseen: slow ones outside of the
    trace, which are not explained. by_cause: number of slow gaps. ordinary_ms: median, by part, of ordinary gaps.
    """

    steps: int
    device_session: str
    gaps: int
    slow: int
    unseen: int
    median_ms: float | None
    ordinary_ms: dict[str, float]
    by_cause: dict[str, int]
    tokens: list[SlowToken]
    why_absent: str


class TokenGaps(NamedTuple):
    """Gaps between events with content: request, number of the later event, begin and end, ns."""

    request: Ints
    event: Ints
    begin: Ints
    end: Ints


class EngineTimes(NamedTuple):
    """Steps of an engine: whole, and on the device; ns. prefill: whether prompts were computed."""

    begin: Ints
    end: Ints
    device_begin: Ints
    device_end: Ints
    prefill: Flags


def slow_tokens(requests: pa.Table, events: pa.Table, steps: pa.Table, load: EndpointLoad) -> SlowTokens:
    """Return the slow tokens of a load with the steps of the server's engine; without steps why there are none."""
    gaps, times = gaps_of(requests, events), times_of(steps)
    if load.why_no_steps or not len(times.begin) or not len(gaps.begin):
        return SlowTokens(0, load.device_session, len(gaps.begin), 0, 0, None, {}, {}, [],
                          load.why_no_steps or "no step of the engine, or no second token, was seen")
    length = gaps.end - gaps.begin
    median = float(np.median(length))
    is_seen = (gaps.begin >= times.begin.min()) & (gaps.end <= max(times.end.max(), times.device_end.max()) + median)
    is_slow = length > TIMES_MEDIAN * median
    near = np.flatnonzero(is_seen & ~is_slow)
    near = near[np.argsort(np.abs(length[near] - median), kind="stable")][:ORDINARY]
    ordinary = np.median([parts(times, *gap) for gap in _ends(gaps, near)], axis=0) if len(near) else np.zeros(4)
    slow = np.flatnonzero(is_slow & is_seen)
    slow = slow[np.argsort(-length[slow], kind="stable")]
    tokens = [_explained(gaps, row, parts(times, begin, end), ordinary)
              for row, (begin, end) in zip(slow.tolist(), _ends(gaps, slow), strict=True)]
    return SlowTokens(
        len(times.begin), load.device_session, len(length), int(is_slow.sum()), int((is_slow & ~is_seen).sum()),
        median / NS_PER_MS, _named(ordinary),
        {cause: sum(token.cause == cause for token in tokens) for cause in CAUSES}, tokens[:LISTED], "")


def _explained(gaps: TokenGaps, row: int, ns: Reals, ordinary: Reals) -> SlowToken:
    excess = ns - ordinary
    return SlowToken(int(gaps.request[row]), int(gaps.event[row]), int(gaps.end[row]),
                     float(gaps.end[row] - gaps.begin[row]) / NS_PER_MS, CAUSES[int(excess.argmax())], _named(ns),
                     _named(excess))


def parts(times: EngineTimes, begin: int, end: int) -> Reals:
    """Return how long each cause lasted in a time, ns, in the order of CAUSES; together they are the whole time."""
    last = np.maximum(times.end, times.device_end)
    near = np.flatnonzero((times.begin < end) & (last > begin))
    whole, device = ((left[near], right[near]) for left, right in (
        (times.begin, last), (times.device_begin, times.device_end)))
    edges = np.unique(np.clip(np.concatenate((*whole, *device, [begin, end])), begin, end))
    middle = (edges[:-1] + edges[1:]) / 2
    on_device = (device[0][:, None] <= middle) & (middle < device[1][:, None])
    states = ((on_device & times.prefill[near][:, None]).any(axis=0), on_device.any(axis=0),
              ((whole[0][:, None] <= middle) & (middle < whole[1][:, None])).any(axis=0))
    cause = np.select(states, (0, 1, 2), 3)
    return np.bincount(cause, np.diff(edges), len(CAUSES)).astype(np.float64)


def gaps_of(requests: pa.Table, events: pa.Table) -> TokenGaps:
    """Return the gaps of answered requests."""
    events = events.filter(pc.equal(events["kind"].cast(pa.string()), "content"))
    ok = requests.filter(pc.equal(requests["status"].cast(pa.string()), "ok"))["request_id"]
    events = events.filter(pc.is_in(events["request_id"], ok.combine_chunks()))
    request, event, at = (np.asarray(events[name].to_numpy(), np.int64) for name in ("request_id", "index", "t_ns"))
    order = np.lexsort((event, request))
    later = order[1:][np.diff(request[order]) == 0]
    before = order[:-1][np.diff(request[order]) == 0]
    return TokenGaps(request[later], event[later], at[before], np.maximum(at[later], at[before]))


def times_of(steps: pa.Table) -> EngineTimes:
    """Return the times of the rows of engine_steps; UNKNOWN where a step ran nothing on a device."""
    begin, end, device_begin, device_end = (
        np.asarray(pc.fill_null(steps[name], UNKNOWN).to_numpy(), np.int64)
        for name in ("t_start_ns", "t_end_ns", "device_start_ns", "device_end_ns"))
    phase = pc.fill_null(steps["phase"].cast(pa.string()), "")
    return EngineTimes(begin, end, device_begin, device_end,
                       np.asarray(pc.is_in(phase, pa.array(["prefill", "mixed"])), bool))


def _ends(gaps: TokenGaps, rows: Ints) -> Iterator[tuple[int, int]]:
    return zip(gaps.begin[rows].tolist(), gaps.end[rows].tolist(), strict=True)


def _named(ns: Reals) -> dict[str, float]:
    return {cause: float(part) / NS_PER_MS for cause, part in zip(CAUSES, ns, strict=True)}

"""How decoding depends on the context, how much of the time prompts take, and what bounds the whole.

The context of a token is its prompt and the answer until it. The slope is that of an ordinary regression of the time
per token over the context. Tokens that come together, or after one another, are not independent, so that its interval
is a jackknife over blocks of time (Tukey 1958), with Student's t.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from aaco.analytics.llm.points import NS_PER_MS, UNKNOWN, Points
from aaco.analytics.llm.window import NO_CLOCK
from aaco.core import statistics
from aaco.core.arrays import Flags, Ints, Reals

BLOCKS = 32  # of the time in which tokens come
LEAST_BLOCKS = 8  # with tokens: fewer leave an interval without meaning
LEAST_GAPS = 100
SLOPE, PREFILL_SHARE, STABILITY = "decode_slope", "prefill_share", "decode_stability"
PREFILL_RATE, DECODE_RATE = "prefill_tokens_per_s", "decode_tokens_per_s"
LARGE_PCT = 40.0  # of the time: from it on a part is what bounds
NO_PROMPT_LENGTHS = "the server does not say how many tokens the prompts have"
NO_COUNTS = "the server does not say with each chunk how many tokens it has (--count-chunks)"
ONE_CONTEXT = "all tokens have nearly the same context: answers of more tokens, or prompts of a range (--prompt-tokens)"
NO_PREFILL = "the server does not say how long it takes for prompts: the time to the first token holds its queue, too"
NO_RATE = "the server does not say when it reads prompts and when it decodes"
NOBODY = "no request was answered"
NO_DEVICE = "whether memory or launches do needs a trace of the device (aaco trace -- aaco llm MODEL)"
LEAST_SPREAD = 8.0  # tokens of context, standard deviation


class DecodeFigure(Struct, frozen=True):
    """A figure of decoding with its interval, or why there is none."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    why_absent: str


class LoadBound(Struct, frozen=True):
    """What bounds the time of requests; None with the reason. share_pct: of their time.

    label: client, queue or prefill; by a trace of the server also decode-memory (or another class of decoding), launch
    or host. parts_pct: by such a trace the shares of prefill, device (decoding), host and queue; empty without one.
    """

    label: str | None
    share_pct: float | None
    why: str
    parts_pct: dict[str, float] = {}


@dataclass
class ContextSums:
    """Sums over gaps between tokens by block of time, fed in pieces: of the context in thousands of tokens (x), and of
    the time per token in ms (y)."""

    points: Points
    included: Flags
    sums: Reals = field(init=False)  # by block: count, x, y, xx, xy, yy
    left_out: int = 0  # gaps of which an end is an interval

    def __post_init__(self) -> None:
        self.sums = np.zeros((BLOCKS, 6))
        self._tokens = np.zeros(len(self.included), np.int64)
        members = self.included & (self.points.first != UNKNOWN)
        self._begin = int(self.points.first[members].min()) if members.any() else 0
        self._end = int(self.points.last[members].max()) + 1 if members.any() else 1
        known = self.points.prompt[members]
        self._origin = float(known.mean()) / 1e3 if len(known) else 0.0  # near all x, so that no sum loses digits

    def add(self, request: Ints, at: Ints, before: Ints, tokens: Ints, exact: Flags) -> None:
        """Add events of requests that are included, sorted by request and time; before: UNKNOWN for a first one."""
        tokens = np.maximum(tokens, 0)
        total = np.cumsum(tokens)
        begins = np.append(True, request[1:] != request[:-1])
        base = (total - tokens)[begins]
        lengths = np.diff(np.append(np.flatnonzero(begins), len(request)))
        until = total - np.repeat(base, lengths) + self._tokens[request]
        ends = np.append(begins[1:], True)
        self._tokens[request[ends]] = until[ends]
        usable = (before != UNKNOWN) & (tokens > 0) & (self.points.prompt[request] != UNKNOWN)
        self.left_out += int((usable & ~exact).sum())
        chosen = usable & exact
        request, at, before, tokens, until = (column[chosen] for column in (request, at, before, tokens, until))
        x = (self.points.prompt[request] + until - (tokens + 1) / 2) / 1e3 - self._origin
        self._sum(at, x, (at - before) / tokens / NS_PER_MS, tokens)

    def _sum(self, at: Ints, x: Reals, y: Reals, tokens: Ints) -> None:
        block = (at - self._begin) * BLOCKS // (self._end - self._begin)
        for column, summand in enumerate((np.ones(len(x)), x, y, x * x, x * y, y * y)):
            self.sums[:, column] += np.bincount(block, tokens * summand, BLOCKS)

    def slope(self, is_counted: bool) -> DecodeFigure:
        """Return the time that 1,000 tokens of context add to a token, ms."""
        sums = self.sums[self.sums[:, 0] > 0]
        count, x, _, xx, *_ = sums.sum(axis=0)
        why = NO_COUNTS if not is_counted else NO_PROMPT_LENGTHS if (self.points.prompt[self.included] == UNKNOWN
                                                                     ).any() else ""
        why = why or ("" if self.points.has_clock else NO_CLOCK)
        if not why and (count < LEAST_GAPS or len(sums) < LEAST_BLOCKS):
            why = f"too few tokens: {int(count)} exact gaps, in {len(sums)} of {BLOCKS} parts of the time"
        if not why and max(xx / count - (x / count) ** 2, 0.0) ** 0.5 * 1e3 < LEAST_SPREAD:
            why = ONE_CONTEXT
        return DecodeFigure(SLOPE, None, None, None, why) if why else DecodeFigure(SLOPE, *jackknifed(sums), "")

    def stability(self, is_counted: bool) -> DecodeFigure:
        """Return 1 - standard deviation / mean of the time per token."""
        count, _, y, _, _, yy = self.sums.sum(axis=0)
        if not is_counted or not count or not y:
            return DecodeFigure(STABILITY, None, None, None, NO_COUNTS if not is_counted else "no gap is exact")
        deviation = max(yy / count - (y / count) ** 2, 0.0) ** 0.5
        return DecodeFigure(STABILITY, float(1 - deviation / (y / count)), None, None, "")


def jackknifed(sums: Reals) -> tuple[float, float, float]:
    """Return the slope of the sums of all blocks, and its interval of 95 % from leaving out each."""
    total, blocks = sums.sum(axis=0), len(sums)
    without = slopes(total - sums)
    error = float(np.sqrt((blocks - 1) / blocks * ((without - without.mean()) ** 2).sum()))
    reach = statistics.t_quantile(0.975, blocks - 1) * error
    slope = float(slopes(total[None])[0])
    return slope, slope - reach, slope + reach


def slopes(sums: Reals) -> Reals:
    """Return the slope of least squares for each row of sums."""
    count, x, y, xx, xy, _ = sums.T
    return np.asarray((count * xy - x * y) / (count * xx - x * x))


def prefill_share(points: Points, included: Flags, in_process: bool) -> DecodeFigure:
    """Return how much of the time of requests passes until the first token, %, where nothing else does until then."""
    members = included & (points.last > points.send)
    if not in_process or not members.any():
        return DecodeFigure(PREFILL_SHARE, None, None, None, NOBODY if in_process else NO_PREFILL)
    whole = (points.last - points.send)[members].sum()
    return DecodeFigure(PREFILL_SHARE, float(100 * (points.first - points.send)[members].sum() / whole), None, None, "")


def phase_rates(points: Points, included: Flags, in_process: bool) -> Iterator[DecodeFigure]:
    """Yield the tokens of prompts, and of answers after their first, per second of the phase; a batch has it once."""
    members = included & (points.prompt != UNKNOWN)
    begins, batch = np.unique(points.send[members], return_inverse=True)
    first, last = np.zeros((2, len(begins)), np.int64)
    np.maximum.at(first, batch, points.first[members])
    np.maximum.at(last, batch, points.last[members])
    phases = ((PREFILL_RATE, points.prompt[members].sum(), (first - begins).sum()),
              (DECODE_RATE, (points.tokens[members] - 1).sum(), (last - first).sum()))
    for name, tokens, ns in phases:
        why = NO_RATE if not in_process else NOBODY if not len(begins) else "answers have one token" if not ns else ""
        yield DecodeFigure(name, None if why else float(tokens / ns * 1e9), None, None, why)


def bound_of(points: Points, included: Flags, is_timed: bool, may_wait: bool, prefill: DecodeFigure) -> LoadBound:
    """Return what bounds the time of requests, as far as the client saw it.

    is_timed: whether requests were due by a clock; may_wait: whether they then wait until others have ended.
    """
    if not included.any():
        return LoadBound(None, None, NOBODY)
    waited = float((points.send - points.intended)[included].sum())
    share = 100 * waited / float((points.last - points.intended)[included].sum())
    if is_timed and share >= LARGE_PCT:
        who = "queue" if may_wait else "client"
        return LoadBound(who, share, "of the time of requests passes until they are dispatched")
    if prefill.value is None:
        return LoadBound(None, None, prefill.why_absent)
    if prefill.value >= LARGE_PCT:
        return LoadBound("prefill", prefill.value, "of the time of requests passes until the first token")
    return LoadBound(None, 100 - prefill.value, f"decoding takes most of the time; {NO_DEVICE}")


def figures(points: Points, included: Flags, sums: ContextSums, is_counted: bool, in_process: bool
            ) -> Iterator[DecodeFigure]:
    """Yield every figure."""
    yield sums.slope(is_counted)
    yield sums.stability(is_counted)
    yield from phase_rates(points, included, in_process)
    yield prefill_share(points, included, in_process)

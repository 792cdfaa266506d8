"""The document of a measured endpoint: latencies, rates, failures, and how exact the client was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.llm import other_names
from aaco.analytics.llm.decoding import DecodeFigure, LoadBound, bound_of, figures
from aaco.analytics.llm.engine_time import bound_of_trace
from aaco.analytics.llm.gaps import EventTally
from aaco.analytics.llm.load import EndpointLoad, InProcess, OwnTokenCount
from aaco.analytics.llm.points import NS_PER_MS, UNKNOWN, LatencyBounds, Points, points_of
from aaco.analytics.llm.server_counters import PhaseMean, means
from aaco.analytics.llm.window import NO_CLOCK, SteadyWindow, steady_window
from aaco.core import documents, statistics
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent, Estimate
from aaco.tracelake import layout

NAME = "endpoint"
QUANTILES = (0.5, 0.9, 0.99)
ALL, COLD, WARM, UNSTATED = "all", "cold", "warm", "unstated"
UNSTATED_LATER = "unstated, later turns"  # which begin with what the server has computed before
MIXED = ("answers with and without a cached prefix are not put together: the report has the times of each kind "
         "(ttft of cold and warm)")
NO_COUNTS = "the server does not say with each chunk how many tokens it has: see icl (--count-chunks)"
NO_TOKENS = "the server does not say how many tokens an answer has"
NO_WINDOW = "all requests were dispatched at once: there is no steady window (more requests than are open at once)"
NO_GAPS = "no answer has two chunks"
NO_ANSWER = "no request was answered"
NO_TIMES = "the source has the server's times only: what the client saw is not in it"
NO_DUE = "the source does not say when requests were due"
NO_PHASE = "the server does not say it with an answer"
NO_SERVER_TRACE = "--server-traces joins what its engine and its device did"
OTHER_CLIENT = "another tool measured, which does not say how exact its times are"
# Durations that the server measured, by column; of the first three an absence is said.
PHASES = {"server_queue": "server_queue_ns", "server_prefill": "server_prefill_ns", "server_decode": "server_decode_ns"}
AS_SERVED = {"server_ttft": "server_ttft_ns", "server_latency": "server_latency_ns"}


class QuantileEstimate(Struct, frozen=True):
    """A quantile with its interval, or why there is none."""

    q: float
    value: float | None
    low: float | None
    high: float | None
    why_absent: str


class LatencyQuantiles(Struct, frozen=True):
    """Quantiles of one latency, ms. group: all, or cold, warm and unstated: without and with a cached prefix, and where
    the server does not say (and for later turns of conversations)."""

    name: str
    group: str
    count: int
    quantiles: list[QuantileEstimate]


class FailureClass(Struct, frozen=True):
    """Requests with one kind of failure, and the message of one of them."""

    status: str
    http_status: int | None
    count: int
    detail: str


class Rate(Struct, frozen=True):
    """A rate in the steady window, 1/s, or why there is none."""

    name: str
    value: float | None
    why_absent: str


class ClientAccuracy(Struct, frozen=True):
    """How exact the client was. Times from the kernel's receipt to the client's read, us; absent without stamps.

    merged_pct: events with content that came together with later ones, so that their time is an interval.
    lateness_p99_ms: from the intended to the actual dispatch. lateness_own_p99_ms: the same without what the client's
    thread waited for a CPU; null where that is not known. steps: how often the wall clock was set during the load.
    packets: those that were stamped each (--packet-stamps), those lost, and reads that have one stamp as a packet of
    them was not seen; null: without.
    """

    stamped_pct: float
    delay_p50_us: float | None
    delay_p99_us: float | None
    delay_max_us: float | None
    merged_pct: float
    lateness_p99_ms: float
    lateness_own_p99_ms: float | None
    steps: int | None
    sent_again: int
    packets: int | None
    packets_dropped: int | None
    reads_without_packet: int | None


@documents.document(layout.finding(NAME))
class Endpoint(Struct, frozen=True):
    """metrics/endpoint.json: how fast an endpoint of a language model answered a load.

    process: null: a server answered. decoding: decode_slope (ms that 1,000 tokens of context add to a token),
    decode_stability (1 - standard deviation / mean of the time per token), prefill_tokens_per_s, decode_tokens_per_s
    and prefill_share (% of the time).

    latencies: those that begin with server_ were measured by the server. client: null where another tool measured.
    output_chunks: events that have the output tokens, in answers of which both are known.
    other_names: by tool the figures that mean the same there, under its names; counts only where
    another tool measured. own_tokens: a count of the text, which
    is in no other figure; null: without a tokenizer of the user's.
    """

    model: str
    requests: int
    ok: int
    failures: list[FailureClass]
    window_begin_ns: int
    window_s: float
    window_why: str
    in_latencies: int
    latencies: list[LatencyQuantiles]
    rates: list[Rate]
    terms: dict[str, float]
    tokens_sources: dict[str, int]
    output_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    client: ClientAccuracy | None
    process: InProcess | None
    decoding: list[DecodeFigure]
    bound: LoadBound
    other_names: dict[str, dict[str, Any]]
    server_means: list[PhaseMean]
    own_tokens: OwnTokenCount | None = None
    output_chunks: int | None = None

    @property
    def accuracy(self) -> ClientAccuracy:
        """Return how exact the client was. Raise Absent."""
        if self.client is None:
            raise Absent(OTHER_CLIENT)
        return self.client

    def quantile(self, name: str, q: float) -> Estimate:
        """Return a quantile of a latency over all requests. Raise Absent."""
        latency = next((entry for entry in self.latencies if entry.name == name and entry.group == ALL), None)
        if latency is None:
            raise Absent(MIXED)
        estimate = next(estimate for estimate in latency.quantiles if estimate.q == q)
        if estimate.value is None:
            raise Absent(estimate.why_absent)
        return Estimate(estimate.value, estimate.low, estimate.high)

    def decode_figure(self, name: str) -> Estimate:
        """Return a figure of decoding. Raise Absent."""
        figure = next(figure for figure in self.decoding if figure.name == name)
        if figure.value is None:
            raise Absent(figure.why_absent)
        return Estimate(figure.value, figure.low, figure.high)

    def rate(self, name: str) -> float:
        """Return a rate. Raise Absent."""
        rate = next(rate for rate in self.rates if rate.name == name)
        if rate.value is None:
            raise Absent(rate.why_absent)
        return rate.value

    @property
    def window_tokens(self) -> float:
        """Return how many tokens of answers came in the steady window. Raise Absent."""
        return self.rate("output_tokens") * self.window_s


def summarise(requests: pa.Table, events: Iterable[pa.RecordBatch | pa.Table], load: EndpointLoad | None,
              steps: pa.Table | None = None) -> Endpoint:
    """Return the document of a measured endpoint from its tables; events are read in pieces. load: None where another
    tool sent it. steps: of the server's engine, on the clock of the requests, if its trace was joined."""
    points, terms = points_of(requests), load.terms if load else {}
    window = steady_window(points, load.concurrency if load else None, load is None or load.arrivals != "closed")
    inside = points.is_ok & (points.send >= window.begin_ns if window.seconds > 0 else True)
    tally = EventTally(points, inside, (window.begin_ns, window.end_ns))
    for piece in events:
        tally.feed(piece)
    process = load.process if load else None
    decoding = list(figures(points, inside, tally.contexts, tally.is_counted, process is not None))
    sources = Counter(source for source in requests["tokens_source"].cast(pa.string()).to_pylist() if source)
    latencies = [*_latencies(points, inside, tally), *_by_server(requests, inside)]
    ok, prompt = int(points.is_ok.sum()), _sum(points.prompt[points.is_ok])
    output = int(points.tokens[points.is_ok & (points.tokens > 0)].sum())
    return Endpoint(
        load.model if load else _models(requests), len(points.send), ok, _failures(requests), window.begin_ns,
        window.seconds, window.why, int(inside.sum()), latencies, list(_rates(points, window, tally, terms)), terms,
        dict(sources), output, prompt, _sum(points.cached[points.is_ok]),
        _accuracy(points, tally, load, requests) if load else None, process, decoding,
        _bound(points, inside, load, decoding[-1], steps),
        _other_names(latencies if load else (), {"ok": ok, "failed": len(points.send) - ok, "prompt_tokens": prompt,
                                 "output_tokens": _sum(points.tokens[points.is_ok])}),
        list(means(load.server)) if load and load.server else [], load.own_tokens if load else None,
        _sum(points.chunks[points.is_ok & (points.tokens > 0)]))


def _bound(points: Points, inside: Flags, load: EndpointLoad | None, prefill: DecodeFigure, steps: pa.Table | None
           ) -> LoadBound:
    """Return what bounds the requests: as the client saw it, else by the trace of the server, if there is one."""
    if load is None:
        return LoadBound(None, None, NO_DUE)
    seen = bound_of(points, inside, load.arrivals != "closed", load.concurrency is not None, prefill)
    if seen.label or load.process or not inside.any():
        return seen
    if steps is not None and steps.num_rows:
        return bound_of_trace(points.send[inside], points.last[inside], steps, load.device_classes)
    return replace(seen, why=load.why_no_steps or f"{seen.why}; {NO_SERVER_TRACE}")


def _other_names(latencies: Iterable[LatencyQuantiles], counts: Mapping[str, int | None]) -> dict[str, dict[str, Any]]:
    quantiles = {latency.name: {estimate.q: estimate.value for estimate in latency.quantiles}
                 for latency in latencies if latency.group == ALL}
    return other_names.equal(quantiles, counts)


def _models(requests: pa.Table) -> str:
    """Return the models that answers name."""
    return ", ".join(sorted(set(filter(None, requests["model"].to_pylist()))))


def _by_server(requests: pa.Table, inside: Flags) -> Iterator[LatencyQuantiles]:
    """Yield what the server measured of each request; it is no time that the client saw."""
    for name, column in (PHASES | AS_SERVED).items():
        ns = pc.fill_null(requests[column], UNKNOWN).to_numpy()
        ms = ns[inside & (ns != UNKNOWN)] / NS_PER_MS
        if len(ms):
            yield quantiles_of(name, ALL, LatencyBounds(ms, ms, ms))
        elif name in PHASES:
            yield _absent(name, NO_PHASE)


def _failures(requests: pa.Table) -> list[FailureClass]:
    columns = (requests[name].to_pylist() for name in ("status", "http_status", "detail"))
    counts, details = Counter[tuple[str, int | None]](), dict[tuple[str, int | None], str]()
    for status, http_status, detail in zip(*columns, strict=True):
        if status != "ok":
            counts[status, http_status] += 1
            details.setdefault((status, http_status), detail or "")
    return [FailureClass(*kind, count, details[kind]) for kind, count in counts.most_common()]


def _latencies(points: Points, inside: Flags, tally: EventTally) -> Iterator[LatencyQuantiles]:
    """Yield every latency: of requests in groups that are not put together, and between chunks and tokens."""
    for group, members in _groups(points, inside):
        for name, since in (("", points.intended), ("_dispatched", points.send)):
            why = _why_unseen(points, members, since)
            yield quantiles_of(f"ttft{name}", group, points.ttft(since).of(members), why)
            yield quantiles_of(f"latency{name}", group, points.latency(since).of(members), why)
    has_tpot = inside & points.has_tpot
    yield quantiles_of("tpot", ALL, points.tpot.of(has_tpot), _why_no_tpot(points, inside))
    yield _pooled("icl", *tally.icl())
    yield _pooled("itl", *tally.itl()) if tally.is_counted else _absent("itl", NO_COUNTS if inside.any() else NO_ANSWER)


def _why_no_tpot(points: Points, inside: Flags) -> str:
    """Return why no request has a time per output token; empty where one has."""
    if not inside.any() or (inside & points.has_tpot).any():
        return ""
    return NO_TIMES if (points.first[inside] == UNKNOWN).all() else NO_TOKENS


def _why_unseen(points: Points, members: Flags, since: Ints) -> str:
    """Return why latencies of answered requests from a point on are not known; empty where they are."""
    if not members.any() or ((points.first != UNKNOWN) & (since != UNKNOWN))[members].any():
        return ""
    return NO_DUE if (points.first != UNKNOWN)[members].any() else NO_TIMES


def _groups(points: Points, inside: Flags) -> list[tuple[str, Flags]]:
    """Return the requests by what the server says of their prefix, where it does not say the same of all."""
    groups = [(name, inside & state) for name, state in cache_states(points) if (inside & state).any()]
    return groups if len(groups) > 1 else [(ALL, inside)]


def cache_states(points: Points) -> Iterator[tuple[str, Flags]]:
    """Yield which requests are in which state of the server's cache of prefixes, as far as it says so."""
    yield from ((COLD, points.cached == 0), (WARM, points.cached > 0))
    yield UNSTATED, (points.cached == UNKNOWN) & (points.turn <= 0)
    yield UNSTATED_LATER, (points.cached == UNKNOWN) & (points.turn > 0)


def quantiles_of(name: str, group: str, spread: LatencyBounds, why: str = "") -> LatencyQuantiles:
    """Return the quantiles of a latency of requests; their intervals hold what merged reads leave open."""
    return LatencyQuantiles(name, group, len(spread.ms), [_tail(spread, q, why) for q in QUANTILES])


def _tail(spread: LatencyBounds, q: float, why: str) -> QuantileEstimate:
    count, needed = len(spread.ms), statistics.early_stopping_count(q)
    if why or not count:
        return QuantileEstimate(q, None, None, None, why or NO_ANSWER)
    if count < needed:
        return QuantileEstimate(q, None, None, None, f"not enough requests for p{100 * q:g}: {count}, at least "
                                f"{needed} (early-stopping rule of MLPerf LoadGen)")
    middle, least, most = (statistics.quantile(sample, q) for sample in (spread.ms, spread.least, spread.most))
    return QuantileEstimate(q, middle.value, least.low, most.high, "")


def _pooled(name: str, ms: Reals, least: Reals, most: Reals) -> LatencyQuantiles:
    """Return quantiles over all gaps. Those of one answer are not independent, so that only merged reads make an
    interval."""
    if not len(ms):
        return _absent(name, NO_GAPS)
    middle = np.quantile(ms, QUANTILES, overwrite_input=True)  # a copy of all gaps would be the most that is held
    ends = (middle, middle) if least is ms else (np.quantile(least, QUANTILES), np.quantile(most, QUANTILES))
    return LatencyQuantiles(name, ALL, len(ms), [
        _of_gaps(len(ms), q, *map(float, place)) for q, *place in zip(QUANTILES, middle, *ends, strict=True)])


def _of_gaps(count: int, q: float, middle: float, low: float, high: float) -> QuantileEstimate:
    needed = statistics.early_stopping_count(q)
    if count < needed:
        return QuantileEstimate(q, None, None, None, f"not enough gaps for p{100 * q:g}: {count}, at least {needed}")
    return QuantileEstimate(q, middle, low if low < high else None, high if low < high else None, "")


def _absent(name: str, why: str) -> LatencyQuantiles:
    return LatencyQuantiles(name, ALL, 0, [QuantileEstimate(q, None, None, None, why) for q in QUANTILES])


def _rates(points: Points, window: SteadyWindow, tally: EventTally, terms: Mapping[str, float]) -> Iterator[Rate]:
    """Yield what came in the steady window, per second."""
    if window.seconds <= 0:
        why = NO_WINDOW if points.has_clock else NO_CLOCK
        yield from (Rate(name, None, why) for name in ("requests", "goodput", "output_tokens"))
        return
    ended = points.is_ok & (points.last >= window.begin_ns) & (points.last < window.end_ns)
    yield Rate("requests", float(ended.sum()) / window.seconds, "")
    good, why = _meets(points, terms)
    yield Rate("goodput", None if why else float((ended & good).sum()) / window.seconds, why)
    counted = points.tokens[points.is_ok] != UNKNOWN
    tokens = _tokens_in_window(points, tally)
    yield Rate("output_tokens", tokens / window.seconds if counted.all() and len(counted) else None,
               NO_ANSWER if not len(counted) else "" if counted.all() else NO_TOKENS)


def _tokens_in_window(points: Points, tally: EventTally) -> float:
    """Return the tokens that came in it; without counts of chunks, those of an answer are spread over them."""
    per_chunk = points.tokens / np.maximum(points.chunks, 1)
    inferred = np.where(tally.tokens_in_window > 0, tally.tokens_in_window, tally.in_window * per_chunk)
    return float(inferred[points.is_ok].sum())


def _meets(points: Points, terms: Mapping[str, float]) -> tuple[Flags, str]:
    """Return which requests meet all terms, and why that is not known."""
    if not terms:
        return points.is_ok, "no service level was asked for (--slo ttft=500ms)"
    good = points.is_ok
    for name, limit in terms.items():
        if name == "tpot" and (points.is_ok & (points.tokens == UNKNOWN)).any():
            return good, NO_TOKENS
        if np.isnan(_term(points, name)[points.is_ok]).any():
            return good, NO_DUE
        good = good & (_term(points, name) <= limit)
    return good, ""


def _term(points: Points, name: str) -> Reals:
    """Return by request what a term limits, ms; an answer of one token has no time per token that could be too long."""
    if name == "tpot":
        return np.where(points.has_tpot, points.tpot.ms, 0.0)
    return (points.ttft if name == "ttft" else points.latency)(points.intended).ms


def _accuracy(points: Points, tally: EventTally, load: EndpointLoad, requests: pa.Table) -> ClientAccuracy:
    delays = np.concatenate(tally.delays_us) if tally.delays_us else np.zeros(0, np.float32)
    p50, p99, most = map(float, np.quantile(delays, (0.5, 0.99, 1.0))) if len(delays) else (None, None, None)
    lateness = points.send - points.intended
    counts = load.packets or {}
    own = (lateness - points.cpu_wait)[points.cpu_wait != UNKNOWN]
    return ClientAccuracy(
        stamped_pct=100 * len(delays) / max(tally.events, 1), delay_p50_us=p50, delay_p99_us=p99, delay_max_us=most,
        merged_pct=100 * tally.merged / max(tally.content, 1),
        lateness_p99_ms=_p99_ms(lateness) or 0.0, lateness_own_p99_ms=_p99_ms(own), steps=load.clock_steps,
        sent_again=sum(requests["sent_again"].to_pylist()), packets=counts.get("packets"),
        packets_dropped=counts.get("dropped"), reads_without_packet=counts.get("missed"))


def _p99_ms(ns: Ints) -> float | None:
    return float(np.quantile(ns, 0.99)) / NS_PER_MS if len(ns) else None


def _sum(counts: Ints) -> int | None:
    """Return the sum of counts that are all known."""
    return int(counts.sum()) if len(counts) and (counts != UNKNOWN).all() else None

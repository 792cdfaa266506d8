"""How fast an endpoint of a language model answered, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.llm.decoding import DECODE_RATE, PREFILL_RATE, PREFILL_SHARE, SLOPE, STABILITY
from aaco.analytics.llm.load import OwnTokenCount
from aaco.analytics.llm.summary import (
    ALL,
    NAME,
    OTHER_CLIENT,
    Endpoint,
    FailureClass,
    LatencyQuantiles,
    QuantileEstimate,
)
from aaco.core.documents import decode
from aaco.core.words import counted
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

LABELS = {"ttft": "TTFT", "ttft_dispatched": "TTFT from dispatch", "latency": "Request latency",
          "latency_dispatched": "Latency from dispatch", "tpot": "TPOT", "itl": "ITL", "icl": "ICL (between chunks)",
          "server_queue": "Queue, by the server", "server_prefill": "Prefill, by the server",
          "server_decode": "Decode, by the server", "server_ttft": "First token, by the server",
          "server_latency": "Latency, by the server"}
FIGURES = {SLOPE: ("1,000 tokens of context add", "ms"), STABILITY: ("Stability (1 - CoV)", "ratio"),
           PREFILL_RATE: ("Prefill, tokens", "1/s"), DECODE_RATE: ("Decoding, tokens", "1/s"),
           PREFILL_SHARE: ("Share of prefill", "pct")}
PARTS = {"prefill": "the device computes prompts for", "device": "decodes for", "host": "waits within a step for",
         "queue": "and no step is under way for"}
RATES = {"requests": "Answered", "goodput": "Goodput", "output_tokens": "Output tokens"}
SOURCES = {"continuous_usage": "the usage of each chunk", "timings": "the timings of each chunk",
           "usage": "the usage at the end (inferred for each chunk)", "counted": "the process that made them",
           "tool": "the tool that measured, or the server", "server": "the server's spans"}
EXPLAINED = {
    "connect": "no connection could be made", "tls": "the TLS handshake or its data failed",
    "cut": "the connection ended before the answer", "not_http": "what came is not HTTP",
    "gap_timeout": "the answer paused for too long (--gap-timeout)", "timeout": "the answer took too long (--timeout)",
    "descriptors": "this process may open no more connections (ulimit -n)",
    "http_error": "the server refused it", "not_streamed": "the answer is no stream of events",
    "error_in_stream": "an error came inside an answer that began well", "malformed": "an event is no chunk of JSON",
    "no_tokens": "no event has text", "other_model": "another model answered",
    "unfinished": "it was under way when the client ended", "failed_elsewhere": "the source says that it failed",
    "no_times": "its times are none: negative, no number, or in no order"}
SHOWN = 8
MESSAGE = 120  # letters of a server's message in the headline
# Of each of these the first that is there.
HEADLINE = (("ttft", "ttft_dispatched", "server_ttft"), ("tpot", "server_latency"))


@finding_view(NAME, "how fast an endpoint of a language model answered, what failed, how exact the client was", place=1)
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """Latencies and rates; failures; the client."""
    endpoint = decode(document, Endpoint)
    yield "Latency and rates", [*_latencies(endpoint), *_too_few(endpoint), *_server_means(endpoint),
                                *_rates(endpoint), *_window(endpoint), *_tokens(endpoint)]
    yield "Decoding", list(_decoding(endpoint))
    yield "Failed requests", list(failures(endpoint))
    yield "The client's own exactness", list(_client(endpoint))


def _decoding(endpoint: Endpoint) -> Iterator[Row]:
    for figure in endpoint.decoding:
        label, unit = FIGURES[figure.name]
        yield Row(label, format.unavailable(figure.why_absent) if figure.value is None else
                  format.quantity(figure.value, unit, figure.low, figure.high))
    bound = endpoint.bound
    share = "" if bound.share_pct is None else f"{format.percent(bound.share_pct / 100)} "
    yield Row("Bound by", f"{bound.label}: {share}{bound.why}" if bound.label else format.unavailable(bound.why))
    if bound.parts_pct:
        parts = ", ".join(f"{PARTS[part]} {format.percent(share / 100)}" for part, share in bound.parts_pct.items())
        yield Row("By the server's trace", f"of the time of requests {parts}")
    if process := endpoint.process:
        backend = f", backend {process.backend}" if process.backend else ""
        yield Row("Answered by", f"{process.engine}{backend}, {process.batch:,} at once, in a process of its own")


def headline(endpoint: Endpoint) -> str:
    """Return the answer in a sentence: first token, time per token, and what failed."""
    by_name = {latency.name: latency for latency in endpoint.latencies
               if latency.group == ALL and latency.quantiles[0].value is not None}
    first = (next((by_name[name] for name in names if name in by_name), None) for names in HEADLINE)
    shown = [f"{LABELS[latency.name]} {quantiles(latency).partition(f'; p90 {format.NA}')[0]}"
             for latency in first if latency]
    failed = endpoint.requests - endpoint.ok
    ending = f"{failed:,} of {endpoint.requests:,} requests failed{_first_failure(endpoint)}" if failed else \
        f"{'all ' * (endpoint.requests > 1)}{counted(endpoint.requests, 'requests were answered')}"
    return f"{'; '.join([*shown, ending])}."


def _first_failure(endpoint: Endpoint) -> str:
    """Return the most frequent class of failures and the begin of its message."""
    if not endpoint.failures:
        return ""
    failure = endpoint.failures[0]
    detail = failure.detail if len(failure.detail) <= MESSAGE else f"{failure.detail[:MESSAGE]}..."
    return f" ({failure.count:,} {_status(failure)}{f': {detail}' if detail else ''})"


def _status(failure: FailureClass) -> str:
    return f"HTTP {failure.http_status}" if failure.status == "http_error" else failure.status.replace("_", " ")


def exactness(endpoint: Endpoint) -> str:
    """Return in a sentence whether the client's own delay is in the times."""
    if endpoint.process:
        return "Times are those at which each token was on the host, in the process that made it."
    if (client := endpoint.client) is None:
        return OTHER_CLIENT[0].upper() + OTHER_CLIENT[1:]
    merged = f"{format.percent(client.merged_pct / 100)} of the events were read with later ones, and are intervals"
    if client.delay_p99_us is None and not endpoint.ok:
        return "No request was answered, so that no time was measured"
    if client.delay_p99_us is None:
        return f"Times are those at which the client read: the kernel gave no stamps. {merged}"
    return (f"Times are the kernel's; the client itself was {format.quantity(client.delay_p99_us, 'us')} late (p99), "
            f"which is not in them. {merged}")


def _latencies(endpoint: Endpoint) -> Iterator[Row]:
    for latency in endpoint.latencies:
        group = "" if latency.group == ALL else f", {latency.group}"
        has_value = latency.quantiles[0].value is not None
        yield Row(LABELS[latency.name] + group, f"{quantiles(latency)} ({latency.count:,})" if has_value else
                  format.unavailable(latency.quantiles[0].why_absent))


def quantiles(latency: LatencyQuantiles) -> str:
    """Return the quantiles of a latency in words."""
    return "; ".join(f"p{100 * estimate.q:g} {_quantity(estimate)}" for estimate in latency.quantiles)


def _quantity(estimate: QuantileEstimate) -> str:
    return format.NA if estimate.value is None else format.quantity(estimate.value, "ms", estimate.low, estimate.high)


def _too_few(endpoint: Endpoint) -> Iterator[Row]:
    """Yield why quantiles of latencies that have others are absent."""
    reasons = dict.fromkeys(estimate.why_absent for latency in endpoint.latencies
                            for estimate in latency.quantiles
                            if estimate.value is None and latency.quantiles[0].value is not None)
    if reasons:
        yield Row("Not shown", "; ".join(reasons))


def _server_means(endpoint: Endpoint) -> Iterator[Row]:
    """Yield the means of the server's own counters, or why there are none."""
    shown = [(mean.name, mean.mean_ms, mean.requests) for mean in endpoint.server_means]
    if all(ms is None for _, ms, _ in shown):
        yield from (Row("Means by the server", format.unavailable(mean.why_absent))
                    for mean in endpoint.server_means[:1])
        return
    words = [f"{name} {format.NA if ms is None else format.quantity(ms, 'ms')}" for name, ms, _ in shown]
    count = max(requests or 0 for _, _, requests in shown)
    yield Row("Means by the server", f"{', '.join(words)}; of the {count:,} requests of any client that ended there "
              f"meanwhile ({endpoint.ok:,} answers of this load), by its /metrics")


def _rates(endpoint: Endpoint) -> Iterator[Row]:
    for rate in endpoint.rates:
        yield Row(RATES[rate.name], format.unavailable(rate.why_absent) if rate.value is None else
                  format.quantity(rate.value, "1/s"))
    if endpoint.terms:
        yield Row("Service levels", ", ".join(f"{LABELS[name]} {limit:g} ms" for name, limit in endpoint.terms.items()))


def _window(endpoint: Endpoint) -> Iterator[Row]:
    length = f"{format.number(endpoint.window_s)} s" if endpoint.window_s else "none"
    yield Row("Steady window", f"{length}, {endpoint.in_latencies:,} of {endpoint.ok:,} answers dispatched in it; "
              f"{endpoint.window_why}")


def _tokens(endpoint: Endpoint) -> Iterator[Row]:
    sources = ", ".join(f"{SOURCES[source]} ({count:,})" for source, count in endpoint.tokens_sources.items())
    yield Row("Tokens counted by", sources or "n/a: the server counts none")
    if endpoint.output_chunks and endpoint.output_tokens and not endpoint.process:
        apart = endpoint.output_tokens - endpoint.output_chunks
        yield Row("Chunks with them", f"{endpoint.output_chunks:,} for {endpoint.output_tokens:,} tokens ({apart:+,})")
    if own := endpoint.own_tokens:
        yield Row("Own count", _own_count(own))
    if endpoint.cached_tokens:
        of = f" of {endpoint.prompt_tokens:,}" if endpoint.prompt_tokens else ""
        yield Row("Cached prompt tokens", f"{endpoint.cached_tokens:,}{of}")


def _own_count(own: OwnTokenCount) -> str:
    """Return in words how far the server's count of tokens is from that of the user's tokenizer."""
    tokenizer = own.tokenizer.partition(" ")[0]
    if not own.compared:
        return f"{own.own_tokens:,} tokens by {tokenizer}; the server counts none to compare"
    apart = own.own_compared - own.server_tokens
    range_of = f", from {own.least_difference:+,} to {own.most_difference:+,} in an answer" if own.differ else ""
    return (f"{own.own_compared:,} tokens by {tokenizer}, {own.server_tokens:,} by the server ({apart:+,}); "
            f"{own.differ:,} of {format.plural(own.compared, 'answer')} differ{range_of}")


def failures(endpoint: Endpoint, most: int = SHOWN) -> Iterator[Row]:
    """Yield the classes of failures and their messages, the most frequent first."""
    for failure in endpoint.failures[:most]:
        message = f": {failure.detail}" if failure.detail else ""
        yield Row(_status(failure), f"{failure.count:,}; {EXPLAINED[failure.status]}{message}")
    if more := len(endpoint.failures[most:]):
        yield Row("Others", format.plural(more, "more class"))


def _client(endpoint: Endpoint) -> Iterator[Row]:
    if (client := endpoint.client) is None:
        yield Row("Client", format.unavailable(OTHER_CLIENT))
        return
    if endpoint.process:
        yield Row("Times", exactness(endpoint))
        yield Row("Dispatch lateness", f"p99 {format.quantity(client.lateness_p99_ms, 'ms')}")
        return
    if client.delay_p50_us is None or client.delay_p99_us is None or client.delay_max_us is None:
        yield Row("Stamps", "n/a: the kernel gave none; times are those at which the client read")
    else:
        p50, p99, most = (format.quantity(us, "us") for us in (client.delay_p50_us, client.delay_p99_us,
                                                              client.delay_max_us))
        yield Row("Own delay", f"p50 {p50}, p99 {p99}, at most {most} from the kernel's receipt to the read; not in "
                  f"the times above, which are the kernel's for {format.percent(client.stamped_pct / 100)} of events")
    yield Row("Merged reads", f"{format.percent(client.merged_pct / 100)} of events with content: their times are "
              "intervals, which the intervals above include" + ("; --packet-stamps gives each its own" if
              client.merged_pct and client.packets is None else ""))
    if client.packets is not None:
        yield Row("Packet stamps", f"{client.packets:,} packets, {client.packets_dropped:,} lost; "
                  f"{client.reads_without_packet:,} reads have one stamp, as a packet of them was not seen")
    own = "" if client.lateness_own_p99_ms is None else \
        f"; {format.quantity(client.lateness_own_p99_ms, 'ms')} without what its thread waited for a CPU"
    yield Row("Dispatch lateness", f"p99 {format.quantity(client.lateness_p99_ms, 'ms')}{own}")
    if client.steps:
        yield Row("Wall clock", f"set {format.plural(client.steps, 'time')} meanwhile: stamps around it are not used")
    if client.sent_again:
        yield Row("Sent again", f"{client.sent_again:,} on a new connection, because an idle one had been closed")

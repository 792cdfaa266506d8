"""How fast an endpoint of a language model answers, as its client saw it."""

from __future__ import annotations

from aaco.analytics.llm.decoding import DECODE_RATE, PREFILL_RATE, PREFILL_SHARE, SLOPE, STABILITY
from aaco.analytics.llm.summary import Endpoint
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "docs/guides/llm.md"
QUANTILE = "; quantile of requests dispatched in the steady window, interval by order statistics at 95 %"
TTFT = "first event with content - intended dispatch" + QUANTILE
LATENCY = "last event with content - intended dispatch" + QUANTILE
TPOT = "(last - first event with content) / (output tokens - 1)" + QUANTILE
ITL = "gap before a chunk / tokens of the chunk, for each token; quantile of all"
ICL = "gap before a chunk; quantile of all"


# Quantiles of latencies: name, which latency, quantile, formula, meaning.
QUANTILES = (
    ("ttft_p50_ms", "ttft", 0.5, TTFT,
     "Half of the requests have their first token after this time, the client's queue included."),
    ("ttft_p90_ms", "ttft", 0.9, TTFT,
     "Nine of ten requests have their first token after this time, the client's queue included."),
    ("ttft_p99_ms", "ttft", 0.99, TTFT,
     "99 of 100 requests have their first token after this time, the client's queue included."),
    ("ttft_dispatched_p50_ms", "ttft_dispatched", 0.5, "first event with content - actual dispatch" + QUANTILE,
     "Half of the requests have their first token this long after they were dispatched; the client's queue is not in "
     "it."),
    ("request_latency_p50_ms", "latency", 0.5, LATENCY,
     "Half of the requests have their last token after this time, the client's queue included."),
    ("request_latency_p90_ms", "latency", 0.9, LATENCY,
     "Nine of ten requests have their last token after this time, the client's queue included."),
    ("request_latency_p99_ms", "latency", 0.99, LATENCY,
     "99 of 100 requests have their last token after this time, the client's queue included."),
    ("tpot_p50_ms", "tpot", 0.5, TPOT, "Half of the requests take at most this long per token after the first."),
    ("tpot_p90_ms", "tpot", 0.9, TPOT, "Nine of ten requests take at most this long per token after the first."),
    ("tpot_p99_ms", "tpot", 0.99, TPOT, "99 of 100 requests take at most this long per token after the first."),
    ("itl_p50_ms", "itl", 0.5, ITL,
     "Half of the tokens after the first of an answer come at most this long after the one before."),
    ("itl_p99_ms", "itl", 0.99, ITL,
     "99 of 100 tokens after the first of an answer come at most this long after the one before."),
    ("icl_p50_ms", "icl", 0.5, ICL,
     "Half of the chunks after the first of an answer come at most this long after the one before."),
    ("icl_p99_ms", "icl", 0.99, ICL,
     "99 of 100 chunks after the first of an answer come at most this long after the one before."))
ALIASES = {"ttft_p50_ms": ("ttft",), "tpot_p50_ms": ("tpot",), "itl_p50_ms": ("itl",), "icl_p50_ms": ("icl",)}


def _declare_quantile(name: str, latency: str, share: float, formula: str, meaning: str) -> None:
    def quantile(endpoint: Endpoint) -> Estimate:
        return endpoint.quantile(latency, share)

    quantile.__name__, quantile.__doc__ = name, meaning
    metric(unit="ms", better="lower", formula=formula, source=SOURCE, aliases=ALIASES.get(name, ()))(quantile)


for _row in QUANTILES:
    _declare_quantile(*_row)


@metric(unit="1/s", better="higher", formula="tokens that came in the steady window / its length", source=SOURCE)
def output_tokens_per_s(endpoint: Endpoint) -> float:
    """Output tokens per second of the whole system."""
    return endpoint.rate("output_tokens")


@metric(unit="1/s", better="higher", formula="1000 / median time per output token", source=SOURCE)
def user_tokens_per_s(tpot_p50_ms: float) -> float:
    """Output tokens per second that the median request gets after its first."""
    return 1000 / tpot_p50_ms


@metric(unit="1/s", better="higher", formula="answers that ended in the steady window / its length", source=SOURCE)
def answered_requests_per_s(endpoint: Endpoint) -> float:
    """Requests that were answered, per second."""
    return endpoint.rate("requests")


@metric(unit="1/s", better="higher", formula="answers that meet every service level and ended in the steady window / "
        "its length", source=SOURCE)
def goodput_per_s(endpoint: Endpoint) -> float:
    """Requests per second that meet all service levels at once."""
    return endpoint.rate("goodput")


@metric(unit="pct", better="lower", formula="100 x requests without a whole answer / requests", source=SOURCE,
        bands=("<=0 none", ">0 see the classes in the report"))
def request_failure_pct(endpoint: Endpoint) -> float:
    """Requests that failed; none of them is in a latency."""
    return 100 * (endpoint.requests - endpoint.ok) / endpoint.requests


@metric(unit="us", better="lower", formula="p99 of the client's read - the kernel's receipt", source=SOURCE)
def client_delay_p99_us(endpoint: Endpoint) -> float:
    """How late the client itself was: what a client without the kernel's stamps would add to every time."""
    delay_us = endpoint.accuracy.delay_p99_us
    if delay_us is None:
        raise Absent("the kernel gave no stamps: times are those of the client's reads")
    return delay_us


@metric(unit="pct", better="lower", formula="100 x events with content that were read with later ones / all of them",
        source=SOURCE)
def merged_reads_pct(endpoint: Endpoint) -> float:
    """Events of which the time is an interval, because the kernel has one stamp for several."""
    return endpoint.accuracy.merged_pct


@metric(unit="ms", better="lower", formula="p99 of the actual - the intended dispatch", source=SOURCE)
def dispatch_lateness_p99_ms(endpoint: Endpoint) -> float:
    """How late requests were sent: beyond a millisecond the client, or its limit of open requests, was the bottleneck.
    """
    return endpoint.accuracy.lateness_p99_ms


@metric(unit="ms", better="lower", formula="slope of the time per token over its context, in 1,000 tokens; interval by "
        "jackknife over blocks of time at 95 %", source=SOURCE)
def decode_slope_ms_per_1k_tokens(endpoint: Endpoint) -> Estimate:
    """What 1,000 more tokens of context add to the time of a token."""
    return endpoint.decode_figure(SLOPE)


@metric(unit="ratio", better="higher", formula="1 - standard deviation / mean of the time per token", source=SOURCE)
def decode_stability(endpoint: Endpoint) -> float:
    """How steady tokens come: 1 where all gaps are the same."""
    return endpoint.decode_figure(STABILITY).value


@metric(unit="pct", better="lower", formula="100 x (first token - dispatch) / (last token - dispatch), sums over "
        "requests to a decoder in a process of its own", source=SOURCE, bands=("<40 decoding", ">=40 prefill"))
def prefill_share_pct(endpoint: Endpoint) -> float:
    """How much of the time of requests their prompts take."""
    return endpoint.decode_figure(PREFILL_SHARE).value


@metric(unit="1/s", better="higher", formula="tokens of prompts / time from the dispatch to the first token, once for "
        "a batch; of a decoder in a process of its own", source=SOURCE)
def prefill_tokens_per_s(endpoint: Endpoint) -> float:
    """How fast prompts are read."""
    return endpoint.decode_figure(PREFILL_RATE).value


@metric(unit="1/s", better="higher", formula="tokens after the first of each answer / time from the first token to the "
        "last, once for a batch; of a decoder in a process of its own", source=SOURCE)
def decode_tokens_per_s(endpoint: Endpoint) -> float:
    """How fast answers are written, all of a batch together."""
    return endpoint.decode_figure(DECODE_RATE).value

"""Names that other tools have for figures of an endpoint: where the meaning is equal, and where it only looks so.

Equal means that the two points between which a time runs, or what is counted, are the same. vLLM and AIPerf take all
requests of a run; latencies and rates here are of the steady window. Sources: vllm/benchmarks/serve.py,
calculate_metrics; AIPerf, docs/metrics_reference; GuideLLM, schemas/base/request_stats.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

VLLM, AIPERF, GUIDELLM = "vllm", "aiperf", "guidellm"
DEGREES = {0.5: "p50", 0.9: "p90", 0.99: "p99"}
ROLE = "of a chat vLLM takes the first chunk, which holds the role only; here the first with text"
REASONING = "reasoning counts as a token there"
MEAN = "called inter-token there; it is the mean of an answer, and reasoning counts as tokens"
WHOLE = "over the whole run there, over the steady window here"


class NamedFigure(Struct, frozen=True):
    """A figure of another tool. ours: the latency, rate or count here; differs: how its meaning does; empty if equal.
    """

    tool: str
    name: str
    ours: str
    differs: str = ""


FIGURES = (
    NamedFigure(VLLM, "ttft_ms", "ttft_dispatched", ROLE),
    NamedFigure(VLLM, "tpot_ms", "tpot", ROLE),
    NamedFigure(VLLM, "itl_ms", "icl", "called inter-token there; it is the gap between chunks, whatever they hold"),
    NamedFigure(VLLM, "e2el_ms", "latency_dispatched", "until the last chunk with a choice there, which ends an answer "
                "and may have no text; until the last text here"),
    NamedFigure(VLLM, "request_throughput", "requests", WHOLE),
    NamedFigure(VLLM, "request_goodput", "goodput", WHOLE),
    NamedFigure(VLLM, "output_throughput", "output_tokens", WHOLE),
    NamedFigure(VLLM, "completed", "ok"),
    NamedFigure(VLLM, "failed", "failed"),
    NamedFigure(VLLM, "total_input_tokens", "prompt_tokens"),
    NamedFigure(VLLM, "total_output_tokens", "output_tokens"),
    NamedFigure(AIPERF, "time_to_first_token", "ttft_dispatched", REASONING),
    NamedFigure(AIPERF, "time_to_first_output_token", "ttft_dispatched"),
    NamedFigure(AIPERF, "inter_token_latency", "tpot", MEAN),
    NamedFigure(AIPERF, "inter_chunk_latency", "icl", "a list for each answer there, all gaps together here"),
    NamedFigure(AIPERF, "request_latency", "latency_dispatched"),
    NamedFigure(AIPERF, "request_throughput", "requests", WHOLE),
    NamedFigure(AIPERF, "goodput", "goodput", WHOLE),
    NamedFigure(AIPERF, "output_token_throughput", "output_tokens", WHOLE),
    NamedFigure(AIPERF, "output_token_throughput_per_user", "tpot", "of each answer there, by its tokens between; "
                "user_tokens_per_s here is that of the median answer"),
    NamedFigure(AIPERF, "request_count", "ok"),
    NamedFigure(AIPERF, "error_request_count", "failed"),
    NamedFigure(GUIDELLM, "time_to_first_token_ms", "ttft_dispatched", REASONING),
    NamedFigure(GUIDELLM, "inter_token_latency_ms", "tpot", MEAN),
    NamedFigure(GUIDELLM, "time_per_output_token_ms", "tpot", "the time to the first token is part of it there"),
    NamedFigure(GUIDELLM, "request_latency", "latency_dispatched", "in s, and until the end of the stream there; until "
                "the last text here"),
    NamedFigure(GUIDELLM, "requests_per_second", "requests", WHOLE),
    NamedFigure(GUIDELLM, "output_tokens_per_second", "output_tokens", WHOLE),
)


def equal(latencies: Mapping[str, Mapping[float, float | None]], counts: Mapping[str, int | None]) -> dict[str, Any]:
    """Return by tool the figures that mean the same under its names. latencies: by name their quantiles, ms."""
    named: dict[str, Any] = {VLLM: {}, AIPERF: {}}
    for figure in FIGURES:
        if figure.differs:
            continue
        if figure.ours in counts:
            named[figure.tool] |= {} if counts[figure.ours] is None else {figure.name: counts[figure.ours]}
        else:
            named[figure.tool] |= dict(_quantiles(figure, latencies.get(figure.ours, {})))
    return named


def _quantiles(figure: NamedFigure, quantiles: Mapping[float, float | None]) -> Iterator[tuple[str, Any]]:
    """Yield the quantiles that there are in the form of the tool: vLLM has a field for each, AIPerf an object."""
    known = {DEGREES[q]: ms for q, ms in quantiles.items() if ms is not None}
    if figure.tool == VLLM:
        yield from ((f"{'median' if degree == 'p50' else degree}_{figure.name}", ms) for degree, ms in known.items())
    elif known:
        yield figure.name, {"unit": "ms", **known}

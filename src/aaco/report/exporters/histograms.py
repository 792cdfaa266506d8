"""Requests to a language model as histograms, by OpenTelemetry's conventions for generative AI.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics: names, units, attributes and bounds of buckets are
those. What a client saw has the names of clients (`gen_ai.client.*`, from the dispatch on), and only what a server says
of itself those of servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.explanation import Explanation
from aaco.analytics.llm.load import PROCESS
from aaco.core.arrays import Flags, Reals
from aaco.core.tables import LLM_EVENTS, REQUESTS
from aaco.core.tables.spec import whole
from aaco.report.exporters.points import ended_ns

UNKNOWN, NS = -1, 1e9
DURATION_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(4 ** power for power in range(14))
OPERATIONS = {"chat": "chat", "completions": "text_completion", "process": "text_completion"}
OTHER = "_OTHER"  # OpenTelemetry's word for what is not known
FLAVOUR = "openai"  # of the requests; whatever serves them


class Histogram(Struct, frozen=True):
    """How many values are in each bucket. bounds: upper ends, which are part of their bucket; counts: one more.

    time_ns: since 1970; None for the present moment.
    """

    name: str
    unit: str
    meaning: str
    attributes: Mapping[str, str | int]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    least: float
    most: float
    time_ns: int | None

    @property
    def count(self) -> int:
        """Return how many values there are."""
        return sum(self.counts)


def of_session(explanation: Explanation) -> list[Histogram]:
    """Return the histograms of a session of `aaco llm`; of any other, none."""
    if REQUESTS.name not in explanation.tables:
        return []
    requests, facts = explanation.tables[REQUESTS.name], _facts(explanation)
    ended = ended_ns(explanation.record)
    return [_histogram(*entry, facts, ended) for entry in (
        *_of_client(requests), *_of_chunks(explanation.tables, requests), *_of_server(requests)) if len(entry[4])]


# name, unit, meaning, bounds, values, further attributes
Entry = tuple[str, str, str, tuple[float, ...], Reals, Mapping[str, str | int]]


def _of_client(requests: pa.Table) -> Iterator[Entry]:
    """Yield what the client saw of whole requests, failed ones by their class, and the tokens."""
    send, end = whole(requests, "t_send_ns"), whole(requests, "t_end_ns")
    status = requests["status"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str)
    for kind in np.unique(status).tolist():
        rows = (status == kind) & (send != UNKNOWN) & (end != UNKNOWN)
        yield ("gen_ai.client.operation.duration", "s", "from the dispatch of a request to the end of its answer",
               DURATION_S, (end - send)[rows] / NS, {} if kind == "ok" else {"error.type": kind})
    for direction, column in (("input", "prompt_tokens"), ("output", "output_tokens")):
        counts = whole(requests, column)
        if direction == "output":
            counts = np.where(counts == UNKNOWN, counts, counts + np.maximum(whole(requests, "reasoning_tokens"), 0))
        yield ("gen_ai.client.token.usage", "{token}", "tokens of requests, as the server counts them", TOKENS,
               counts[counts != UNKNOWN].astype(np.float64), {"gen_ai.token.type": direction})


def _of_chunks(tables: Mapping[str, pa.Table], requests: pa.Table) -> Iterator[Entry]:
    """Yield the times of chunks: to the first since the dispatch, and from one to the next."""
    if LLM_EVENTS.name not in tables:
        return
    events = tables[LLM_EVENTS.name]
    events = events.filter(pc.is_in(events["kind"].cast(pa.string()), pa.array(["content", "reasoning", "empty"])))
    request, at = whole(events, "request_id"), whole(events, "t_ns")
    order = np.lexsort((whole(events, "index"), request))
    request, at = request[order], at[order]
    is_first = np.diff(request, prepend=UNKNOWN) != 0
    ids, send = whole(requests, "request_id"), whole(requests, "t_send_ns")
    of_request = np.argsort(ids)[np.searchsorted(np.sort(ids), request[is_first])]
    since = send[of_request]
    yield ("gen_ai.client.operation.time_to_first_chunk", "s", "from the dispatch of a request to the first chunk of "
           "its answer, whatever it holds", DURATION_S, (at[is_first] - since)[since != UNKNOWN] / NS, {})
    yield ("gen_ai.client.operation.time_per_output_chunk", "s", "from a chunk of an answer to the next", DURATION_S,
           np.diff(at, prepend=0)[~is_first] / NS, {})


def _of_server(requests: pa.Table) -> Iterator[Entry]:
    """Yield what the server says of the requests that it answered."""
    ok: Flags = np.asarray(pc.equal(requests["status"].cast(pa.string()), "ok"), bool)
    for name, column, meaning, bounds in (
            ("request.duration", "server_latency_ns", "from when the server took a request to its end", DURATION_S),
            ("time_to_first_token", "server_ttft_ns", "from when the server took a request to its first token",
             FIRST_TOKEN_S)):
        ns = whole(requests, column)
        yield f"gen_ai.server.{name}", "s", f"{meaning}, as it says", bounds, ns[ok & (ns != UNKNOWN)] / NS, {}
    decode, tokens = whole(requests, "server_decode_ns"), whole(requests, "output_tokens")
    rows = ok & (decode != UNKNOWN) & (tokens > 1)
    yield ("gen_ai.server.time_per_output_token", "s", "time of each token after the first, as the server says",
           PER_TOKEN_S, decode[rows] / (tokens[rows] - 1) / NS, {})


def _histogram(name: str, unit: str, meaning: str, bounds: tuple[float, ...], values: NDArray[np.float64],
               more: Mapping[str, str | int], facts: Mapping[str, str | int], ended: int | None) -> Histogram:
    counts = np.bincount(np.searchsorted(bounds, values, side="left"), minlength=len(bounds) + 1)
    return Histogram(name, unit, meaning, {**facts, **more}, bounds, tuple(counts.tolist()), float(values.sum()),
                     float(values.min()), float(values.max()), ended)


def _facts(explanation: Explanation) -> dict[str, str | int]:
    """Return the attributes of all requests of a session."""
    plan: Mapping[str, Any] = explanation.record.get("plan") or {}
    url, endpoint = str(plan.get("endpoint") or ""), explanation.examined.get("endpoint") or {}
    facts: dict[str, str | int] = {
        "gen_ai.operation.name": OTHER, "gen_ai.provider.name": FLAVOUR if url else OTHER,
        "gen_ai.request.model": str(endpoint.get("model") or plan.get("model") or OTHER)}
    if url.startswith(PROCESS):
        return facts | {"gen_ai.operation.name": OPERATIONS["process"], "gen_ai.provider.name": OTHER}
    if url:
        parts = urlsplit(url)
        facts |= {"server.address": parts.hostname or "", "server.port": parts.port or
                  (443 if parts.scheme == "https" else 80), "gen_ai.operation.name": OPERATIONS[
                      "chat" if parts.path.endswith("/chat/completions") else "completions"]}
    return facts

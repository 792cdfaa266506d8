"""Requests as histograms: read by Prometheus's parser and OpenTelemetry's protobuf, and counted again one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from prometheus_client.parser import text_string_to_metric_families

from aaco.core.tables import LLM_EVENTS, REQUESTS
from aaco.report.exporters import histograms, prometheus
from aaco.report.exporters.histograms import Histogram
from aaco.workflows import export_otlp

MS = 1_000_000
ENDED = "2026-05-01T10:00:00+00:00"


@pytest.fixture
def explanation() -> Any:
    """Forty requests, of which one fails; llama.cpp says the time of decoding."""
    drawn = np.random.default_rng(1)
    send = np.arange(40) * 50 * MS
    first, last = send + drawn.integers(1, 90, 40) * MS, send + drawn.integers(100, 400, 40) * MS
    requests = REQUESTS.build(
        request_id=np.arange(40), t_intended_ns=send - 7 * MS, t_send_ns=send, t_first_ns=first, t_last_ns=last,
        t_end_ns=last, prompt_tokens=[100] * 40, output_tokens=[9] * 40, reasoning_tokens=[0] * 39 + [8],
        server_decode_ns=[80 * MS] * 40, status=["ok"] * 39 + ["cut"])
    events = LLM_EVENTS.build(
        request_id=[*range(40)] * 3, index=[2] * 40 + [0] * 40 + [1] * 40,
        kind=["done"] * 40 + ["empty", "content"] * 40,
        t_ns=[*last, *(first - MS), *(first + 10 * MS)])
    plan = {"endpoint": "http://127.0.0.1:8000/v1/chat/completions", "model": "ref"}
    return SimpleNamespace(tables={"requests": requests, "llm_events": events}, examined={},
                           record={"plan": plan, "finished_utc": ENDED})


def by_name(explanation: Any) -> dict[tuple[str, str], Histogram]:
    return {(spread.name, str(spread.attributes.get("error.type") or spread.attributes.get("gen_ai.token.type") or "")):
            spread for spread in histograms.of_session(explanation)}


def test_every_request_is_in_the_bucket_whose_upper_end_is_not_below_it(explanation):
    """Against a loop. Mutations: a value at an end in the bucket above; from the intended time on."""
    spreads, rows = by_name(explanation), explanation.tables["requests"].to_pylist()
    ok = spreads["gen_ai.client.operation.duration", ""]
    seconds = [(row["t_end_ns"] - row["t_send_ns"]) / 1e9 for row in rows if row["status"] == "ok"]
    ends = [*ok.bounds, float("inf")]
    assert ok.counts == tuple(sum(low < value <= high for value in seconds)
                              for low, high in zip([-1.0, *ok.bounds], ends, strict=True))
    assert ok.total == pytest.approx(sum(seconds)) and (ok.least, ok.most) == (min(seconds), max(seconds))
    assert spreads["gen_ai.client.operation.duration", "cut"].count == 1
    tokens = spreads["gen_ai.client.token.usage", "output"]
    assert tokens.total == 40 * 9 + 8 and tokens.counts[2] == 39 and tokens.counts[3] == 1  # (4, 16], (16, 64]
    assert spreads["gen_ai.client.token.usage", "input"].total == 4000


def test_only_what_a_server_says_has_the_names_of_servers(explanation):
    """Mutation: what the client saw of the first token is the server's."""
    spreads, rows = by_name(explanation), explanation.tables["requests"].to_pylist()
    first = spreads["gen_ai.client.operation.time_to_first_chunk", ""]
    assert first.count == 40
    assert first.total == pytest.approx(sum(row["t_first_ns"] - MS - row["t_send_ns"] for row in rows) / 1e9)
    gaps = spreads["gen_ai.client.operation.time_per_output_chunk", ""]
    assert gaps.count == 40 and gaps.total == pytest.approx(40 * 0.011)
    per_token = spreads["gen_ai.server.time_per_output_token", ""]
    assert per_token.counts == (39, *[0] * 13) and per_token.total == pytest.approx(39 * 0.01)
    assert not [name for name, _ in spreads if name in ("gen_ai.server.time_to_first_token",
                                                        "gen_ai.server.request.duration")]


def test_prometheus_reads_the_same(explanation):
    """Mutation: buckets are not added up."""
    spreads = histograms.of_session(explanation)
    families = {family.name: family for family in text_string_to_metric_families(prometheus.render([], (), spreads))}
    family = families["gen_ai_client_operation_duration_seconds"]
    assert family.type == "histogram" and set(families) == {prometheus.histogram_name(spread) for spread in spreads}
    ok = by_name(explanation)["gen_ai.client.operation.duration", ""]
    buckets = [(sample.labels["le"], sample.value) for sample in family.samples
               if sample.name.endswith("_bucket") and "error_type" not in sample.labels]
    assert [count for _, count in buckets] == np.cumsum(ok.counts).tolist() and buckets[-1] == ("+Inf", 39)
    labels = family.samples[0].labels
    assert (labels["server_port"], labels["gen_ai_operation_name"]) == ("8000", "chat")


def test_opentelemetry_encodes_the_same(explanation):
    spreads = histograms.of_session(explanation)
    request = encode_metrics(export_otlp.data([], 5, spreads))
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert set(metrics) == {spread.name for spread in spreads}
    point = metrics["gen_ai.client.operation.duration"].histogram.data_points[-1]
    ok = by_name(explanation)["gen_ai.client.operation.duration", ""]
    assert (tuple(point.bucket_counts), tuple(point.explicit_bounds), point.count, point.sum) == (
        ok.counts, ok.bounds, 39, ok.total)
    facts = {each.key: each.value for each in point.attributes}
    assert facts["server.port"].int_value == 8000 and facts["gen_ai.request.model"].string_value == "ref"
    assert point.time_unix_nano == 1_777_629_600_000_000_000


def test_a_session_without_requests_has_none():
    assert not histograms.of_session(SimpleNamespace(tables={}, examined={}, record={}))  # type: ignore[arg-type]

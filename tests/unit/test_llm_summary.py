"""What the times of requests and events come to: each figure by hand on small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.summary import MIXED, Endpoint, summarise
from aaco.core import statistics
from aaco.core.documents import encode
from aaco.core.readings import Absent
from aaco.core.tables import LLM_EVENTS, REQUESTS
from aaco.report.sections.findings.endpoint import exactness, headline, sections

MS = 1_000_000
LOAD = EndpointLoad(
    url="http://h:1/v1/chat/completions", api="chat", model="m", answers_as=[], requests=1, arrivals="constant",
    rate_per_s=10.0, concurrency=None, prompts="random words", prompt_tokens="8", max_tokens="8", shared_prefix_pct=0.0,
    body="{}", seed=0, gap_timeout_s=60.0, timeout_s=600.0, terms={}, clock_steps=0)


def request(number: int, intended: float, waited: float = 0.0, ttft: float = 30.0, chunks: int = 4, gap: float = 10.0,
            tokens: int | None = None, **more: Any) -> dict[str, Any]:
    """A request by times in ms: intended, dispatched `waited` later, its first chunk `ttft` after that, and so on."""
    send = intended + waited
    first, last = send + ttft, send + ttft + gap * (chunks - 1)
    times = {"t_intended_ns": intended, "t_send_ns": send, "t_first_ns": first, "t_last_ns": last, "t_end_ns": last}
    return {"request_id": number, **{name: round(ms * MS) for name, ms in times.items()}, "chunks": chunks,
            "output_tokens": chunks if tokens is None else tokens, "tokens_source": "usage", "status": "ok",
            "sent_again": 0, **more}


def events_of(rows: list[dict[str, Any]], tokens: list[int] | None = None) -> Any:
    """The chunks of requests, equally spaced, with these tokens each."""
    columns: dict[str, list[Any]] = {name: [] for name in LLM_EVENTS.columns}
    for row in rows:
        times = np.linspace(row["t_first_ns"], row["t_last_ns"], row["chunks"]).astype(int).tolist()
        for index, at in enumerate(times):
            numbers = (row["request_id"], index, at, None, 50_000, "content", tokens[index] if tokens else None)
            for name, number in zip(columns, numbers, strict=True):
                columns[name].append(number)
    table = LLM_EVENTS.build(**columns)
    return table.sort_by("t_ns")


def found(rows: list[dict[str, Any]], tokens: list[int] | None = None, **load: Any) -> Endpoint:
    """What is found of these requests and their chunks."""
    table = REQUESTS.build(**{name: [row.get(name) for row in rows] for name in REQUESTS.columns})
    events = events_of([row for row in rows if row["status"] == "ok"], tokens)
    return summarise(table, events.to_batches(max_chunksize=7), replace(LOAD, requests=len(rows), **load))


def many(**fields: Any) -> list[dict[str, Any]]:
    """700 requests, one every 100 ms."""
    return [request(number, 100 * number, **fields) for number in range(700)]


def test_times_to_first_and_last_token_and_between():
    """TTFT 30 ms, three gaps of 10 ms. Mutation: the first gap of an answer is its TTFT."""
    endpoint = found(many(), tokens=[1, 1, 1, 1])
    for name, ms in (("ttft", 30), ("latency", 60), ("tpot", 10), ("icl", 10), ("itl", 10)):
        for q in (0.5, 0.9, 0.99):
            assert endpoint.quantile(name, q).value == pytest.approx(ms), (name, q)
    itl = next(one for one in endpoint.latencies if one.name == "itl")
    assert itl.count == 3 * endpoint.in_latencies


def test_chunks_are_beside_their_tokens():
    """Of 4 chunks with 5 tokens one has no event of its own, such as the last. Answers that failed or have no count are
    not in it. Mutation: all chunks."""
    endpoint = found([request(0, 0, tokens=5), request(1, 100, tokens=5), request(2, 200, status="cut"),
                      request(3, 300) | {"output_tokens": None, "tokens_source": None}])
    assert (endpoint.output_chunks, endpoint.output_tokens) == (8, 10)
    texts = {row.label: row.text for _, rows in sections(encode(endpoint)) for row in rows}
    assert texts["Chunks with them"] == "8 for 10 tokens (+2)"
    assert found([request(0, 0) | {"output_tokens": None, "tokens_source": None}]).output_chunks is None


def test_a_chunk_of_several_tokens_is_not_one_token():
    """Chunks of 1, 2, 4 and 1 tokens, 12 ms apart. Mutations: TPOT and ITL by chunks."""
    endpoint = found(many(gap=12, tokens=8), tokens=[1, 2, 4, 1])
    assert endpoint.quantile("tpot", 0.5).value == pytest.approx(36 / 7)
    assert endpoint.quantile("icl", 0.5).value == pytest.approx(12)
    assert endpoint.quantile("itl", 0.5).value == pytest.approx(3)  # 2 x 6 ms, 4 x 3 ms, 12 ms
    assert endpoint.quantile("itl", 0.99).value == pytest.approx(12)


def test_without_counts_of_chunks_there_is_no_time_between_tokens():
    """Mutation: ITL is the gap between chunks."""
    endpoint = found(many(tokens=9))
    with pytest.raises(Absent, match="how many tokens it has"):
        endpoint.quantile("itl", 0.5)
    assert endpoint.quantile("tpot", 0.5).value == pytest.approx(30 / 8)


def test_a_request_that_waited_in_the_client_is_late_from_its_intended_time():
    """Coordinated omission: 500 ms in the client's queue. Mutation: TTFT from the dispatch."""
    endpoint = found(many(waited=500))
    assert endpoint.quantile("ttft", 0.5).value == pytest.approx(530)
    assert endpoint.quantile("ttft_dispatched", 0.5).value == pytest.approx(30)
    assert endpoint.quantile("latency", 0.5).value == pytest.approx(560)
    assert endpoint.client.lateness_p99_ms == pytest.approx(500) and endpoint.client.lateness_own_p99_ms is None


def test_what_the_client_waited_for_a_cpu_is_told_apart():
    """5 ms late, of them 4 for a CPU. Mutation: the lateness is all the client's."""
    client = found(many(waited=5, cpu_wait_ns=4 * MS)).client
    assert client.lateness_p99_ms == pytest.approx(5) and client.lateness_own_p99_ms == pytest.approx(1)


def test_too_few_requests_have_no_tail():
    """64 for p90, 662 for p99: the counts of LoadGen. Mutation: a quantile from any count."""
    endpoint = found(many()[:100])
    assert endpoint.quantile("ttft", 0.9).value == pytest.approx(30)
    with pytest.raises(Absent, match="not enough requests for p99: 100, at least 662"):
        endpoint.quantile("ttft", 0.99)
    assert [statistics.early_stopping_count(q) for q in (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)] == \
        [11, 64, 130, 219, 662, 6636]


def test_failures_are_counted_and_in_no_latency():
    bad = [request(700 + number, 70_000 + 10 * number, ttft=9_000.0, status=status, http_status=code, detail=said)
           for number, (status, code, said) in enumerate([("http_error", 429, "slow down"), ("cut", 200, ""),
                                                          ("http_error", 429, "slower")])]
    endpoint = found(many() + bad)
    assert endpoint.quantile("ttft", 0.99).value == pytest.approx(30) and endpoint.ok == 700
    assert [(one.status, one.http_status, one.count, one.detail) for one in endpoint.failures] == [
        ("http_error", 429, 2, "slow down"), ("cut", 200, 1, "")]
    assert headline(endpoint).endswith("3 of 703 requests failed (2 HTTP 429: slow down).")
    endpoint = found(bad)
    assert headline(endpoint) == "3 of 3 requests failed (2 HTTP 429: slow down)."
    assert exactness(endpoint) == "No request was answered, so that no time was measured"


def test_goodput_counts_requests_that_meet_every_level():
    """A third misses the first level, a third the second. Mutation: any level is enough."""
    rows = [request(number, 100 * number, ttft=[30, 90, 30][number % 3], gap=[10, 10, 40][number % 3])
            for number in range(300)]
    endpoint = found(rows, terms={"ttft": 50.0, "tpot": 20.0})
    assert endpoint.rate("requests") == pytest.approx(10, rel=0.02)
    assert endpoint.rate("goodput") == pytest.approx(10 / 3, rel=0.02)
    with pytest.raises(Absent, match="--slo"):
        found(rows).rate("goodput")


def test_the_ramp_and_the_drain_are_in_no_rate():
    """Eight at once, 40 ms each, until 400 are done: the window begins with the eighth. Mutation: from the first."""
    rows = [request(number, 5 * number, ttft=10, gap=10) for number in range(8)]
    for number in range(8, 400):
        rows.append(request(number, rows[number - 8]["t_last_ns"] / MS, ttft=10, gap=10))
    endpoint = found(rows, arrivals="closed", concurrency=8)
    assert endpoint.window_begin_ns == 35 * MS and endpoint.in_latencies == 393
    assert endpoint.rate("requests") == pytest.approx(200, rel=0.02)
    assert endpoint.rate("output_tokens") == pytest.approx(800, rel=0.02)


def test_a_cold_start_is_part_of_the_ramp():
    """The first 50 of 400 take ten times as long. Mutation: the window does not wait until TTFT has settled."""
    rows = [request(number, 100 * number, ttft=300 if number < 50 else 30) for number in range(400)]
    endpoint = found(rows)
    assert endpoint.window_begin_ns == 5_000 * MS and "settled" in endpoint.window_why
    assert endpoint.quantile("ttft", 0.9).value == pytest.approx(30)


def test_all_at_once_has_no_steady_window():
    endpoint = found([request(number, 0) for number in range(30)], arrivals="closed", concurrency=30)
    assert endpoint.in_latencies == 30 and endpoint.quantile("ttft", 0.5).value == pytest.approx(30)
    with pytest.raises(Absent, match="no steady window"):
        endpoint.rate("requests")


def test_cold_and_warm_prefixes_are_not_put_together():
    rows = [request(number, 100 * number, ttft=[300, 30][number % 2], cached_tokens=[0, 64][number % 2])
            for number in range(200)]
    endpoint = found(rows)
    with pytest.raises(Absent, match="cached prefix") as raised:
        endpoint.quantile("ttft", 0.5)
    assert str(raised.value) == MIXED
    groups = {one.group: one.quantiles[0].value for one in endpoint.latencies if one.name == "ttft"}
    assert groups == {"cold": pytest.approx(300), "warm": pytest.approx(30)}


@pytest.mark.parametrize("cached", [0, 64])
def test_answers_without_a_word_on_their_prefix_are_neither_cold_nor_warm(cached: int):
    """vLLM says nothing of a prompt without a cached prefix. Mutation: they are in no percentile."""
    rows = [request(number, 100 * number, ttft=[300, 30][number % 2], cached_tokens=[None, cached][number % 2])
            for number in range(200)]
    groups = {one.group: one.quantiles[0].value for one in found(rows).latencies if one.name == "ttft"}
    assert groups == {"unstated": pytest.approx(300), "warm" if cached else "cold": pytest.approx(30)}


def test_merged_reads_widen_intervals_and_move_no_value():
    """Half of the first chunks may have come 5 ms earlier. Mutation: the interval is that of the values alone."""
    rows = many()
    for row in rows[::2]:
        row["t_first_earliest_ns"] = row["t_first_ns"] - 5 * MS
    ttft = found(rows).quantile("ttft", 0.5)
    assert (ttft.low, ttft.value, ttft.high) == (pytest.approx(25), pytest.approx(30), pytest.approx(30))
    tpot = found(rows).quantile("tpot", 0.9)
    assert (tpot.low, tpot.high) == (pytest.approx(10), pytest.approx(35 / 3))


def test_merged_chunks_are_intervals_in_the_gaps():
    """The last two chunks were read together: the gap before the first of them is between 10 and 20 ms."""
    rows = many(chunks=3)
    table = REQUESTS.build(**{name: [row.get(name) for row in rows] for name in REQUESTS.columns})
    numbers = [(row["request_id"], index, row["t_first_ns"] + late * MS, early, 0, "content", 1) for row in rows
               for index, (late, early) in enumerate([(0, None), (20, row["t_first_ns"] + 10 * MS), (20, None)])]
    events = LLM_EVENTS.build(**dict(zip(LLM_EVENTS.columns, map(list, zip(*numbers, strict=True)), strict=True)))
    endpoint = summarise(table, [events], LOAD)
    icl = endpoint.quantile("icl", 0.9)
    assert (icl.low, icl.value, icl.high) == (pytest.approx(10), pytest.approx(20), pytest.approx(20))
    assert endpoint.client.merged_pct == pytest.approx(100 / 3)


def test_nothing_was_answered():
    endpoint = found([request(0, 0, status="connect")])
    with pytest.raises(Absent, match="no request was answered"):
        endpoint.quantile("ttft", 0.5)
    assert endpoint.ok == 0 and endpoint.client.delay_p99_us is None

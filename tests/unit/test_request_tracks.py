"""Requests to a language model in a timeline viewer: read back as JSON and by Perfetto's trace_processor."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.tracelake.perfetto_export.perfetto import write_chrome, write_protobuf
from tests.trace_processor import query

T0 = 1_700_000_000_123_456_789  # ns: beyond what a float holds
MS = 1_000_000


def at(*milliseconds: float | None) -> list[int | None]:
    return [None if time is None else T0 + round(time * MS) for time in milliseconds]


@pytest.fixture
def tables() -> dict[str, pa.Table]:
    """Three requests: one that waits in the client, one of which three tokens come together, one that fails."""
    return {
        "requests": REQUESTS.build(
            request_id=[0, 1, 2], t_intended_ns=at(0, 1, 30), t_send_ns=at(0, 4, 30), t_first_ns=at(5, 8, None),
            t_last_ns=at(11, 12, None), t_end_ns=at(11.5, 12.5, 33), output_tokens=[3, 4, None], chunks=[3, 2, 0],
            cached_tokens=[0, 16, None], status=["ok", "ok", "gap_timeout"], from_send=[False] * 3),
        "llm_events": LLM_EVENTS.build(
            request_id=[0, 0, 1, 0, 1, 0, 0], index=[0, 1, 0, 2, 1, 3, 4], kind=["empty", *["content"] * 5, "done"],
            t_ns=at(4, 5, 8, 8.5, 12, 11, 11.5), earliest_ns=at(None, None, None, 8, None, None, None),
            tokens=[None, 1, 1, 1, 3, None, None])}


def chrome(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    file = io.BytesIO()
    write_chrome(file, tables)
    return list(json.loads(file.getvalue(), parse_float=str)["traceEvents"])


def placed(tables: dict[str, pa.Table]) -> list[tuple[str, int, float, float]]:
    """Every slice: name, line, begin and end, ms since T0."""
    def ms(event: dict[str, Any], key: str) -> float:
        return int(event[key].replace(".", "")) / MS

    return sorted((event["name"], event["tid"], round(ms(event, "ts") - T0 / MS, 3),
                   round(ms(event, "ts") + ms(event, "dur") - T0 / MS, 3))
                  for event in chrome(tables) if event["ph"] == "X")


def test_a_request_is_a_slice_from_intended_to_last_token_with_its_phases(tables):
    """A token is a slice since the one before it; what holds several says how many.

    Mutations: requests begin at their dispatch; a token begins at that of another request.
    """
    assert [one for one in placed(tables) if "token" not in one[0] and one[0] != "chunk"] == sorted([
        ("request", 0, 0, 11), ("queue", 0, 0, 0), ("TTFT", 0, 0, 5), ("decode", 0, 5, 11),
        ("request", 1, 1, 12), ("queue", 1, 1, 4), ("TTFT", 1, 4, 8), ("decode", 1, 8, 12),
        ("request failed: gap_timeout", 0, 30, 33), ("queue", 0, 30, 30), ("TTFT", 0, 30, 33)])
    assert [one for one in placed(tables) if "token" in one[0] or one[0] == "chunk"] == [
        ("3 tokens", 1, 8, 12), ("chunk", 0, 8.5, 11), ("token", 0, 5, 8.5)]
    notes = {event["name"]: event["args"] for event in chrome(tables) if event["ph"] == "X"}
    assert notes["token"] == {"event": 2, "may_be_earlier_ns": 500_000}
    assert notes["request failed: gap_timeout"] == {"request_id": 2}


def test_counters_say_how_many_are_open_wait_and_pile_up(tables):
    """Against a count at each time. Mutation: the backlog is the open requests."""
    values: dict[str, list[tuple[int, float]]] = {}
    for event in chrome(tables):
        if event["ph"] == "C":
            values.setdefault(event["name"], []).append((int(event["ts"].replace(".", "")),
                                                         float(event["args"]["value"])))
    rows = tables["requests"].to_pylist()
    ends = [row["t_last_ns"] or row["t_end_ns"] for row in rows]
    spans = {"Open requests": [(row["t_send_ns"], end) for row, end in zip(rows, ends, strict=True)],
             "Requests that are due and wait in the client": [(row["t_intended_ns"], row["t_send_ns"]) for row in rows],
             "Backlog: requests that are due and not answered": [
                 (row["t_intended_ns"], end) for row, end in zip(rows, ends, strict=True)]}
    assert {name: [(time, sum(begin <= time < end for begin, end in spans[name])) for time, _ in points]
            for name, points in values.items()} == values
    assert {name: [time for time, _ in points] for name, points in values.items()} == {
        name: sorted({time for span in times for time in span}) for name, times in spans.items()}
    assert max(count for _, count in values["Backlog: requests that are due and not answered"]) == 2


def test_a_line_holds_one_request_at_a_time(tables):
    """200 requests that overlap at random. Mutation: a line is free before its request has ended."""
    drawn = np.random.default_rng(5)
    begin = np.sort(drawn.integers(0, 100 * MS, 200))
    end = begin + drawn.integers(1, 9 * MS, 200)
    tables = {"requests": REQUESTS.build(request_id=np.arange(200), t_send_ns=begin, t_first_ns=begin, t_last_ns=end,
                                         t_end_ns=end, status=["ok"] * 200)}
    slices = [event for event in chrome(tables) if event["ph"] == "X" and event["name"] == "request"]
    times = [(event["tid"], int(event["ts"].replace(".", "")), int(event["dur"].replace(".", ""))) for event in slices]
    assert len(times) == 200
    for line in {line for line, _, _ in times}:
        of_line = sorted((start, start + length) for number, start, length in times if number == line)
        assert all(before[1] <= after[0] for before, after in pairwise(of_line))
    most = max(sum(int(b) <= time < int(e) for b, e in zip(begin, end, strict=True)) for time in begin.tolist())
    assert len({line for line, _, _ in times}) == most


def test_what_a_server_says_of_itself_has_a_head_of_its_own():
    """Requests of which only the distance from their own dispatch is known are on no clock.

    Mutation: they are drawn at 0.
    """
    of_server = {"requests": REQUESTS.build(
        request_id=[0], server_start_ns=at(0), server_queue_ns=[2 * MS], server_prefill_ns=[3 * MS],
        server_decode_ns=[4 * MS], server_latency_ns=[10 * MS], status=["ok"])}
    assert placed(of_server) == [("decode", 0, 5, 9), ("prefill", 0, 2, 5), ("queue", 0, 0, 2), ("request", 0, 0, 10)]
    apart = {"requests": REQUESTS.build(request_id=[0], t_send_ns=[0], t_first_ns=[5], t_last_ns=[9], t_end_ns=[9],
                                        from_send=[True], status=["ok"])}
    assert not chrome(apart)


def test_steps_of_the_servers_engine_are_on_the_same_clock(tables):
    """On the host, and on the device where a step launched anything. Mutation: a step without kernels is at 0."""
    tables["engine_steps"] = ENGINE_STEPS.build(
        step=[0, 1], phase=["prefill", None], t_start_ns=at(1, 6), t_end_ns=at(4, 8), kernels=[2, 0],
        device_start_ns=at(2, None), device_end_ns=at(5, None))
    shown = [one for one in placed(tables) if one[0] in ("prefill", "step")]
    assert shown == [("prefill", 0, 1, 4), ("prefill", 1, 2, 5), ("step", 0, 6, 8)]


def test_perfetto_nests_tokens_in_requests(tables, tmp_path):
    """Perfetto's own reader finds each token inside the decoding of its request."""
    with (tmp_path / "trace").open("wb") as file:
        assert write_protobuf(file, tables) == 11 + 3 + 6 + 4 + 6
    nested, = query(tmp_path / "trace", "select slice.name, parent.name, track.name from slice "
                                        "left join slice parent on slice.parent_id = parent.id join track on "
                                        "slice.track_id = track.id where slice.name like '%token%' order by slice.ts")
    assert nested == [["token", "decode", "requests"], ["3 tokens", "decode", "request 2 at once"]]

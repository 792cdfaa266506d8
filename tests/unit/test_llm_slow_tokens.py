"""Slow tokens and the steps of an engine: the parts of a time, and which of them is the cause."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.slow_tokens import CAUSES, EngineTimes, parts, slow_tokens
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS

MS = 1_000_000
LOAD = EndpointLoad("u", "chat", "m", [], 1, "closed", None, 1, "", "", "", 0.0, "{}", 0, 1.0, 1.0, {},
                    device_session="traced")


def test_parts_are_the_whole_time_and_those_of_a_count_by_ns():
    """Steps that overlap, kernels that run after their annotation has ended, steps without any: each ns by itself.

    Mutation: a step ends with its annotation.
    """
    drawn = np.random.default_rng(4)
    for _ in range(40):
        begin = np.sort(drawn.integers(0, 200, 8))
        end = begin + drawn.integers(1, 40, 8)
        device = begin + drawn.integers(0, 60, 8)
        done = device + drawn.integers(0, 40, 8)
        has_device = drawn.random(8) < 0.8
        times = EngineTimes(begin, end, np.where(has_device, device, -1), np.where(has_device, done, -1),
                            drawn.random(8) < 0.4)
        low, high = sorted(drawn.choice(260, 2, replace=False).tolist())
        counted = dict.fromkeys(CAUSES, 0)
        for ns in range(low, high):
            on_device = [row for row in range(8) if has_device[row] and device[row] <= ns < done[row]]
            under_way = any(begin[row] <= ns < max(end[row], done[row] if has_device[row] else 0) for row in range(8))
            counted["prefill" if any(times.prefill[row] for row in on_device) else "device" if on_device else
                    "host" if under_way else "queue"] += 1
        assert dict(zip(CAUSES, parts(times, low, high).tolist(), strict=True)) == counted


def tables() -> tuple[pa.Table, pa.Table, pa.Table]:
    """A token each 10 ms from steps of 9 ms; the 40th comes after a prompt of 8 ms and 4 ms without a step."""
    ends = np.arange(1, 81) * 10 * MS
    ends[39:] += 12 * MS
    begins = ends - 9 * MS
    prompt = int(ends[38]) + 4 * MS
    steps = ENGINE_STEPS.build(
        step=np.arange(81), phase=["decode"] * 80 + ["prefill"], t_start_ns=[*begins, prompt], kernels=[1] * 81,
        t_end_ns=[*ends, prompt + 8 * MS], device_start_ns=[*begins, prompt], device_end_ns=[*ends, prompt + 8 * MS])
    events = LLM_EVENTS.build(request_id=[0] * 80, index=np.arange(80), kind=["content"] * 80, t_ns=ends)
    return REQUESTS.build(request_id=[0], status=["ok"]), events, steps


def test_the_cause_is_what_ordinary_tokens_do_not_have():
    """The slow token has 9 ms of decoding, as all have, 8 of a prompt and 5 of nothing.

    Mutations: the longest part is the cause; a prompt counts as decoding.
    """
    found = slow_tokens(*tables(), LOAD)
    assert (found.gaps, found.slow, found.unseen, found.median_ms) == (79, 1, 0, 10.0)
    token, = found.tokens
    assert (token.event, token.gap_ms, token.cause) == (39, 22.0, "prefill")
    assert token.parts_ms == {"prefill": 8.0, "device": 9.0, "host": 0.0, "queue": 5.0}
    assert token.excess_ms == {"prefill": 8.0, "device": 0.0, "host": 0.0, "queue": 4.0}
    assert found.ordinary_ms == {"prefill": 0.0, "device": 9.0, "host": 0.0, "queue": 1.0}


def test_what_the_trace_does_not_hold_is_counted_and_not_explained():
    requests, events, steps = tables()
    found = slow_tokens(requests, events, steps.slice(60, 20), LOAD)
    assert (found.slow, found.unseen, found.tokens) == (1, 1, [])
    assert "no step" in slow_tokens(requests, events, steps.slice(0, 0), LOAD).why_absent

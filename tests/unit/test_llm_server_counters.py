"""What a server counts of its own requests: Prometheus's text, and the means between two readings."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aaco.analytics.llm.server_counters import PhaseTotal, ServerCounters, means, totals
from aaco.core.readings import Absent

VLLM = """# HELP vllm:request_queue_time_seconds Time in the queue.
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 2.0
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 3.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="a } b"} 0.25
vllm:request_queue_time_seconds_count{engine="1",model_name="m"} 1.0
vllm:request_queue_time_seconds_sum{engine="1",model_name="m"} 0.5
vllm:request_queue_time_seconds_created{engine="1",model_name="m"} 1.7e+09
vllm:request_prefill_time_seconds_count 4 1700000000000
vllm:request_prefill_time_seconds_sum 8e-1 1700000000000
vllm:request_decode_time_seconds_count 4
not_vllm:request_decode_time_seconds_sum 9
"""
BEFORE = ServerCounters({"queue": PhaseTotal(10, 1.0), "prefill": PhaseTotal(10, 2.0)},
                        {"queue": PhaseTotal(14, 1.4), "prefill": PhaseTotal(14, 4.0)}, "")


def test_engines_are_added_up_and_half_a_histogram_is_none():
    """Mutation: the last engine's are those of all."""
    assert totals(VLLM) == {"queue": PhaseTotal(4, 0.75), "prefill": PhaseTotal(4, 0.8)}
    assert totals("sglang:queue_time_seconds_sum{a=\"b\"} 2\nsglang:queue_time_seconds_count{a=\"b\"} 4\n") == {
        "queue": PhaseTotal(4, 2.0)}


@pytest.mark.parametrize(("text", "why"), [
    ("", "no histogram of vLLM"), ("llamacpp:prompt_tokens_total 3\n", "no histogram of vLLM"),
    (VLLM.replace("0.25", "NaN"), "says NaN"), (VLLM.replace("0.25", "-1"), "says -1"),
    (VLLM.replace("0.25", "1e300"), "says 1e300"), (VLLM.replace("0.25", "+Inf"), "says"),
    (VLLM.replace("0.25", "x"), "says x")])
def test_text_that_says_nothing_or_what_cannot_be(text: str, why: str):
    with pytest.raises(Absent, match=why):
        totals(text)


def test_a_mean_is_of_what_ended_meanwhile():
    """Mutation: it is of all since the server began."""
    queue, prefill, decode = means(BEFORE)
    assert (queue.requests, queue.mean_ms) == (4, pytest.approx(100))
    assert (prefill.requests, prefill.mean_ms) == (4, pytest.approx(500))
    assert decode.mean_ms is None and "no such histogram" in decode.why_absent


@pytest.mark.parametrize(("counters", "why"), [
    (replace(BEFORE, after={"queue": PhaseTotal(4, 0.1)}), "restarted"),
    (replace(BEFORE, after={"queue": PhaseTotal(12, 0.1)}), "restarted"),
    (replace(BEFORE, after=BEFORE.before), "no request"), (replace(BEFORE, after=None), "cut short"),
    (ServerCounters({}, None, "HTTP 404"), "HTTP 404")])
def test_counters_that_say_nothing_have_a_reason(counters: ServerCounters, why: str):
    """Mutation: a server that was restarted has a mean."""
    queue = next(means(counters))
    assert queue.mean_ms is None and why in queue.why_absent

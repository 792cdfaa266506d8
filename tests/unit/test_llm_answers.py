"""Answers of servers, event by event: what each brings, how many tokens, and what becomes of odd ones."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.llm import answers
from aaco.llm.answer import KINDS, StreamedAnswer
from aaco.llm.answers import EventSplitter, Malformed
from aaco.llm.parse import is_model
from tests.fakes.llm_server import DONE, TRICKY, WORDS, event, sse

STREAM = json.dumps({"status": 200, "content-type": "text/event-stream"}).encode()


def answered(*pieces: bytes, end: str = "", head: bytes = STREAM) -> tuple[StreamedAnswer, list[tuple[str, int]]]:
    """The answer of these reads, at times 10, 20, ...; and kind and tokens of its events."""
    answer, found = StreamedAnswer(0, 0, 1), []
    answer.begin(head)
    for number, piece in enumerate(pieces, 1):
        for data in answer.read(piece):
            code, tokens = answer.take(data, 10 * number, -1)
            found.append((KINDS[code], tokens))
    answer.end(end, 10 * len(pieces) + 10)
    return answer, found


def usage(tokens: int | None, **details: Any) -> dict[str, Any]:
    return {"prompt_tokens": 5, "completion_tokens": tokens, **details}


@given(st.sets(st.integers(1, len(b"".join(TRICKY)) - 1)))
def test_events_are_the_same_however_they_are_cut(cuts: set[int]):
    """Comments, event names, ids, CRLF and LF. Mutation: only LF ends an event."""
    whole = b"".join(TRICKY)
    at = [0, *sorted(cuts), len(whole)]
    events, found = EventSplitter(), []
    for begin, end in pairwise(at):
        found += events.feed(whole[begin:end])
    assert found == [event("a")[6:-2], event("b")[6:-2], event("")[6:-2], b"[DONE]"] and events.is_between


def test_several_lines_of_data_are_one_event():
    assert EventSplitter().feed(b"data: {\ndata: }\n\ndata:x\r\rdata\n\n") == [b"{\n}", b"x"]


def test_a_byte_order_mark_hides_no_event():
    answer, found = answered(b"\xef\xbb\xbf" + event("a"), event("b"), DONE)
    assert [kind for kind, _ in found] == ["content", "content", "done"] and answer.first_ns == 10


def test_a_line_without_end_is_refused():
    events = EventSplitter()
    with pytest.raises(Malformed, match="16 MiB"):
        for _ in range(20):
            events.feed(b"x" * (1 << 20))


def test_role_empty_and_reasoning_chunks_are_no_tokens():
    """Mutation: reasoning is content."""
    reasoning = sse({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    count = sse({"choices": [], "usage": usage(7, completion_tokens_details={"reasoning_tokens": 5})})
    answer, found = answered(event(None), event(""), reasoning, event("a"), event("b"), count, b"data: [DONE]\n\n")
    assert [kind for kind, _ in found] == ["empty", "empty", "reasoning", "content", "content", "usage", "done"]
    assert (answer.first_ns, answer.last_ns, answer.chunks, answer.status) == (40, 50, 2, "ok")
    assert answer.counts["output_tokens"] == 2 and answer.counts["reasoning_tokens"] == 5
    assert answer.counts["tokens_source"] == "usage"


def test_tokens_of_each_chunk_are_differences_of_the_count_so_far():
    """Chunks of 1, 4 and 2 tokens, as speculative decoding makes them. Mutation: a chunk is a token."""
    answer, found = answered(event(None, usage=usage(0)), event("a", usage=usage(1)), event("bcde", usage=usage(5)),
                             event("fg", usage=usage(7)), b"data: [DONE]\n\n")
    assert found == [("empty", -1), ("content", 1), ("content", 4), ("content", 2), ("done", -1)]
    assert answer.counts["output_tokens"] == 7 and answer.counts["tokens_source"] == "continuous_usage"
    timed, found = answered(event("a", timings={"predicted_n": 1}), event("b", timings={
        "predicted_n": 3, "cache_n": 9, "draft_n_accepted": 2}), b"data: [DONE]\n\n")
    assert [tokens for _, tokens in found] == [1, 2, -1] and timed.counts["tokens_source"] == "timings"
    assert timed.counts["cached_tokens"] == 9 and timed.counts["accepted_draft_tokens"] == 2


def chunk(delta: dict[str, Any] | None, tokens: int, finish: str | None = None) -> bytes:
    """As vLLM 0.32 writes it with stream_options.continuous_usage_stats; delta None: the last one, of the whole answer.
    """
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish,
                                         "token_ids": None}]
    return sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices,
                "usage": {"prompt_tokens": 8, "total_tokens": 8 + tokens, "completion_tokens": tokens}})


def test_a_token_without_text_is_a_token_where_the_server_counts_it():
    """vLLM counts the token that ends an answer, and those in the middle of a letter. Mutation: they are empty events,
    so that the time per token is that of one token less."""
    role = {"role": "assistant", "content": ""}
    answer, found = answered(chunk(role, 0), chunk({"content": "a"}, 1), chunk({"content": ""}, 2), chunk(
        {"content": "\u00e9"}, 3), chunk({"content": ""}, 4, "stop"), chunk(None, 4), b"data: [DONE]\n\n")
    assert found == [("empty", -1), ("content", 1), ("content", 1), ("content", 1), ("content", 1), ("usage", -1),
                     ("done", -1)]
    assert answer.counts["output_tokens"] == 4 and answer.counts["tokens_source"] == "continuous_usage"
    assert (answer.first_ns, answer.last_ns, answer.chunks) == (20, 50, 4)


def test_a_token_without_text_before_the_first_is_not_the_first():
    """The mark after reasoning, and a count with the role: the text that follows has them. Mutation: any event that
    is counted is content."""
    answer, found = answered(chunk({"role": "assistant", "content": ""}, 1), chunk({"reasoning": "hm"}, 2), chunk(
        {"content": ""}, 3), chunk({"content": "a"}, 4), chunk({}, 4, "stop"), b"data: [DONE]\n\n")
    assert found == [("empty", -1), ("reasoning", 2), ("empty", -1), ("content", 2), ("empty", -1), ("done", -1)]
    assert (answer.first_ns, answer.last_ns) == (40, 40) and answer.counts["output_tokens"] == 2


def test_without_a_count_an_event_without_text_is_no_token():
    answer, found = answered(event("a"), event(""), event("b"), event(""), sse({"choices": [], "usage": usage(4)}),
                             b"data: [DONE]\n\n")
    assert [kind for kind, _ in found] == ["content", "empty", "content", "empty", "usage", "done"]
    assert (answer.first_ns, answer.last_ns) == (10, 30) and answer.counts["output_tokens"] == 4


def test_the_servers_times_are_those_of_its_last_word():
    """Of llama.cpp, which says them so far with each chunk. Mutation: prefill is decode."""
    answer, _ = answered(event("a", timings={"predicted_n": 1, "prompt_ms": 2.5, "predicted_ms": 0.001}),
                         event("b", timings={"predicted_n": 2, "prompt_ms": 2.5, "predicted_ms": 7.25}), DONE)
    assert answer.server_times == {"server_prefill_ns": 2_500_000, "server_decode_ns": 7_250_000}
    silent, _ = answered(event("a", usage=usage(1)), DONE)
    assert set(silent.server_times.values()) == {None}


@pytest.mark.parametrize("wrong", [
    {"usage": usage(-1)}, {"usage": usage(1 << 63)}, {"usage": usage(1e300)}, {"timings": {"predicted_n": 10 ** 40}},
    {"timings": {"prompt_ms": -1}}, {"timings": {"predicted_ms": 1e300}}, {"timings": {"prompt_ms": "3"}}])
def test_numbers_that_cannot_be_are_malformed(wrong: dict[str, Any]):
    """Mutation: whatever is a number counts."""
    answer, _ = answered(event("a", **wrong), DONE)
    assert answer.status == "malformed" and re.search(r"usage|timings", answer.detail)


def test_reasoning_tokens_of_each_chunk_are_not_output():
    reasoning = sse({"choices": [{"delta": {"reasoning": "hm"}}], "usage": usage(3)})
    answer, _ = answered(reasoning, event("a", usage=usage(4)), event("b", usage=usage(5)), b"data: [DONE]\n\n")
    assert answer.counts["output_tokens"] == 2 and answer.counts["reasoning_tokens"] == 3


def test_a_count_at_the_end_says_nothing_of_the_chunks():
    """Some servers send it with the last word. Mutation: all tokens are that chunk's."""
    answer, found = answered(event("a"), event("b", usage=usage(6)), b"data: [DONE]\n\n")
    assert found[:2] == [("content", -1), ("content", -1)]
    assert answer.counts["output_tokens"] == 6 and answer.counts["tokens_source"] == "usage"


def test_without_a_count_there_is_none():
    answer, _ = answered(event("a", usage=None), b"data: [DONE]\n\n")
    assert answer.status == "ok" and answer.counts["output_tokens"] is None
    assert answer.counts["tokens_source"] is None


def test_reasoning_that_is_not_counted_leaves_the_tokens_unknown():
    reasoning = sse({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    answer, _ = answered(reasoning, event("a"), sse({"choices": [], "usage": usage(9)}), b"data: [DONE]\n\n")
    assert answer.counts["output_tokens"] is None and answer.status == "ok"


def test_two_counts_the_last_one_holds():
    answer, _ = answered(event("a"), sse({"choices": [], "usage": usage(9)}), sse({"choices": [], "usage": usage(1)}),
                         b"data: [DONE]\n\n")
    assert answer.counts["output_tokens"] == 1


def test_tool_calls_and_completions_are_content():
    call = sse({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]})
    assert [kind for kind, _ in answered(call, sse({"choices": [{"text": "a"}]}))[1]] == ["content"] * 2


@pytest.mark.parametrize(("pieces", "end", "status", "said"), [
    (WORDS, "", "ok", ""), (WORDS, "gap_timeout", "ok", ""), (WORDS[:-2], "", "cut", "without"),
    (WORDS[:2], "cut: reset by peer", "cut", "reset by peer"), (WORDS[:1] + WORDS[-1:], "", "no_tokens", "no text"),
    ((sse({"error": {"message": "boom"}}), *WORDS), "", "error_in_stream", "boom"),
    ((sse({"error": "boom"}),), "", "error_in_stream", "boom"), ((b"data: {]\n\n", *WORDS), "", "malformed", "{]"),
    ((b"data: {\"choices\": 3}\n\n",), "", "malformed", "choices"), ((), "connect: refused", "connect", "refused"),
    ((event("a"), sse({"object": "error", "code": 500}), DONE), "", "error_in_stream", "500"),
    ((b'event: error\ndata: {"message": "boom"}\n\n',), "", "error_in_stream", "boom"),
    ((event("a"), b'error: {"code": 500, "message": "boom"}\n\n'), "", "error_in_stream", "boom"),
    ((event("a").replace(b"null", b'""'),), "", "cut", "without"), ((event("a"), DONE.strip()), "", "ok", ""),
    ((event("a").replace(b"null", b'"stop"'),), "", "ok", "")])
def test_how_an_answer_ends(pieces: tuple[bytes, ...], end: str, status: str, said: str):
    """An error inside a stream that began with 200 is a failure, in whatever form. An empty reason is no end; [DONE]
    is, also without an empty line. Mutations: an error is an empty event; only null is no reason."""
    answer, _ = answered(*pieces, end=end)
    assert answer.status == status and re.search(re.escape(said), answer.detail)


def test_what_a_server_says_when_it_refuses():
    head = json.dumps({"status": 429, "content-type": "application/json", "retry-after": "7"}).encode()
    answer, found = answered(b'{"error": {"mess', b'age": "slow down"}}', head=head)
    assert (answer.status, answer.http_status, answer.detail) == ("http_error", 429, "slow down (Retry-After: 7)")
    assert not found and answer.first_ns == -1


@pytest.mark.parametrize(("answered_by", "right"), [
    ("org/llama-3", True), ("llama-3", True), ("org/llama-3-2024-08-06", True), ("org/llama-3-0613", True),
    ("org/llama-3-instruct", False), ("llama", False), ("org/llama-31", False)])
def test_which_model_answered(answered_by: str, right: bool):
    assert is_model(answered_by, "org/llama-3") is right


def test_messages_of_errors():
    assert answers.message_of({"error": {"message": "a\n b"}}) == "a b"
    assert answers.message_of({"detail": [{"msg": "x"}]}) == "[{'msg': 'x'}]"

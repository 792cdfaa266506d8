"""Files of prompts, of traces and of conversations: what they hold, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aaco.core.errors import UsageError
from aaco.llm import prompts, turns
from aaco.llm.prompts import Ask, Lengths

ANSWER = Lengths(4, 4)


def read(tmp_path: Path, content: bytes | str, count: int | None = None) -> list[Ask]:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return prompts.read(path, count, ANSWER, 0)


def trace(tmp_path: Path, *entries: dict[str, Any], count: int | None = None) -> list[Ask]:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return prompts.read_trace(path, count, ANSWER, 0)


def test_a_text_may_hold_any_letter_and_a_file_begin_with_a_mark(tmp_path: Path):
    """U+2028 and U+0085 end lines elsewhere, but not in JSON. Mutation: they do."""
    text = "a\u2028b\u0085c\x0cd"
    line = json.dumps({"prompt": text}, ensure_ascii=False)
    assert [ask.prompt for ask in read(tmp_path, f"\ufeff{line}\r\nplain\r\n\n")] == [text, "plain"]
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps({"turns": [text, "b"]}, ensure_ascii=False))
    assert [turn.messages[0]["content"] for turn in turns.read_turns(path, None, ANSWER, 0)[0]] == [text, "b"]


@pytest.mark.parametrize("entry", [
    {}, {"prompt": None}, {"prompt": ""}, {"prompt": ["a"]}, {"messages": []}, {"messages": "hi"}, {"messages": [5]},
    {"conversations": []}, {"conversations": [{"from": "human", "value": None}]}, {"max_tokens": 5}])
def test_what_has_no_text_is_refused(tmp_path: Path, entry: dict[str, Any]):
    """Nothing is made up for it. Mutation: random words."""
    with pytest.raises(UsageError, match="entry 2: it has no text to send"):
        read(tmp_path, f'{{"prompt": "a"}}\n{json.dumps(entry)}\n')


@pytest.mark.parametrize(("field", "number"), [
    ("input_length", 0), ("input_length", 1e14), ("input_length", 2.5), ("output_length", 0), ("max_tokens", 1 << 24)])
def test_a_number_of_tokens_that_cannot_be_is_refused(tmp_path: Path, field: str, number: float):
    """Mutations: 0 means the default; any length is made."""
    with pytest.raises(UsageError, match=f"entry 1: {field} is {number}"):
        read(tmp_path, json.dumps({"input_length": 3} | {field: number}))


def test_what_is_no_text_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="byte 1: invalid start byte"):
        read(tmp_path, b"a\xff\n")


def test_a_trace_is_sent_in_the_order_of_its_times(tmp_path: Path):
    """Each request with its own text. Mutation: texts are in the order of the file."""
    entries = [{"timestamp": ms, "prompt": str(ms), "output_length": ms} for ms in (70, 50, 130)]
    assert [(ask.at_ms, ask.prompt, ask.max_tokens) for ask in trace(tmp_path, *entries)] == [
        (50, "50", 50), (70, "70", 70), (130, "130", 130)]
    assert [ask.prompt for ask in trace(tmp_path, *entries, count=2)] == ["50", "70"]
    with pytest.raises(UsageError, match="3 requests, and 4 are asked for"):
        trace(tmp_path, *entries, count=4)
    with pytest.raises(UsageError, match="entry 2 has no time"):
        trace(tmp_path, entries[0], {"prompt": "a"})

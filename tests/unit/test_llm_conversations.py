"""Conversations: what each turn sends, which turns may go, and what a file of them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.points import points_of
from aaco.analytics.llm.summary import cache_states
from aaco.analytics.llm.turns import turns_of
from aaco.core.errors import UsageError
from aaco.core.tables import REQUESTS
from aaco.llm.conversations import ROOT, ConversationTurn, RunningConversations, ask_of, text_of
from aaco.llm.prompts import Lengths
from aaco.llm.turns import made_turns, read_turns
from tests.fakes.llm_server import DONE, event, sse

ANSWER = Lengths(5, 5)
Turn = ConversationTurn


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(*words: str) -> bytes:
    return b"".join(map(event, words)) + DONE


def running(*conversations: list[Turn]) -> RunningConversations:
    return RunningConversations(conversations, lambda messages, most: json.dumps([messages, most]).encode())


def sent(talk: RunningConversations, request: int) -> Any:
    return [message["content"] for message in json.loads(talk.content(request))[0]]


def test_a_turn_sends_all_that_was_said_and_the_servers_own_answers():
    """Mutation: the history has no answers."""
    talk = running([Turn([user("a")], 5, ROOT), Turn([user("b")], 5, 0), Turn([user("c")], 5, 1)])
    talk.begin(0, 0)
    assert sent(talk, 0) == ["a"] and talk.due is None and talk.left == 3
    for piece in (answer("one ", "two")[:30], answer("one ", "two")[30:]):  # however it is cut
        talk.add(0, piece)
    talk.end(0, 77, is_whole=True)
    assert talk.due == 77
    talk.go_on(1)
    assert sent(talk, 1) == ["a", "one two", "b"]
    assert json.loads(talk.note(1)) == {"conversation": 0, "turn": 1, "after": 0}
    talk.add(1, answer("three"))
    talk.end(1, 99, is_whole=True)
    talk.go_on(2)
    assert sent(talk, 2) == ["a", "one two", "b", "three", "c"]
    talk.end(2, 111, is_whole=True)
    assert talk.left == 0 and talk.due is None


def test_turns_that_follow_one_answer_go_at_once_and_do_not_see_each_other():
    talk = running([Turn([user("a")], 5, ROOT), Turn([user("b")], 5, 0), Turn([user("c")], 5, 0)])
    talk.begin(0, 0)
    talk.add(0, answer("x"))
    talk.end(0, 5, is_whole=True)
    talk.go_on(1)
    assert talk.due == 5
    talk.go_on(2)
    assert (sent(talk, 1), sent(talk, 2)) == (["a", "x", "b"], ["a", "x", "c"])
    assert [json.loads(talk.note(request))["turn"] for request in (1, 2)] == [1, 1]


@pytest.mark.parametrize(("body", "is_whole"), [
    (answer("x"), False), (b"", True), (DONE, True), (event("x"), True), (b'{"error": "no"}', True),
    (event("x") + sse({"error": "out of memory"}) + DONE, True), (event("x") + b"data: {\n\n" + DONE, True)])
def test_nothing_follows_an_answer_that_is_none(body: bytes, is_whole: bool):
    """Mutation: turns wait forever behind one that failed."""
    talk = running([Turn([user("a")], 5, ROOT), *(Turn([user("b")], 5, number) for number in range(3))])
    talk.begin(0, 0)
    talk.add(0, body)
    talk.end(0, 5, is_whole)
    assert talk.due is None and talk.left == 0


def test_completions_begin_with_what_the_server_has_computed():
    """The text of a turn begins with that of the one before it and its answer. Mutation: a line between the two."""
    first = ask_of([user("a b")], 5, "completions")
    later = ask_of([user("a b"), {"role": "assistant", "content": " c"}, user("d")], 5, "completions")
    assert first.prompt == "a b" and later.prompt == "a b c\nd"
    assert text_of(sse({"choices": [{"text": " c", "finish_reason": "stop"}]})) == " c"


def test_made_conversations_have_their_own_words_and_a_common_beginning():
    conversations = made_turns(40, Lengths(2, 4), Lengths(10, 10), ANSWER, 50, seed=3)
    assert {len(turns) for turns in conversations} == {2, 3, 4}
    texts = [[turn.messages[0]["content"] for turn in turns] for turns in conversations]
    assert len({text for one in texts for text in one}) == sum(map(len, texts))
    assert len({tuple(one[0].split()[:5]) for one in texts}) == 1
    assert [turn.after for turn in conversations[0]] == list(range(ROOT, len(conversations[0]) - 1))
    assert conversations == made_turns(40, Lengths(2, 4), Lengths(10, 10), ANSWER, 50, seed=3)


def test_a_file_has_turns_messages_or_conversations_of_sharegpt(tmp_path: Path):
    """Answers of the file are left out: the server's own take their place. Mutation: they are sent."""
    path = tmp_path / "conversations.jsonl"
    lines = [{"turns": ["a", {"prompt": "b", "max_tokens": 9}, {"prompt": "c", "after": 0}]},
             {"messages": [{"role": "system", "content": "s"}, user("a"), {"role": "assistant", "content": "x"},
                           user("b")]},
             {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "x"},
                                {"from": "human", "value": "b"}]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    conversations = read_turns(path, 4, ANSWER, 0)
    assert [[(turn.messages[-1]["content"], turn.max_tokens, turn.after) for turn in turns]
            for turns in conversations] == [[("a", 5, ROOT), ("b", 9, 0), ("c", 5, 0)], *[
                [("a", 5, ROOT), ("b", 5, 0)]] * 2, [("a", 5, ROOT), ("b", 9, 0), ("c", 5, 0)]]
    roles = [[message["role"] for message in turn.messages] for turn in conversations[1]]
    assert roles == [["system", "user"], ["user"]]
    assert len(read_turns(path, None, ANSWER, 0)) == 3


@pytest.mark.parametrize("line", [
    "text", "{}", '{"turns": []}', '{"turns": [7]}', '{"turns": ["a", {"prompt": ""}]}', '{"messages": "a"}',
    '{"turns": ["a", {"prompt": "b", "after": 1}]}', '{"turns": [{"prompt": "b", "after": 0}]}',
    '{"turns": ["a", {"prompt": "b", "after": true}]}', '{"turns": ["a", {"prompt": "b", "max_tokens": "x"}]}',
    '{"messages": [7]}', '{"messages": [{"role": "user"}]}',
    '{"conversations": [{"from": "gpt", "value": "a"}]}', '{"conversations": 7}', ""])
def test_a_file_without_turns_is_refused_where_it_is_wrong(line: str, tmp_path: Path):
    """Mutation: a turn that follows itself."""
    path = tmp_path / "conversations.jsonl"
    path.write_text(line)
    with pytest.raises(UsageError, match=r"conversations\.jsonl") as refused:
        read_turns(path, None, ANSWER, 0)
    assert refused.value.fix


def test_a_turn_has_latencies_of_its_own_by_what_was_cached():
    """Answers of a turn with and without a cached prefix are in no percentile together; turns that were not sent are
    counted. Mutation: all answers of a turn are one group."""
    rows = 64
    requests = REQUESTS.build(
        request_id=np.arange(2 * rows), conversation=[*range(rows)] * 2, turn=[0] * rows + [1] * rows,
        t_intended_ns=np.zeros(2 * rows, np.int64), t_send_ns=np.zeros(2 * rows, np.int64),
        t_first_ns=np.array([10] * rows + [2, 6] * (rows // 2)) * 1_000_000,
        t_last_ns=np.array([30] * 2 * rows) * 1_000_000, t_end_ns=np.array([30] * 2 * rows) * 1_000_000,
        prompt_tokens=[8] * rows + [24] * rows, cached_tokens=[0] * rows + [16, 0] * (rows // 2),
        output_tokens=[5] * 2 * rows, chunks=[5] * 2 * rows, status=["ok"] * (2 * rows - 1) + ["cut"])
    load = EndpointLoad("u", "chat", "m", [], 3 * rows, "closed", None, 1, "", "", "", 0.0, "{}", 0, 1.0, 1.0, {},
                        turns="3")
    turns = turns_of(points_of(requests), np.array([*range(rows)] * 2), load)
    assert (turns.conversations, turns.not_asked) == (rows, rows)
    shown = [(turn.turn, turn.cache, turn.ok, turn.failed, turn.prompt_tokens, turn.cached_tokens,
              turn.latencies[0].quantiles[0].value) for turn in turns.turns]
    assert shown == [(1, "cold", rows, 0, 8.0, 0.0, 10.0), (2, "cold", rows // 2 - 1, 1, 24.0, 0.0, 6.0),
                     (2, "warm", rows // 2, 1, 24.0, 16.0, 2.0)]


def test_later_turns_are_in_no_percentile_with_first_ones():
    """Also where the server says nothing of its cache: they begin with what it has computed."""
    requests = REQUESTS.build(
        request_id=np.arange(4), turn=[0, 1, 0, 1], conversation=[0, 0, 1, 1], t_intended_ns=[0] * 4, t_send_ns=[0] * 4,
        t_first_ns=[5] * 4, t_last_ns=[9] * 4, t_end_ns=[9] * 4, status=["ok"] * 4)
    states = {name: members.tolist() for name, members in cache_states(points_of(requests)) if members.any()}
    assert states == {"unstated": [True, False] * 2, "unstated, later turns": [False, True] * 2}

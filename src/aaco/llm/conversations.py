"""Conversations: a turn sends all that came before it, with the server's own answers, and waits for the last of them.

A turn follows the one before it, or an earlier one that it names: then the conversation is a tree, and the turns that
follow one answer are sent at once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aaco.llm.answers import DONE, EventSplitter, Malformed, decode, text_of_choice
from aaco.llm.prompts import Ask
from aaco.llm.target import Api

ROOT = -1  # what the first turn of a conversation follows


class ConversationTurn(NamedTuple):
    """What a turn adds to a conversation. after: number of the turn that it follows; ROOT: it is the first."""

    messages: list[Any]
    max_tokens: int
    after: int


class TurnPlace(NamedTuple):
    """A turn of a conversation; after_request: the request that it follows, ROOT for none."""

    conversation: int
    turn: int
    after_request: int


class RunningConversations:
    """Conversations under way: which turns may go, and what each sends."""

    def __init__(self, conversations: Sequence[Sequence[ConversationTurn]],
                 encode: Callable[[list[Any], int], bytes]) -> None:
        """encode: makes a request of messages and the most tokens of its answer."""
        self._conversations, self._encode = conversations, encode
        self._children = [_children(turns) for turns in conversations]
        self._said: dict[tuple[int, int], list[Any]] = {}  # until the answer of a turn, that included
        self._places: dict[int, TurnPlace] = {}  # of the requests under way
        self._bodies: dict[int, list[bytes]] = {}  # of those that turns follow
        self._waiting = deque[tuple[int, TurnPlace]]()
        self.count = len(conversations)
        self.left = sum(map(len, conversations))  # turns that have not ended, and will be sent

    @property
    def due(self) -> int | None:
        """Return when the first of the turns that wait could have gone: when the answer before it ended."""
        return self._waiting[0][0] if self._waiting else None

    def begin(self, request: int, conversation: int) -> None:
        """Let a request be the first turn of a conversation."""
        self._put(request, TurnPlace(conversation, 0, ROOT))

    def go_on(self, request: int) -> None:
        """Let a request be the turn that has waited longest."""
        self._put(request, self._waiting.popleft()[1])

    def _put(self, request: int, place: TurnPlace) -> None:
        self._places[request] = place
        if self._children[place.conversation][place.turn]:
            self._bodies[request] = []

    def content(self, request: int) -> bytes:
        """Return what a request sends."""
        place = self._places[request]
        return self._encode(self._messages(place), self._turn(place).max_tokens)

    def note(self, request: int) -> bytes:
        """Return where a request belongs, for the record."""
        place = self._places[request]
        return json.dumps({"conversation": place.conversation, "turn": self._depth(place),
                           "after": None if place.after_request == ROOT else place.after_request}).encode()

    def add(self, request: int, body: bytes) -> None:
        """Take content of an answer."""
        if request in self._bodies:
            self._bodies[request].append(body)

    def end(self, request: int, at: int, is_whole: bool) -> None:
        """Let the turns that follow a request go; without an answer they never will."""
        place, body = self._places.pop(request), b"".join(self._bodies.pop(request, []))
        self.left -= 1
        children = self._children[place.conversation][place.turn]
        answer = text_of(body) if is_whole and children else ""
        if not answer:
            self.left -= self._below(place)
            return
        self._said[place[:2]] = [*self._messages(place), {"role": "assistant", "content": answer}]
        self._waiting.extend((at, TurnPlace(place.conversation, turn, request)) for turn in children)

    def _turn(self, place: TurnPlace) -> ConversationTurn:
        return self._conversations[place.conversation][place.turn]

    def _messages(self, place: TurnPlace) -> list[Any]:
        turn = self._turn(place)
        before = self._said[place.conversation, turn.after] if turn.after != ROOT else []
        return [*before, *turn.messages]

    def _depth(self, place: TurnPlace) -> int:
        """Return how many answers come before a turn."""
        turns, depth, after = self._conversations[place.conversation], 0, self._turn(place).after
        while after != ROOT:
            depth, after = depth + 1, turns[after].after
        return depth

    def _below(self, place: TurnPlace) -> int:
        """Return how many turns follow one, directly or not."""
        return sum(1 + self._below(TurnPlace(place.conversation, turn, ROOT))
                   for turn in self._children[place.conversation][place.turn])


def _children(turns: Sequence[ConversationTurn]) -> list[list[int]]:
    """Return for each turn those that follow it."""
    children: list[list[int]] = [[] for _ in turns]
    for number, turn in enumerate(turns):
        if turn.after != ROOT:
            children[turn.after].append(number)
    return children


def ask_of(messages: list[Any], max_tokens: int, api: Api) -> Ask:
    """Return messages as something to ask; of completions they are one text, which begins with that of the turn before
    and its answer."""
    if api == "chat":
        return Ask("", messages, max_tokens)
    texts = (_text(message) + ("\n" if message.get("role") == "assistant" else "") for message in messages)
    return Ask("".join(texts), None, max_tokens)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)


def text_of(body: bytes) -> str:
    """Return the text of a streamed answer; empty where it is no whole one, or has none."""
    events, pieces, is_done = EventSplitter(), [], False
    try:
        for data in events.feed(body):
            if data == DONE:
                is_done = True
                continue
            chunk = decode(data)
            if chunk.error is not None:
                return ""
            for choice in chunk.choices[:1]:
                pieces.append(text_of_choice(choice))
                is_done = is_done or choice.finish_reason is not None
    except Malformed:
        return ""
    return "".join(pieces) if is_done else ""

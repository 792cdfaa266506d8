"""The turns of conversations: made of words, or read from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aaco.core.errors import UsageError
from aaco.llm.conversations import ROOT, ConversationTurn
from aaco.llm.prompts import Lengths, count_of, entries, made, random_words

EXAMPLE = 'a JSON object in each line: {"turns": ["...", "..."]}'
ASKERS = ("human", "user")  # who speaks before the model, in "from" of ShareGPT


def made_turns(count: int, turns: Lengths, prompt: Lengths, answer: Lengths, shared_pct: float, seed: int
               ) -> list[list[ConversationTurn]]:
    """Return conversations of random words; the first shared_pct of each first turn is the same in all."""
    generator = np.random.default_rng([seed, 1])
    return [[_user(first.prompt, first.max_tokens, ROOT),
             *(_user(" ".join(random_words(generator, prompt.draw(generator))), answer.draw(generator), number)
               for number in range(turns.draw(generator) - 1))]
            for first in made(count, prompt, answer, shared_pct, seed)]


def read_turns(path: Path, count: int | None, answer: Lengths, seed: int) -> list[list[ConversationTurn]]:
    """Return the conversations of a file, again from its start where it has fewer than `count`.

    A file is JSON lines, or one JSON list, of objects with "turns": texts, or objects with "prompt", maybe "max_tokens"
    and "after" (the number of an earlier turn, from 0, in place of the one before); or with "messages", or
    "conversations" as ShareGPT has them: each message of the user is a turn, and the answers of the file are left out,
    as the server's own take their place. Raise UsageError, StorageError.
    """
    generator = np.random.default_rng([seed, 1])
    conversations = [_conversation(entry, f"{path}: entry {number}", answer, generator)
                     for number, entry in enumerate(entries(path), 1)]
    if not conversations:
        raise UsageError(f"{path}: no conversation in it", EXAMPLE)
    total = len(conversations) if count is None else count
    return [conversations[index % len(conversations)] for index in range(total)]


def _conversation(entry: Any, where: str, answer: Lengths, generator: np.random.Generator) -> list[ConversationTurn]:
    """Return the turns of an entry. Raise UsageError."""
    if isinstance(entry, dict):
        if isinstance(listed := entry.get("turns"), list):
            turns = [_listed(one, f"{where}: turn {number}", number, answer, generator)
                     for number, one in enumerate(listed)]
        else:
            turns = list(_spoken(entry, where, answer, generator))
        if turns:
            return turns
    raise UsageError(f"{where}: no turns in it", EXAMPLE)


def _listed(turn: Any, where: str, number: int, answer: Lengths, generator: np.random.Generator) -> ConversationTurn:
    """Return an entry of "turns". Raise UsageError."""
    fields = {"prompt": turn} if isinstance(turn, str) else turn
    if not isinstance(fields, dict) or not isinstance(text := fields.get("prompt"), str) or not text:
        raise UsageError(f"{where}: neither text nor an object with a prompt", EXAMPLE)
    after = fields.get("after", number - 1)
    if isinstance(after, bool) or not isinstance(after, int) or not (0 <= after < number or number == 0 > after):
        raise UsageError(f"{where}: after is {after!r}", "the number of an earlier turn of this conversation, from 0")
    return _user(text, count_of(fields, ("max_tokens",), where) or answer.draw(generator), after)


def _spoken(entry: dict[str, Any], where: str, answer: Lengths, generator: np.random.Generator
            ) -> Iterator[ConversationTurn]:
    """Yield a turn for each message of the user, with what comes before it but for the answers. Raise UsageError."""
    messages = entry.get("messages", entry.get("conversations", []))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UsageError(f"{where}: its messages are no list of objects", EXAMPLE)
    messages = messages if "messages" in entry else [_of_sharegpt(message) for message in messages]
    added: list[Any] = []
    number = 0
    for message in messages:
        if message.get("role") == "assistant":
            continue
        if not message.get("content"):
            raise UsageError(f"{where}: a message has no content", EXAMPLE)
        added.append(message)
        if message.get("role") == "user":
            yield ConversationTurn(added, answer.draw(generator), number - 1)
            added, number = [], number + 1


def _of_sharegpt(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of ShareGPT as one of a chat."""
    speaker = message.get("from")
    role = "user" if speaker in ASKERS else "system" if speaker == "system" else "assistant"
    return {"role": role, "content": message.get("value")}


def _user(text: str, max_tokens: int, after: int) -> ConversationTurn:
    return ConversationTurn([{"role": "user", "content": text}], max_tokens, after)


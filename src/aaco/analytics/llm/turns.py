"""Latencies of the turns of conversations: by turn, and within it by the state of the server's cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from aaco.analytics.llm.load import EndpointLoad
from aaco.analytics.llm.points import UNKNOWN, Points
from aaco.analytics.llm.summary import LatencyQuantiles, cache_states, quantiles_of
from aaco.core import documents
from aaco.core.arrays import Flags, Ints
from aaco.tracelake import layout

NAME = "turns"


class TurnLatencies(Struct, frozen=True):
    """Answers of one turn in one state of the cache. turn: from 1. cache: cold, warm, or unstated where the server does
    not say. prompt_tokens, cached_tokens: means; null where the server does not say. failed: of the turn."""

    turn: int
    cache: str
    ok: int
    failed: int
    prompt_tokens: float | None
    cached_tokens: float | None
    latencies: list[LatencyQuantiles]


@documents.document(layout.finding(NAME))
class ConversationTurns(Struct, frozen=True):
    """metrics/turns.json: how fast each turn of conversations was answered. All answers are in it, those of the ramp
    included, as later turns come later.

    not_asked: turns that were not sent, as the answer before them failed or has no text.
    """

    conversations: int
    not_asked: int
    turns: list[TurnLatencies]


def turns_of(points: Points, conversation: Ints, load: EndpointLoad) -> ConversationTurns:
    """Return the latencies of each turn. conversation: of each request."""
    return ConversationTurns(len(np.unique(conversation)), load.requests - len(points.turn), list(_turns(points)))


def _turns(points: Points) -> Iterator[TurnLatencies]:
    for turn in np.unique(points.turn[points.turn != UNKNOWN]).tolist():
        failed = int(((points.turn == turn) & ~points.is_ok).sum())
        members = [(cache, points.is_ok & (points.turn == turn) & state) for cache, state in cache_states(points)]
        for cache, answers in members:
            if answers.any():
                yield _of_turn(points, turn + 1, cache.partition(",")[0], answers, failed)


def _of_turn(points: Points, turn: int, cache: str, answers: Flags, failed: int) -> TurnLatencies:
    spreads = {"ttft": points.ttft(points.intended).of(answers), "latency": points.latency(points.intended).of(answers),
               "tpot": points.tpot.of(answers & points.has_tpot)}
    return TurnLatencies(turn, cache, int(answers.sum()), failed, _mean(points.prompt[answers]),
                         _mean(points.cached[answers]),
                         [quantiles_of(name, cache, spread) for name, spread in spreads.items()])


def _mean(counts: Ints) -> float | None:
    """Return the mean of counts that are all known."""
    return float(counts.mean()) if (counts != UNKNOWN).all() else None

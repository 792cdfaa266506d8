"""How fast each turn of conversations was answered, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.llm.turns import NAME, ConversationTurns, TurnLatencies
from aaco.core.documents import decode
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row
from aaco.report.sections.findings.endpoint import LABELS, quantiles

CACHE = {"cold": "nothing cached", "warm": "prefix cached", "unstated": "cache not stated by the server"}


@finding_view(NAME, "how fast each turn of conversations was answered, by what was in the server's cache", place=3)
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The one section."""
    turns = decode(document, ConversationTurns)
    rows = [row for turn in turns.turns for row in _rows(turn)]
    if turns.not_asked:
        rows.append(Row("Not asked", f"{format.plural(turns.not_asked, 'turn')}: the answer before failed or has no "
                        "text, or the load was cut short"))
    yield f"Turns of {format.plural(turns.conversations, 'conversation')}", rows


def _rows(turn: TurnLatencies) -> Iterator[Row]:
    failed = f", {turn.failed:,} failed" if turn.failed else ""
    yield Row(f"Turn {turn.turn}", f"{format.plural(turn.ok, 'answer')}{failed}; {CACHE[turn.cache]}{_tokens(turn)}")
    for latency in turn.latencies:
        if latency.quantiles[0].value is not None:
            yield Row(f"Turn {turn.turn}, {LABELS[latency.name]}", quantiles(latency))


def _tokens(turn: TurnLatencies) -> str:
    if turn.prompt_tokens is None:
        return ""
    cached = "" if turn.cached_tokens is None else f", {format.number(turn.cached_tokens)} of them cached"
    return f"; {format.number(turn.prompt_tokens)} prompt tokens{cached} (means)"

"""Traces of several ranks merged into one file: which rank each event is of, and its process as that rank counts it.

SGLang's merger writes the rank before the process: "[TP00-DP01] 4242". TraceLens' TraceFusion adds an offset to the
process and keeps the rank and the process in the arguments. Streams, devices, correlation ids and external ids count
for themselves in each rank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

_NUMBERED = r"(?:rank|worker|node|[tdpec]p)[ _:=-]?\d{1,6}"
_LABELLED = re.compile(rf"\[(?P<bracketed>[^\]]{{1,80}})\]\s*(?P<inside>.*)|"
                       rf"(?P<label>{_NUMBERED}(?:[-_, ]{_NUMBERED})*)(?:\W|_)+(?P<rest>.+)", re.IGNORECASE | re.DOTALL)
_ONE_AXIS = re.compile(r"[A-Za-z]*[ _:=-]?(\d{1,6})")
_FUSED = re.compile(rb'"rank"\s*:\s*(\d{1,6})\b')
_FUSED_PROCESS = re.compile(rb'"pid_raw"\s*:\s*(\d{1,18}|"(?:[^"\\]|\\.)*")')
FUSED_MARK = b'"pid_raw"'
LOOKED_AT = 1000  # events of the file's first that may bear the mark


class RankedEvent(Protocol):
    """What is needed of an event."""

    pid: int | str | float | None
    args: msgspec.Raw


E = TypeVar("E", bound=RankedEvent)


def is_fused(events: Sequence[RankedEvent]) -> bool:
    """Return whether TraceFusion wrote these first events of a file."""
    return any(FUSED_MARK in bytes(event.args) for event in events[:LOOKED_AT])


def split_ranks(events: list[E], fused: bool) -> dict[str | None, list[E]]:
    """Return the events by the label of their rank, None for those without one; the process is then the rank's own."""
    if not fused and str not in {type(event.pid) for event in events}:
        return {None: events}
    by_label: dict[str | None, list[E]] = {}
    for event in events:
        by_label.setdefault(_take_fused(event) if fused else _take_label(event), []).append(event)
    return by_label


def rank_number(label: str) -> int | None:
    """Return the rank of a label that counts along one axis (TP03, rank 3), else None: TP00-DP01 is no number."""
    match = _ONE_AXIS.fullmatch(label)
    return int(match[1]) if match else None


def _take_label(event: RankedEvent) -> str | None:
    match = _LABELLED.fullmatch(event.pid) if isinstance(event.pid, str) else None
    if match is None:
        return None
    label, rest = (match["bracketed"], match["inside"]) if match["bracketed"] else (match["label"], match["rest"])
    event.pid = int(rest) if rest.isdecimal() and len(rest) < 19 else rest
    return label


def _take_fused(event: RankedEvent) -> str | None:
    text = bytes(event.args)
    rank, process = _FUSED.search(text), _FUSED_PROCESS.search(text)
    if process:
        event.pid = msgspec.json.decode(process[1])
    return f"rank {int(rank[1])}" if rank else None

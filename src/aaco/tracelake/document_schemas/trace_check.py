"""The document of the trace check, which every list of parts of a session reads; so it imports no other's form."""

from __future__ import annotations

from typing import Literal

from aaco.core.documents import Count, Document, Part, Whole, document
from aaco.tracelake import layout


class CapturePart(Part):
    """Some records of a capture; below zero where more came out than went in."""

    count: Whole
    ns: Whole


class CheckedAccount(Part):
    """Where the kernels of a capture went."""

    in_file: CapturePart | None
    used: CapturePart
    linked: CapturePart | None
    unlinked: CapturePart
    dropped: CapturePart | None
    left_out: dict[str, CapturePart]


class CheckedFinding(Part):
    """Evidence that a capture is false: `count` of `of` records, and their time, if any."""

    check: str | None = None
    weight: Literal["lost", "wrong", "doubt", "note"]
    count: Whole | None = None
    of: Count | None = None
    text: str
    advice: str | None
    ns: Whole | None = None
    alarms: bool


class CheckedCapture(Part):
    """A capture, and the findings of its self-consistency check."""

    capture: Count
    trusted: bool | None = None
    account: CheckedAccount
    findings: list[CheckedFinding]
    file: str
    rank: Whole | None


@document(layout.TRACE_CHECK)
class TraceCheck(Document):
    """trace_check.json."""

    trusted: bool | None = None
    captures: list[CheckedCapture]


class Trusted(Part):
    """What the trace check says of a recording: the line that every screen says first, and what to do."""

    trusted: bool | None
    line: str | None
    alarms: list[str]
    steps: list[str]

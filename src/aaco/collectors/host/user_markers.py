"""Markers that a measured program wrote with aaco.markers, as system_events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco import markers
from aaco.core.errors import BadCapture
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK = "user", "monotonic"
AGAIN = "aaco profile -- COMMAND"
_RECORD = np.dtype([("magic", "S4"), ("kind", "<i4"), ("t_ns", "<i8"), ("dur_ns", "<i8"), ("process_id", "<i4"),
                    ("thread_id", "<i4"), ("number", "<i8"), ("text", f"S{markers.TEXT_BYTES}")])


def parse(raw: Path) -> pa.Table:
    """Return the marks of a file, in order of time, without an unfinished last record. Raise BadCapture.

    detail: the kind of mark and its text; value: its number. Programs choose texts freely: they are data only.
    """
    try:
        content = raw.read_bytes()
    except OSError as error:
        raise BadCapture(f"{raw}: {error.strerror}", AGAIN) from error
    marks = np.frombuffer(content, _RECORD, len(content) // _RECORD.itemsize)
    if not ((marks["magic"] == markers.MAGIC) & (marks["kind"] >= 0) & (marks["kind"] < len(markers.KINDS))).all():
        raise BadCapture(f"{raw}: not marks of this version of aaco.markers", AGAIN)
    if (marks["t_ns"] < 0).any() or (marks["dur_ns"] < 0).any():
        raise BadCapture(f"{raw}: holds impossible times", AGAIN)
    marks = marks[np.argsort(marks["t_ns"], kind="stable")]
    none = marks["number"] < 0
    return SYSTEM_EVENTS.build(
        t_ns=marks["t_ns"], dur_ns=marks["dur_ns"], kind=["marker"] * len(marks), process_id=marks["process_id"],
        thread_id=marks["thread_id"], value=pa.array(marks["number"].astype(float), mask=none),
        tier=[TIER] * len(marks), clock=[CLOCK] * len(marks),
        detail=list(map(_detail, marks["kind"].tolist(), marks["text"].tolist())))


def _detail(kind: int, text: bytes) -> str:
    """Return "phase: load"; the kind without text, or the text of a plain mark or span."""
    name, words = markers.KINDS[kind], text.decode(errors="replace")
    if kind in (markers.MARK, markers.SPAN):
        return words or name
    return f"{name}: {words}" if words else name

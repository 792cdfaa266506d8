"""What a measured program said of itself with aaco.markers, as system_events."""

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
    """The marks of a file, in order of time; an unfinished last record is left out. Raises BadCapture.

    detail: the kind of mark and its text; value: its number. Texts are the program's to choose: data, no more.
    """
    try:
        content = raw.read_bytes()
    except OSError as error:
        raise BadCapture(f"{raw}: {error.strerror}", AGAIN) from error
    found = np.frombuffer(content, _RECORD, len(content) // _RECORD.itemsize)
    if not ((found["magic"] == markers.MAGIC) & (found["kind"] >= 0) & (found["kind"] < len(markers.KINDS))).all():
        raise BadCapture(f"{raw}: not marks of this version of aaco.markers", AGAIN)
    if (found["t_ns"] < 0).any() or (found["dur_ns"] < 0).any():
        raise BadCapture(f"{raw}: holds impossible times", AGAIN)
    found = found[np.argsort(found["t_ns"], kind="stable")]
    none = found["number"] < 0
    return SYSTEM_EVENTS.build(
        t_ns=found["t_ns"], dur_ns=found["dur_ns"], kind=["marker"] * len(found), process_id=found["process_id"],
        thread_id=found["thread_id"], value=pa.array(found["number"].astype(float), mask=none),
        tier=[TIER] * len(found), clock=[CLOCK] * len(found),
        detail=list(map(_detail, found["kind"].tolist(), found["text"].tolist())))


def _detail(kind: int, text: bytes) -> str:
    """"phase: load"; the kind alone where there is no text, the text alone of a plain mark or span."""
    name, words = markers.KINDS[kind], text.decode(errors="replace")
    if kind in (markers.MARK, markers.SPAN):
        return words or name
    return f"{name}: {words}" if words else name

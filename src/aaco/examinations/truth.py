"""Trace truth of a session: its tables streamed through the checks, and the answer kept in the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.truth.check import COLUMNS, SCHEMA_VERSION, CaptureCheck
from aaco.analytics.truth.counters import dead_counters
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import COUNTERS, KERNELS
from aaco.tracelake import documents, layout, queries

ENDS = {"failed": "failed", "incomplete": "ended before it was done", "running": "goes on still"}
_CAPTURE = "capture"


def examine(session: Session, settings: Analysis) -> None:
    """Write what shows that the trace is false, or that nothing does. Raises BadBundle, StorageError."""
    session.write_json(layout.TRACE_CHECK, check(session))


def check(session: Session) -> dict[str, Any]:
    """The content of trace_check.json: per capture the account of its kernels and every finding. Raises BadBundle.

    What this tool recorded itself counts as one capture, number 0.
    """
    captures = documents.read(session, layout.CAPTURES).get("captures", [{}])
    checks = {number: CaptureCheck(number, facts) for number, facts in enumerate(captures)}
    for piece in queries.slices(session, COLUMNS):
        for number, one in checks.items():
            one.add(*(_of(piece.tables[name], number, len(checks)) for name in COLUMNS))
    for batch in queries.untimed(session, KERNELS, [_CAPTURE, "dur_ns"]):
        for number, one in checks.items():
            one.add_untimed(_of(pa.Table.from_batches([batch]), number, len(checks))["dur_ns"])
    dead = list(dead_counters(queries.batches(session, COUNTERS, ["counter", "value"])))
    found = [one.result(dead if number == 0 else ()) for number, one in checks.items()]
    return {"schema_version": SCHEMA_VERSION, "trusted": all(one.trusted for one in found),
            "captures": [one.document() | _named(facts) for one, facts in zip(found, captures, strict=True)]}


def unfinished(session: Session) -> str:
    """Why the session cannot hold all that it was to record; empty where its recording came to its end."""
    record, status = session.record, session.status
    if status == "complete":
        return ""
    return f"the recording {ENDS[status]}{f': {record.failure}' if record.failure else ''}"


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Which file the capture is, for people."""
    files = facts.get("files") or [{}]
    return {"file": str(files[0].get("path", "recorded by aaco")).rpartition("/")[2], "rank": facts.get("rank")}


def _of(table: pa.Table, number: int, captures: int) -> pa.Table:
    """The rows of one capture."""
    if captures == 1:
        return table
    return table.filter(pc.equal(table[_CAPTURE], number))

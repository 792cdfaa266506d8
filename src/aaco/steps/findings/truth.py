"""Trace truth of a session: its tables streamed through the checks, and the answer kept in the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.truth import trust
from aaco.analytics.truth.check import COLUMNS, CaptureCheck
from aaco.analytics.truth.counters import dead_counters
from aaco.analytics.truth.trust import Trust
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COPIES, COUNTERS, KERNELS, TableSpec
from aaco.tracelake import documents, layout, queries
from aaco.tracelake.document_schemas.trace_check import TraceCheck

_CAPTURE = "capture"


@finding(writes=("trace_check",), whole=True)
def trace_check(session: Session, settings: Analysis) -> Results:
    """What shows that the trace is false, or that nothing does."""
    yield "trace_check", check(session)


def check(session: Session) -> dict[str, Any]:
    """The content of trace_check.json: per capture the account of its kernels and every finding. Raises BadBundle.

    What this tool recorded itself counts as one capture, number 0.
    """
    captures = documents.read(session, layout.CAPTURES).get("captures", [{}])
    checks = {number: CaptureCheck(number, facts) for number, facts in enumerate(captures)}
    for piece in queries.slices(session, COLUMNS):
        for number, capture_check in checks.items():
            capture_check.add(*(_of(piece.tables[name], number, len(checks)) for name in COLUMNS))
    kernels, copies = (_untimed(session, spec) for spec in (KERNELS, COPIES))
    for number, capture_check in checks.items():
        capture_check.add_untimed(_of(kernels, number, len(checks)), _of(copies, number, len(checks)))
    dead = list(dead_counters(queries.batches(session, COUNTERS, ["counter", "value"])))
    results = [capture_check.result(dead if number == 0 else ()) for number, capture_check in checks.items()]
    return encode(TraceCheck(trusted=all(capture_check.trusted for capture_check in results), captures=[
        capture_check.entry(_file(facts),
                            facts.get("rank")) for capture_check, facts in zip(results, captures, strict=True)]))


def _untimed(session: Session, spec: TableSpec) -> pa.Table:
    columns = [_CAPTURE, "correlation_id", "dur_ns"]
    batches = list(queries.untimed(session, spec, columns))
    return pa.Table.from_batches(batches) if batches else spec.build().select(columns)


def trusted(session: Session) -> Trust:
    """What the kept trace check says of a session, and whether its recording came to its end. Raises BadBundle."""
    return trust.of(documents.read(session, layout.TRACE_CHECK), unfinished(session))


def unfinished(session: Session) -> str:
    """Why the session cannot hold all that it was to record; empty where its recording came to its end."""
    return trust.unfinished(session.status, session.record.failure)


def _file(facts: Mapping[str, Any]) -> str:
    """Return the name of the capture's file, for people, and which rank of it."""
    files = facts.get("files") or [{}]
    name = str(files[0].get("path", "recorded by aaco")).rpartition("/")[2]
    return f"{name} ({facts['part']})" if facts.get("part") else name


def _of(table: pa.Table, number: int, captures: int) -> pa.Table:
    """The rows of one capture."""
    if captures == 1:
        return table
    return table.filter(pc.equal(table[_CAPTURE], number))

"""The kernels of a session that are worth optimising, from its critical path, its roofline and its kernels' classes."""

from __future__ import annotations

from aaco.analytics.kernels.candidates import KernelCandidate, candidates
from aaco.core.config import Optimize
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.steps.findings import critical_path
from aaco.tracelake import documents, layout


def of(session: Session, gates: Optimize) -> list[KernelCandidate]:
    """Return every kernel on a critical path, judged. Raise UsageError where the session has no path, BadBundle."""
    try:
        on_paths = critical_path.kernels_on_paths(session)
    except Absent as reason:
        raise UsageError(f"session {session.id} has no critical path: {reason}",
                         "a trace with times of kernels: aaco trace -- COMMAND, or aaco import") from reason
    classes = documents.read(session, layout.finding("kernel_classes"))
    symbols = documents.read(session, layout.finding("roofline")).get("symbols", ())
    not_placed = {symbol["kernel_name"]: why for symbol in symbols
                  if (why := symbol.get("error") or symbol.get("why_absent"))}
    return candidates(on_paths, classes.get("kernels", ()), not_placed, gates)

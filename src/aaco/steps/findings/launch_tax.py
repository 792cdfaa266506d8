"""How long the dispatches of a session take, and what its launches cost, in one pass over the kernels."""

from __future__ import annotations

from aaco.analytics.timeline.launch_tax import COLUMNS, Durations
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.steps import measured_part
from aaco.tracelake import documents, layout, queries


@finding(after=("trace",), report="launch_tax")
def launch_tax(session: Session, settings: Analysis) -> Results:
    """How long the dispatches take, and what the launches cost."""
    parts = documents.read_held(session, layout.TRACE)
    if parts and queries.has_values(session, KERNELS, "device_id"):
        durations = Durations(round(1000 * settings.microkernel_us))
        for rows in queries.batches(session, KERNELS, COLUMNS):
            durations.feed(rows)
        yield "launch_tax", encode(durations.result(DeviceTrace.of(parts), measured_part.wall_ns(session)))
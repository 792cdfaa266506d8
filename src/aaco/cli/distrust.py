"""What the trace check says against a session, before a list of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaco.cli import say

if TYPE_CHECKING:
    from aaco.core.session import Session


def warn(session: Session) -> None:
    """Write the line of the trace check besides the result if the trace is not to be trusted. Raise BadBundle."""
    from aaco.tracelake import documents, layout

    document = documents.read(session, layout.TRACE_CHECK)
    if document and not document["trusted"]:
        from aaco.analytics.truth import trust

        say.aside(trust.of(document).line, "warning")

"""Why slow tokens were slow, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.llm.slow_tokens import NAME, SlowToken, SlowTokens
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

SHOWN = 5
CAUSES = {"prefill": "the device computed prompts", "device": "a decoding step ran longer on the device",
          "host": "the host kept the device idle within a step", "queue": "no step ran: scheduler, queue or network"}


@finding_view(NAME, "why slow tokens of an endpoint were slow, by the steps of its engine", place=4,
              title="Slow tokens and the engine's steps", form=SlowTokens)
def _rows(found: SlowTokens) -> Iterator[Row]:
    if found.median_ms is None:
        yield Row("Slow tokens", format.unavailable(found.why_absent))
        return
    yield Row("Slow tokens", f"{found.slow:,} of {found.gaps:,} took more than twice the median gap of "
              f"{format.quantity(found.median_ms, 'ms')}")
    for cause, count in found.by_cause.items():
        if count:
            yield Row(cause.capitalize(), f"{count:,}: {CAUSES[cause]}")
    if found.unseen:
        yield Row("Not explained", f"{found.unseen:,}: outside of the trace")
    yield from map(_row, found.tokens[:SHOWN])
    yield Row("Trace of the server", f"session {found.device_session}, {format.plural(found.steps, 'step')}")


def _row(token: SlowToken) -> Row:
    parts = ", ".join(f"{cause} {format.quantity(ms, 'ms')}" for cause, ms in token.parts_ms.items() if ms > 0)
    return Row(f"Request {token.request}, event {token.event}",
               f"{format.quantity(token.gap_ms, 'ms')}, by {token.cause}: {parts}")

"""Whether an endpoint keeps up with its load, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.llm.backlog import NAME, Backlog
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row


@finding_view(NAME, "whether an endpoint of a language model keeps up with its load, or requests pile up", place=2,
              title="Whether it keeps up", form=Backlog)
def _rows(backlog: Backlog) -> Iterator[Row]:
    yield Row("Answered meanwhile", format.unavailable(backlog.why_no_rate) if backlog.answered_per_s is None else
              format.quantity(backlog.answered_per_s, "1/s", backlog.answered_low, backlog.answered_high))
    if backlog.growth_per_s is None:
        yield Row("Requests under way", format.unavailable(backlog.why_no_growth))
        return
    grows = format.quantity(backlog.growth_per_s, "1/s", backlog.growth_low, backlog.growth_high)
    yield Row("Requests under way", f"{grows} more each second: " + (
        "they pile up, and latencies depend on how long the load lasts" if backlog.is_over_saturated else
        "not surely more than none"))

"""What of each capture is judged, what is not, and which rank is late, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck.ranks import Windows
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row
from aaco.report.sections import windows as text


@finding_view(
    "windows", "the steady state that the class is of, each rank's budget, and which rank the others wait for", place=1,
    title="What is judged", form=Windows)
def _rows(judged: Windows) -> Iterator[Row]:
    """Yield the window of each capture, its time outside by name, each rank's budget, the straggler."""
    yield from (Row(text.capture(judged, window), text.window(window)) for window in judged.captures)
    if len(judged.ranks) > 1:
        yield from (Row(text.rank(judged, index), text.budget(judged, index)) for index in range(len(judged.ranks)))
    yield from text.straggler(judged)

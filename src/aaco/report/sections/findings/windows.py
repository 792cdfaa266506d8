"""What of each capture is judged, what is not, and which rank is late, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.bottleneck.ranks import Windows
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row
from aaco.report.sections import windows as text

TITLE = "What is judged"


@finding_view(
    "windows", "the steady state that the class is of, each rank's budget, and which rank the others wait for", place=1)
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The one section: the window of each capture, its time outside by name, each rank's budget, the straggler."""
    judged = Windows.of(document)
    rows = [Row(text.capture(judged, window), text.window(window)) for window in judged.captures]
    if len(judged.ranks) > 1:
        rows += [Row(text.rank(judged, index), text.budget(judged, index)) for index in range(len(judged.ranks))]
    yield TITLE, rows + list(text.straggler(judged))

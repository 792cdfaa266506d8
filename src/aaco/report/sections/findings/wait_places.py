"""Where in a program the host waits for the device, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.attribution.wait_places import NAME, WaitPlaces
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row

MOST = 5


@finding_view(NAME, "the operator and the function of Python around each wait of the host", place=9,
              title="Waits of the host", form=WaitPlaces)
def _rows(found: WaitPlaces) -> Iterator[Row]:
    shown = found.places[:MOST]
    names = shorten((place.operator or place.call for place in shown), 40, format.symbol)
    for place in shown:
        where = f", in {format.cut(place.frame, 80)}" if place.frame else ""
        yield Row(names[place.operator or place.call],
                  f"{format.plural(place.count, 'wait')}, {format.duration(place.ns)}{where}")
    if not found.frames:
        yield Row("Lines", "not recorded; in a PyTorch program torch.profiler.profile(with_stack=True) names them")

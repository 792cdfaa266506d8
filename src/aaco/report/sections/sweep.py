"""The curves of a batch sweep as a picture: throughput, latency and memory over the batch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from aaco.analytics.what_if.sweep import BatchCurve, BatchPoint
from aaco.core.readings import Estimate
from aaco.report import format
from aaco.report.svg import Drawing, Scale, tick

WIDTH, PANEL, TOP = 720, 190, 44
LEFT, RIGHT, GAP = 84, 150, 34
BOTTOM = 52
HEADROOM = 1.08  # above the highest value of a panel


class _Panel(Struct, frozen=True):
    """Values of one kind by batch, with intervals where they are known, in the unit of the title."""

    title: str
    look: str
    values: Sequence[tuple[int, Estimate]]
    limit: float | None = None

    @property
    def highest(self) -> float:
        tops = [each.high if each.high is not None else each.value for _, each in self.values]
        return HEADROOM * max([*tops, self.limit or 0.0])


def draw(curve: BatchCurve, title: str, slo_ms: float | None = None) -> Drawing:
    """The picture; batches of the Pareto set are filled, the knee, the saturation and a limit are marked."""
    panels = _panels(curve, slo_ms)
    height = TOP + len(panels) * (PANEL + GAP) - GAP + BOTTOM
    drawing = Drawing(WIDTH, height, f"{title}: throughput, latency and memory over the batch.")
    drawing.text(LEFT, 22, format.cut(title, 70), "ink strong")
    batches = [point.batch for point in curve.points]
    wide = len(batches) > 1
    across = Scale(batches[0] / (1 if wide else 2), batches[-1] * (1 if wide else 2), LEFT, WIDTH - RIGHT, log=True)
    for at, panel in enumerate(panels):
        _draw(drawing, panel, across, TOP + at * (PANEL + GAP), curve)
    _batches(drawing, across, height - BOTTOM, batches)
    return drawing


def _panels(curve: BatchCurve, slo_ms: float | None) -> list[_Panel]:
    def latency(point: BatchPoint) -> Estimate:
        return Estimate(point.latency_p50_ms, point.low, point.high)

    found = [_Panel("samples/s", "c0", [(point.batch, point.throughput) for point in curve.points]),
             _Panel("median latency, ms", "c1", [(point.batch, latency(point)) for point in curve.points], slo_ms)]
    for title, name in (("device memory, GB", "vram_used_bytes"), ("resident set, GB", "rss_peak_bytes")):
        known = [(point.batch, Estimate(used / 1e9)) for point in curve.points
                 if (used := getattr(point, name)) is not None]
        found += [_Panel(title, "c2", known)] if known else []
    return found


def _draw(drawing: Drawing, panel: _Panel, across: Scale, top: float, curve: BatchCurve) -> None:
    up = Scale(0.0, panel.highest, top + PANEL, top)
    for value in up.ticks(4):
        drawing.line(across.start, up(value), across.end, up(value), "grid")
        drawing.text(across.start - 8, up(value) + 4, tick(value), "dim small", "end")
    drawing.text(16, top + PANEL / 2, panel.title, "dim", "middle", turn=-90)
    drawing.path([(across(batch), up(each.value)) for batch, each in panel.values], f"line {panel.look}")
    for batch, each in panel.values:
        if each.low is not None and each.high is not None:
            drawing.line(across(batch), up(each.low), across(batch), up(each.high), "axis")
        best = batch in curve.pareto
        tip = f"batch {batch}: {format.number(each.value)} {panel.title}" + ", of the Pareto set" * best
        drawing.dot(across(batch), up(each.value), 5 if best else 4, panel.look if best else "mark", tip)
    if panel.limit is not None:
        drawing.line(across.start, up(panel.limit), across.end, up(panel.limit), "rule")
        drawing.text(across.end + 8, up(panel.limit) + 4, f"limit {panel.limit:g} ms", "ink small")
    if panel.title == "samples/s":
        marked = ("knee", curve.transition_batch), ("saturated", curve.saturation_batch)
        for at, (label, reading) in enumerate(marked):
            if reading.value is not None:
                x = across(reading.value)
                drawing.line(x, up.start, x, up.end, "rule")
                drawing.text(x + 6, top + PANEL - 8 - 16 * at, f"{label}: batch {reading.value:g}", "ink small")


def _batches(drawing: Drawing, across: Scale, bottom: float, batches: Sequence[int]) -> None:
    """The batches that ran are the axis."""
    for batch in batches:
        drawing.text(across(batch), bottom + 18, str(batch), "dim small", "middle")
    drawing.line(across.start, bottom, across.end, bottom, "axis")
    drawing.text((across.start + across.end) / 2, bottom + 38, "batch (log)", "dim", "middle")

"""The parts of the measurement quality as a radar chart; 100 at the rim is best."""

from __future__ import annotations

import math

from aaco.analytics.explanation import Explanation
from aaco.analytics.quality import measurement_quality
from aaco.report import format
from aaco.report.svg import Anchor, Drawing

WIDTH, HEIGHT, CENTRE, RADIUS = 480, 400, (240, 215), 135
FEWEST = 3
METRIC = "measurement_quality"
RINGS = (25, 50, 75, 100)


def draw(explanation: Explanation) -> Drawing | None:
    """Return the chart with a spoke for each part; an unmeasured part has no point. None with fewer than three measured
    parts, and for an import."""
    worth = measurement_quality.of_readings(explanation.readings).parts
    if explanation.captures or len(worth) < FEWEST:
        return None
    parts = list(measurement_quality.PARTS)
    described = ", ".join(f"{name} {100 * worth[name]:.0f}" if name in worth else f"{name} n/a" for name in parts)
    drawing = Drawing(WIDTH, HEIGHT, f"Measurement quality by part, 0 to 100: {described}.")
    for ring in RINGS:
        drawing.outline([_at(place, len(parts), ring / 100) for place in range(len(parts))], "ring")
        drawing.text(CENTRE[0] + 4, CENTRE[1] - RADIUS * ring / 100 - 3, str(ring), "dim small")
    for place, name in enumerate(parts):
        x, y = _at(place, len(parts), 1.0)
        drawing.line(*CENTRE, x, y, "grid")
        x, y = _at(place, len(parts), 1.14)
        anchor: Anchor = "middle" if abs(x - CENTRE[0]) < 20 else "start" if x > CENTRE[0] else "end"
        score_text = f"{100 * worth[name]:.0f}" if name in worth else "n/a"
        drawing.text(x, y + 4, f"{name} {score_text}", "ink small" if name in worth else "dim small", anchor)
    measured = [(place, worth[name]) for place, name in enumerate(parts) if name in worth]
    points = [_at(place, len(parts), value) for place, value in measured]
    drawing.outline(points, "area c0")
    for (x, y), (place, value) in zip(points, measured, strict=True):
        weight = measurement_quality.PARTS[parts[place]].weight
        drawing.dot(x, y, 4, "solid c0", f"{parts[place]}: {100 * value:.0f} of 100, weight {100 * weight:.0f} %")
    reading = explanation.readings.get(METRIC)
    score = f": {reading.value:.0f} ({reading.band})" if reading and reading.value is not None else ""
    drawing.text(16, 22, format.cut(f"Measurement quality{score}", 60), "ink strong")
    return drawing


def _at(place: int, parts: int, share: float) -> tuple[float, float]:
    """Return the point of a spoke at a share of the radius. The first spoke points up."""
    angle = 2 * math.pi * place / parts - math.pi / 2
    return CENTRE[0] + RADIUS * share * math.cos(angle), CENTRE[1] + RADIUS * share * math.sin(angle)

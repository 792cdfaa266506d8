"""What telemetry recorded of the devices over time: clock, power, temperature, utilisation, memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.core.arrays import Reals
from aaco.report import format
from aaco.report.extremes import extremes
from aaco.report.svg import COLOURS, Drawing, Scale

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 84, 16, 58, 44
LANE, SPACE = 66, 24
MOST_POINTS, MOST_DEVICES = 1200, COLOURS
SERIES = (("gpu_util_pct", "busy, %", 1.0), ("sclk_mhz", "clock, MHz", 1.0), ("power_w", "power, W", 1.0),
          ("temp_c", "temperature, °C", 1.0), ("vram_used_bytes", "memory, GiB", 2.0**30))
FILE = "telemetry/gpu_events.parquet"


def draw(explanation: Explanation) -> Drawing | None:
    """A lane for each quantity that was recorded, a line for each device; None where no sample has a time."""
    table = explanation.tables.get("gpu_events")
    if table is None:
        return None
    table = table.filter(pc.is_valid(table["t_ns"])).sort_by("t_ns")
    shown = [one for one in SERIES if table[one[0]].null_count < table.num_rows]
    if table.num_rows < 2 or not shown:
        return None
    first, last = (int(end) for end in (table["t_ns"][0].as_py(), table["t_ns"][-1].as_py()))
    if last == first:
        return None
    devices = table["device_id"].unique().drop_null().sort().to_pylist()[:MOST_DEVICES]
    drawing = Drawing(WIDTH, TOP + len(shown) * (LANE + SPACE) + BOTTOM, _told(table, devices, shown))
    scale, unit = format.scaling(float(last - first), "ns")
    across = Scale(0, (last - first) / scale, LEFT, WIDTH - RIGHT)
    for place, (name, title, divisor) in enumerate(shown):
        _lane(drawing, TOP + place * (LANE + SPACE), title, across,
              [(rank, (at - first) / scale, values / divisor) for rank, at, values in _series(table, devices, name)])
    drawing.below(across, drawing.height - BOTTOM + 2, f"time from the first sample,{unit}")
    drawing.text(LEFT, 22, "Devices' telemetry", "ink strong")
    drawing.legend(LEFT + 170, 22, [(f"c{rank}", f"device {device}") for rank, device in enumerate(devices)])
    return drawing


def why_none(explanation: Explanation) -> str:
    """Why there is nothing to draw."""
    known = "gpu_events" in explanation.tables
    return "no two samples of it have times" if known else "no device was recorded (aaco run --telemetry)"


def _lane(drawing: Drawing, top: float, title: str, across: Scale, lines: list[tuple[int, Reals, Reals]]) -> None:
    low = min(float(values.min()) for _, _, values in lines)
    high = max(float(values.max()) for _, _, values in lines)
    room = 0.1 * (high - low) or 0.05 * abs(high) or 1.0
    up = Scale(low - room if low - room > 0 or low < 0 else 0.0, high + room, top + LANE, top)
    drawing.rect(LEFT, top, WIDTH - RIGHT - LEFT, LANE, "shade")
    for value in up.ticks(3):
        drawing.line(LEFT, up(value), WIDTH - RIGHT, up(value), "grid")
        drawing.text(LEFT - 6, up(value) + 4, f"{value:,.6g}", "dim small", "end")
    drawing.text(LEFT, top - 5, title, "ink small")
    for rank, at, values in lines:
        kept = extremes(values, MOST_POINTS)
        drawing.path(zip(map(across, at[kept]), map(up, values[kept]), strict=True), f"line c{rank}")


def _series(table: pa.Table, devices: list[int], name: str) -> Iterator[tuple[int, Reals, Reals]]:
    """The rank, times and values of each device that has any."""
    for rank, device in enumerate(devices):
        rows = table.filter(pc.and_(pc.equal(table["device_id"], device), pc.is_valid(table[name])))
        values = rows[name].cast(pa.float64(), safe=False).to_numpy()
        if len(values) and np.isfinite(values).all():
            yield rank, rows["t_ns"].to_numpy().astype(float), values


def _told(table: pa.Table, devices: list[int], shown: list[tuple[str, str, float]]) -> str:
    parts = []
    for name, title, divisor in shown:
        low, high = (pc.min_max(table[name]).as_py()[end] / divisor for end in ("min", "max"))
        parts.append(f"{title} {format.number(low)} to {format.number(high)}")
    return f"Telemetry of {format.plural(len(devices), 'device')}: {'; '.join(parts)}."

"""The utilisation timeline: the share of time in which each device computed, communicated, copied or filled."""

from __future__ import annotations

from aaco.analytics.timeline.timeline import DeviceTime, UtilizationTimeline
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.report import format
from aaco.report.sections.trace import label
from aaco.report.svg import Drawing, Scale

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 150, 16, 40, 44
LANE, SPACE = 34, 10
MOST_DEVICES = 16
MOST_BINS = 240
KINDS = (("c0", "compute"), ("c1", "only communication"), ("c4", "only copies"), ("c7", "only fills"))


def draw(trace: DeviceTrace | None) -> Drawing | None:
    """Return the picture with a lane per device; None if no utilisation timeline is known.

    Devices that worked at the same time share one time axis. Others start at their own first start: captures of
    different runs may be days apart.
    """
    shown = [(device, device.course) for device in (trace.devices if trace else ()) if device.course and device.span_ns]
    if not shown:
        return None
    shown = shown[:MOST_DEVICES]
    together = max(device.t_start_ns for device, _ in shown) < min(device.t_end_ns for device, _ in shown)
    first = min(device.t_start_ns for device, _ in shown)
    span = max(device.t_end_ns - (first if together else device.t_start_ns) for device, _ in shown)
    height = TOP + len(shown) * (LANE + SPACE) + BOTTOM
    drawing = Drawing(WIDTH, height, _text(shown))
    scale, unit = format.scaling(float(span), "ns")
    across = Scale(0, span / scale, LEFT, WIDTH - RIGHT)
    several = len({device.capture for device, _ in shown}) > 1
    for row, (device, course) in enumerate(shown):
        top = TOP + row * (LANE + SPACE)
        drawing.text(LEFT - 10, top + LANE / 2 + 4, label(device, several), "ink small", "end")
        start = (device.t_start_ns - first) / scale if together else 0.0
        end = start + device.span_ns / scale
        drawing.rect(across(start), top, across(end) - across(start), LANE, "track")
        _lane(drawing, across, top, start, end, course, scale)
    bottom, whose = height - BOTTOM + 4, "the" if together else "each device's"
    for value in across.ticks(8):
        drawing.text(across(value), bottom + 14, f"{value:,.6g}", "dim small", "middle")
    drawing.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")
    drawing.text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, f"time from {whose} first start,{unit}", "dim", "middle")
    drawing.text(LEFT, 22, "Devices over time", "ink strong")
    drawing.legend(LEFT + 160, 22, KINDS)
    return drawing


def _lane(drawing: Drawing, across: Scale, top: float, start: float, end: float, course: UtilizationTimeline,
          scale: float) -> None:
    """Draw the bins of a device, the kinds stacked; the height is the share of time."""
    parts = (course.compute_ns, course.exposed_communication_ns, course.exposed_copy_ns, course.exposed_fill_ns)
    merge = max(1, -(-len(course.compute_ns) // MOST_BINS))
    width = course.bin_ns * merge
    for number in range(-(-len(course.compute_ns) // merge)):
        low = start + number * width / scale
        high = min(low + width / scale, end)
        floor = top + LANE
        for (look, _), values in zip(KINDS, parts, strict=True):
            share = sum(values[number * merge:(number + 1) * merge]) / max(1, round((high - low) * scale))
            if share > 0:
                floor -= min(1.0, share) * LANE
                drawing.rect(across(low), floor, across(high) - across(low), min(1.0, share) * LANE, look)


def _text(shown: list[tuple[DeviceTime, UtilizationTimeline]]) -> str:
    """Return the picture in words."""
    described = [f"device {device.device_id}: busy {format.percent(device.busy_ns / device.span_ns)} of "
                 f"{format.duration(device.span_ns)}" for device, _ in shown]
    return f"Devices over time. {'; '.join(described)}."

"""Kernels under the ceilings of their devices, by counters: as rows of every report, as text, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.analytics.roofline.summary import Envelope, envelopes
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row
from aaco.report.sections.operators import call_shapes
from aaco.report.svg import Drawing, Scale, decades

FEW = 6  # kernels and reasons that a report lists
NAME = 40
SHAPES = 60  # columns of the shapes of a call
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 520, 64, 28, 40, 48
MOST_DOTS = 60
LABELLED = 8
LEVELS = (("dram", "memory", "c1"), ("l2", "L2", "c2"), ("lds", "LDS", "c3"))
UNIT = {"vector": "vector", "matrix": "matrix"}
BOUND = {"compute": "arithmetic", "dram": "memory", "l2": "L2", "l1": "L1", "lds": "local memory"}
REGION = {"optimal": "near its roof", "compute_bound": "below the compute roof", "memory_bound": "below a memory roof",
          "latency_bound": "far below every roof"}
Shown = Mapping[str, Any]


@finding_view("roofline", "kernels under the ceilings of their devices, by counters", place=4,
              title="Kernels under their ceilings")
def _rows(document: Shown) -> Iterator[Row]:
    found, why = envelopes(document)
    if document["kernels"]:
        yield from _reached(document, found, why)
    for device in document["devices"][:FEW]:
        yield from _device(device)
    kernels = [kernel for kernel in document["symbols"] if kernel["bound"]][:FEW]
    names = shorten((kernel["kernel_name"] for kernel in kernels), 20)
    yield from (Row(names[kernel["kernel_name"]], _place(kernel)) for kernel in kernels)
    for one in [one for one in document.get("operators", []) if one["bound"] or one["error"]][:FEW]:
        yield Row(format.name(one["operator"] or "an operator", 40), _operator(one))
    for why_none, part in sorted(document["not_placed"].items(), key=lambda item: -item[1]["ns"])[:FEW]:
        count = format.plural(part["count"], "kernel")
        yield Row("No place", f"{count}, {format.device_time(part['ns'])}: {why_none}")


def _reached(document: Shown, found: Mapping[str, Envelope], why: Mapping[str, str]) -> Iterator[Row]:
    """How much of the roofs was reached, and the time in each region."""
    for label, name, metric in (("Measured roof", "envelope", "hardware_envelope_utilization"),
                                ("Theoretical roof", "theoretical_envelope", "theoretical_envelope_utilization")):
        one = found.get(name)
        text = format.unavailable(why[name]) if one is None else \
            f"{format.percent(one.ideal_ns / one.time_ns)} of it reached, over {format.duration(one.time_ns)}"
        yield Row(label, text, metric)
    if regions := document["region_ns"]:
        total = document["total_ns"] or 1
        parts = sorted(regions.items(), key=lambda item: -item[1])
        yield Row("Time by region", ", ".join(f"{REGION[name]} {format.percent(ns / total)}" for name, ns in parts))


def _operator(one: Shown) -> str:
    """An operator's place, by its modelled work."""
    if one["error"]:
        return f"IMPOSSIBLE: {one['error']}"
    where = f" ({rate(one['rate'])})" if one["rate"] and one["bound"] == "compute" else ""
    shapes = format.cut(call_shapes(one["shapes"]), SHAPES)
    return (f"{format.plural(one['calls'], 'call')}{f' of {shapes}' if shapes else ''}, "
            f"{format.duration(one['device_ns'])}: {tera(one['flops_per_s'] or 0)} TFLOP/s modelled; {_limit(one)}"
            f"{format.percent(one['roof_share'] or 0)} of the theoretical {BOUND[one['bound']]} roof{where}")


def _limit(placed: Shown) -> str:
    """What limits it, as on every other screen; nothing in sessions of older versions."""
    return f"limit: {format.kernel_limit(placed['limit'])}, " if placed.get("limit") else ""


def _device(device: Shown) -> Iterator[Row]:
    name = format.clean(device["name"] or device["arch"] or "a device")
    absent = "; ".join(dict.fromkeys(device["theoretical"]["absent"].values()))
    yield Row("Device", f"{name}: {ceilings(device) or f'no ceiling is known: {absent}'}")
    for problem in device["problems"]:
        yield Row("Description warning", problem)
    for found in device["impossible"][:FEW]:
        yield Row("IMPOSSIBLE", impossible(found))
    for found in device["contradictions"][:FEW]:
        yield Row("Contradiction", contradiction(found))


def ceilings(device: Shown) -> str:
    """A device's theoretical ceilings in a line, and the measured ones next to them."""
    found = []
    for name, flops in device["theoretical"]["flops_per_s"].items():
        if name in ("vector_f32", "matrix_tf32", "matrix_f16", "matrix_bf16", "matrix_f8"):
            reached = device["measured"]["flops_per_s"].get(name)
            found.append(f"{rate(name)} {tera(flops)}{f' (measured {tera(reached)})' if reached else ''} TFLOP/s")
    for level, bandwidth in device["theoretical"]["bytes_per_s"].items():
        if level == "dram":
            reached = device["measured"]["bytes_per_s"].get(level)
            found.append(f"memory {tera(bandwidth)}{f' (measured {tera(reached)})' if reached else ''} TB/s")
    return ", ".join(found)


def impossible(found: Shown) -> str:
    """What contradicts a ceiling, in words."""
    unit = "FLOP/s" if found["ceiling"] == "compute" else "B/s"
    return (f"{format.plural(found['kernels'], 'kernel')} beyond the theoretical ceiling of {BOUND[found['ceiling']]}: "
            f"{format.kernel(found['kernel_name'], NAME)} by {format.number(found['factor'])} x "
            f"({tera(found['achieved'])} of {tera(found['peak'])} T{unit}); counters, time or ceiling are wrong "
            f"({found['quantities']})")


def contradiction(found: Shown) -> str:
    """Counters that cannot all be right, in words."""
    worst = f", at worst {found['example']}" if found["example"] else ""
    return f"{found['what']}, but not on {found['kernels']:,} of {format.plural(found['of'], 'kernel')}{worst}"


def rate(name: str) -> str:
    """`matrix_bf16` as people say it."""
    unit, _, kind = name.partition("_")
    return f"{UNIT.get(unit, unit)} {kind}"


def tera(value: float) -> str:
    """A rate in 10^12 per second."""
    return format.number(value / 1e12)


def _place(kernel: Shown) -> str:
    reached = kernel["measured_roof_share"]
    measured = f", {format.percent(reached)} of the measured one" if reached is not None else ""
    rates = f"{tera(kernel['flops_per_s'])} TFLOP/s, " if kernel["flops_per_s"] else ""
    least = "at least " if kernel["uncounted"] else ""
    return (f"{rates}{tera(kernel['dram_bytes_per_s'] or 0)} TB/s; {_limit(kernel)}{least}"
            f"{format.percent(kernel['roof_share'] or 0)} of the theoretical {BOUND[kernel['bound']]} roof{measured}")


def lines(document: Shown, top: int) -> Iterator[str]:
    """`aaco roofline` as text: devices, then kernels by time, then what is not there and why."""
    for device in document["devices"]:
        for row in _device(device):
            yield from _hung(row.label, row.text)
        if device["absent"]:
            yield from _hung("Not counted", f"{', '.join(name.replace('_', ' ') for name in device['absent'])} "
                                             "(metrics/roofline.json says why)")
    if document["kernels"]:
        yield from _kernels(document, top)
    if document.get("operators"):
        yield from _operators(document["operators"], top)


def _operators(operators: Sequence[Shown], top: int) -> Iterator[str]:
    """Operators by their modelled work."""
    yield ""
    yield (f"{'operator, modelled work':<{NAME}}{'calls':>7}{'total':>10}{'FLOP/B':>9}{'TFLOP/s':>9}{'TB/s':>8}  "
           f"{'limit':<19}{'nearest':<13}{'roof':>7}")
    calls = [f"{one['operator']} {call_shapes(one['shapes'])}" for one in operators[:top]]
    names = shorten(calls, NAME - 1, format.name)
    for one, call in zip(operators, calls, strict=False):
        name = format.pad(names[call], NAME)
        yield (f"{name}{one['calls']:>7,}{format.duration(one['device_ns']):>10}{_cell(one['intensity'], 9)}"
               f"{_cell(one['flops_per_s'], 9, 1e12)}{_cell(one['bytes_per_s'], 8, 1e12)}  "
               f"{format.kernel_limit(one.get('limit')):<19}{BOUND.get(one['bound'] or '', ''):<13}"
               f"{_share(one['roof_share'], 7)}").rstrip()
        if one["why_absent"]:
            yield f"  no place: {one['why_absent']}"


def _kernels(document: Shown, top: int) -> Iterator[str]:
    """Kernels by name, and why others have no place."""
    yield ""
    yield (f"{'kernel':<{NAME}}{'calls':>7}{'total':>10}{'FLOP/B':>9}{'TFLOP/s':>9}{'TB/s':>8}  {'limit':<19}"
           f"{'nearest':<13}{'roof':>7}{'measured':>9}{'waves':>8}")
    names = shorten((kernel["kernel_name"] for kernel in document["symbols"][:top]), NAME - 1)
    for kernel in document["symbols"][:top]:
        yield format.pad(names[kernel["kernel_name"]], NAME) + _line(kernel)
    if len(document["symbols"]) > top:
        yield f"{len(document['symbols']) - top:,} more; --top shows more of them"
    for why, part in sorted(document["not_placed"].items(), key=lambda item: -item[1]["ns"]):
        count = format.plural(part["count"], "kernel")
        yield from _hung("No place", f"{count}, {format.device_time(part['ns'])}: {why}")


def _line(kernel: Shown) -> str:
    held = kernel["occupancy_limit_pct"]
    return (f"{kernel['calls']:>7,}{format.device_time(kernel['total_ns']):>10}{_cell(kernel['intensity'], 9)}"
            f"{_cell(kernel['flops_per_s'], 9, 1e12)}{_cell(kernel['dram_bytes_per_s'], 8, 1e12)}  "
            f"{format.kernel_limit(kernel.get('limit')):<19}{BOUND.get(kernel['bound'] or '', ''):<13}"
            f"{_share(kernel['roof_share'], 7)}{_share(kernel['measured_roof_share'], 9)}"
            f"{_share(held / 100 if held else None, 8)}").rstrip()


def _cell(value: float | None, width: int, scale: float = 1.0) -> str:
    shown = "" if value is None else "<0.001" if 0 < value / scale < 0.001 else format.number(value / scale)
    return f"{shown:>{width}}"


def _share(value: float | None, width: int) -> str:
    return f"{'' if value is None else format.percent(value):>{width}}"


def _hung(label: str, text: str) -> list[str]:
    return format.hung(f"{label:<22}", text, 118)


def draw(document: Shown) -> Drawing | None:
    """The first device's kernels by intensity and rate, under the roofs of every level and type that they used; None
    where no kernel did floating-point work in a known time."""
    shown = [one for one in document.get("symbols", []) if one["flops"] and one["flops_per_s"] and one["intensity"]]
    device = next(iter(document.get("devices", [])), None)
    if not shown or device is None or not device["theoretical"]["flops_per_s"]:
        return None
    return _Picture(shown[:MOST_DOTS], device).draw()


class _Picture:
    """Scales and marks of one hierarchical roofline. Rates in TFLOP/s, bandwidths in TB/s."""

    def __init__(self, kernels: Sequence[Shown], device: Shown) -> None:
        self.kernels, self.device = kernels, device
        self.total_ns = sum(one["total_ns"] for one in kernels) or 1
        used = {one["dominant"] for one in kernels if one["dominant"]}
        self.peaks, self.measured = ({name: value / 1e12 for name, value in device[kind]["flops_per_s"].items()
                                      if name in used} for kind in ("theoretical", "measured"))
        self.bandwidths = {kind: {level: device[kind]["bytes_per_s"][level] / 1e12 for level, _, _ in LEVELS
                                  if level in device[kind]["bytes_per_s"]} for kind in ("theoretical", "measured")}
        top = max(self.peaks.values(), default=1.0)
        ridges = [top / bandwidth for bandwidth in self.bandwidths["theoretical"].values()]
        x = [value for one in kernels for value in self._intensities(one).values()] + ridges
        y = [one["flops_per_s"] / 1e12 for one in kernels] + list(self.peaks.values())
        self.across = Scale(*decades(x), LEFT, WIDTH - RIGHT, log=True)
        self.up = Scale(*decades(y), HEIGHT - BOTTOM, TOP, log=True)

    def _intensities(self, kernel: Shown) -> dict[str, float]:
        moved = {"dram": kernel["dram_bytes"], "l2": kernel["l2_bytes"], "lds": kernel["lds_bytes"]}
        return {level: kernel["flops"] / count for level, count in moved.items() if count}

    def draw(self) -> Drawing:
        """Roofs of every level and type, kernels, and the names of the slowest."""
        name = format.clean(self.device["name"] or self.device["arch"] or "a device")
        count = format.plural(len(self.kernels), "kernel")
        drawing = Drawing(WIDTH, HEIGHT, f"Hierarchical roofline of {count} on {name}.")
        drawing.axes(self.across, self.up, "arithmetic intensity, FLOP/byte (log)", "TFLOP/s (log)")
        self._draw_bandwidths(drawing)
        self._draw_peaks(drawing)
        for kernel in self.kernels:
            self._draw_kernel(drawing, kernel)
        self._label(drawing)
        drawing.text(LEFT, 22, f"Roofline by counters, {format.cut(name, 40)}", "ink strong")
        drawing.legend(LEFT + 420, 22, [(f"dot {look}", f"bytes of {label}") for _, label, look in LEVELS])
        return drawing

    def _draw_bandwidths(self, drawing: Drawing) -> None:
        top = max(self.peaks.values(), default=self.up.high)
        for place, (level, label, _) in enumerate(LEVELS):
            for kind, look in (("theoretical", "roof"), ("measured", "rule")):
                bandwidth = self.bandwidths[kind].get(level)
                if bandwidth:
                    text = f"{label} {format.number(bandwidth)} TB/s, {kind}"
                    along = 0.04 + 0.22 * place + (0.11 if kind == "measured" else 0.0)
                    self._diagonal(drawing, (bandwidth, top), look, text, along)

    def _diagonal(self, drawing: Drawing, line: tuple[float, float], look: str, text: str, along: float) -> None:
        """A bandwidth's line up to a rate (TB/s, TFLOP/s), its text some share of the way along it."""
        bandwidth, top = line
        low, high = max(self.across.low, self.up.low / bandwidth), min(self.across.high, top / bandwidth)
        if low >= high:
            return
        start, end = ((self.across(x), self.up(x * bandwidth)) for x in (low, high))
        drawing.line(*start, *end, look)
        turn = -round(math.degrees(math.atan2(start[1] - end[1], end[0] - start[0])))
        x, y = (one + (other - one) * along for one, other in zip(start, end, strict=True))
        drawing.text(x, y - 7, text, "ink small halo", "start", turn)

    def _draw_peaks(self, drawing: Drawing) -> None:
        widest = max(self.bandwidths["theoretical"].values(), default=0.0)
        for peaks, look, kind in ((self.peaks, "roof", "theoretical"), (self.measured, "rule", "measured")):
            for name, peak in peaks.items():
                start = min(max(self.across.low, peak / widest if widest else 0.0), self.across.high)
                drawing.line(self.across(start), self.up(peak), self.across.end, self.up(peak), look)
                text = f"{rate(name)} {format.number(peak)} TFLOP/s, {kind}"
                drawing.text(self.across.end - 4, self.up(peak) - 6, text, "ink small halo", "end")

    def _draw_kernel(self, drawing: Drawing, kernel: Shown) -> None:
        y = self.up(kernel["flops_per_s"] / 1e12)
        at = {level: self.across(value) for level, value in self._intensities(kernel).items()}
        if len(at) > 1:
            drawing.line(min(at.values()), y, max(at.values()), y, "grid")
        share = kernel["total_ns"] / self.total_ns
        for level, label, look in LEVELS:
            if level in at:
                tip = (f"{format.name(kernel['kernel_name'], 120)}: {tera(kernel['flops_per_s'])} TFLOP/s at "
                       f"{format.number(self._intensities(kernel)[level])} FLOP per byte of {label}; "
                       f"{format.percent(share)} of the time shown")
                radius = (3 + 26 * min(share, 0.3) ** 0.5) * (1.0 if level == "dram" else 0.5)
                drawing.dot(at[level], y, radius, f"dot {look}", tip)

    def _label(self, drawing: Drawing) -> None:
        """Names next to the kernels that took most time, as far as they do not cover each other."""
        taken: list[tuple[float, float]] = []
        for kernel in self.kernels[:LABELLED]:
            x, y = self.across(max(self._intensities(kernel).values())), self.up(kernel["flops_per_s"] / 1e12)
            if all(abs(x - other) > 190 or abs(y - height) > 14 for other, height in taken):
                taken.append((x, y))
                room = x < WIDTH - 220
                drawing.text(x + (14 if room else -14), y + 4, format.kernel(kernel["kernel_name"], 26),
                             "ink small halo", "start" if room else "end")

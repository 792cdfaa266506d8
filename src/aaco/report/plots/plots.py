"""The figures of a report: latency over iterations, its distribution, kernel times, and the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.explanation import Explanation
from aaco.analytics.roofline.nodes import BANDWIDTH, PEAK
from aaco.calibration import card
from aaco.core import inputs
from aaco.core.arrays import Reals
from aaco.core.readings import known
from aaco.report import format
from aaco.report.extremes import extremes
from aaco.report.names import shorten
from aaco.report.plots import flame_graph, radar, timeline_strip, utilisation
from aaco.report.sections import changed, kernels, nodes, telemetry
from aaco.report.sections.findings import roofline as by_counters
from aaco.report.sections.outliers import outliers
from aaco.report.svg import COLOURS, Drawing, Scale, decades, tick

WIDTH, HEIGHT, TALL = 960, 320, 460
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48
MOST_BINS = 60
FAR = 8
BARS = 12
MOST_LABELS = 12


class LatencySeries(Struct, frozen=True):
    """The latencies of a process in ms by the turn of measurement, warm-up first."""

    process: int
    turn: Reals
    latency_ms: Reals
    warmup: int
    thinned: bool


def plots(explanation: Explanation) -> dict[str, str]:
    """Return SVG by file name for the figures with data; the same session gives the same bytes."""
    return {f"{name}.svg": drawing.standalone() for name, drawing in drawings(explanation).items()}


def drawings(explanation: Explanation) -> dict[str, Drawing]:
    """Return the figures with data, by name."""
    figures = {"latency_series": latency_series(explanation), "latency_histogram": latency_histogram(explanation),
               "kernels": kernel_bars(explanation), "roofline": roofline(explanation),
               "devices": utilisation.draw(explanation.trace),
               "counters": by_counters.draw(explanation.examined.get("roofline", {})),
               "timeline": timeline_strip.draw(explanation), "flame_graph": flame_graph.draw(explanation),
               "gpu_series": telemetry.draw(explanation), "radar": radar.draw(explanation),
               "comparison": changed.comparison(explanation), "attribution": changed.attribution(explanation)}
    return {name: drawing for name, drawing in figures.items() if drawing is not None}


def series(explanation: Explanation) -> list[LatencySeries]:
    """Return the latencies of every process in the order of time, thinned if there are very many."""
    table = explanation.tables.get("inference_iters")
    if table is None:
        return []
    processes = table["process"].unique().sort().to_pylist()
    return [_series(table.filter(pc.equal(table["process"], process)), process) for process in processes]


def measured_ms(explanation: Explanation) -> Reals:
    """Return the latencies of all measured iterations, ms; empty if there are none."""
    table = explanation.tables.get("inference_iters")
    latencies = None if table is None else known(inputs.latencies_ms, table)
    return np.empty(0) if latencies is None else latencies


def bins(values: Reals) -> tuple[Reals, NDArray[np.int64], int]:
    """Return edges and counts of a histogram (Freedman and Diaconis 1981, at most MOST_BINS bins), and how many values
    are beyond it.

    It ends FAR interquartile ranges above the upper quartile, so that one straggler does not compress the others.
    """
    low, high = np.quantile(values, [0.25, 0.75])
    near = values[values <= high + FAR * (high - low)] if high > low else values
    edges = np.histogram_bin_edges(near, "fd" if np.ptp(near) else 1)
    if len(edges) > MOST_BINS + 1:
        edges = np.histogram_bin_edges(near, MOST_BINS)
    return edges, np.histogram(near, edges)[0].astype(np.int64), len(values) - len(near)


def latency_series(explanation: Explanation) -> Drawing | None:
    """Return the latency of every iteration, a line per process, the warm-up shaded; None without iterations."""
    runs = series(explanation)
    if not runs:
        return None
    scale, suffix = format.scaling(float(np.median(np.concatenate([run.latency_ms for run in runs]))), "ms")
    drawing = Drawing(WIDTH, HEIGHT, series_text(explanation))
    longest = max(float(run.turn[-1]) for run in runs)
    across = Scale(0, max(1.0, longest), LEFT, WIDTH - RIGHT)
    up = _upwards([run.latency_ms / scale for run in runs])
    if warm := min(run.warmup for run in runs):
        drawing.rect(LEFT, TOP, across(warm - 0.5) - LEFT, HEIGHT - TOP - BOTTOM, "shade")
        drawing.text(LEFT + 4, TOP + 14, "warm-up", "dim small")
    drawing.axes(across, up, "iteration of the process", f"latency,{suffix}")
    for run in runs:
        points = zip(map(across, run.turn), map(up, run.latency_ms / scale), strict=True)
        drawing.path(points, f"line c{run.process % COLOURS}")
    for number, long in enumerate(outliers(explanation), 1):
        x, y = across(long.turn), up(long.latency_ms / scale)
        drawing.dot(x, y, 3.5, "mark", f"{long.spot}: {format.quantity(long.latency_ms, 'ms')}, {long.why}")
        drawing.text(x, y - 7, str(number), "ink small halo", "middle")
    _title(drawing, "Latency by iteration")
    if 1 < len(runs) <= COLOURS:
        drawing.legend(LEFT + 190, 22, [(f"c{run.process % COLOURS}", f"process {run.process}") for run in runs])
    return drawing


def series_text(explanation: Explanation) -> str:
    """Return the series in words."""
    values = measured_ms(explanation)
    if not len(values):
        return "Latency of the warm-up iterations; none was measured after it."
    low, middle, high = (format.quantity(value, "ms") for value in (values.min(), np.median(values), values.max()))
    count = format.plural(len(values), "measured iteration")
    return f"Latency of {count}: shortest {low}, median {middle}, longest {high}."


def latency_histogram(explanation: Explanation) -> Drawing | None:
    """Return the histogram of measured latencies with median and 99th percentile; None without latencies."""
    values = measured_ms(explanation)
    if not len(values):
        return None
    scale, suffix = format.scaling(float(np.median(values)), "ms")
    edges, counts, beyond = bins(values / scale)
    drawing = Drawing(WIDTH, HEIGHT, f"Histogram. {series_text(explanation)}")
    across = Scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    up = Scale(0, float(counts.max()) * 1.05, HEIGHT - BOTTOM, TOP)
    drawing.axes(across, up, f"latency,{suffix}", "iterations")
    for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True):
        tip = f"{tick(low)} to {tick(high)}{suffix}: {format.plural(count, 'iteration')}"
        drawing.rect(across(low), up(count), across(high) - across(low), up(0) - up(count), "bar c0", tip)
    for name, value in _markers(explanation):
        if value / scale > edges[-1]:
            continue
        at = across(value / scale)
        drawing.line(at, TOP, at, HEIGHT - BOTTOM, "rule")
        drawing.text(at + 4, TOP + 10, name, "ink small", "start")
    if beyond:
        text = f"{beyond} beyond, up to {format.quantity(values.max(), 'ms')} →"
        drawing.text(WIDTH - RIGHT, TOP + 10, text, "dim small", "end")
    _title(drawing, "Distribution of measured latencies")
    return drawing


def kernel_bars(explanation: Explanation) -> Drawing | None:
    """Return the kernels with the most time, by name; None without kernel time."""
    groups = kernels.groups(explanation)
    if not groups or not groups[0]["total_ns"]:
        return None
    shown = groups[:BARS]
    title = f"The {format.plural(len(shown), 'kernel')} that took most time."
    drawing = Drawing(WIDTH, TOP + 26 * len(shown) + 12, title)
    across = Scale(0, shown[0]["total_ns"], 250, WIDTH - 150)
    names = shorten((group["kernel_name"] for group in shown), 30)
    for row, group in enumerate(shown):
        top, total = TOP + 26 * row, group["total_ns"]
        drawing.text(240, top + 14, names[group["kernel_name"]], "ink", "end")
        drawing.rect(across(0), top, across(total) - across(0), 18, "bar c0", format.name(group["kernel_name"], 200))
        share = format.percent(group["pct_of_kernel_time"] / 100)
        drawing.text(across(total) + 8, top + 14, f"{format.duration(total)}, {share}", "dim")
    counted = kernels.inferences(explanation)
    of_what = format.plural(counted, "inference") if counted else "the whole capture"
    _title(drawing, f"Kernel time by name ({kernels.place(explanation)}, {of_what})")
    return drawing


def roofline(explanation: Explanation) -> Drawing | None:
    """Return the arithmetic rate by intensity of each executed node, under the measured roofs; None without roofs."""
    ceilings = nodes.ceilings(explanation)
    placed = [node for node in nodes.executed(explanation) if node.roof and 0 < node.roof.intensity < np.inf]
    if not placed or PEAK not in ceilings or BANDWIDTH not in ceilings:
        return None
    measured = card.of(explanation.machine.get("card"))
    return _Roofline(placed, ceilings, measured.unit_of(PEAK) if measured else "fp32").draw()


class _Roofline:
    """The scales of one roofline plot, and the marks on them. Rates in GFLOP/s, intensities in FLOP/byte."""

    def __init__(self, placed: list[nodes.Node], ceilings: Mapping[str, float], unit: str) -> None:
        self.nodes, self.unit = placed, unit
        self.peak, self.bandwidth = ceilings[PEAK] / 1e9, ceilings[BANDWIDTH] / 1e9
        x = [node.roof.intensity for node in placed if node.roof] + [self.peak / self.bandwidth]
        y = [node.roof.gflops for node in placed if node.roof] + [self.peak]
        self.across = Scale(*decades(x), LEFT, WIDTH - RIGHT, log=True)
        self.up = Scale(*decades(y), TALL - BOTTOM, TOP, log=True)

    def draw(self) -> Drawing:
        """Return roofs, nodes and the names of the slowest."""
        count = format.plural(len(self.nodes), "executed node")
        drawing = Drawing(WIDTH, TALL, f"Roofline of {count}: roofs {self._roofs()}.")
        drawing.axes(self.across, self.up, "arithmetic intensity, FLOP/byte (log)", "GFLOP/s (log)")
        self._draw_roofs(drawing)
        for node in self.nodes:
            self._draw_node(drawing, node)
        self._label_slowest(drawing)
        _title(drawing, "Roofline")
        drawing.legend(LEFT + 90, 22, [("dot c0", "compute roof is lower"), ("dot c1", "memory roof is lower")])
        return drawing

    def _roofs(self) -> str:
        return f"{format.number(self.peak)} GFLOP/s of {self.unit} and {format.number(self.bandwidth)} GB/s"

    def _draw_roofs(self, drawing: Drawing) -> None:
        ridge = self.peak / self.bandwidth
        left = max(self.across.low, self.up.low / self.bandwidth)
        points = [(left, left * self.bandwidth), (ridge, self.peak), (self.across.high, self.peak)]
        drawing.path([(self.across(x), self.up(y)) for x, y in points], "roof")
        peak = f"{format.number(self.peak)} GFLOP/s of {self.unit}, measured"
        drawing.text(self.across.end - 4, self.up(self.peak) - 7, peak, "ink small", "end")
        rise = self.up(left * self.bandwidth) - self.up(self.peak)
        turn = -round(float(np.degrees(np.arctan2(rise, self.across(ridge) - self.across(left)))))
        drawing.text(self.across(left) + 14, self.up(left * self.bandwidth) - 18,
                     f"{format.number(self.bandwidth)} GB/s, measured", "ink small halo", "start", turn)

    def _label_slowest(self, drawing: Drawing) -> None:
        """Label the slowest nodes whose names do not cover each other."""
        taken: list[tuple[float, float]] = []
        for node in self.nodes[:MOST_LABELS]:
            assert node.roof is not None
            x, y = self.across(node.roof.intensity), self.up(node.roof.gflops)
            if all(abs(x - taken_x) > 180 or abs(y - taken_y) > 14 for taken_x, taken_y in taken):
                taken.append((x, y))
                drawing.text(x + _radius(node) + 4, y + 4, format.name(node.name, 26), "ink small halo")

    def _draw_node(self, drawing: Drawing, node: nodes.Node) -> None:
        assert node.roof is not None
        tip = (f"{format.name(node.name, 80)} ({format.name(node.op_type, 40)}): {format.duration(node.time_ns)} "
               f"per inference, {format.percent(node.share)} of kernel time; "
               f"{format.number(node.roof.gflops)} GFLOP/s, {format.percent(node.roof.utilization)} of its roof")
        look = "dot c0" if node.roof.bound == "compute" else "dot c1"
        drawing.dot(self.across(node.roof.intensity), self.up(node.roof.gflops), _radius(node), look, tip)


def _series(table: pa.Table, process: int) -> LatencySeries:
    ordered = table.sort_by("t_start_ns")
    latency = np.asarray(ordered["latency_ms"].to_numpy())
    warmup = int(pc.sum(pc.equal(ordered["phase"].cast(pa.string()), "warmup")).as_py() or 0)
    kept = extremes(latency)
    return LatencySeries(process, kept.astype(float), latency[kept], warmup, len(kept) < len(latency))


def _upwards(values: list[Reals]) -> Scale:
    low, high = min(float(part.min()) for part in values), max(float(part.max()) for part in values)
    room = 0.06 * (high - low) or 0.05 * high or 1.0
    return Scale(max(0.0, low - room), high + room, HEIGHT - BOTTOM, TOP)


def _radius(node: nodes.Node) -> float:
    return float(3 + 40 * min(node.share, 0.2) ** 0.5)


def _markers(explanation: Explanation) -> Iterator[tuple[str, float]]:
    for name, metric in (("median", "latency_p50_ms"), ("p99", "latency_p99_ms")):
        reading: Any = explanation.readings.get(metric)
        if reading and reading.value is not None:
            yield name, reading.value


def _title(drawing: Drawing, text: str) -> None:
    drawing.text(LEFT, 22, text, "ink strong")

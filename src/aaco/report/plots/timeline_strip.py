"""One profiled inference as a timeline strip: every kernel at its time, coloured by family."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.arrays import Ints
from aaco.report import format
from aaco.report.sections import kernels
from aaco.report.svg import Drawing, Scale

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 90, 16, 40, 44
LANE, SPACE = 34, 8
MOST_KERNELS, MOST_LANES = 2000, 12
FILES = ("profiler/rocprof_kernels.parquet", "profiler/api_calls.parquet")


def draw(explanation: Explanation) -> Drawing | None:
    """Return the strip of the inference with the median wall time; None for an import or without a profiled window."""
    window = kernels.window(explanation)
    if window is None:
        return None
    order = pc.unique(window.kernels.sort_by("t_start_ns")["iteration"]).to_pylist()
    middle = int(np.argsort(window.run_ns, kind="stable")[(len(window.run_ns) - 1) // 2])
    rows = window.kernels.filter(pc.equal(window.kernels["iteration"], order[middle])).sort_by("t_start_ns")
    return _strip(explanation, rows, int(order[middle]), window.inferences)


def _strip(explanation: Explanation, rows: pa.Table, number: int, inferences: int) -> Drawing:
    start, ns = (integers(rows[name]) for name in ("t_start_ns", "dur_ns"))
    first, span = int(start.min()), int((start + ns).max() - start.min())
    lanes, named = _lanes(rows)
    shown = min(len(named), MOST_LANES)
    text = (f"Inference {number}, the median of {inferences} profiled: {format.plural(len(start), 'kernel')} in "
            f"{format.duration(span)}, {format.percent(_covered(start, start + ns) / max(1, span))} of it inside one.")
    drawing = Drawing(WIDTH, TOP + shown * (LANE + SPACE) + BOTTOM, text)
    scale, unit = format.scaling(float(span), "ns")
    across = Scale(0, max(span, 1) / scale, LEFT, WIDTH - RIGHT)
    for lane in range(shown):
        top = TOP + lane * (LANE + SPACE)
        drawing.text(LEFT - 10, top + LANE / 2 + 4, named[lane], "ink small", "end")
        drawing.rect(LEFT, top, WIDTH - RIGHT - LEFT, LANE, "track")
    looks = kernels.looks(explanation)
    columns = zip(start.tolist(), ns.tolist(), lanes.tolist(),
                  *(rows[name].to_pylist() for name in ("kernel_name", "family", "executed_node")), strict=True)
    longest = set(np.argsort(-ns, kind="stable")[:MOST_KERNELS].tolist())
    for row, (begin, took, lane, name, family, node) in enumerate(columns):
        if row in longest and lane < shown:
            x = across((begin - first) / scale)
            tip = f"{format.cut(node or name or kernels.UNNAMED, 80)} ({format.cut(name or '', 40)}): " + \
                format.duration(took)
            drawing.rect(x, TOP + lane * (LANE + SPACE), across((begin + took - first) / scale) - x, LANE,
                         f"bar {looks.get(family or 'unknown family', 'c7')}", tip)
    drawing.below(across, drawing.height - BOTTOM + 4, f"time from its first kernel,{unit}")
    drawing.text(LEFT, 22, f"Inference {number}: the median of {inferences} profiled", "ink strong")
    drawing.legend(LEFT + 330, 22, [(look, name) for name, look in list(looks.items())[:6]])
    return drawing


def _lanes(rows: pa.Table) -> tuple[Ints, list[str]]:
    """Return the lane of each kernel (stream or queue of its device, else its thread) and the names of the lanes."""
    device, stream, queue, thread = (integers(rows[name])
                                     for name in ("device_id", "stream_id", "queue_id", "thread_id"))
    line = np.where(device == NONE, thread, np.where(stream == NONE, queue, stream))
    keys = list(dict.fromkeys(zip(device.tolist(), line.tolist(), strict=True)))
    number = {key: place for place, key in enumerate(keys)}
    names = [(f"thread {place + 1}" if on == NONE else f"device {on}" + ("" if at == NONE else f", {at}"))
             for place, (on, at) in enumerate(keys)]
    return np.array([number[key] for key in zip(device.tolist(), line.tolist(), strict=True)]), names


def _covered(start: Ints, end: Ints) -> int:
    """Return the time in which at least one of them ran. start: sorted."""
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]])
    return int(np.maximum(0, end - np.maximum(start, before)).sum())

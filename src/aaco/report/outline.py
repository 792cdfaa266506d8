"""The report as an outline: titles with facts, tables, lists and figures, in reading order; Markdown and PDF print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aaco.analytics.explanation import Explanation
from aaco.core.readings import Verdict
from aaco.report import (
    breakdown,
    content,
    families,
    format,
    graph,
    inventory,
    kernels,
    nodes,
    operators,
    quality,
    reach,
    spikes,
)
from aaco.report.answers import answers
from aaco.report.outliers import outliers
from aaco.report.rows import Row

TOP = 10
FIGURES = {"Where the time went": ("timeline", "devices", "flame_graph"), "Measurement quality": ("radar",),
           "Top kernels by time": ("kernels",), "Roofline": ("roofline", "counters"),
           "Iterations": ("latency_series", "latency_histogram"), "Telemetry of devices": ("gpu_series",),
           "Change against the baseline": ("comparison", "attribution")}


class Code(str):
    """A name as the session has it: a kernel, a file, a metric, a command."""


Cells = Sequence[str]  # each plain words, or Code


@dataclass(frozen=True)
class Facts:
    """Labels with their texts."""

    rows: Sequence[Row]


@dataclass(frozen=True)
class Table:
    """Rows under a header; numeric: all columns but the first align right. title stands above it, note below."""

    header: Sequence[str]
    rows: Sequence[Cells]
    numeric: bool = False
    title: Cells = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Items:
    """A list; the parts of an item follow each other in a line."""

    items: Sequence[Cells]


@dataclass(frozen=True)
class Words:
    """A line of text, its parts one after the other."""

    parts: Cells


@dataclass(frozen=True)
class Figure:
    """A figure by the name of its plot; where that was not drawn, there is none."""

    name: str


Block = Facts | Table | Items | Words | Figure


@dataclass(frozen=True)
class Section:
    """A title and what stands under it."""

    title: str
    blocks: Sequence[Block]


def sections(explanation: Explanation) -> Iterator[Section]:
    """The sections that have something to say; those whose evidence is absent say so in a line."""
    for title, blocks in _every(explanation):
        figures = [Figure(name) for name in FIGURES.get(title.partition(" (")[0], ())]
        found = [block for block in blocks if not _empty(block)]
        if found:
            yield Section(title, [*figures, *found])


def _every(explanation: Explanation) -> Iterator[tuple[str, list[Block]]]:
    yield "In short", [Facts([Row(one.question, one.text) for one in answers(explanation)])]
    yield "Summary", [Facts(content.summary(explanation))]
    yield "Bottleneck", [Facts(content.bottleneck(explanation)), *_verdict(content.judged(explanation))]
    yield "Conditions", [_conditions(explanation)]
    yield "Where the time went", _time(explanation)
    yield "Time by family", [Facts(families.rows(explanation))]
    yield "Measurement quality", [Facts(quality.rows(explanation))]
    yield "Coverage of the capture", [_coverage(explanation)]
    yield "Trace truth", [Facts(content.trace_truth(explanation))]
    yield f"Top kernels by time ({kernels.place(explanation)})", [_kernels(explanation)]
    yield "Slowest executed nodes", [_nodes(explanation)]
    yield "Operators", [Facts(operators.rows(explanation))]
    yield "Graph", [Facts(graph.rows(explanation))]
    yield "Roofline", [_roofline(explanation)]
    yield "Iterations", [_iterations(explanation)]
    yield "Spikes", [Facts(spikes.rows(explanation))]
    if "gpu_events" in explanation.tables:
        yield "Telemetry of devices", [Words((f"{explanation.rows('gpu_events'):,} samples",))]
    for title, rows in content.devices(explanation):
        yield title, [Facts(rows)]
    yield "Change against the baseline", [Facts(content.change(explanation))]
    yield "What to do next", [_next(explanation), _commands(explanation)]
    yield "Absent", [_absent(explanation)]
    yield "Files", [Words(("In ", Code(explanation.folder), ":")), _files(explanation)]


def _empty(block: Block) -> bool:
    if isinstance(block, Facts | Table):
        return not block.rows
    return isinstance(block, Items) and not block.items


def _time(explanation: Explanation) -> list[Block]:
    return [Table(("part", "share", "time", "exactly"),
                  [(part.name, format.percent(one.share(part)), format.duration(part.ns), format.exact_ns(part.ns))
                   for part in one.parts] + [("sum", "100 %", format.duration(one.ns), format.exact_ns(one.ns))],
                  numeric=True, title=(f"Of {one.whole}:",)) for one in breakdown.every(explanation)]


def _verdict(verdict: Verdict | None) -> list[Block]:
    if verdict is None:
        return []
    rows = [(format.OUTCOME[item.holds], Code(item.reading.metric), format.reserved(item.reading),
             format.threshold(item), item.because) for item in content.evidence(verdict)]
    return [Table(("", "metric", "value", "asked", "meaning"), rows,
                  title=("Evidence for ", Code(verdict.label), f": {verdict.tally}."))]


def _conditions(explanation: Explanation) -> Items:
    return Items([(Code(verdict.label), f": {item.because}: {format.reading(item.reading)}, threshold "
                   f"{format.threshold(item)}")
                  for verdict in explanation.diagnosis.conditions for item in verdict.evidence if item.holds])


def _kernels(explanation: Explanation) -> Table:
    groups, reached = kernels.groups(explanation), reach.by_kernel(explanation)
    rows = [(Code(row["kernel_name"]), row["family"] or "", f"{row['calls']:,}", format.duration(row["total_ns"]),
             format.percent(row["pct_of_kernel_time"] / 100), format.duration(row["mean_ns"]),
             format.percent(near.share) if (near := reached.get(row["kernel_name"])) else "absent",
             format.bar(row["pct_of_kernel_time"] / 100, 10)) for row in groups[:TOP]]
    more = [f"{format.plural(len(groups) - TOP, 'more kernel')} not shown."] if len(groups) > TOP else []
    by = reach.sources(reached) if reached else f"absent for all: {reach.why_none(explanation)}"
    return Table(("kernel", "family", "calls", "total", "share", "mean", "of roof", ""), rows, numeric=True,
                 notes=[*more, f"Of roof: {by}."])


def _nodes(explanation: Explanation) -> Table:
    rows = [(Code(node.name), Code(node.op_type), Code(", ".join((node.sources or ())[:4])),
             format.percent(node.share), format.duration(node.time_ns),
             format.percent(node.roof.utilization) if node.roof else "absent")
            for node in nodes.executed(explanation)[:TOP]]
    return Table(("node", "operator", "computes", "share", "per inference", "of roof"), rows,
                 notes=[f"Of roof: {note}" for note in nodes.roof_notes(explanation)])


def _coverage(explanation: Explanation) -> Block:
    found = kernels.coverage(explanation)
    if not found:
        return Words((kernels.why_none(explanation),))
    return Table(("kernels", "count", "time"), [(what, f"{count:,}", format.exact_ns(ns)) for what, count, ns in found],
                 numeric=True)


def _roofline(explanation: Explanation) -> Words:
    why = nodes.why_not_placed(explanation)
    if not why:
        return Words(("Executed nodes at their modelled work, under the roofs measured on this machine.",))
    known = (explanation.examined.get("roofline") or {}).get("symbols")
    return Words(("Kernels at their counted work.",) if known else (f"absent: {why}",))


def _iterations(explanation: Explanation) -> Block:
    if "inference_iters" not in explanation.tables:
        return Words((f"absent: {why_no_iterations(explanation)}",))
    rows = [(str(number), one.spot, format.quantity(one.latency_ms, "ms"), f"+{format.quantity(one.excess_ms, 'ms')}",
             one.why) for number, one in enumerate(outliers(explanation), 1)]
    if not rows:
        return Words((NO_OUTLIER,))
    return Table(("", "iteration", "latency", "over the median", "what was recorded around it"), rows)


NO_OUTLIER = "No measured iteration lies beyond Tukey's fence (1.5 interquartile ranges above the upper quartile)."


def why_no_iterations(explanation: Explanation) -> str:
    """Why no latency is known."""
    return inventory.absent(explanation).get("metrics/inference_iters.parquet", "no iteration was recorded")


def _next(explanation: Explanation) -> Items:
    return Items([(f"{step} (", Code(why), ")") for why, step in content.next_steps(explanation)])


def _commands(explanation: Explanation) -> Items:
    return Items([(f"{what}: ", Code(command)) for what, command in content.commands(explanation)])


def _absent(explanation: Explanation) -> Items:
    return Items([(f"{why}: ", *(part for place, name in enumerate(names) for part in
                                 ((", ", Code(name)) if place else (Code(name),))))
                  for why, names in inventory.absent_readings(explanation).items()])


def _files(explanation: Explanation) -> Table:
    return Table(("file", "rows", "what it is", "read from"),
                 [(Code(file.name), "" if file.rows is None else f"{file.rows:,}",
                   f"absent: {file.why_absent}" if file.why_absent else file.meaning,
                   "" if file.why_absent else Code(inventory.captured(explanation, file.name)))
                  for file in inventory.every(explanation)])

"""The report as an outline for Markdown and PDF: titles with facts, tables, lists and figures, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.core.words import plural
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import (
    breakdown,
    catalogue,
    content,
    inventory,
    kernels,
    nodes,
    roofline_headroom,
)
from aaco.report.sections.outliers import outliers

TOP = 10


class Code(str):
    """A literal name: a kernel, a file, a metric, a command."""


Cells = Sequence[str]  # each plain words, or Code


class Facts(Struct, frozen=True):
    """Labels with their texts."""

    rows: Sequence[Row]


class Table(Struct, frozen=True):
    """Rows under a header, a title above and notes below; numeric: all columns but the first align right."""

    header: Sequence[str]
    rows: Sequence[Cells]
    numeric: bool = False
    title: Cells = ()
    notes: Sequence[str] = ()


class Items(Struct, frozen=True):
    """A list; each item is a line of parts."""

    items: Sequence[Cells]


class Words(Struct, frozen=True):
    """A line of text in parts."""

    parts: Cells


class Figure(Struct, frozen=True):
    """A figure by the name of its plot; a plot that was not drawn has none."""

    name: str


Block = Facts | Table | Items | Words | Figure


class OutlineSection(Struct, frozen=True):
    """A title and the blocks under it."""

    title: str
    blocks: Sequence[Block]


def sections(explanation: Explanation) -> Iterator[OutlineSection]:
    """Yield the sections with content. A section without evidence says so in a line."""
    for section in catalogue.SECTIONS:
        if section.printed:
            for title, blocks in _titled_blocks(section, explanation):
                filled = [block for block in blocks if not _empty(block)]
                if filled:
                    yield OutlineSection(title, [*map(Figure, section.figures), *filled])


def _titled_blocks(section: catalogue.Section, explanation: Explanation) -> Iterator[tuple[str, list[Block]]]:
    """Yield the title and blocks of the section: its rows, then its layout of LAYOUTS."""
    titled: list[tuple[str, list[Block]]] = [(title, [Facts(rows)]) for title, rows in section.titled_rows(explanation)]
    if section.slot not in LAYOUTS:
        yield from titled
        return
    blocks = [block for _, blocks in titled for block in blocks]
    yield section.heading(explanation), [*blocks, *LAYOUTS[section.slot](explanation)]


def _empty(block: Block) -> bool:
    if isinstance(block, Facts | Table):
        return not block.rows
    return isinstance(block, Items) and not block.items


def _evidence(explanation: Explanation) -> Iterator[Block]:
    verdict = content.judged(explanation)
    if verdict is not None:
        rows = [(format.OUTCOME[item.holds], Code(item.reading.metric), format.reserved(item.reading),
                 format.threshold(item), item.because) for item in content.evidence(verdict)]
        yield Table(("", "metric", "value", "asked", "meaning"), rows,
                    title=("Evidence for ", Code(verdict.label), f": {content.tally(explanation, verdict)}."))


def _conditions(explanation: Explanation) -> Iterator[Block]:
    yield Items([(Code(verdict.label), f": {item.because}: {format.reading(item.reading)}, threshold "
                  f"{format.threshold(item)}")
                 for verdict in explanation.diagnosis.conditions for item in verdict.evidence if item.holds])


def _time(explanation: Explanation) -> Iterator[Block]:
    for parted in breakdown.every(explanation):
        rows = [(part.name, format.percent(parted.share(part)), format.duration(part.ns), format.exact_ns(part.ns))
                for part in parted.parts]
        total = ("sum", "100 %", format.duration(parted.ns), format.exact_ns(parted.ns))
        yield Table(("part", "share", "time", "exactly"), [*rows, total], numeric=True, title=(f"Of {parted.whole}:",))


def _coverage(explanation: Explanation) -> Iterator[Block]:
    rows = [(what, f"{count:,}", format.exact_ns(ns)) for what, count, ns in kernels.coverage(explanation)]
    yield Table(("kernels", "count", "time"), rows, numeric=True) if rows else Words((kernels.why_none(explanation),))


def _kernels(explanation: Explanation) -> Iterator[Block]:
    groups, reached = kernels.groups(explanation), roofline_headroom.by_kernel(explanation)
    limited = any(row["limit"] for row in groups)
    rows = [(Code(row["kernel_name"]), row["family"] or "", f"{row['calls']:,}", format.duration(row["total_ns"]),
             format.percent(row["pct_of_kernel_time"] / 100), format.duration(row["mean_ns"]),
             format.percent(near.share) if (near := reached.get(row["kernel_name"])) else format.NA,
             *([format.kernel_limit(row["limit"])] if limited else []),
             format.bar(row["pct_of_kernel_time"] / 100, 10)) for row in groups[:TOP]]
    more = [f"{format.plural(len(groups) - TOP, 'more kernel')} not shown."] if len(groups) > TOP else []
    more += [f"{note}." for note in kernels.skew_notes(explanation)]
    by = roofline_headroom.sources(reached) if reached else format.unavailable(roofline_headroom.why_none(explanation))
    header = ("kernel", "family", "calls", "total", "share", "mean", "of roof", *(["limit"] if limited else []), "")
    yield Table(header, rows, numeric=True, notes=[*more, f"Of roof: {by}."])


def _nodes(explanation: Explanation) -> Iterator[Block]:
    rows = [(Code(node.name), Code(node.op_type), Code(", ".join((node.sources or ())[:4])),
             format.percent(node.share), format.duration(node.time_ns),
             format.percent(node.roof.utilization) if node.roof else format.NA)
            for node in nodes.executed(explanation)[:TOP]]
    yield Table(("node", "operator", "computes", "share", "per inference", "of roof"), rows,
                notes=[f"Of roof: {note}" for note in nodes.roof_notes(explanation)])


def _roofline(explanation: Explanation) -> Iterator[Block]:
    why = nodes.why_not_placed(explanation)
    if not why:
        text = "Executed nodes at their modelled work, under the roofs measured on this machine."
    elif (explanation.examined.get("roofline") or {}).get("symbols"):
        text = "Kernels at their counted work."
    else:
        text = format.unavailable(why)
    yield Words((text,))


def _iterations(explanation: Explanation) -> Iterator[Block]:
    if "inference_iters" not in explanation.tables:
        yield Words((format.unavailable(why_no_iterations(explanation)),))
        return
    rows = [(str(number), outlier.spot, format.quantity(outlier.latency_ms, "ms"),
             f"+{format.quantity(outlier.excess_ms, 'ms')}", outlier.why)
            for number, outlier in enumerate(outliers(explanation), 1)]
    header = ("", "iteration", "latency", "over the median", "what was recorded around it")
    yield Table(header, rows) if rows else Words((NO_OUTLIER,))


NO_OUTLIER = "No measured iteration lies beyond Tukey's fence (1.5 interquartile ranges above the upper quartile)."


def why_no_iterations(explanation: Explanation) -> str:
    """Return why no latency is known."""
    return explanation.absent.get("metrics/inference_iters.parquet", "no iteration was recorded")


def _telemetry(explanation: Explanation) -> Iterator[Block]:
    if "gpu_events" in explanation.tables:
        yield Words((plural(explanation.rows("gpu_events"), "sample"),))


def _next(explanation: Explanation) -> Iterator[Block]:
    yield Items([(f"{step} (", Code(why), ")") for why, step in content.next_steps(explanation)])
    yield Items([(f"{what}: ", Code(command)) for what, command in content.commands(explanation)])


def _absent(explanation: Explanation) -> Iterator[Block]:
    yield Items([(f"{why}: ", *(part for place, name in enumerate(names) for part in
                                ((", ", Code(name)) if place else (Code(name),))))
                 for why, names in inventory.absent_readings(explanation).items()])


def _files(explanation: Explanation) -> Iterator[Block]:
    yield Words(("In ", Code(explanation.folder), ":"))
    rows = [(Code(file.name), "" if file.rows is None else f"{file.rows:,}",
             format.unavailable(file.why_absent) if file.why_absent else file.meaning,
             "" if file.why_absent else Code(inventory.captured(explanation, file.name)))
            for file in inventory.every(explanation)]
    yield Table(("file", "rows", "what it is", "read from"), rows)


LAYOUTS: dict[str, Callable[[Explanation], Iterator[Block]]] = {
    "bottleneck": _evidence, "conditions": _conditions, "time": _time, "coverage": _coverage, "kernels": _kernels,
    "nodes": _nodes, "roofline": _roofline, "iterations": _iterations, "telemetry": _telemetry, "next": _next,
    "absent": _absent, "files": _files}

"""The report for a terminal: a box with the answers, and below it what they rest on; never wider than 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Literal

from aaco.analytics.explanation import Explanation
from aaco.report import content, families, format, graph, inventory, kernels, nodes, operators, quality, spikes
from aaco.report.rows import Row

Style = Literal["plain", "colour"]
INNER = 78  # columns between the borders of the box
WIDTH = 80
LABEL = 22
TOP = 8
REASONS = 6


def render(explanation: Explanation, style: Style = "plain") -> str:
    """The report; "colour" adds terminal colours and nothing else."""
    lines = [*_box(explanation), *_below(explanation)]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return _coloured(text) if style == "colour" else text


def _box(explanation: Explanation) -> Iterator[str]:
    model, backend = content.heading(explanation)
    yield f"╔{'═' * INNER}╗"
    yield _framed(_centred("AACO Performance Report"))
    subject = f"{content.kind(explanation)}: {format.name(model, 34)}"
    yield _framed(_centred(f"{subject} | Backend: {format.cut(backend, 24)}"))
    for text in content.banners(explanation):
        yield from (_framed(_centred(line)) for line in format.wrap(text, INNER - 6))
    yield from _part("SUMMARY", _tree(content.summary(explanation)))
    yield from _part("BOTTLENECK ANALYSIS", _tree(content.bottleneck(explanation)))
    yield from _part(_kernel_title(explanation), _kernels(explanation))
    yield f"╚{'═' * INNER}╝"


def _part(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"╠{'═' * INNER}╣"
    yield _framed(f"  {title}")
    yield from (_framed(f"  {line}") for line in lines)


def _framed(text: str) -> str:
    return f"║{format.pad(text, INNER)}║"


def _centred(text: str) -> str:
    return " " * ((INNER - format.cells(text)) // 2) + text


def _tree(rows: list[Row]) -> Iterator[str]:
    for index, row in enumerate(rows):
        last = index == len(rows) - 1
        first, *rest = format.wrap(row.text, INNER - LABEL - 8)
        yield f"{'└─' if last else '├─'} {row.label + ':':<{LABEL}}{first}"
        yield from (f"{'  ' if last else '│ '} {'':<{LABEL}}{line}" for line in rest)


def _kernel_title(explanation: Explanation) -> str:
    place = kernels.place(explanation)
    note = {kernels.HOST: " (host CPU: one kernel is one executed graph node)", kernels.GPU: ""}
    return "TOP KERNELS BY TIME" + note.get(place, f" ({place})" if place else "")


def _kernels(explanation: Explanation) -> Iterator[str]:
    groups = kernels.groups(explanation)
    if not groups:
        yield from format.wrap(kernels.why_none(explanation), INNER - 4)
    for rank, row in enumerate(groups[:TOP], 1):
        share = row["pct_of_kernel_time"] / 100
        name = format.pad(format.kernel(row["kernel_name"], 27), 27)
        yield f"{rank}. {name} {format.percent(share):>7}  {format.bar(share, 30)}"
    if len(groups) > TOP:
        yield f"   {len(groups) - TOP:,} more in attribution/kernel_groups.parquet"


def _below(explanation: Explanation) -> Iterator[str]:
    for title, lines in (("TIME BY FAMILY", _listed(families.rows(explanation))),
                         ("MEASUREMENT QUALITY", _listed(quality.rows(explanation))),
                         ("SPIKES", _listed(spikes.rows(explanation))),
                         ("COVERAGE OF THE CAPTURE", _coverage(explanation)),
                         ("TRACE TRUTH", _listed(content.trace_truth(explanation))),
                         *((title.upper(), _listed(rows)) for title, rows in content.devices(explanation)),
                         ("SLOWEST EXECUTED NODES", _nodes(explanation)),
                         ("OPERATORS", _listed(operators.rows(explanation))),
                         ("GRAPH", _listed(graph.rows(explanation))),
                         ("EVIDENCE", _evidence(explanation)),
                         ("CONDITIONS", _conditions(explanation)),
                         ("CHANGE AGAINST THE BASELINE", _listed(content.change(explanation))),
                         ("WHAT TO DO NEXT", _next(explanation)),
                         ("ABSENT", _absent(explanation)),
                         ("FILES", _files(explanation))):
        body = list(lines)
        if body:
            yield from ("", title, *body)


def _listed(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield from format.hung(f"  {format.pad(format.cut(row.label, LABEL - 1), LABEL)}", row.text)


def _nodes(explanation: Explanation) -> Iterator[str]:
    found = nodes.executed(explanation)
    if found:
        yield f"  {'':<30}  {'operator':<14}{'share':>8}{'per inference':>15}{'of roof':>9}"
    for node in found[:TOP]:
        roof = format.percent(node.roof.utilization) if node.roof else "absent"
        operator = format.pad(format.name(node.op_type, 13), 14)
        yield (f"  {format.pad(format.name(node.name, 30), 30)}  {operator}{format.percent(node.share):>8}"
               f"{format.duration(node.time_ns):>15}{roof:>9}")
    for note in nodes.roof_notes(explanation):
        yield from format.hung("  of roof: ", note)


def _coverage(explanation: Explanation) -> Iterator[str]:
    found = kernels.coverage(explanation)
    if not found:
        yield from format.hung("  ", kernels.why_none(explanation))
    for what, count, ns in found:
        *above, last = format.wrap(what, 44)
        yield from (f"  {line}" for line in above)
        yield f"  {last:<44}{count:>10,} {format.exact_ns(ns):>22}"


def _evidence(explanation: Explanation) -> Iterator[str]:
    verdict = content.judged(explanation)
    if verdict is None:
        return
    yield f"  {verdict.label}: {verdict.tally}"
    for item in content.evidence(verdict):
        yield from format.hung(f"  {format.OUTCOME[item.holds]:<9}", f"{item.because} ({item.reading.metric} "
                         f"{format.reserved(item.reading)}; asked: {format.threshold(item)})")


def _conditions(explanation: Explanation) -> Iterator[str]:
    for verdict in explanation.diagnosis.conditions:
        for item in verdict.evidence:
            yield from format.hung("  ", f"{verdict.label}: {item.because}: {format.reading(item.reading)} "
                             f"(threshold {format.threshold(item)})")


def _next(explanation: Explanation) -> Iterator[str]:
    for number, (why, step) in enumerate(content.next_steps(explanation), 1):
        yield from format.hung(f"  {number}. ", f"{step} [{why}]")


def _absent(explanation: Explanation) -> Iterator[str]:
    reasons = list(inventory.absent_readings(explanation).items())
    for why, metrics in reasons[:REASONS]:
        named = ", ".join(metrics[:3]) + (f" and {len(metrics) - 3} more" if len(metrics) > 3 else "")
        yield from format.hung("  ", f"{named}: {why}")
    if len(reasons) > REASONS:
        left = sum(len(metrics) for _, metrics in reasons[REASONS:])
        more = f"{format.plural(left, 'more reading')} absent: aaco report {explanation.session_id} --format markdown"
        yield from format.hung("  ", more)


def _files(explanation: Explanation) -> Iterator[str]:
    yield from format.hung("  ", explanation.folder)
    yield "  definitions: aaco explain KAR"
    yield from format.hung("  plots: ", f"aaco report {explanation.session_id} --format html -o report.html")


def _coloured(text: str) -> str:
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    for pattern, style in _COLOURS.items():
        shown.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    console = Console(file=StringIO(), force_terminal=True, color_system="standard", width=WIDTH, legacy_windows=False)
    with console.capture() as captured:
        console.print(shown, soft_wrap=True, end="")
    return captured.get()


_COLOURS = {
    r"[╔╗╚╝╠╣═║├└│─░]": "dim",
    r"^║  [A-Z][A-Z ]+(?= )|^[A-Z][A-Z ]+$": "bold cyan",
    r"INCOMPLETE RUN|synthetic weights": "bold yellow",
    r"(?<=Classification:).*?(?=║)": "bold",
    r"^  for (?= )": "green",
    r"^  against (?= )": "red",
    r"^  unknown (?= )|absent:": "yellow",
    r"█+": "cyan",
}

"""The report for a terminal: its first screen, a box with the headline figures, the evidence below it; 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels.places import GPU, HOST
from aaco.report import format
from aaco.report.names import shorten
from aaco.report.renderers import first_lines
from aaco.report.renderers.opening import WIDTH, Style, in_style
from aaco.report.rows import Row
from aaco.report.sections import catalogue, content, first_screen, inventory, kernels, nodes, start_skew

LABEL = 22
TOP = 8
REASONS = 6


def render(explanation: Explanation, style: Style = "plain", columns: int = WIDTH, options: str = "") -> str:
    """Return the first screen and the whole report, at most `columns` wide. options: as of first_screen."""
    opening = first_lines.whole(first_screen.first_screen(explanation, options), columns)
    return in_style([*opening, "", *_box(explanation, columns), *_below(explanation, columns)], style)


def _box(explanation: Explanation, columns: int) -> Iterator[str]:
    model, backend = content.heading(explanation)
    inner = columns - 2
    yield f"╔{'═' * inner}╗"
    yield _framed(_centred("AACO Performance Report", inner), inner)
    subject = f"{content.kind(explanation)}: {format.name(model, inner - 45)}"
    yield _framed(_centred(f"{subject} | Backend: {format.cut(backend, 24)}", inner), inner)
    for section in catalogue.SECTIONS:
        if section.box:
            yield from _part(*_boxed(section, explanation, inner), inner)
    yield f"╚{'═' * inner}╝"


def _part(title: str, lines: Iterable[str], inner: int) -> Iterator[str]:
    yield f"╠{'═' * inner}╣"
    yield _framed(f"  {title}", inner)
    yield from (_framed(f"  {line}", inner) for line in lines)


def _framed(text: str, inner: int) -> str:
    return f"║{format.pad(text, inner)}║"


def _centred(text: str, inner: int) -> str:
    return " " * ((inner - format.cells(text)) // 2) + text


def _tree(rows: list[Row], inner: int) -> Iterator[str]:
    for index, row in enumerate(rows):
        last = index == len(rows) - 1
        first, *others = format.wrap(row.text, inner - LABEL - 8)
        yield f"{'└─' if last else '├─'} {row.label + ':':<{LABEL}}{first}"
        yield from (f"{'  ' if last else '│ '} {'':<{LABEL}}{line}" for line in others)


def _boxed(section: catalogue.Section, explanation: Explanation, inner: int) -> tuple[str, Iterator[str]]:
    """Return the title and lines of a section in the box."""
    if section.slot == "kernels":
        return section.box + _kernel_place(explanation), _kernels(explanation, inner)
    return section.box, _tree([row for _, rows in section.titled_rows(explanation) for row in rows], inner)


def _kernel_place(explanation: Explanation) -> str:
    place = kernels.place(explanation)
    note = {HOST: " (host CPU: one kernel is one executed graph node)", GPU: ""}
    return note.get(place, f" ({place})" if place else "")


def _kernels(explanation: Explanation, inner: int) -> Iterator[str]:
    groups = kernels.groups(explanation)
    if not groups:
        yield from format.wrap(kernels.why_none(explanation), inner - 4)
    width = inner - 51  # a rank, a share and a bar have the rest
    names = shorten((row["kernel_name"] for row in groups[:TOP]), width)
    for rank, row in enumerate(groups[:TOP], 1):
        share, name = row["pct_of_kernel_time"] / 100, format.pad(names[row["kernel_name"]], width)
        yield f"{rank}. {name} {format.percent(share):>7}  {format.bar(share, 30)}"
        if waits := start_skew.note(row["skew_ns"]):
            yield from (f"   {line}" for line in format.wrap(waits, inner - 7))
    if len(groups) > TOP:
        yield f"   {len(groups) - TOP:,} more: aaco kernels {format.clean(explanation.session_id)} --top {len(groups)}"


def _below(explanation: Explanation, columns: int) -> Iterator[str]:
    for section in catalogue.on_terminal():
        for title, lines in _titled_lines(section, explanation, columns):
            body = list(lines)
            if body:
                yield from ("", title.upper(), *body)


def _titled_lines(section: catalogue.Section, explanation: Explanation, columns: int
                  ) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the title and lines of the section: its layout of LAYOUTS, else its rows."""
    if section.slot in LAYOUTS:
        yield section.title, LAYOUTS[section.slot](explanation, columns)
    else:
        yield from ((title, _listed(rows, columns)) for title, rows in section.titled_rows(explanation))


def _listed(rows: list[Row], columns: int) -> Iterator[str]:
    width = LABEL + (columns - WIDTH) // 2
    labels = shorten((row.label for row in rows), width - 1, format.cut)
    for row in rows:
        yield from format.hung(f"  {format.pad(labels[row.label] if row.label else '', width)}", row.text, columns)


def _nodes(explanation: Explanation, columns: int) -> Iterator[str]:
    executed, width = nodes.executed(explanation), columns - 50
    names = shorten((node.name for node in executed[:TOP]), width, format.cut)
    if executed:
        yield f"  {'':<{width}}  {'operator':<14}{'share':>8}{'per inference':>15}{'of roof':>9}"
    for node in executed[:TOP]:
        roof = format.percent(node.roof.utilization) if node.roof else format.NA
        operator = format.pad(format.name(node.op_type, 13), 14)
        yield (f"  {format.pad(names[node.name], width)}  {operator}{format.percent(node.share):>8}"
               f"{format.duration(node.time_ns):>15}{roof:>9}")
    for note in nodes.roof_notes(explanation):
        yield from format.hung("  of roof: ", note, columns)


def _coverage(explanation: Explanation, columns: int) -> Iterator[str]:
    covered = kernels.coverage(explanation)
    if not covered:
        yield from format.hung("  ", kernels.why_none(explanation), columns)
    for what, count, ns in covered:
        *above, last = format.wrap(what, 44)
        yield from (f"  {line}" for line in above)
        yield f"  {last:<44}{count:>10,} {format.exact_ns(ns):>22}"


def _evidence(explanation: Explanation, columns: int) -> Iterator[str]:
    verdict = content.judged(explanation)
    if verdict is None:
        return
    yield from format.hung("  ", f"{verdict.label}: {content.tally(explanation, verdict)}", columns)
    for item in content.evidence(verdict):
        yield from format.hung(f"  {format.OUTCOME[item.holds]:<9}", f"{item.because} ({item.reading.metric} "
                         f"{format.reserved(item.reading)}; asked: {format.threshold(item)})", columns)


def _conditions(explanation: Explanation, columns: int) -> Iterator[str]:
    for verdict in explanation.diagnosis.conditions:
        for item in verdict.evidence:
            yield from format.hung("  ", f"{verdict.label}: {item.because}: {format.reading(item.reading)} "
                             f"(threshold {format.threshold(item)})", columns)


def _next(explanation: Explanation, columns: int) -> Iterator[str]:
    for number, (why, step) in enumerate(content.next_steps(explanation), 1):
        yield from format.hung(f"  {number}. ", f"{step} [{why}]", columns)


def _absent(explanation: Explanation, columns: int) -> Iterator[str]:
    reasons = list(inventory.absent_readings(explanation).items())
    for why, metrics in reasons[:REASONS]:
        named = ", ".join(metrics[:3]) + (f" and {len(metrics) - 3} more" if len(metrics) > 3 else "")
        yield from format.hung("  ", f"{named}: {why}", columns)
    if len(reasons) > REASONS:
        left = sum(len(metrics) for _, metrics in reasons[REASONS:])
        yield from format.hung("  ", f"{format.plural(left, 'more metric')} not measured: aaco report "
                               f"{explanation.session_id} --format markdown", columns)


def _files(explanation: Explanation, columns: int) -> Iterator[str]:
    yield from format.hung("  ", explanation.folder, columns)
    yield "  definitions: aaco explain KAR"
    yield from format.hung("  plots: ", f"aaco report {explanation.session_id} --format html -o report.html", columns)


LAYOUTS: dict[str, Callable[[Explanation, int], Iterator[str]]] = {
    "coverage": _coverage, "nodes": _nodes, "evidence": _evidence, "conditions": _conditions, "next": _next,
    "absent": _absent, "files": _files}

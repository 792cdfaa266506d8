"""The report as GitHub Markdown, every text of the session escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from aaco.analytics.explanation import Explanation
from aaco.core.readings import Verdict
from aaco.report import content, families, format, graph, inventory, kernels, nodes, operators, quality, spikes
from aaco.report.rows import Row

TOP = 10
NAME = 120
_SPECIAL = re.compile(r"[\\`*_{}\[\]#~&<>|@]")
_OPENING = re.compile(r"^(\s*)(\d*)([-+=.)])(?=[\s=-]|$)")  # would begin a list, a rule or a heading
# A backslash before a pipe differs in meaning in and out of a table; a word joiner keeps @name from being a mention.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "@": "@&#8288;"}


def render(explanation: Explanation) -> str:
    """The whole report; sections that have nothing to say are left out."""
    model, backend = content.heading(explanation)
    top = [f"# {code(model)} on {code(backend)}", f"Session {code(explanation.session_id)}",
           *(f"> **{plain(text)}**" for text in content.banners(explanation))]
    sections = ((title, body) for title, body in _sections(explanation) if body)
    return "\n\n".join(top + [f"## {title}\n\n{body}".rstrip() for title, body in sections]) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no table cell, no mention comes of it."""
    escaped = _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), format.clean(text))
    return _OPENING.sub(r"\1\2\\\3", escaped)


def code(text: str) -> str:
    """A name in code type, safe inside a table too."""
    text = format.name(text, NAME)
    if "`" not in text and "|" not in text:
        return f"`{text}`"
    return f"<code>{re.sub(r'[^A-Za-z0-9 ]', lambda found: f'&#{ord(found[0])};', text)}</code>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: bool = False) -> str:
    """A table of cells that are Markdown already; with `numeric`, all but the first column align right."""
    rule = ["---", *(("---:" if numeric else "---") for _ in header[1:])]
    lines = [header, rule, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _sections(explanation: Explanation) -> Iterator[tuple[str, str]]:
    yield "Summary", _rows(content.summary(explanation))
    yield "Bottleneck", _rows(content.bottleneck(explanation)) + _verdict(content.judged(explanation))
    yield "Conditions", _conditions(explanation)
    yield f"Top kernels by time ({kernels.place(explanation)})", _kernels(explanation)
    yield "Time by family", _rows(families.rows(explanation))
    yield "Slowest executed nodes", _nodes(explanation)
    yield "Operators", _rows(operators.rows(explanation))
    yield "Graph", _rows(graph.rows(explanation))
    yield "Measurement quality", _rows(quality.rows(explanation))
    yield "Spikes", _rows(spikes.rows(explanation))
    yield "Coverage of the capture", _coverage(explanation)
    yield "Trace truth", _rows(content.trace_truth(explanation))
    yield from ((title, _rows(rows)) for title, rows in content.devices(explanation))
    yield "Change against the baseline", _rows(content.change(explanation))
    yield "What to do next", _next(explanation)
    yield "Absent", _absent(explanation)
    yield "Files", _files(explanation)


def _rows(rows: Iterable[Row]) -> str:
    cells = [(plain(row.label), plain(row.text)) for row in rows]
    return table(("", ""), cells) if cells else ""


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    rows = [(format.OUTCOME[item.holds], code(item.reading.metric), plain(format.reserved(item.reading)),
             plain(format.threshold(item)), plain(item.because)) for item in content.evidence(verdict)]
    title = f"\nEvidence for {code(verdict.label)}: {verdict.tally}.\n\n"
    return title + table(("", "metric", "value", "asked", "meaning"), rows)


def _conditions(explanation: Explanation) -> str:
    lines = [f"- {code(verdict.label)}: {plain(item.because)}: {plain(format.reading(item.reading))}, "
             f"threshold {plain(format.threshold(item))}"
             for verdict in explanation.diagnosis.conditions for item in verdict.evidence if item.holds]
    return "".join(f"{line}\n" for line in lines)


def _kernels(explanation: Explanation) -> str:
    groups = kernels.groups(explanation)
    if not groups:
        return ""
    rows = [(code(row["kernel_name"]), plain(row["family"] or ""), f"{row['calls']:,}",
             format.duration(row["total_ns"]), format.percent(row["pct_of_kernel_time"] / 100),
             format.duration(row["mean_ns"]), format.bar(row["pct_of_kernel_time"] / 100, 10)) for row in groups[:TOP]]
    more = f"\n{format.plural(len(groups) - TOP, 'more kernel')} not shown.\n" if len(groups) > TOP else ""
    header = ("kernel", "family", "calls", "total", "share", "mean", "")
    return table(header, rows, numeric=True) + more


def _nodes(explanation: Explanation) -> str:
    rows = [(code(node.name), code(node.op_type), ", ".join(map(code, (node.sources or ())[:4])),
             format.percent(node.share), format.duration(node.time_ns),
             format.percent(node.roof.utilization) if node.roof else "absent")
            for node in nodes.executed(explanation)[:TOP]]
    if not rows:
        return ""
    notes = "".join(f"\nOf roof: {plain(note)}\n" for note in nodes.roof_notes(explanation))
    return table(("node", "operator", "computes", "share", "per inference", "of roof"), rows) + notes


def _coverage(explanation: Explanation) -> str:
    found = kernels.coverage(explanation)
    if not found:
        return plain(kernels.why_none(explanation))
    rows = [(plain(what), f"{count:,}", format.exact_ns(ns)) for what, count, ns in found]
    return table(("kernels", "count", "time"), rows, numeric=True)


def _next(explanation: Explanation) -> str:
    return "".join(f"- {plain(step)} ({code(why)})\n" for why, step in content.next_steps(explanation))


def _absent(explanation: Explanation) -> str:
    return "".join(f"- {plain(why)}: {', '.join(map(code, names))}\n"
                   for why, names in inventory.absent_readings(explanation).items())


def _files(explanation: Explanation) -> str:
    rows = [(code(file.name), "" if file.rows is None else f"{file.rows:,}",
             plain(f"absent: {file.why_absent}" if file.why_absent else file.meaning))
            for file in inventory.every(explanation)]
    return f"In {code(explanation.folder)}:\n\n{table(('file', 'rows', ''), rows)}"

"""The sections of a report, declared once: title, order, what makes their rows, and the renderings that show them.

The terminal, Markdown, PDF and HTML draw from this list. A section of plain rows needs nothing else; a renderer that
lays a section out in its own way keeps that layout under the section's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.report.rows import Row
from aaco.report.sections import (
    content,
    families,
    finding_views,
    first_screen,
    graph,
    kernels,
    operators,
    quality,
    spikes,
    trace,
)

MakeRows = Callable[[Explanation], Iterable[Row]]
TitledRows = tuple[str, list[Row]]


class PagePart(Struct, frozen=True):
    """A part of the HTML page, in the order of the page. heading: empty if its first section shows one."""

    id: str
    title: str
    heading: str = ""


PAGE = (PagePart("verdict", "Verdict"), PagePart("evidence", "Evidence", "What it rests on"),
        PagePart("time", "Time", "Where the time went"),
        PagePart("quality", "Measurement", "Is the measurement good"), PagePart("kernels", "Kernels", "Top kernels"),
        PagePart("roofline", "Roofline", "Distance from the roof"),
        PagePart("iterations", "Iterations", "Iterations, and what made some of them long"),
        PagePart("devices", "Devices", "What the devices did"),
        PagePart("change", "Change", "Change against the baseline"),
        PagePart("next", "Next steps", "What to do next"), PagePart("metrics", "Metrics", "All metrics"),
        PagePart("absent", "Not measured", "What is not measured, and why"),
        PagePart("environment", "Environment", "Environment and bundle"), PagePart("definitions", "Definitions",
                                                                                   "Definitions"))


class Section(Struct, frozen=True):
    """A section of a report.

    slot: its name; a renderer's own layout is kept under it.
    rows: makes its rows. None: each renderer that shows the section lays it out.
    views: makes titles and rows, for a section that is several.
    aside: makes the words in brackets after the title.
    printed: shown in Markdown and PDF, with these figures above it.
    box: its title in the terminal's box. terminal: its rank below the box; 0 if it is not there.
    page: the part of the HTML page that shows it. files: what the page says its rows are read from; with `source`, also
    the capture of the first of them.
    """

    slot: str
    title: str = ""
    rows: MakeRows | None = None
    views: Callable[[Explanation], Iterable[TitledRows]] | None = None
    aside: Callable[[Explanation], str] | None = None
    printed: bool = True
    figures: tuple[str, ...] = ()
    box: str = ""
    terminal: int = 0
    page: str = ""
    files: tuple[str, ...] = ()
    source: bool = True

    def heading(self, explanation: Explanation) -> str:
        """Return the title, with the words in brackets after it."""
        return f"{self.title} ({self.aside(explanation)})" if self.aside else self.title

    def titled_rows(self, explanation: Explanation) -> Iterator[TitledRows]:
        """Yield the title and rows of the section, or of each that it is made of; none without rows."""
        if self.views:
            yield from self.views(explanation)
        elif self.rows and (rows := list(self.rows(explanation))):
            yield self.title, rows


def _findings(explanation: Explanation) -> Iterator[TitledRows]:
    return finding_views.sections(explanation.examined)


GRAPH_FILES = ("model/graph_nodes.parquet", "model/graph_edges.parquet", "model/executed_nodes.parquet")
SECTIONS = (
    Section("first_screen", "In short", first_screen.rows, page="verdict"),
    Section("summary", "Summary", content.figures, box="SUMMARY"),
    Section("bottleneck", "Bottleneck", content.classification, box="BOTTLENECK ANALYSIS"),
    Section("evidence", "Evidence", printed=False, terminal=15, page="evidence"),
    Section("conditions", "Conditions", terminal=16, page="evidence"),
    Section("considered", printed=False, page="evidence"),
    Section("time", "Where the time went", figures=("timeline", "devices", "flame_graph"), page="time"),
    Section("families", "Time by family", families.rows, terminal=1),
    Section("quality", "Measurement quality", quality.rows, figures=("radar",), terminal=2, page="quality"),
    Section("coverage", "Coverage of the capture", terminal=4, page="quality"),
    Section("truth", "Trace check", content.trace_remarks, terminal=5, page="quality",
            files=("metrics/trace_check.json",), source=False),
    Section("kernels", "Top kernels by time", aside=kernels.place, figures=("kernels",), box="TOP KERNELS BY TIME",
            page="kernels"),
    Section("nodes", "Slowest executed nodes", terminal=12, page="kernels"),
    Section("operators", "Operators", operators.rows, terminal=13, page="kernels",
            files=("attribution/operators.parquet",)),
    Section("graph", "Graph", graph.rows, terminal=14, page="kernels", files=GRAPH_FILES),
    Section("roofline", "Roofline", figures=("roofline", "counters"), page="roofline"),
    Section("iterations", "Iterations", figures=("latency_series", "latency_histogram"), page="iterations"),
    Section("spikes", "Spikes", spikes.rows, terminal=3, page="iterations",
            files=("metrics/iteration_features.parquet",), source=False),
    Section("latencies", printed=False, page="iterations"),
    Section("telemetry", "Telemetry of devices", figures=("gpu_series",), page="devices"),
    Section("timeline", "GPU timeline", trace.timeline, terminal=6, page="devices"),
    Section("idle", "Idle by cause", trace.idle, terminal=7, page="devices"),
    Section("launches", "Launches", trace.launches, terminal=8, page="devices"),
    Section("collectives", "Collectives", trace.collectives, terminal=9, page="devices"),
    Section("steady", "Steady state", trace.steady, terminal=10, page="devices"),
    Section("findings", views=_findings, terminal=11, page="devices"),
    Section("device_files", printed=False, page="devices"),
    Section("change", "Change against the baseline", content.change, figures=("comparison", "attribution"),
            terminal=17, page="change"),
    Section("next", "What to do next", terminal=18, page="next"),
    Section("metrics", printed=False, page="metrics"),
    Section("absent", "Not measured", terminal=19, page="absent"),
    Section("environment", printed=False, page="environment"),
    Section("files", "Files", terminal=20),
    Section("definitions", printed=False, page="definitions"),
)


def on_terminal() -> list[Section]:
    """Return the sections below the terminal's box, in its order."""
    return sorted((section for section in SECTIONS if section.terminal), key=lambda section: section.terminal)


def on_page(part: str) -> list[Section]:
    """Return the sections of a part of the HTML page."""
    return [section for section in SECTIONS if section.page == part]


def rows_of_part(part: str, explanation: Explanation) -> list[TitledRows]:
    """Return the titles and rows that a part of the HTML page shows."""
    return [titled for section in on_page(part) for titled in section.titled_rows(explanation)]

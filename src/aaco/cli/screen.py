"""The screen of `aaco top`. Names come from sessions and steer nothing: they are plain text, control characters
escaped."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, ProgressBar, Sparkline, Static

from aaco import pipeline
from aaco.core.config import Settings
from aaco.core.errors import AacoError
from aaco.core.session import Session
from aaco.report import format
from aaco.report.sections import watch
from aaco.report.sections.watch import View
from aaco.workflows import progress

PERIOD_S = 0.5
COLUMNS = (("share", 7), ("total", 10), ("calls", 9), ("mean", 10), ("family", 14))
NAMES = 300  # columns of a kernel's name at most; the table scrolls


class Top(App[None]):
    """A session, redrawn while its run goes on."""

    CSS = """
    #title { height: 1; text-style: bold; background: $panel; padding: 0 1; }
    #upper { height: auto; max-height: 50%; }
    #facts { width: 1fr; height: auto; padding: 0 1; }
    #latencies { width: 1fr; height: auto; padding: 0 1; }
    Sparkline { height: 3; }
    #progress, #progress Bar { width: 1fr; }
    #search { display: none; height: 3; }
    #search.shown { display: block; }
    #note { height: auto; padding: 0 1; color: $text-muted; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "leave"), Binding("slash", "search", "search"), Binding("s", "order", "sort"),
        Binding("escape", "all", "all kernels")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, session: Session, settings: Settings) -> None:
        super().__init__()
        self.session, self.settings = session, settings
        self.view: View | None = None
        self.word, self.order = "", watch.ORDERS[0]

    def compose(self) -> ComposeResult:
        """Title, facts and latencies side by side, the search, the table."""
        yield Static(id="title", markup=False)
        with Horizontal(id="upper"):
            yield Static(id="facts", markup=False)
            with Vertical(id="latencies"):
                yield Static(id="range", markup=False)
                yield Sparkline([], summary_function=max)
                yield ProgressBar(id="progress")
                yield Static(id="steps", markup=False)
        yield Input(placeholder="part of a kernel's name or family", id="search")
        yield Static(id="note", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Columns, then the first look."""
        table = self.query_one(DataTable)
        for name, width in COLUMNS:
            table.add_column(name, width=width)
        table.add_column("kernel")
        self.query_one("#progress").display = False
        table.focus()
        self.timer = self.set_interval(PERIOD_S, self.look)
        self.look()

    def look(self) -> None:
        """How far the run is; once it has ended, everything."""
        try:
            seen = progress.of(self.session)
        except AacoError as error:
            self.timer.stop()
            self.query_one("#note", Static).update(format.clean(error.what))
            return
        if seen.ended:
            self.timer.stop()
            self.query_one("#note", Static).update("reading the session ...")
            self.explain()
        else:
            self.show(of_progress(self.session, seen))

    @work(thread=True, exclusive=True)
    def explain(self) -> None:
        """Read the whole session in the background."""
        try:
            view = watch.of(pipeline.explain(self.session, self.settings))
        except AacoError as error:
            view = View(self.session.id, (("problem", format.clean(error.what)),),
                        why_no_kernels=format.clean(error.fix))
        self.call_from_thread(self.show, view)

    def show(self, view: View) -> None:
        """Draw a view."""
        self.view = view
        self.query_one("#title", Static).update(view.title)
        facts = Table.grid(padding=(0, 2))
        for row in view.facts:
            facts.add_row(*map(Text, row))
        self.query_one("#facts", Static).update(facts)
        line = self.query_one(Sparkline)
        line.data = list(view.latencies_ms or view.busy)
        line.display = bool(line.data)
        words = view.busy_text if view.busy and not view.latencies_ms else watch.range_of(view.latencies_ms)
        self.query_one("#range", Static).update(words)
        steps = (f"{number}. {text}" for number, text in enumerate(view.steps, 1))
        self.query_one("#steps", Static).update("\n".join(steps))
        bar = self.query_one(ProgressBar)
        bar.display = not view.ended
        bar.update(total=view.planned, progress=view.done or 0)
        self.fill()

    def fill(self) -> None:
        """The table's rows, by what is searched for and the order."""
        if self.view is None:
            return
        rows = watch.chosen(self.view.kernels, self.word, self.order)
        table = self.query_one(DataTable)
        table.clear()
        for row in rows:
            cells = (format.percent(row.share), format.duration(row.total_ns), f"{row.calls:,}",
                     format.duration(row.mean_ns), format.cut(row.family, 14),
                     " ".join(filter(None, (format.name(row.name, NAMES), f"({row.note})" * bool(row.note)))))
            table.add_row(*(Text(cell, justify="right" if at < 4 else "left") for at, cell in enumerate(cells)))
        of = f" of {len(self.view.kernels):,} with {self.word!r}" if self.word else ""
        caption = f"{format.plural(len(rows), 'kernel')}{of}, by {self.order}"
        self.query_one("#note", Static).update(format.clean(self.view.why_no_kernels or caption))

    def action_search(self) -> None:
        """Ask for a word."""
        field = self.query_one(Input)
        field.add_class("shown")
        field.focus()

    def action_all(self) -> None:
        """Forget the word."""
        field = self.query_one(Input)
        field.value, self.word = "", ""
        field.remove_class("shown")
        self.query_one(DataTable).focus()
        self.fill()

    def action_order(self) -> None:
        """The next order."""
        self.order = watch.ORDERS[(watch.ORDERS.index(self.order) + 1) % len(watch.ORDERS)]
        self.fill()

    @on(Input.Changed)
    def sought(self, event: Input.Changed) -> None:
        """The word as it is typed."""
        self.word = event.value
        self.fill()

    @on(Input.Submitted)
    def found(self) -> None:
        """Back to the table, with what was found."""
        self.query_one(DataTable).focus()


def of_progress(session: Session, counted: progress.Progress) -> View:
    """The view of a run that is not explained yet."""
    plan = session.record.plan
    facts = [("phase", counted.phase or "not begun"), ("process", f"{counted.processes_begun} of {counted.processes}"),
             ("done", f"{counted.done:,}" + (f" of {counted.planned:,}" if counted.planned else ""))]
    if counted.median_ms is not None:
        facts.append(("recent median", format.quantity(counted.median_ms, "ms")))
    if counted.failure:
        facts.append(("failure", format.clean(counted.failure)))
    what = format.clean(str(plan.get("model", "")))
    return View(f"{session.id}  {what}  {counted.status}", tuple(facts), counted.recent_ms,
                why_no_kernels="kernels are known once the run has ended", done=counted.done, planned=counted.planned,
                ended=counted.ended)

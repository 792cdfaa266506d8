"""What a person sees on stderr while work goes on: a line per step and, at a terminal, a bar with its rate and what is
left, gone at the end. Anywhere else it is a plain line per step, and one now and then while something is counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from aaco.cli import say
from aaco.core.show import SILENT, Show

NOW_AND_THEN_S = 10.0
SHORTEST_S = 0.5  # a rate over less says nothing


@contextmanager
def talk_beside_program() -> Iterator[Show]:
    """Yield a Show of plain lines that also copies what a started program prints to standard error."""
    if not say.heard("info"):
        yield SILENT
        return
    try:
        output_fd = sys.stderr.fileno()
    except OSError:  # standard error is no file
        yield Plain().show
    else:
        yield replace(Plain().show, output_fd=output_fd)


@contextmanager
def talk() -> Iterator[Show]:
    """A Show for the length of the block: silent, plain lines, or live on a terminal."""
    if not say.heard("info"):
        yield SILENT
    elif say.lively(sys.stderr):
        with _live() as show:
            yield show
    else:
        yield Plain().show


class Plain:
    """Lines for a log: each step, and how far it is whenever ten seconds went by without a line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, line: Callable[[str], None] = say.aside) -> None:
        self._clock, self._line = clock, line
        self._began = self._said = clock()
        self.show = Show(self._step, self._progress)

    def _step(self, text: str) -> None:
        self._began = self._said = self._clock()
        self._line(text)

    def _progress(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._said >= NOW_AND_THEN_S and done < total:
            self._said = now
            self._line(f"  {done:,} of {total:,}{ahead(done, total, now - self._began)}")


def ahead(done: int, total: int, elapsed_s: float) -> str:
    """Return rate and time left in words, by the mean so far: ", 12.3/s, 8 s left"; empty while both are unknown."""
    if done <= 0 or elapsed_s < SHORTEST_S:
        return ""
    rate = done / elapsed_s
    left_s = max(0.0, total - done) / rate
    scale, unit = (1, "s") if left_s < 100 else (60, "min") if left_s < 6000 else (3600, "h")
    return f", {f'{rate:.3g}' if rate < 1000 else f'{rate:,.0f}'}/s, {left_s / scale:.0f} {unit} left"


@contextmanager
def _live() -> Iterator[Show]:
    """A spinner with the step, and a bar with numbers, rate and time left once something is counted."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    from aaco.core.redaction import redact
    from aaco.report.format import clean

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text(f"{task.elapsed or 0:.0f} s" if (task.elapsed or 0) >= 1 else "")
            done, total = int(task.completed), int(task.total)
            return Text(f"{done:,}/{total:,}{ahead(done, total, task.elapsed or 0.0)}")

    words = TextColumn("{task.description}", markup=False,  # names may hold brackets
                       table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (SpinnerColumn(), words, BarColumn(bar_width=14), Counted(table_column=Column(no_wrap=True)))
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as progress:
        tasks = [progress.add_task("starting", total=None)]

        def step(text: str) -> None:
            progress.remove_task(tasks.pop())  # a task's total cannot be taken back
            tasks.append(progress.add_task(clean(redact(text)), total=None))

        yield Show(step, lambda done, total: progress.update(tasks[0], completed=done, total=total))

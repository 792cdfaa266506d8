"""What a person sees on stderr while a run goes on: a line per step and a progress bar; plain lines when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aaco.cli import say
from aaco.core.show import SILENT, Show


@contextmanager
def talk(quiet: bool) -> Iterator[Show]:
    """A Show for the length of the block: silent, plain lines, or live on a terminal."""
    if quiet or not say.heard("info"):
        yield SILENT
    elif not sys.stderr.isatty():
        yield Show(step=say.aside)
    else:
        with _live() as show:
            yield show


@contextmanager
def _live() -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from aaco.report.format import clean

    words = TextColumn("{task.description}", markup=False)  # names may hold brackets
    columns = (SpinnerColumn(), words, BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield Show(step=lambda text: progress.update(task, description=clean(text), completed=0, total=None),
                   progress=lambda done, total: progress.update(task, completed=done, total=total))

"""Where talk goes while long work goes on; who works does not know whether anybody listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Show:
    """A line per step, and (done, total) while something is counted."""

    step: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None


SILENT = Show()

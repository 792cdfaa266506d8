"""Messages during long work; the code that works does not know who reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Show:
    """A line per step, and (done, total) while something is counted."""

    step: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None


SILENT = Show()

"""Messages during long work; the code that works does not know who reads them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Show(Struct, frozen=True):
    """A line per step, (done, total) while something is counted, and the file descriptor to which a started program's
    output is copied (None: it is not shown).
    """

    step: Callable[[str], None] = lambda text: None
    progress: Callable[[int, int], None] = lambda done, total: None
    output_fd: int | None = None


SILENT = Show()

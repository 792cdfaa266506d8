"""The kernel stacks in the list of files. A report draws them (plots/flame_graph.py) and prints no rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report.finding_view import finding_view
from aaco.report.rows import Row


@finding_view("stacks", "kernel time by module, operator and kernel: the flame graph", place=10)
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """Yield nothing."""
    yield from ()

"""Numbers in words, for sentences that any layer makes."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 process", "3 processes"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch", "sh", "x")) else "s"
    return f"{count:,} {noun}{ending}"

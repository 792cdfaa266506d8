"""What a report shows of each document that a finding writes: the views, each in the file of sections/findings that has
the name of its slot.

A view is imported where it shows something: most sessions have documents of a third of the slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from aaco.report.finding_view import VIEWS, FindingView
from aaco.report.rows import Row
from aaco.report.sections import findings


@cache
def slots() -> tuple[str, ...]:
    """Return the slots that have a view, by the names of the files."""
    return tuple(module.name for module in iter_modules(findings.__path__))


def view(slot: str) -> FindingView:
    """Return the view of a slot. Raise TypeError if the file of that name declares no such view."""
    if slot not in VIEWS:
        import_module(f"{findings.__name__}.{slot}")
    if slot not in VIEWS:
        raise TypeError(f"{findings.__name__}.{slot} declares no view of the slot {slot!r}")
    return VIEWS[slot]


def in_order(names: Iterable[str]) -> dict[str, FindingView]:
    """Return the views of those that are slots, in the order of a report."""
    views = {slot: view(slot) for slot in names if slot in slots()}
    return dict(sorted(views.items(), key=lambda item: (item[1].place, item[0])))


def sections(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the title and rows of each section of the documents that has rows. documents: by slot."""
    for slot, document in documents.items():
        yield from ((title, rows) for title, rows in view(slot).sections(document) if rows)

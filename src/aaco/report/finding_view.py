"""Views of findings register here: what a report shows of a document, under the slot that its finding names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from aaco.report.rows import Row

MakeSections = Callable[[Mapping[str, Any]], Iterator[tuple[str, list[Row]]]]
Function = TypeVar("Function", bound=MakeSections)
LAST = 100


@dataclass(frozen=True)
class FindingView:
    """sections: turns the finding's document into titles and rows. meaning: what the document's file holds. place: in
    the order of a report."""

    sections: MakeSections
    meaning: str
    place: int


VIEWS: dict[str, FindingView] = {}


def finding_view(slot: str, meaning: str, place: int = LAST) -> Callable[[Function], Function]:
    """Return a decorator that registers a function as the view of a slot. Raise TypeError if the slot has one."""

    def register(function: Function) -> Function:
        if slot in VIEWS:
            raise TypeError(f"{slot!r} has two views; the second is in {function.__module__}")
        VIEWS[slot] = FindingView(function, meaning, place)
        return function

    return register

"""Views of findings register here: what a report shows of a document, under the slot that its finding names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from aaco.core.documents import decode
from aaco.report.rows import Row

MakeSections = Callable[[Mapping[str, Any]], Iterator[tuple[str, list[Row]]]]
Function = TypeVar("Function", bound=Callable[..., Any])
LAST = 100


class FindingView(Struct, frozen=True):
    """sections: turns the finding's document into titles and rows. meaning: what the document's file holds. place: in
    the order of a report."""

    sections: MakeSections
    meaning: str
    place: int


VIEWS: dict[str, FindingView] = {}


def finding_view(slot: str, meaning: str, place: int = LAST, title: str = "",
                 form: type[Any] | None = None) -> Callable[[Function], Function]:
    """Return a decorator that registers a function as the view of a slot. Raise TypeError if the slot has one.

    The function yields the rows of the one section with this title; without a title it yields titles and rows. It
    takes the document, or what the Struct declared for it makes of it: its form.
    """

    def register(function: Function) -> Function:
        if slot in VIEWS:
            raise TypeError(f"{slot!r} has two views; the second is in {function.__module__}")

        def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
            shown = function(decode(document, form) if form else document)
            yield from ((title, list(shown)),) if title else shown

        VIEWS[slot] = FindingView(sections, meaning, place)
        return function

    return register

"""What a report shows of each document that a finding writes: the views in the files of sections/findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aaco.core.registry import import_modules
from aaco.report.finding_view import VIEWS, FindingView
from aaco.report.rows import Row
from aaco.report.sections import findings


@cache
def views() -> dict[str, FindingView]:
    """Return every view by its slot, in the order of a report, after an import of every file of sections/findings."""
    import_modules(findings)
    return dict(sorted(VIEWS.items(), key=lambda item: (item[1].place, item[0])))


def sections(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the title and rows of each section of the documents that has rows. documents: by slot."""
    for slot, document in documents.items():
        yield from ((title, rows) for title, rows in views()[slot].sections(document) if rows)

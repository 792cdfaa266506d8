"""What could have been one kernel, as rows: the most time first, and never more than the kernels take themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

TITLE = "What could be one kernel"
TOP = 5
LISTED = 6


@finding_view("fusion", "what could have been one kernel, and what that could save at most", place=8, title=TITLE)
def rows(document: Mapping[str, Any], top: int = TOP) -> Iterator[Row]:
    """Yield a row for each of the first kinds."""
    if found := document.get("opportunities"):
        yield from (Row(one["pattern"].capitalize(), said(one)) for one in found[:top])
        if len(found) > top:
            yield Row("More", f"{len(found) - top:,} kinds in metrics/fusion.json")
        yield Row("Time saved", f"at most: bytes over {document['basis']}, no more than the kernels take")


def said(one: Mapping[str, Any]) -> str:
    """One kind in a line."""
    times = f"{one['times']:,} x " if one["times"] > 1 else ""
    saved = format.quantity(one["saved_bytes"], "bytes")
    if one["saved_ns_at_most"] is None:
        return f"{times}{_chain(one['op_types'])}: {saved} between them; time saved is not known"
    share = f" ({format.percent(one['saved_share_at_most'])})" if one["saved_share_at_most"] is not None else ""
    least, own = (format.duration(one[name]) for name in ("saved_ns_at_most", "own_ns"))
    return f"{times}{_chain(one['op_types'])}: {saved} between them, at most {least}{share} of {own} saved"


def _chain(op_types: Sequence[str]) -> str:
    shown = [format.name(name, 28) for name in op_types[:LISTED]]
    return ", ".join(shown) + (f" and {len(op_types) - LISTED} more" if len(op_types) > LISTED else "")

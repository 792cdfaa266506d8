"""What a compiler's text says, for a terminal: functions with their operations, or passes with their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format

WIDTH = 80
NAME = 44
SHOWN = 8


def lines(document: Mapping[str, Any], top: int) -> Iterator[str]:
    """The document of analytics.ir as text."""
    if document["kind"] == "passes":
        yield from _passes(document, top)
        return
    functions = document["functions"]
    yield f"{document['language']}: {format.plural(len(functions), 'function')}"
    for one in functions[:top]:
        yield from _function(one)
    if len(functions) > top:
        yield f"{len(functions) - top:,} more; --top shows more of them"


def _function(one: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{'kernel' if one['is_kernel'] else 'function'} {format.name(one['name'], WIDTH - 10)}"
    yield f"  {format.plural(one['total'], 'operation')} in {format.plural(one['blocks'], 'block')}"
    unsaid = format.unavailable("the text does not say it")
    workgroup = " x ".join(map(str, one["workgroup"])) if one["workgroup"] else unsaid
    shared = unsaid if one["lds_bytes"] is None else format.quantity(
        one["lds_bytes"], "bytes")
    yield f"  workgroup      {workgroup}"
    yield f"  shared memory  {shared}"
    for title, counted in (("operations", one["operations"]), ("calls", one["calls"])):
        if counted:
            listed = ", ".join(f"{count:,} {format.name(name, 40)}" for name, count in list(counted.items())[:SHOWN])
            more = f" and {len(counted) - SHOWN} more kinds" if len(counted) > SHOWN else ""
            yield from format.hung(f"  {title:<15}", listed + more, WIDTH)


def _passes(document: Mapping[str, Any], top: int) -> Iterator[str]:
    rows = document["passes"]
    spent = "" if document["seconds"] is None else f", {format.duration(1e9 * document['seconds'])}"
    yield f"{format.plural(document['runs'], 'run')} of {len(rows):,} passes{spent}"
    yield f"{'pass':<{NAME}}{'runs':>6}{'time':>10}{'share':>8}{'changed':>9}"
    for row in rows[:top]:
        time = "" if row["seconds"] is None else format.duration(1e9 * row["seconds"])
        share = "" if row["share"] is None else format.percent(row["share"])
        changed = "" if row["changed"] is None else f"{row['changed']:,}"
        yield (format.pad(format.name(row["name"], NAME - 1), NAME)
               + f"{row['runs']:>6,}{time:>10}{share:>8}{changed:>9}")
    if len(rows) > top:
        yield f"{len(rows) - top:,} more; --top shows more of them"
    for title, names in (("expensive", document["expensive"]), ("never changed anything", document["ineffective"])):
        if names:
            yield from format.wrap(f"{title}: {', '.join(names)}", WIDTH)

"""What `aaco top` draws: a session's facts, latencies and kernels, as plain values that any screen can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aaco.analytics.explanation import Explanation
from aaco.core import inputs
from aaco.core.readings import Absent
from aaco.report import format
from aaco.report.sections import content, kernels, quality

MOST_KERNELS = 2000
ORDERS = ("time", "mean", "calls", "name")


@dataclass(frozen=True)
class WatchedKernel:
    """A row of the table: executions that share a name."""

    name: str
    family: str
    share: float
    total_ns: int
    calls: int
    mean_ns: float


@dataclass(frozen=True)
class View:
    """All that is drawn. done, planned: of a run in progress, None of one that ended or where it is not known."""

    title: str
    facts: tuple[tuple[str, str], ...]
    latencies_ms: tuple[float, ...] = ()
    kernels: tuple[WatchedKernel, ...] = ()
    why_no_kernels: str = ""
    done: int | None = None
    planned: int | None = None
    ended: bool = True


def of(explanation: Explanation) -> View:
    """The view of a session whose evidence is explained."""
    model, backend = content.heading(explanation)
    rows = (*content.summary(explanation), *content.bottleneck(explanation), *quality.rows(explanation)[:1])
    watched = tuple(WatchedKernel(row["kernel_name"], row["family"] or "", row["pct_of_kernel_time"] / 100,
                                  row["total_ns"], row["calls"], row["mean_ns"])
                    for row in kernels.groups(explanation)[:MOST_KERNELS])
    return View(f"{explanation.session_id}  {format.clean(model)} on {format.clean(backend)}  {explanation.status}",
                tuple((row.label, format.clean(row.text)) for row in rows), _latencies(explanation), watched,
                "" if watched else kernels.why_none(explanation))


def chosen(rows: Sequence[WatchedKernel], word: str, order: str) -> list[WatchedKernel]:
    """The kernels whose name or family holds the word, whatever its case, in an order of ORDERS."""
    sought = word.casefold()
    matching = [row for row in rows if sought in row.name.casefold() or sought in row.family.casefold()]
    keys = {"time": lambda row: (-row.total_ns, row.name), "mean": lambda row: (-row.mean_ns, row.name),
            "calls": lambda row: (-row.calls, row.name), "name": lambda row: row.name}
    return sorted(matching, key=keys[order])


def range_of(latencies_ms: Sequence[float]) -> str:
    """The sparkline in words."""
    if not latencies_ms:
        return "no latencies"
    ends = (format.quantity(each, "ms") for each in (min(latencies_ms), max(latencies_ms)))
    return f"{format.plural(len(latencies_ms), 'inference')}, {' to '.join(ends)}"


def _latencies(explanation: Explanation) -> tuple[float, ...]:
    table = explanation.tables.get("inference_iters")
    if table is None:
        return ()
    try:
        return tuple(inputs.all_latencies_ms(table).tolist())
    except Absent:
        return ()

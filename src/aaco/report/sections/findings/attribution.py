"""Which kernel time has an operator, which has none, how it is spread over modules, as rows of text for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaco.analytics.attribution.rollup import NO_MODULE, OperatorSummary, RollupPart, UnattributedKernels
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row

SHOWN = 6
PHASES = {"recompute": "forward again in the backward pass", "no_grad": "without gradients"}
NAME = 60  # columns of a name in the listing


@finding_view("attribution", "kernel time by module and operator, and what belongs to none", place=5,
              title="Kernel time by module", form=OperatorSummary)
def _rows(found: OperatorSummary) -> Iterator[Row]:
    total = found.total_ns
    yield Row("Attributed", f"{format.duration(found.attributed_ns)} of {format.duration(total)} of kernel time"
                            f"{_share(found.attributed_ns, total)}, {format.plural(found.kernels, 'kernel')} in all")
    for one in found.unattributed:
        yield Row("Of no operator", loose(one))
    if found.phases:
        yield Row("Phases", "; ".join(f"{PHASES.get(part.name, part.name)} {format.duration(part.device_ns)}"
                                      f"{_share(part.device_ns, total)}" for part in found.phases if part.device_ns))
    yield from _parts("Module", [part for part in found.modules if part.name != NO_MODULE], total)


def _parts(title: str, parts: Sequence[RollupPart], total: int) -> Iterator[Row]:
    listed = [part for part in parts if part.total_ns][:SHOWN]
    names = shorten((part.name for part in listed), NAME, format.cut)
    for place, part in enumerate(listed):
        own = f", {format.duration(part.device_ns)} of it its own" if part.inside_ns else ""
        kernels = f", {format.plural(part.kernels, 'kernel')}" if part.kernels else ""
        yield Row("" if place else title, f"{names[part.name]}: {format.duration(part.total_ns)}"
                                          f"{_share(part.total_ns, total)}{own}{kernels}")


def _share(ns: int, total: int) -> str:
    return f" ({format.percent(ns / total)})" if total else ""


def loose(one: UnattributedKernels) -> str:
    """Kernels of no operator, in one line."""
    return f"{format.duration(one.device_ns)}, {format.plural(one.kernels, 'kernel')}: {one.why}"


def listing(parts: Sequence[RollupPart], total: int) -> Iterator[str]:
    """A table of parts: share and device time with what is inside, its own time, host time, kernels, calls."""
    yield f"{'':<{NAME}}{'share':>8}{'device':>11}{'own':>11}{'host':>11}{'kernels':>10}{'calls':>10}"
    names = shorten((part.name for part in parts), NAME - 1, format.cut)
    for part in parts:
        times = [None if ns is None else format.duration(ns) for ns in (part.total_ns, part.device_ns, part.host_ns)]
        counts = [None if count is None else f"{count:,}" for count in (part.kernels, part.calls)]
        yield (format.pad(names[part.name], NAME)
               + f"{format.percent(part.total_ns / total) if total else '':>8}"
               + "".join(f"{time or '':>11}" for time in times) + "".join(f"{count or '':>10}" for count in counts))

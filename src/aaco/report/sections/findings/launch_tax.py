"""How long dispatches take and what their launches cost, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.timeline.launch_tax import Bucket, LaunchTax
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row
from aaco.report.sections.idle_causes import CAUSES

MOST = 3


@finding_view("launch_tax", "dispatches by duration, the kernels with most short ones, gaps by cause", place=9,
              title="Launch tax", form=LaunchTax)
def _rows(found: LaunchTax) -> Iterator[Row]:
    if not found.kernels:
        return
    for bucket in found.buckets:
        if bucket.count:
            yield Row(_range(bucket), f"{_of(bucket.count, found.kernels)}, {format.duration(bucket.ns)} "
                                      f"({format.share(bucket.ns, found.kernel_ns)} of the kernel time)")
    limit = format.duration(found.below_ns)
    yield Row(f"Below {limit}", f"{_of(found.short, found.kernels)}, {format.duration(found.short_ns)} "
                                f"({format.share(found.short_ns, found.kernel_ns)} of the kernel time)",
                  "microkernel_pct")
    names = shorten((one.kernel_name for one in found.top[:MOST]), 40, format.symbol)
    for one in found.top[:MOST]:
        yield Row(names[one.kernel_name], f"{one.count:,} of {format.plural(one.calls, 'execution')} below "
                                          f"{limit}, {format.duration(one.ns)} in all")
    if found.score is not None:
        rate = format.number(1e9 * found.kernels / (found.wall_ns or found.span_ns))
        yield Row("Score", f"{format.number(found.score)} = {format.share(found.short, found.kernels)} short x {rate} "
                           "kernels/s / 1000", "launch_tax_score")
    yield from _gaps(found)


def _gaps(found: LaunchTax) -> Iterator[Row]:
    known = sorted(((name, part) for name, part in found.gaps.items() if part.ns), key=lambda gap: -gap[1].ns)
    parts = [f"{CAUSES[name][0].lower()} {format.duration(part.ns)} ({part.count:,})" for name, part in known]
    if parts:
        why = f"; {found.why_no_causes}" if found.why_no_causes else ""
        yield Row("Gaps", f"{format.duration(found.idle_ns)}: {', '.join(parts)}{why}")


def _range(bucket: Bucket) -> str:
    return f"{bucket.from_us:,} to {bucket.to_us:,} us" if bucket.to_us else f"{bucket.from_us:,} us and more"


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {format.plural(whole, 'kernel')} ({format.share(part, whole)})"

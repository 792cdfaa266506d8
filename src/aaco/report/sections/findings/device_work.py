"""What the devices' busy time went to, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck.work import Copied, DeviceWork
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row
from aaco.report.sections import start_skew

LABELS = {"compute": "Arithmetic", "memory": "Memory bandwidth", "memory_latency": "Memory latency",
          "kernel": "Not known", "communication": "Communication", "local_copy": "Copies on the device",
          "transfer": "Transfers"}

HOW = {"counters": "hardware counters (roofline)", "shapes": "operators' shapes", "names": "kernel names and launches"}


@finding_view(
    "device_work", "the devices' time by what limits it, copies by kind, and the host's calls by what they do", place=2,
    title="What limits the device's work in the whole trace", form=DeviceWork)
def _rows(found: DeviceWork) -> Iterator[Row]:
    """Yield the busy time by limiter, where kernels overlap given to the first, and transfers by kind."""
    busy = found.busy_ns or 1
    waits = {"communication": start_skew.note(found.skew_ns)}
    for name, ns in found.parts_ns.items():
        if ns:
            share = f"{format.duration(ns)} ({format.percent(ns / busy)} of the busy time)"
            yield Row(LABELS[name], "; ".join(filter(None, (share, waits.get(name)))))
    if told := found.told_by_ns and _told(found):
        yield Row("Evidence", told)
    yield from (Row("Moved", _moved(copied)) for copied in found.copies if copied.bytes and copied.ns)


def _told(found: DeviceWork) -> str:
    """What says which side a kernel is on, by kernel time: counters where there are any, else shapes, else names."""
    total = sum(found.told_by_ns.values()) or 1
    return ", ".join(f"{HOW[name]} {format.percent(ns / total)}" for name, ns in found.told_by_ns.items() if ns)


def _moved(copied: Copied) -> str:
    memory = {True: ", pinned", False: ", pageable", None: ""}[copied.pinned]
    return (f"{copied.kind}{memory}: {format.quantity(copied.bytes, 'bytes')} in "
            f"{format.plural(copied.count, 'piece')}, {format.quantity(1e9 * copied.bytes / copied.ns, 'B/s')}")

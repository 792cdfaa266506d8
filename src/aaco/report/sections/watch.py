"""What `aaco top` draws: a session's facts, latencies and kernels, as plain values that any screen can show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.core import inputs
from aaco.core.readings import known
from aaco.report import format
from aaco.report.sections import content, kernels, quality, start_skew

MOST_KERNELS = 2000
MOST_STEPS = 3
FIRST = ("Disturbed", "Classification", "Wall time")  # rows of a trace
ORDERS = ("time", "mean", "calls", "name")


class WatchedKernel(Struct, frozen=True):
    """A row of the table: executions that share a name. note: what of their time is no work; mostly empty."""

    name: str
    family: str
    share: float
    total_ns: int
    calls: int
    mean_ns: float
    note: str = ""


class View(Struct, frozen=True):
    """All that is drawn. done, planned: of a run in progress, None of one that ended or where it is not known.

    busy: of a trace, the share of each stretch of time in which its busiest device worked; busy_text says so in words.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    latencies_ms: tuple[float, ...] = ()
    kernels: tuple[WatchedKernel, ...] = ()
    why_no_kernels: str = ""
    done: int | None = None
    planned: int | None = None
    ended: bool = True
    busy: tuple[float, ...] = ()
    busy_text: str = ""
    steps: tuple[str, ...] = ()


def of(explanation: Explanation) -> View:
    """The view of a session with explained evidence."""
    model, backend = content.heading(explanation)
    rows = [row for row in (*content.summary(explanation), *content.bottleneck(explanation),
                            *quality.rows(explanation)[:1]) if not row.text.startswith(format.NA)]
    if explanation.captures:  # a trace has no latencies to begin with
        rows.sort(key=lambda row: row.label not in FIRST)
    busy_text, busy = _busy(explanation)
    watched = tuple(WatchedKernel(row["kernel_name"], row["family"] or "", row["pct_of_kernel_time"] / 100,
                                  row["total_ns"], row["calls"], row["mean_ns"], start_skew.note(row.get("skew_ns")))
                    for row in kernels.groups(explanation)[:MOST_KERNELS])
    return View(f"{explanation.session_id}  {format.clean(model)} on {format.clean(backend)}  {explanation.status}",
                tuple((row.label, format.clean(row.text)) for row in rows), _latencies(explanation), watched,
                "" if watched else kernels.why_none(explanation), busy=busy, busy_text=busy_text,
                steps=tuple(format.clean(text) for _, text in content.next_steps(explanation)[:MOST_STEPS]))


def chosen(rows: Sequence[WatchedKernel], word: str, order: str) -> list[WatchedKernel]:
    """The kernels with the word in their name or family, in any case, in an order of ORDERS."""
    sought = word.casefold()
    matching = [row for row in rows if sought in row.name.casefold() or sought in row.family.casefold()]
    keys = {"time": lambda row: (-row.total_ns, row.name), "mean": lambda row: (-row.mean_ns, row.name),
            "calls": lambda row: (-row.calls, row.name), "name": lambda row: row.name}
    return sorted(matching, key=keys[order])


def range_of(latencies_ms: Sequence[float]) -> str:
    """The latencies in words."""
    if not latencies_ms:
        return "no latencies"
    ends = (format.quantity(each, "ms") for each in (min(latencies_ms), max(latencies_ms)))
    return f"{format.plural(len(latencies_ms), 'inference')}, {' to '.join(ends)}"


def _busy(explanation: Explanation) -> tuple[str, tuple[float, ...]]:
    """Return how busy the busiest device was in words, and by stretches of its time; nothing where that is unknown."""
    devices = [device for device in (explanation.trace.devices if explanation.trace else ()) if device.course]
    if not devices:
        return "", ()
    device = max(devices, key=lambda device: device.busy_ns)
    assert device.course
    kinds = zip(device.course.compute_ns, device.course.exposed_communication_ns, device.course.exposed_copy_ns,
                device.course.exposed_fill_ns, strict=True)
    text = f"device {device.device_id}: at work {format.percent(device.busy_ns / max(device.span_ns, 1))} of " \
           f"{format.duration(device.span_ns)}"
    return text, tuple(sum(parts) / device.course.bin_ns for parts in kinds)


def _latencies(explanation: Explanation) -> tuple[float, ...]:
    table = explanation.tables.get("inference_iters")
    latencies = None if table is None else known(inputs.all_latencies_ms, table)
    return () if latencies is None else tuple(latencies.tolist())

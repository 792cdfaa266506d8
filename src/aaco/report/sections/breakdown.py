"""Where the time went, as parts that sum to the whole to the nanosecond; and the family of every kernel's time."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.sections import kernels
from aaco.report.sections.idle_causes import CAUSES
from aaco.report.svg import COLOURS
from aaco.tracelake import layout

IDLE = "idle"  # the look of time in which nothing ran
BUSY = (("compute", "compute_ns", "c0"), ("communication alone", "exposed_communication_ns", "c1"),
        ("copies alone", "exposed_copy_ns", "c4"), ("fills alone", "exposed_fill_ns", "c7"))
IDLE_LOOKS = {"host_wait": "c3", "sync_wait": "c5", "copy_wait": "c6", "kernel_wait": "c2"}


class BreakdownPart(Struct, frozen=True):
    """A part of the whole in ns; what it is, where its name does not say it."""

    name: str
    ns: int
    look: str
    meaning: str = ""


class Breakdown(Struct, frozen=True):
    """The parts of a whole, largest first; they sum to it exactly. metric: the definition that it rests on."""

    whole: str
    parts: tuple[BreakdownPart, ...]
    files: tuple[str, ...]
    metric: str = ""

    @property
    def ns(self) -> int:
        """The whole."""
        return sum(part.ns for part in self.parts)

    def share(self, part: BreakdownPart) -> float:
        """Of 1."""
        return part.ns / self.ns if self.ns else 0.0

    def placed(self) -> Iterator[tuple[BreakdownPart, float, float]]:
        """Each part with its start and width in thousandths of the whole, for a stacked bar."""
        start = 0
        for part in self.parts:
            yield part, 1000 * start / self.ns, 1000 * part.ns / self.ns
            start += part.ns

    @property
    def told(self) -> str:
        """The parts in words."""
        return ", ".join(f"{part.name} {format.percent(self.share(part))}" for part in self.parts)


def every(explanation: Explanation) -> list[Breakdown]:
    """The whole time of the devices, or of the profiled inferences, by what it went to; and kernel time by family."""
    breakdowns = [_of_devices(explanation), _of_inferences(explanation) or _of_kernels(explanation)]
    return [breakdown for breakdown in breakdowns if breakdown and breakdown.ns]


def _of_devices(explanation: Explanation) -> Breakdown | None:
    """Devices: what ran without overlap, and why nothing ran. None where the parts of damaged bundles do not sum up."""
    trace = explanation.trace
    if trace is None:
        return None
    busy = [BreakdownPart(name, trace.sum(field), look) for name, field, look in BUSY]
    idle_ns = {cause: sum(lane.causes[cause].ns for lane in trace.idle.devices) for cause in CAUSES}
    idle = [BreakdownPart(f"idle: {title[0].lower()}{title[1:]}", idle_ns[cause], IDLE_LOOKS.get(cause, IDLE), meaning)
            for cause, (title, meaning) in CAUSES.items()]
    if sum(part.ns for part in idle) != trace.sum("idle_ns"):
        idle = [BreakdownPart("idle", trace.sum("idle_ns"), IDLE)]
    if sum(part.ns for part in (*busy, *idle)) != trace.sum("span_ns") or any(part.ns < 0 for part in (*busy, *idle)):
        return None
    devices = format.plural(len(trace.devices), "device")
    return Breakdown(f"the span of {devices}, first start to last end", _sorted([*busy, *idle]),
                     (layout.TRACE["timeline"], layout.TRACE["idle"]), "gpu_active_ratio")


def _of_inferences(explanation: Explanation) -> Breakdown | None:
    """The wall time of the profiled inferences: kernels by family, and what is outside kernels. None where the window
    is not known, or where kernels ran at the same time and sum to more than it."""
    window = kernels.window(explanation)
    if window is None:
        return None
    inside = _families(explanation)
    outside = window.wall_ns - sum(part.ns for part in inside)
    if outside < 0 or not inside:
        return None
    remainder = BreakdownPart("outside kernels", outside, IDLE,
                              "the runtime between kernels, and before and after them")
    return Breakdown(f"the wall time of {format.plural(window.inferences, 'profiled inference')}",
                     _sorted([*inside, remainder]), ("attribution/kernel_groups.parquet", "profiler/api_calls.parquet"),
                     "closure_ratio")


def _of_kernels(explanation: Explanation) -> Breakdown | None:
    counted = kernels.inferences(explanation)
    of = format.plural(counted, "profiled inference") if counted else "the whole capture"
    parts = _families(explanation)
    return Breakdown(f"the kernel time of {of}, by family", tuple(parts), ("attribution/kernel_groups.parquet",)
                     ) if parts else None


def _families(explanation: Explanation) -> list[BreakdownPart]:
    """The largest families in colours of their own, the rest together in the last."""
    named = list(kernels.families(explanation).items())
    if len(named) > COLOURS:
        named = [*named[:COLOURS - 1], (f"{len(named) - COLOURS + 1} others", sum(ns for _, ns in named[COLOURS - 1:]))]
    return [BreakdownPart(name, ns, f"c{rank}") for rank, (name, ns) in enumerate(named)]


def _sorted(parts: list[BreakdownPart]) -> tuple[BreakdownPart, ...]:
    return tuple(sorted((part for part in parts if part.ns), key=lambda part: (part.look == IDLE, -part.ns)))

"""The stretch of each capture that the diagnosis judges: its steady state, and the time outside of it by name.

In this order: steps that markers name (ProfilerStep#7, execute_..., the program's own), iterations that the capture
itself numbers, blocks of kernels that repeat. The window is on the device: from the first start of the work launched in
the first steady step to the last end of the work launched in the last one, so it holds what the devices do between
steps, too. Of a single step that would leave out what the host did before its first launch. So where the host takes
longer for a single step than the device, the window begins with the host's range, or when the device became idle.
Leading steps that take more than SLOWER times the median of the later ones are warm-up, and so is the
first step of ranks that communicate: in it they wait for each other's profiler to start. Captures with steps that run
together (the ranks of a job have as many steps) leave out the same ones. A repeated block counts as steady state if its
run holds half of the device's kernels or more: layers repeat inside of steps, and of a step only its layers would be
judged.

Where none of these is found the whole capture is judged, and the reason is kept. Time outside the window is split
exactly, in whole ns: `graph capture` (between the calls that begin and end one), `warm-up steps`, `loading` (from the
first to the last copy to the device before any kernel), the rest before it `start-up` and after it `after the steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.streaming.calls import CallKind, call_kind
from aaco.analytics.streaming.stream_ids import NameIds, ValueByName, integers, number_of
from aaco.analytics.streaming.work import FARTHEST_NS
from aaco.analytics.timeline.steady_state import GIVEN, Block, Steps
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core import distinct

MARKERS, INFERENCES, REPETITION, WHOLE = "markers", "measured inferences", "repetition", "whole trace"
SLOWER = 1.5  # times the median of the steps behind it: a step still warming up
FEWEST = 3  # steps that stay when warm-up is left out
LEAST = 0.5  # of a device's kernels in the run of repeated blocks
NO_STEPS = "no markers of steps, and no sequence of kernels that repeats"
GRAPH_CAPTURE, START_SKEW, WARM_UP, LOADING, START_UP, AFTER = (
    "graph capture", "waiting for a rank that had not started", "warm-up steps", "loading", "start-up",
    "after the steps")

NO_SKEW = (-FARTHEST_NS, -FARTHEST_NS)
NO_SKEWS: Mapping[int, tuple[int, int]] = {}


class OutsideSpan(Struct, frozen=True):
    """Time of a capture that is not judged: all stretches of one name together."""

    name: str
    ns: int


class CaptureWindow(Struct, frozen=True):
    """What is judged of one capture. `told_by` is MARKERS, INFERENCES, REPETITION or WHOLE; why_whole: reason of
    the last. lead_ns: the part at its beginning in which the device waits for the first launch of a single step.

    first, last: numbers of the judged steps as their markers give them, else counted from 0. The capture is from
    trace_start_ns to trace_end_ns, over the host's calls and the devices' work; window and outside sum to it exactly.
    """

    capture: int | None
    told_by: str
    family: str
    first: int | None
    last: int | None
    steps: int
    t_start_ns: int
    t_end_ns: int
    trace_start_ns: int
    trace_end_ns: int
    outside: tuple[OutsideSpan, ...] = ()
    why_whole: str = ""
    lead_ns: int = 0

    @property
    def window_ns(self) -> int:
        """Return the length of the window."""
        return self.t_end_ns - self.t_start_ns

    @property
    def trace_ns(self) -> int:
        """Return the length of the capture."""
        return self.trace_end_ns - self.trace_start_ns


class CaptureExtent(Struct):
    """What is read of a capture to name the time outside its window.

    first_kernel_ns: FARTHEST_NS if there is none. copies: (start, end) of the first and last copy before any kernel.
    capturing: (start, end) of stretches in which a graph is captured.
    """

    start_ns: int = FARTHEST_NS
    end_ns: int = -FARTHEST_NS
    first_kernel_ns: int = FARTHEST_NS
    copies: tuple[int, int] | None = None
    capturing: tuple[tuple[int, int], ...] = ()


class Extents:
    """Reads the extent of every capture from slices of its tables, in start order."""

    def __init__(self) -> None:
        self._extents: dict[int, CaptureExtent] = {}
        self._began: dict[int, int] = {}
        self._names = NameIds()  # of calls
        self._kinds = ValueByName(self._names, call_kind, CallKind.OTHER)

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table) -> None:
        """Take the rows that start next. Needs t_start_ns, t_end_ns and capture; of calls name, of copies kind."""
        self._extend(kernels)
        self._first_kernels(kernels)
        self._extend(copies)
        self._loading(copies)
        self._extend(api_calls)
        self._captures(api_calls)

    def result(self) -> dict[int, CaptureExtent]:
        """Return the extents by capture, NONE for rows of no capture."""
        return self._extents

    def _of(self, capture: int) -> CaptureExtent:
        return self._extents.setdefault(capture, CaptureExtent())

    def _extend(self, rows: pa.Table) -> None:
        capture, start, end = (integers(rows[name]) for name in ("capture", "t_start_ns", "t_end_ns"))
        timed = (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS)
        for number in distinct.values(capture[timed]).tolist():
            mine, extent = timed & (capture == number), self._of(number)
            extent.start_ns = min(extent.start_ns, int(start[mine].min()))
            extent.end_ns = max(extent.end_ns, int(end[mine].max()))

    def _first_kernels(self, rows: pa.Table) -> None:
        capture, start = integers(rows["capture"]), integers(rows["t_start_ns"])
        for number in distinct.values(capture).tolist():
            times = start[(capture == number) & (start > -FARTHEST_NS)]
            if len(times):
                extent = self._of(number)
                extent.first_kernel_ns = min(extent.first_kernel_ns, int(times.min()))

    def _loading(self, rows: pa.Table) -> None:
        capture, start, end = (integers(rows[name]) for name in ("capture", "t_start_ns", "t_end_ns"))
        to_device = np.asarray(pc.fill_null(pc.equal(rows["kind"].cast(pa.string()), "h2d"), False), bool)
        for number in np.unique(capture[to_device]).tolist():
            extent = self._of(number)
            mine = np.flatnonzero(to_device & (capture == number) & (end <= extent.first_kernel_ns))
            if len(mine):
                first = int(start[mine].min()) if extent.copies is None else extent.copies[0]
                extent.copies = first, int(end[mine].max())

    def _captures(self, rows: pa.Table) -> None:
        kind = self._kinds.of(self._names.numbers(rows["name"]))
        capture, start, end = (integers(rows[name]) for name in ("capture", "t_start_ns", "t_end_ns"))
        for row in np.flatnonzero(np.isin(kind, (CallKind.BEGIN_CAPTURE, CallKind.END_CAPTURE))).tolist():
            number = int(capture[row])
            if kind[row] == CallKind.BEGIN_CAPTURE:
                self._began.setdefault(number, int(start[row]))
            elif number in self._began:
                extent = self._of(number)
                extent.capturing = (*extent.capturing, (self._began.pop(number), int(end[row])))


def choose(trace: DeviceTrace, extents: Mapping[int, CaptureExtent],
           skews: Mapping[int, tuple[int, int]] = NO_SKEWS) -> tuple[CaptureWindow, ...]:
    """Return the window of each capture that has device work, in the order of captures. skews: by capture start and end
    of a first collective that waited for a rank that had not started; no window begins before its end."""
    captures = sorted({device.capture for device in trace.devices}, key=number_of)
    marked = {steps.capture: steps for steps in trace.blocks.steps if steps.steps and steps.device_end_ns is not None}
    joined = {rank.capture for rank in trace.collectives.participants
              if rank.waited_ns is not None} if trace.collectives else set()
    warm = {capture: max(_warm_up(steps), int(capture in joined and steps.count > FEWEST),
                         _before(steps, skews.get(number_of(capture), NO_SKEW)[1]))
            for capture, steps in marked.items()}
    return tuple(_window(trace, capture, extents.get(number_of(capture), CaptureExtent()), marked.get(capture),
                         _together(capture, marked, warm), skews.get(number_of(capture), NO_SKEW))
                 for capture in captures)


def _together(capture: int | None, marked: Mapping[int | None, Steps], warm: Mapping[int | None, int]) -> int:
    """Return the warm-up steps of a capture: the most among captures with as many steps of the same name."""
    own = marked.get(capture)
    if own is None:
        return 0
    return max(warm[other] for other, steps in marked.items() if (steps.family, steps.count) == (own.family, own.count))


def _warm_up(steps: Steps) -> int:
    """Return how many leading steps are slower than SLOWER times the median of the later ones."""
    starts = [step.device_start_ns for step in steps.steps if step.device_start_ns is not None]
    took = np.diff(np.array(starts, np.int64))
    count = 0
    while len(took) - count > FEWEST and took[count] > SLOWER * float(np.median(took[count + 1:])):
        count += 1
    return count


def _before(steps: Steps, time_ns: int) -> int:
    """Return how many leading steps begin on the device before a time; not all of them."""
    starts = [step.device_start_ns for step in steps.steps[:-1] if step.device_start_ns is not None]
    return sum(start < time_ns for start in starts)


def _window(trace: DeviceTrace, capture: int | None, extent: CaptureExtent, steps: Steps | None, warm: int,
            skew: tuple[int, int]) -> CaptureWindow:
    devices = [device for device in trace.devices if device.capture == capture]
    whole = CaptureWindow(capture, WHOLE, "", None, None, 0, min(device.t_start_ns for device in devices),
                          max(device.t_end_ns for device in devices), 0, 0, (), NO_STEPS)
    whole = replace(whole, trace_start_ns=min(extent.start_ns, whole.t_start_ns),
                    trace_end_ns=max(extent.end_ns, whole.t_end_ns))
    if steps is not None:
        window, warmed_from = _of_steps(whole, steps, warm), steps.steps[0].device_start_ns
    else:
        blocks = [block for block in trace.blocks.blocks if block.capture == capture]
        window, warmed_from = _of_blocks(whole, blocks, len(devices)), None
    if window.t_start_ns < skew[1] < window.t_end_ns:
        window = replace(window, t_start_ns=skew[1])
    return replace(window, outside=_outside(window, extent, warmed_from, skew))


def _of_steps(whole: CaptureWindow, steps: Steps, warm: int) -> CaptureWindow:
    """Return the window of marked steps without the first `warm` of them."""
    first, end = steps.steps[warm], steps.device_end_ns
    if first.device_start_ns is None or end is None:
        return whole
    last = steps.steps[-1].number + steps.count - len(steps.steps)  # only so many steps are listed
    told, lead = INFERENCES if steps.family == GIVEN else MARKERS, _lead_ns(steps)
    return replace(whole, told_by=told, family=steps.family, first=first.number, last=last, steps=steps.count - warm,
                   t_start_ns=first.device_start_ns - lead, t_end_ns=end, why_whole="", lead_ns=lead)


def _lead_ns(steps: Steps) -> int:
    """Return how long an idle device waits in a single step for its first launch; 0 where it is the host that waits."""
    step, done = steps.steps[0], steps.device_end_ns
    start, end, began = step.t_start_ns, step.t_end_ns, step.device_start_ns
    if steps.count > 1 or start is None or end is None or began is None or done is None:
        return 0
    waits_since = start if steps.idle_from_ns is None else max(start, steps.idle_from_ns)
    return max(0, began - waits_since) if end - start > done - began else 0


def _of_blocks(whole: CaptureWindow, blocks: Sequence[Block], devices: int) -> CaptureWindow:
    """Return the window of blocks that repeat on every device; the whole capture where they hold too little of it."""
    if len(blocks) != devices or any(block.steady < FEWEST or block.examined < block.of
                                     or block.steady * block.kernels < LEAST * block.of for block in blocks):
        return whole
    repeats = min(block.steady for block in blocks)
    first = max(block.warmup for block in blocks)
    return replace(whole, told_by=REPETITION, first=first, last=first + repeats - 1, steps=repeats,
                   t_start_ns=min(block.t_start_ns for block in blocks),
                   t_end_ns=max(block.t_end_ns for block in blocks), why_whole="")


def _outside(window: CaptureWindow, extent: CaptureExtent, warmed_from: int | None, skew: tuple[int, int]
             ) -> tuple[OutsideSpan, ...]:
    """Return the time outside the window by name; the name that comes first takes time that several claim."""
    begin, until = window.trace_start_ns, window.t_start_ns
    claims = [*((GRAPH_CAPTURE, *span) for span in extent.capturing), (START_SKEW, *skew),
              *([(WARM_UP, warmed_from, until)] if warmed_from is not None else []),
              *([(LOADING, *extent.copies)] if extent.copies else []), (START_UP, begin, until)]
    sums: dict[str, int] = {}
    for low, high, name in _pieces(begin, until, claims):
        sums[name] = sums.get(name, 0) + high - low
    sums[AFTER] = window.trace_end_ns - window.t_end_ns
    return tuple(OutsideSpan(name, ns) for name, ns in sums.items() if ns)


def _pieces(begin: int, until: int, claims: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, int, str]]:
    """Yield the stretches between the ends of the claims, each with the first claim that holds it."""
    edges = sorted({begin, until, *(min(max(edge, begin), until) for _, *ends in claims for edge in ends)})
    for low, high in pairwise(edges):
        yield low, high, next(name for name, start, end in claims if start <= low and high <= end)

"""Match the kernels of a replayed device graph to the launches recorded at its capture.

While a stream is captured, launches run nothing: they become nodes of a graph, in order. One call then replays all of
them. If the capture is in the trace (or in another trace imported with it), the n-th kernel of a replay is the n-th
launch of the capture, provided that their number and names agree: ROCm writes the kernel's name with a launch, CUDA
does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.stream_ids import NONE
from aaco.core.arrays import Ints

MOST = 1 << 18  # captured launches that are remembered


@dataclass
class Captured:
    """A captured graph. Per launch: the operator's row, the operator's call (-1: none), and the kernel's name."""

    capture: int
    rows: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether all launches name their kernel."""
        return bool(self.names) and None not in self.names

    def agrees(self, names: Sequence[str | None]) -> bool:
        """Return whether a replay of kernels with these names may be of this graph."""
        return len(names) == len(self.names) and all(
            mine is None or mine == its for mine, its in zip(self.names, names, strict=True))


@dataclass(frozen=True)
class Launched:
    """Launches of a slice in start order, as columns. name: of the kernel, if the trace has it."""

    start: Ints
    thread: Ints
    capture: Ints
    row: Ints
    operator: Ints
    name: Sequence[str | None]


class Graphs:
    """The captured graphs of a trace that streams by."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []
        self._open: dict[int, Captured] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.captured)

    def inside(self, thread: Ints, start: Ints, marks: Sequence[tuple[int, int, int, CallKind]]) -> np.ndarray:
        """Return which launches of a slice are in a capture. marks: (start, thread, capture, begin or end)."""
        is_inside = np.zeros(len(start), bool)
        opened = dict.fromkeys(self._open, -(2**62))
        for at, marked_thread, _, does in marks:
            if does == CallKind.BEGIN_CAPTURE:
                opened[marked_thread] = at
            elif marked_thread in opened:
                is_inside |= (thread == marked_thread) & (start >= opened.pop(marked_thread)) & (start < at)
        for marked_thread, since in opened.items():
            is_inside |= (thread == marked_thread) & (start >= since)
        return is_inside

    def feed(self, launched: Launched, marks: Sequence[tuple[int, int, int, CallKind]]) -> None:
        """Take the launches of a slice that are in captures, and the begins and ends of captures."""
        events = [(int(at), 1, place) for place, at in enumerate(launched.start)]
        events += [(at, 0, place) for place, (at, *_) in enumerate(marks)]
        for _, is_launch, place in sorted(events):
            if is_launch:
                self._launch(launched, place)
            else:
                self._mark(*marks[place][1:])

    def of_replay(self, capture: int, names: Sequence[str | None]) -> tuple[Captured | None, bool]:
        """Return the graph of a replay's kernels, which are in node order, and whether their names prove it.

        A graph of the replay's own capture goes before others, a named one before an unnamed one, the latest first,
        because graphs can be captured again. Without names there must be exactly one candidate.
        """
        candidates = [graph for graph in reversed(self.captured) if graph.agrees(names)]
        named = sorted((graph for graph in candidates if graph.named), key=lambda graph: graph.capture != capture)
        if named:
            return named[0], True
        return (candidates[0], False) if len(candidates) == 1 else (None, False)

    def _mark(self, thread: int, capture: int, does: CallKind) -> None:
        if does == CallKind.BEGIN_CAPTURE:
            self._open[thread] = Captured(capture)
        elif (done := self._open.pop(thread, None)) is not None and done.rows:
            self.captured.append(done)

    def _launch(self, launched: Launched, place: int) -> None:
        graph = self._open.get(int(launched.thread[place]))
        if graph is None or self._count >= MOST:
            return
        self._count += 1
        graph.rows.append(int(launched.row[place]))
        graph.operators.append(int(launched.operator[place]))
        graph.names.append(launched.name[place])


@dataclass
class Replay:
    """The kernels of one graph launch as they come: id, name, length, node of the graph (NONE: not recorded)."""

    capture: int
    alone: int  # the row of its kernels if no captured graph matches
    ids: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def ordered(self) -> tuple[Ints, Ints, Ints]:
        """Return ids, names and lengths in the order of the graph's nodes, or of the kernels' starts."""
        nodes = np.array(self.nodes, np.int64)
        is_numbered = bool((nodes != NONE).all()) and len(np.unique(nodes)) == len(nodes)
        order = np.argsort(nodes, kind="stable") if is_numbered else np.arange(len(nodes))
        return (np.array(self.ids, np.int64)[order], np.array(self.names, np.int64)[order],
                np.array(self.lengths, np.int64)[order])


class _LaunchArguments(msgspec.Struct, gc=False):
    kernel: str | None = None


_KERNEL = msgspec.json.Decoder(_LaunchArguments)


def kernel_of(arguments: str | None) -> str | None:
    """Return the kernel that a launch's arguments name; None if they name none."""
    try:
        return _KERNEL.decode(arguments or "{}").kernel
    except msgspec.DecodeError:
        return None

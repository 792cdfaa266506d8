"""Replayed device graphs: whose each kernel is, told by the launches that were recorded when the graph was captured.

While a stream is captured, launches run nothing: they become nodes of a graph, in order. One call then replays all of
them. Where the capture is in the trace (or in another trace imported with it), the n-th kernel of a replay is the n-th
launch of the capture, provided there are as many and their names agree: ROCm writes the kernel's name beside a launch,
CUDA does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from aaco.analytics.calls import Does
from aaco.analytics.lanes import NONE, Ints

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
        """Whether the launches say what they launch."""
        return bool(self.names) and None not in self.names

    def agrees(self, names: Sequence[str | None]) -> bool:
        """Whether a replay of kernels with these names may be of this graph."""
        return len(names) == len(self.names) and all(
            mine is None or mine == its for mine, its in zip(self.names, names, strict=True))


@dataclass(frozen=True)
class Launched:
    """Launches of a slice in start order, as columns; name: of the kernel, where the trace says it."""

    start: Ints
    thread: Ints
    capture: Ints
    row: Ints
    operator: Ints
    name: Sequence[str | None]


class Graphs:
    """The captured graphs of a trace that streams by."""

    def __init__(self) -> None:
        self.known: list[Captured] = []
        self._open: dict[int, Captured] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.known)

    def inside(self, thread: Ints, start: Ints, marks: Sequence[tuple[int, int, int, Does]]) -> np.ndarray:
        """Which of the launches of a slice lie in a capture. marks: (start, thread, capture, begin or end)."""
        found = np.zeros(len(start), bool)
        opened = dict.fromkeys(self._open, -(2**62))
        for at, of, _, does in marks:
            if does == Does.BEGIN_CAPTURE:
                opened[of] = at
            elif of in opened:
                found |= (thread == of) & (start >= opened.pop(of)) & (start < at)
        for of, since in opened.items():
            found |= (thread == of) & (start >= since)
        return found

    def feed(self, launched: Launched, marks: Sequence[tuple[int, int, int, Does]]) -> None:
        """Take the launches of a slice that lie in captures, and where captures begin and end."""
        events = [(int(at), 1, place) for place, at in enumerate(launched.start)]
        events += [(at, 0, place) for place, (at, *_) in enumerate(marks)]
        for _, is_launch, place in sorted(events):
            if is_launch:
                self._launch(launched, place)
            else:
                self._mark(*marks[place][1:])

    def of_replay(self, capture: int, names: Sequence[str | None]) -> tuple[Captured | None, bool]:
        """The graph that a replay's kernels, in the order of its nodes, are of, and whether their names prove it.

        One of the replay's own capture goes before others, a named one before an unnamed; the latest first, as graphs
        are captured anew. Without names there must be one candidate alone.
        """
        fitting = [one for one in reversed(self.known) if one.agrees(names)]
        named = sorted((one for one in fitting if one.named), key=lambda one: one.capture != capture)
        if named:
            return named[0], True
        return (fitting[0], False) if len(fitting) == 1 else (None, False)

    def _mark(self, thread: int, capture: int, does: Does) -> None:
        if does == Does.BEGIN_CAPTURE:
            self._open[thread] = Captured(capture)
        elif (done := self._open.pop(thread, None)) is not None and done.rows:
            self.known.append(done)

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
    """The kernels of one graph launch, as they come: id, name, length, node of the graph (NONE: not said)."""

    capture: int
    alone: int  # the row that they have where no captured graph is theirs
    ids: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def ordered(self) -> tuple[Ints, Ints, Ints]:
        """ids, names and lengths in the order of the graph's nodes, else of the kernels' starts."""
        nodes = np.array(self.nodes, np.int64)
        told = bool((nodes != NONE).all()) and len(np.unique(nodes)) == len(nodes)
        order = np.argsort(nodes, kind="stable") if told else np.arange(len(nodes))
        return (np.array(self.ids, np.int64)[order], np.array(self.names, np.int64)[order],
                np.array(self.lengths, np.int64)[order])


class _Kernel(msgspec.Struct, gc=False):
    kernel: str | None = None


_KERNEL = msgspec.json.Decoder(_Kernel)


def kernel_of(arguments: str | None) -> str | None:
    """The kernel that a launch's arguments name; None where they do not."""
    try:
        return _KERNEL.decode(arguments or "{}").kernel
    except msgspec.DecodeError:
        return None

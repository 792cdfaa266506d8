"""Where the kernel time went as a flame graph: modules, operator and kernel, each as wide as its time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels.stacks import by_operator, of_tables
from aaco.core import inputs
from aaco.report import format
from aaco.report.sections import kernels
from aaco.report.svg import Drawing, Scale
from aaco.tracelake.document_schemas.answers import Stack, Stacks

WIDTH, ROW, TOP, EDGE = 960, 21, 40, 2
LEAST = 0.0015  # of all time: narrower frames are drawn as one
DEEPEST = 14
LETTER = 7.2  # pixels of one in a frame
FEWEST_LETTERS = 4
REPEATED = 4  # names of one level that differ in their last number alone
_LAST_NUMBER = re.compile(r"(?<=[._])\d+$")
NAME = 200
HEAVIEST = 20  # stacks in the table beside the picture


class Frame(Struct):
    """What one name took with all inside it; `family` is that of the kernels where they have one in common."""

    name: str
    ns: int = 0
    families: dict[str, int] = field(default_factory=dict)
    inside: dict[str, Frame] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The family that took most of it."""
        return max(self.families, key=lambda name: (self.families[name], name), default="")

    def take(self, other: Frame) -> None:
        """Another frame's time and all inside it."""
        self.ns += other.ns
        for name, ns in other.families.items():
            self.families[name] = self.families.get(name, 0) + ns
        for name, frame in other.inside.items():
            self.inside.setdefault(name, Frame(name)).take(frame)

    def add(self, path: tuple[str, ...], stack: Stack) -> None:
        """The stack's time, here and along the rest of its path."""
        self.ns += stack.ns
        self.families[stack.family] = self.families.get(stack.family, 0) + stack.ns
        if path:
            self.inside.setdefault(path[0], Frame(path[0])).add(path[1:], stack)


def of(explanation: Explanation) -> list[Stack]:
    """The stacks of the session's kernels, the longest first: by what launched them where that is known, else by
    family."""
    if known := explanation.examined.get("stacks"):
        return Stacks.model_validate(known).stacks
    tables = explanation.tables
    if not explanation.captures and {"kernels", "op_to_kernel_map", "operators"} <= set(tables):
        used = inputs.measured(tables["kernels"])
        if found := of_tables(used, tables["op_to_kernel_map"], tables["operators"]):
            return found
    if "operators" in tables and (found := by_operator(tables["operators"])):
        return found
    return [Stack(path=(row["family"] or "unknown family", row["kernel_name"]), family=row["family"] or "",
                  ns=row["total_ns"], pieces=row["calls"])
            for row in kernels.groups(explanation) if row["total_ns"] > 0]


def files(explanation: Explanation) -> list[str]:
    """What it was read from."""
    if explanation.examined.get("stacks"):
        return ["metrics/stacks.json"]
    if "operators" in explanation.tables:
        return ["attribution/op_to_kernel_map.parquet", "attribution/operators.parquet"]
    return ["attribution/kernel_groups.parquet"]


def draw(explanation: Explanation) -> Drawing | None:
    """The flame graph, the whole on top; None where no kernel has a time."""
    found = of(explanation)
    if not found:
        return None
    whole = Frame(f"all kernel time ({kernels.place(explanation) or 'kernels'})")
    for stack in found:
        whole.add(_shortened(stack.path), stack)
    looks = kernels.looks(explanation)
    deep = _depth(whole)
    drawing = Drawing(WIDTH, TOP + ROW * deep + 8, _told(found, whole.ns))
    drawing.text(EDGE, 22, "Flame graph: modules, operators, kernels", "ink strong")
    _draw(drawing, whole, 0, 0, Scale(0, whole.ns, EDGE, WIDTH - EDGE), whole.ns, looks)
    return drawing


def heaviest(explanation: Explanation) -> list[tuple[str, str, int, float]]:
    """Stacks that took most: what launched the kernel, the kernel, ns, and the share of all."""
    found = of(explanation)
    total = sum(one.ns for one in found)
    return [(" › ".join(one.path[:-1]), one.path[-1], one.ns, one.ns / total) for one in found[:HEAVIEST]]


def alike(inside: Mapping[str, Frame]) -> list[Frame]:
    """The frames of one level, the longest first. Many names that differ in their last number alone, as the layers of
    a model do, are one frame: what is in all of them is what a reader looks for."""
    by_stem: dict[str, list[Frame]] = {}
    for frame in inside.values():
        by_stem.setdefault(_LAST_NUMBER.sub("", frame.name), []).append(frame)
    found = []
    for stem, frames in by_stem.items():
        if len(frames) < REPEATED or not stem:
            found += frames
            continue
        together = Frame(f"{stem}* × {len(frames)}")
        for frame in frames:
            together.take(frame)
        found.append(together)
    return sorted(found, key=lambda one: (-one.ns, one.name))


def _draw(drawing: Drawing, frame: Frame, depth: int, start: int, across: Scale, total: int,
          looks: Mapping[str, str]) -> None:
    x, width = across(start), across(start + frame.ns) - across(start)
    tip = f"{format.cut(frame.name, NAME)}: {format.duration(frame.ns)}, {format.percent(frame.ns / total)}"
    look = looks.get(frame.family, "c7") if depth else "track"
    drawing.rect(x, TOP + ROW * depth, width, ROW - 1, f"frame {look}", tip)
    if (letters := int((width - 8) / LETTER)) >= FEWEST_LETTERS:
        drawing.text(x + 4, TOP + ROW * depth + 14, _beginning(frame.name, letters), "ink small")
    inside = alike(frame.inside)
    for one in [one for one in inside if one.ns >= LEAST * total]:
        _draw(drawing, one, depth + 1, start, across, total, looks)
        start += one.ns
    small = [one for one in inside if one.ns < LEAST * total]
    if rest := sum(one.ns for one in small):
        others = Frame(f"{len(small):,} smaller", rest)
        _draw(drawing, others, depth + 1, start, across, total, looks)


def _beginning(name: str, letters: int) -> str:
    """As much of a name's beginning as fits."""
    whole = format.symbol(name, NAME)
    return whole if format.cells(whole) <= letters else f"{whole[:letters - 1]}…"


def _shortened(path: tuple[str, ...]) -> tuple[str, ...]:
    """A stack deeper than can be drawn loses its middle; its outermost names and its kernel stay."""
    if len(path) <= DEEPEST:
        return path
    left_out = len(path) - DEEPEST + 1
    return (*path[:DEEPEST - 4], f"{left_out} more levels", *path[DEEPEST - 4 + left_out:])


def _depth(frame: Frame) -> int:
    return 1 + max((_depth(one) for one in alike(frame.inside)), default=0)


def _told(found: list[Stack], total: int) -> str:
    """The picture in words."""
    parts = [f"{format.symbol(one.path[-1], 40)} {format.percent(one.ns / total)}" for one in found[:3]]
    return f"Flame graph of {format.duration(total)} of kernel time; the longest stacks end in {', '.join(parts)}."

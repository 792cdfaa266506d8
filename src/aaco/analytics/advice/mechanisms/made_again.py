"""Tables that a step makes again and again of counted numbers, such as biases by distance, masks and angles: made once.

A run of passes over memory begins with counted numbers (arange); each reads only what the run has made by then. So it
makes the same wherever it has the same operators and shapes. A trace does not say which tensor is read: one of the same
sizes counts, in any order of its axes. Runs that a step has twice are made again. What follows a run up to the next
product or norm may be part of its table, in ways that shapes do not show, so it counts as gone in the floor, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from aaco.analytics.advice.least import LOCAL_COPIES, PRODUCTS, fusible, without
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import WHOLE, not_again
from aaco.analytics.advice.turn_flow import WRITES
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core.arrays import Flags, Ints
from aaco.core.readings import Absent

COUNTED = ("aten::arange", "aten::linspace")
REPEATS = ("aten::repeat", "aten::tile")
NONE_AGAIN = "no table is made of counted numbers more than once in a step"
CHANCE = ("rand", "normal_", "uniform_", "bernoulli", "dropout", "multinomial", "exponential_")
Sizes = tuple[int, ...]


class CountedTable:
    """What a run has made: the sizes of its tensors, and how many counted lines of yet unknown length."""

    def __init__(self) -> None:
        self.made: set[Sizes] = {()}
        self.lines = 0

    def takes(self, operator: StepOperator) -> bool:
        """Return whether an operator reads only what was made by then; its result is made, too."""
        if operator.name in COUNTED:
            self.lines += 1
            return True
        shapes = _shapes(operator)
        if shapes is None or any(word in operator.name for word in CHANCE):
            return False
        read = shapes[1:] if operator.name in WRITES else shapes
        repeats = operator.outermost in REPEATS
        if not all(self._has(_sizes(shape), repeats) for shape in read):
            return False
        if operator.name == "aten::cat":
            self.lines += 1  # as long as all of them
            return True
        try:
            self.made.add(_sizes(np.broadcast_shapes(*shapes)))
        except ValueError:
            return False
        return True

    def _has(self, sizes: Sizes, repeats: bool) -> bool:
        if sizes in self.made or (repeats and any(not Counter(made) - Counter(sizes) for made in self.made if made)):
            return True
        if len(sizes) > 1 or not self.lines:
            return False
        self.lines -= 1
        self.made.add(sizes)
        return True


def _sizes(shape: Sizes) -> Sizes:
    return tuple(sorted(size for size in shape if size != 1))


def _shapes(operator: StepOperator) -> list[Sizes] | None:
    """Return the shapes of an operator's tensors, those of lists too; None where one is not known."""
    if operator.arguments is None:
        return None
    shapes = [shape for shape, _ in operator.each_tensor]
    known = all(isinstance(shape, list) and all(isinstance(size, int) for size in shape) for shape in shapes)
    return [tuple(shape) for shape in shapes] if known else None


def _again(work: StepWork) -> tuple[Flags, Flags]:
    """Return the rows of tables that a step makes again, and all that may be of them: kept, no step makes them.

    Raise Absent if there are none.
    """
    counts = work.operated(lambda operator: operator.name in COUNTED)
    if not counts.any():
        raise Absent(NONE_AGAIN)
    order, passes = work.lane_order, fusible(work)
    between = work.copies(*LOCAL_COPIES)
    ends = np.append(np.flatnonzero(work.of_families(*PRODUCTS, *WHOLE)[order]), len(order))
    starts = np.flatnonzero(counts[order])
    runs: dict[tuple[int, ...], list[Ints]] = {}
    end = 0
    for start in starts.tolist():
        if start >= end:
            end = _end(work, order, start, passes, between)
            rows, start_row = order[start:end], order[start]
            if (work.operator[rows] != work.operator[start_row]).any():  # more than numbers in a row
                runs.setdefault(tuple(work.operator[rows].tolist()), []).append(rows)
    remade, maybe = np.zeros(len(order), bool), np.zeros(len(order), bool)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    for same in runs.values():
        if len(same) < 2 * work.steps:
            continue
        for rows in same:
            first = int(place[rows[0]])
            maybe[order[first:ends[np.searchsorted(ends, first)]]] = remade[rows] = True
    if not remade.any():
        raise Absent(NONE_AGAIN)
    return remade, maybe


def _end(work: StepWork, order: Ints, start: int, passes: Flags, between: Flags) -> int:
    """Return where a run ends; copies and fills of no known operator are part of it between two of its passes."""
    table, end = CountedTable(), start
    for at in range(start, len(order)):
        row = order[at]
        if work.lane[row] != work.lane[order[start]] or not passes[row]:
            break
        number = int(work.operator[row])
        if number >= 0:
            if not (at > start and number == work.operator[order[at - 1]]) and not table.takes(work.operators[number]):
                break
            end = at + 1
        elif not between[row]:
            break
    return max(end, start + 1)


MADE_AGAIN = Mechanism("made_again", "Make tables of numbers once", "D - runs of passes that make the same of counted "
                       "numbers more than once in a step", lambda work: without(work, work.once(_again)[1]),
                       respond=not_again(lambda work: work.once(_again)[0]))

"""Tensors that grow: a cache that each step appends to, by the shapes of concatenations and the order of their kernels.

A device graph has fixed sizes. One concatenation makes the first operand of another, which appends as much: with two
such links in a row a tensor grows. Sizes that follow each other inside a step, as in a network that keeps the results
of all its layers, come back in the next step and a graph can hold them; so it counts how often the size changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct

CONCATENATIONS = ("aten::cat", "aten::concat", "aten::concatenate")
Shapes = tuple[tuple[int, ...], ...]  # of the operands of one concatenation
LEAST_SIZES = 3
AT_ONCE = 2  # calls that each size serves: keys and values


class Growth(Struct, frozen=True):
    """How a tensor grows: how many sizes it has, how often the size changes, in how many calls."""

    sizes: int = 0
    changes: int = 0
    calls: int = 0

    def outlives(self, waits: int) -> bool:
        """Return whether no graph can hold it: a size never comes back, or changes as often as the host waits, and a
        graph holds no wait.
        """
        grows = self.sizes >= LEAST_SIZES and self.calls >= AT_ONCE * self.changes
        return grows and (self.changes == self.sizes or waits >= self.changes)


NO_GROWTH = Growth()


def operands(shapes: object) -> Shapes | None:
    """Return the shapes of a recorded concatenation's operands; None if they are no list of tensors of one rank."""
    listed = shapes[0] if isinstance(shapes, list) and shapes else None
    if not isinstance(listed, list) or len(listed) < 2 or not all(isinstance(shape, list) for shape in listed):
        return None
    if len({len(shape) for shape in listed}) != 1 or not all(isinstance(side, int) for shape in listed
                                                              for side in shape):
        return None
    return tuple(tuple(shape) for shape in listed)


def grown(shapes: Mapping[int, Shapes]) -> dict[int, int]:
    """Return of these concatenations those that are one of LEAST_SIZES in a row, by their keys: its place in the row.

    Keys and values may have sizes of their own; those of one place are of one length.
    """
    known = frozenset(shapes.values())
    place, row = dict.fromkeys(known, 0), dict.fromkeys(known, 1)
    ordered = sorted(known, key=lambda size: sum(size[0]))
    for size in ordered:
        for longer in _longer(size) & known:
            place[longer] = max(place[longer], place[size] + 1)
    for size in reversed(ordered):
        row[size] = max([1, *(row[longer] + 1 for longer in _longer(size) & known)])
    return {key: place[size] for key, size in shapes.items() if place[size] + row[size] >= LEAST_SIZES}


def _longer(size: Shapes) -> frozenset[Shapes]:
    """Return the concatenations that would append as much to the result of this one, along each axis that it may be."""
    first, *added = size
    axes = [axis for axis in range(len(first))
            if all(shape[:axis] + shape[axis + 1:] == first[:axis] + first[axis + 1:] for shape in added)]
    return frozenset(((*first[:axis], first[axis] + sum(shape[axis] for shape in added), *first[axis + 1:]), *added)
                     for axis in axes)


def growth(sizes: Sequence[int]) -> Growth:
    """Return how a tensor grows by its sizes, numbered, call after call."""
    return Growth(len(set(sizes)), sum(1 for _ in groupby(sizes)), len(sizes))

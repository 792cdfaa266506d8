"""Which parts of its tensors a step takes, as the arguments of its views say: `x[3]`, `x[:, 8:16]`.

A view takes no time of the device, so it is no row of a step's work. But it is the one thing in a trace that says which
part of which tensor is worked on next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Ints

Shape = tuple[int, ...]


class ViewKind(Struct, frozen=True):
    """What views have in common: the shape of the tensor that they are of and of the part that they take, along which
    axis, and whether the numbers are floating-point.
    """

    whole: Shape
    axis: int
    part: Shape
    floating: bool


class Views(Struct, frozen=True):
    """Columns of the views of all steps, in the order of their calls. row: how many rows of the steps' work the host
    had asked for before. kind: row of `kinds`. start: the first place that is taken along the axis.
    """

    row: Ints
    kind: Ints
    start: Ints
    kinds: Sequence[ViewKind]


NO_PLACES = np.zeros(0, np.int64)
NO_VIEWS = Views(NO_PLACES, NO_PLACES, NO_PLACES, ())

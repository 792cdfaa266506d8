"""Which part of training an operator belongs to: the way forward, the way back, or a repetition of the way forward.

PyTorch numbers every operation that it records for the way back ("Sequence number"), and an operation of the way back
names the one that it differentiates and the thread that recorded it ("Fwd thread id" above 0). What is recorded anew
inside an operation of the way back is a forward operator computed again, as activation checkpointing does, whichever
way it is built; so is a gradient that will itself be differentiated, which the trace does not tell apart.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import IntEnum

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.attribution.enclosing import Around, Line, at, nearest
from aaco.analytics.lanes import Ints, integers

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
OPTIMIZER_PREFIX = "Optimizer."  # what PyTorch calls its ranges around the steps of optimizers
SAID = '"Sequence number"'
REMEMBERED = 1 << 18  # recorded operations whose module is known


class Phase(IntEnum):
    """Part of training; NONE in a trace without a way back."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4


NAMES = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.RECOMPUTE: "recompute",
         Phase.OPTIMIZER: "optimizer"}


class _Recorded(msgspec.Struct, gc=False):
    sequence: int = msgspec.field(name="Sequence number", default=-1)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=0)


_DECODER = msgspec.json.Decoder(_Recorded)


@dataclass(frozen=True)
class Numbers:
    """Of calls, by ascending id: the number under which each was recorded, or of what it is the gradient; else -1."""

    id: Ints
    recorded: Ints
    gradient_of: Ints


class Phases:
    """Finds the phase of operators while their calls stream by, and the modules of gradients."""

    def __init__(self) -> None:
        self._path_of: OrderedDict[tuple[int, int], int] = OrderedDict()  # (capture, number) -> path

    def placed(self, line: Line, around: Around, means: Ints, numbers: Numbers) -> Around:
        """What lies around the calls, with the phase of each, and gradients in the modules of what they are of.

        means: of names the phase that they tell, or NONE. numbers: of the calls of the line.
        """
        recorded, gradient_of = (_of(line.id, numbers.id, each) for each in (numbers.recorded, numbers.gradient_of))
        parent = np.where(line.parent_id >= 0, _of(line.parent_id, line.id, np.arange(len(line))), -1)
        told = np.append(means, Phase.NONE)
        back = nearest(parent, (gradient_of >= 0) | (told[np.maximum(line.name, -1)] == Phase.BACKWARD))
        again = nearest(parent, recorded >= 0)
        phase = np.where(back < 0, Phase.FORWARD, np.where(again > back, Phase.RECOMPUTE, Phase.BACKWARD))
        phase[told[np.maximum(around.annotation, -1)] == Phase.OPTIMIZER] = Phase.OPTIMIZER
        for row in np.flatnonzero((recorded >= 0) & (around.path >= 0)).tolist():
            self._path_of[int(line.capture[row]), int(recorded[row])] = int(around.path[row])
        while len(self._path_of) > REMEMBERED:
            self._path_of.popitem(last=False)
        source = at(gradient_of, nearest(parent, gradient_of >= 0))
        path = around.path.copy()
        for row in np.flatnonzero((phase == Phase.BACKWARD) & (path < 0) & (source >= 0)).tolist():
            path[row] = self._path_of.get((int(line.capture[row]), int(source[row])), -1)
        return replace(around, path=path, phase=phase)


def meaning(name: str) -> Phase:
    """The phase that a name tells: of an operation of the way back, of an optimizer's range."""
    return (Phase.BACKWARD if name.startswith(BACKWARD_PREFIX) else
            Phase.OPTIMIZER if name.startswith(OPTIMIZER_PREFIX) else Phase.NONE)


def numbers_of(arguments: pa.Table) -> Numbers:
    """The numbers in the arguments of calls, which are rows of call_arguments by call_id."""
    some = arguments.filter(pc.match_substring(arguments["arguments"], SAID))
    found = [_decoded(text) for text in some["arguments"].to_pylist()]
    sequence = np.array([one.sequence for one in found], np.int64)
    of_gradient = np.array([one.forward_thread > 0 for one in found], bool)
    return Numbers(integers(some["call_id"]), np.where(of_gradient, -1, sequence), np.where(of_gradient, sequence, -1))


def joined(first: Numbers, second: Numbers) -> Numbers:
    """Both, of calls that follow each other."""
    return Numbers(*(np.concatenate([getattr(first, name), getattr(second, name)])
                     for name in ("id", "recorded", "gradient_of")))


def kept(numbers: Numbers, ids: Ints) -> Numbers:
    """Those of the calls with these ids."""
    some = np.isin(numbers.id, ids)
    return Numbers(numbers.id[some], numbers.recorded[some], numbers.gradient_of[some])


def _decoded(text: str) -> _Recorded:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return _Recorded()


def _of(asked: Ints, known: Ints, values: Ints) -> Ints:
    """The value of each asked id among the known ones, which ascend; -1 where it is not there."""
    if not len(known):
        return np.full(len(asked), -1)
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[place] == asked, values[place], -1)

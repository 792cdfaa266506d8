"""Find which part of training an operator belongs to: forward, backward, or recomputation.

PyTorch numbers every operation that it records for the backward pass ("Sequence number"). A backward operation names
the one that it differentiates and the thread that recorded it ("Fwd thread id" above 0). An operation recorded inside a
backward operation is a forward operator computed again, as any form of activation checkpointing does; so is a gradient
that will itself be differentiated, which the trace does not distinguish. An operation ahead of the backward pass was
not recorded if it has no number and is in none that has one, as inside of torch.no_grad; or if the next one has the
same number, for PyTorch counts on where it records one: so of frozen weights and constant inputs.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.attribution.call_context import CallContext, CallLine, at, farthest, nearest
from aaco.analytics.streaming.stream_ids import integers
from aaco.core.arrays import Flags, Ints, find_sorted

BACKWARD_PREFIX = "autograd::engine::evaluate_function"
OPTIMIZER_PREFIX = "Optimizer."  # what PyTorch calls its ranges around the steps of optimizers
SEQUENCE_KEY = '"Sequence number"'
REMEMBERED = 1 << 18  # recorded operations whose module is known


class Phase(IntEnum):
    """Part of training; NONE in a trace without a backward pass."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4
    NO_GRAD = 5


NAMES = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.RECOMPUTE: "recompute",
         Phase.OPTIMIZER: "optimizer", Phase.NO_GRAD: "no_grad"}


class _Recorded(msgspec.Struct, gc=False):
    sequence: int = msgspec.field(name="Sequence number", default=-1)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=0)


_DECODER = msgspec.json.Decoder(_Recorded)


class Numbers(Struct, frozen=True):
    """Per call, by ascending id: the number that it was recorded under, or whose gradient it is; else -1."""

    id: Ints
    recorded: Ints
    gradient_of: Ints


class Phases:
    """Finds the phase of operators, and the modules of gradients, while their calls stream by."""

    def __init__(self) -> None:
        self._path_of: OrderedDict[tuple[int, int], int] = OrderedDict()  # (capture, number) -> path

    def placed(self, line: CallLine, around: CallContext, means: Ints, numbers: Numbers) -> CallContext:
        """Return the context of the calls with the phase of each, and with gradients in the modules of their operators.

        means: the phase that each name implies, or NONE. numbers: of the calls of the line.
        """
        with_numbers = find_sorted(numbers.id, line.id)
        recorded, gradient_of = at(numbers.recorded, with_numbers), at(numbers.gradient_of, with_numbers)
        parent = np.where(line.parent_id >= 0, find_sorted(line.id, line.parent_id), -1)
        phase_of_name = np.append(means, Phase.NONE)
        gradient = nearest(parent, (gradient_of >= 0) | (phase_of_name[np.maximum(line.name, -1)] == Phase.BACKWARD))
        recomputed = nearest(parent, recorded >= 0)
        is_recorded = _is_recorded(line, farthest(parent, recomputed), recorded, gradient < 0)
        ahead = np.where(is_recorded, Phase.FORWARD, Phase.NO_GRAD)
        phase = np.where(gradient < 0, ahead, np.where(recomputed > gradient, Phase.RECOMPUTE, Phase.BACKWARD))
        phase[phase_of_name[np.maximum(around.annotation, -1)] == Phase.OPTIMIZER] = Phase.OPTIMIZER
        for row in np.flatnonzero((recorded >= 0) & (around.path >= 0)).tolist():
            self._path_of[int(line.capture[row]), int(recorded[row])] = int(around.path[row])
        while len(self._path_of) > REMEMBERED:
            self._path_of.popitem(last=False)
        source = at(gradient_of, nearest(parent, gradient_of >= 0))
        path = around.path.copy()
        for row in np.flatnonzero((phase == Phase.BACKWARD) & (path < 0) & (source >= 0)).tolist():
            path[row] = self._path_of.get((int(line.capture[row]), int(source[row])), -1)
        return replace(around, path=path, phase=phase)


def _is_recorded(line: CallLine, outermost: Ints, recorded: Ints, ahead: Flags) -> Flags:
    """Return which calls lie in an outermost one that was recorded: the next outermost one has another number.

    The last one of a line, after which nothing is known yet, is taken for what the one before is. outermost: of each
    call the outermost with a number around it. ahead: which calls do not belong to the way back.
    """
    calls = np.flatnonzero((outermost == np.arange(len(line))) & ahead)
    number, capture = recorded[calls], line.capture[calls]
    counted_on = np.zeros(len(line) + 1, bool)
    counted_on[calls[:-1]] = (number[1:] != number[:-1]) | (capture[1:] != capture[:-1])
    counted_on[calls[-1:]] = counted_on[calls[-2:-1]] if len(calls) > 1 else True
    return counted_on[outermost]


def meaning(name: str) -> Phase:
    """Return the phase that a name implies: of a backward operation, or of an optimizer's range."""
    return (Phase.BACKWARD if name.startswith(BACKWARD_PREFIX) else
            Phase.OPTIMIZER if name.startswith(OPTIMIZER_PREFIX) else Phase.NONE)


def numbers_of(arguments: pa.Table) -> Numbers:
    """Return the numbers in the arguments of calls. arguments: rows of call_arguments by call_id."""
    rows = arguments.filter(pc.match_substring(arguments["arguments"], SEQUENCE_KEY))
    recorded = [_decoded(text) for text in rows["arguments"].to_pylist()]
    sequence = np.array([numbers.sequence for numbers in recorded], np.int64)
    of_gradient = np.array([numbers.forward_thread > 0 for numbers in recorded], bool)
    return Numbers(integers(rows["call_id"]), np.where(of_gradient, -1, sequence), np.where(of_gradient, sequence, -1))


def joined(first: Numbers, second: Numbers) -> Numbers:
    """Return both, of calls that follow each other."""
    return Numbers(*(np.concatenate([getattr(first, name), getattr(second, name)])
                     for name in ("id", "recorded", "gradient_of")))


def kept(numbers: Numbers, ids: Ints) -> Numbers:
    """Return the numbers of the calls with these ids."""
    some = np.isin(numbers.id, ids)
    return Numbers(numbers.id[some], numbers.recorded[some], numbers.gradient_of[some])


def _decoded(text: str) -> _Recorded:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return _Recorded()

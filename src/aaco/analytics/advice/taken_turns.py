"""Loops whose turns each take a part of their own: `for picture in pictures`, `for number in range(8): x[:, number]`.

Views say so (views.py): one after another they take the first, the second, .. part of one tensor, with work after each.
Unlike other loops (loops.py) these may do another thing in each turn. A turn that reads nothing of a size that turns
make, but its own parts, needs no other turn. A part and what the turn before has left may be of one size. So where a
turn takes more tensors of that size than it has parts and has made by then, it may need the one before; where it
multiplies by weights, as a layer or a cell does, so of any size: but not where a whole model begins with whole numbers
of its own, as words, and takes nothing else. Turns with gates are those of recurrent cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.loops import (
    LONGEST_ROW,
    LONGEST_TURN,
    MODEL_TURNS,
    TURNS,
    adds_to_a_total,
    has_gates,
    operators_of,
    placed_operators,
    repeats,
)
from aaco.analytics.advice.turn_flow import MOVES, Size, TurnFlow, listed_in, made_sizes, reads_of, size_of, tensors_of
from aaco.analytics.advice.views import Shape, ViewKind, Views
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.core.arrays import Flags, Ints, Ints32

# What makes few numbers of many: it may read a tensor that is read again with what it made, as to subtract a mean.
REDUCTIONS = ("aten::mean", "aten::sum", "aten::amax", "aten::amin", "aten::max", "aten::min", "aten::std", "aten::var",
              "aten::var_mean", "aten::std_mean", "aten::norm", "aten::linalg_vector_norm")
FEW = 64  # numbers, as means and spreads of colours: no samples that weights of a turn are multiplied by


class TakenLoop(Struct, frozen=True):
    """Turns that each take a part. rows: of all turns. turns: how many. of_batch: whether they take the rows of a
    tensor, each one, and nothing else.
    """

    rows: slice
    turns: int
    of_batch: bool


def taken_turns(work: StepWork) -> Ints32:
    """Return of each row how many turns the loop has that it is in, of loops whose turns each take a part of their own;
    1 of all other rows.
    """
    turns = np.ones(len(work.ns), np.int32)
    for loop in work.once(taken_loops):
        turns[loop.rows] = np.maximum(turns[loop.rows], loop.turns)
    return turns


def batch_in_turn(work: StepWork) -> Flags:
    """Return which rows are of loops that take the rows of a batch one by one: with more samples there are more turns.
    """
    in_turn = np.zeros(len(work.ns), bool)
    for loop in work.once(taken_loops):
        in_turn[loop.rows] |= loop.of_batch
    return in_turn


def taken_loops(work: StepWork) -> list[TakenLoop]:
    """Return the loops whose turns each take a part of their own and do not need each other."""
    loops, judged, handed = list[TakenLoop](), dict[Hashable, bool | None](), list[tuple[int, int, ViewKind]]()
    known = dict[bytes, tuple[slice, bool | None]]()  # of turns that begin at the same rows, by several kinds of views
    for number, run in _runs(work.views):
        kind, bounds = work.views.kinds[number], work.views.row[run]
        if (np.diff(bounds) <= 0).any():  # all parts at once: as of `unbind`, or for a list
            handed.append((int(bounds[-1]), len(run), kind))
            continue
        if (key := bounds.tobytes()) not in known:
            turns = [slice(begin, end) for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
            turns += _last_turn(work, turns)
            is_loop = _is_loop(work, turns, len(run))
            known[key] = (slice(turns[0].start, turns[-1].stop),
                          _all_take_parts(work, number, turns, judged) if is_loop else None)
        rows, alone = known[key]
        if alone is not None:
            loops.append(TakenLoop(rows, len(run), alone and kind.axis == 0 and len(run) == kind.whole[0]))
    return loops + _loops_over_lists(work, handed, judged)


def _runs(views: Views) -> Iterator[tuple[int, Ints]]:
    """Yield the kinds of views, and the places of views that take one part of a tensor after another."""
    for number, kind in enumerate(views.kinds):
        if kind.whole[kind.axis] >= MODEL_TURNS:
            of_kind = np.flatnonzero(views.kind == number)
            of_kind = of_kind[np.diff(views.start[of_kind], prepend=-1) != 0]  # the same part, taken twice, is one
            runs = np.split(of_kind, np.flatnonzero(np.diff(views.start[of_kind]) <= 0) + 1)
            yield from ((number, run) for run in runs if len(run) >= MODEL_TURNS)


def _loops_over_lists(work: StepWork, handed: Sequence[tuple[int, int, ViewKind]], judged: dict[Hashable, bool | None]
                      ) -> list[TakenLoop]:
    """Return the loops whose turns repeat and of which each has a part of what was parted before them. handed: before
    which row, into how many, and which.
    """
    loops = list[TakenLoop]()
    for loop in work.once(repeats) if handed else ():
        first, last = loop.ends
        parts = {kind for row, count, kind in handed if count >= TURNS and count - loop.turns in (0, 1)
                 and 2 * first.start - first.stop <= row <= first.stop}
        if not parts or not loop.is_loop or not _is_loop(work, [first, last], loop.turns, loop.rows):
            continue
        key = (frozenset(parts), work.operator[first].tobytes(), work.operator[last].tobytes())
        if key not in judged:
            found = [_takes_only_parts(work, turn, _within(work.views, turn), frozenset(), parts) for turn in loop.ends]
            judged[key] = None if None in found else all(found)
        if (alone := judged[key]) is not None:
            of_batch = alone and any(kind.axis == 0 and kind.whole[0] - loop.turns in (0, 1) for kind in parts)
            loops.append(TakenLoop(loop.rows, loop.turns, of_batch))
    return loops


def _last_turn(work: StepWork, turns: list[slice]) -> list[slice]:
    """Return the last turn, which begins where the others end and does what one of them did; nothing if none did."""
    begin, names = turns[-1].stop, work.operator_name
    done = {names[turn].tobytes(): turn.stop - turn.start for turn in turns}
    same = [length for length in set(done.values()) if done.get(names[begin:begin + length].tobytes()) == length]
    return [slice(begin, begin + max(same))] if same else []


def _is_loop(work: StepWork, turns: list[slice], count: int, rows: slice | None = None) -> bool:
    """Return whether there are enough turns, of which none is too long, nor goes back or updates weights."""
    calls = [len(operators_of(work, turn)) for turn in turns]
    longest, least = max(calls), min(calls)
    enough = MODEL_TURNS if least > LONGEST_TURN else TURNS
    rows = rows or slice(turns[0].start, turns[-1].stop)
    host_sends, host_reads = work.copies("h2d")[rows].any(), work.copies("d2h")[rows].any()
    return (count >= enough and least > 0 and longest <= LONGEST_ROW and not (host_sends and host_reads)
            and not any(operator.phase in (BACKWARD, OPTIMIZER) for operator in operators_of(work, rows)))


def _all_take_parts(work: StepWork, kind: int, turns: list[slice], judged: dict[Hashable, bool | None]) -> bool | None:
    """Return whether turns take nothing but their own parts; None if one may need another. kind: of the views that part
    the turns.
    """
    views, alone = work.views, True
    all_of = _within(views, slice(turns[0].start, turns[-1].stop))
    mine = _own_kinds(views.kind[all_of], views.start[all_of], kind, len(turns))
    for turn in turns:
        taken = _within(views, turn)
        key = (mine, work.operator[turn].tobytes(), work.copied[turn].tobytes(),
               views.kind[taken].tobytes(), (views.row[taken] - turn.start).tobytes())
        if key not in judged:
            judged[key] = _takes_only_parts(work, turn, taken, mine)
        if (takes_only_parts := judged[key]) is None:
            return None
        alone &= takes_only_parts
    return alone


def _within(views: Views, turn: slice) -> slice:
    """Return where the views of a turn are."""
    first, last = np.searchsorted(views.row, [turn.start, turn.stop]).tolist()
    return slice(first, last)


def _own_kinds(kinds: Ints, starts: Ints, kind: int, turns: int) -> frozenset[int]:
    """Return the kinds of views of which each turn takes another part."""
    parts = np.bincount(np.unique(np.stack([kinds, starts]), axis=1)[0])
    return frozenset({kind, *np.flatnonzero(parts >= turns - 1).tolist()})


def _takes_only_parts(work: StepWork, turn: slice, views: slice, mine: frozenset[int],
                      handed: Iterable[ViewKind] = ()) -> bool | None:
    """Return whether a turn takes nothing but its own parts, weights and a few numbers; None if it may need another.

    views: of the turn. mine: kinds of which each turn takes its own part. handed: of the parts that it had before.
    """
    operators, at = placed_operators(work, turn), views.start
    multiplies = any(work.names[number].family in PRODUCTS for number in np.unique(work.label[turn]).tolist())
    sent = work.copied[turn][work.copies("h2d")[turn]]
    of_numbers = any(kind.floating for kind in (*handed, *map(work.views.kinds.__getitem__, mine)))
    from_words = len(operators) > LONGEST_TURN and not of_numbers
    found = _Turn(frozenset(sent.tolist()), handed, multiplies, multiplies and not from_words)
    if has_gates(operator for _, operator in operators):
        return None
    if adds_to_a_total([operator for _, operator in operators]):
        operators.pop()
    for row, operator in operators:
        while at < views.stop and work.views.row[at] <= row:
            number = int(work.views.kind[at])
            found.take(work.views.kinds[number], number in mine)
            at += 1
        if not found.explains(operator):
            return None
    alone = not found.flow.reads_numbers(FEW)
    if found.flow.may_carry(set(work.copied[turn][work.copies("memset")[turn]].tolist())) or from_words > alone:
        return None
    return alone


class _Turn:
    """What a turn has by now: its own parts, and what it made. sent: bytes of the host's copies in it. multiplies:
    whether it has products. counts_all: whether of each size no more is taken than there is; otherwise of its parts'.
    """

    def __init__(self, sent: frozenset[int], handed: Iterable[ViewKind], multiplies: bool, counts_all: bool) -> None:
        self._multiplies, self._counts_all = multiplies, counts_all
        self.flow, self._own, self._last = TurnFlow(sent), set[Shape](), set[Size]()
        self._parts, self._made, self._taken = (Counter[Size]() for _ in range(3))
        for kind in handed:
            self.take(kind, True)

    def take(self, kind: ViewKind, is_own: bool) -> None:
        """Take in a view: a part of an own part is one, too, and one of what the turn made is made."""
        size, whole = size_of(kind.part, kind.floating), size_of(kind.whole, kind.floating)
        if is_own or kind.whole in self._own:
            self._own.add(kind.part)
            self._have(size)
        elif self._made[whole] or whole in self._last:
            self._made[size] += 1
            self.flow.make({size})

    def explains(self, operator: StepOperator) -> bool:
        """Take in an operator. Return whether it is known, and takes no more tensors of a part's size than there are.
        """
        read = [*reads_of(operator), *listed_in(operator)]
        if operator.name in MOVES and any(self._parts[size] for size in read):
            for tensor in tensors_of(operator)[:1]:
                self._have(size_of(*tensor))  # what is moved of a part is a part
        if operator.name not in REDUCTIONS:
            self._taken.update(read)
        else:
            self._take_again({size for size in read if self._parts[size]})
        written = {size_of(*tensor) for tensor in tensors_of(operator)[:1] if operator.outermost == MOVES[0]}
        if self._multiplies and any(self._parts[size] for size in written):
            return False  # it may be a part that is written, as the cache of a layer
        self._made.update(self._last)
        self._last = made_sizes(operator)
        return self.flow.follow(operator) and not any(
            self._taken[size] > self._parts[size] + self._made[size] for size in read
            if self._parts[size] or (self._counts_all and self._made[size]))

    def _have(self, size: Size) -> None:
        self._parts[size] += 1
        self._take_again({size})

    def _take_again(self, sizes: set[Size]) -> None:
        for size in sizes:
            self.flow.take(size, once=self._multiplies)

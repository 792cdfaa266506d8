"""Loops in a step: the same few operators again and again, and then one that stacks what they made.

The layers of a model repeat as well, but nothing stacks what each of them makes. One operator cannot take the place of
turns that need the result of the one before. A trace does not say which tensor an operator reads; so a loop is left out
where a turn may need the last one, and is of a kind that usually does: it looks something up, or it has gates, or it
only updates values. A result may be needed if it has the shape of something that an earlier operator of the turn reads
and that nothing in the turn has made by then.

Rows of a batch that are worked on one by one are loops that end in a read of the host. There it is evident that no turn
needs the one before: nothing comes from the host in a turn, no weights are updated, and nothing of the size of what a
turn reads from outside was made in it or in the one before; but rows of a tensor that has one for each turn. So it is
where each turn takes a row of its own out of a batch, as the arguments of its views say (`single_rows`).

Parts that are worked on one by one are loops that end in no read: the same operators with the same shapes again and
again, in the same step, with products among them or a sum to a total at the end. Layers of a model, recurrent cells and
sampling repeat as well, and each reads what the one before made: something of a size that a turn makes, something that
its choice looks up, a cache that it writes. Only where a turn reads nothing of that kind, nor anything from the host
that is no part of what was parted before the loop, the turns are independent. So are two passes of a model whose
results are subtracted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.turn_flow import (
    BY_A_LIST,
    LOOKUPS,
    MASKED,
    MOVES,
    NO_PARTS,
    STACKS,
    TRUTH,
    WITH_WEIGHTS,
    WRITES,
    Size,
    TurnFlow,
    made_sizes,
    parts_of_made,
    read_and_made,
    result_shape,
    size_of,
    takes_of,
    tensors_of,
)
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.analytics.costs.tiles import ProductShape
from aaco.analytics.costs.torch import product
from aaco.analytics.workload.signs import COMPARISONS
from aaco.core.arrays import Flags, Ints, Ints32, Reals

TURNS = 8  # fewer are no loop
LONGEST_TURN = 32  # operators; a longer turn is a model's
LEAST_CHANGING = 0.2  # of turns: with more rows than the turn before, and with fewer
SELDOM = 2  # times in a step that a group has one number of rows
MODEL_TURNS = 3  # of whole models that are called again and again; fewer may be two models
PAIR = 2  # passes of a model whose results are subtracted
GATES = ("tanh", "sigmoid")  # of recurrent layers
LINEAR = ("aten::mul", "aten::add", "aten::sub", "aten::lerp", "aten::addcmul")  # in what they read
READOUTS = ("aten::bmm", "aten::mm", "aten::mv", "aten::sum")  # of what a linear recurrence has made
MOST_STACKS = 1000  # of a step that are looked at
LONGEST_ROW = 2000  # operators of a whole model, in a turn that ends in a read
MOST_READS = 4  # of single numbers in such a turn
READ = -2  # among numbers of operators: a read of the host
MOST_DISTANCES = 50  # between calls of one operator that are looked at, as lengths of turns
SUBTRACTING = ("aten::sub", "aten::lerp")
PARTING = ("aten::split", "aten::split_with_sizes", "aten::chunk", "aten::tensor_split", "aten::unbind")
PART = "aten::as_strided"  # which each part is made by
PARTS_BACK = ("SelectBackward0", "SliceBackward0")  # of views: where the gradient of a part goes


class Repeat(Struct, frozen=True):
    """Turns of the same operators one after another. rows: of all turns. ends: of the first turn and of the last one,
    with what is moved between them and the next. phase: of its operators. calls: of operators in a turn.
    """

    rows: slice
    turns: int
    ends: tuple[slice, slice]
    phase: str
    calls: int

    @property
    def is_loop(self) -> bool:
        """Whether there are enough turns: of a whole model fewer are."""
        return self.turns >= _least_turns(self.calls)

    @property
    def is_pair(self) -> bool:
        """Whether it is a whole model that is called twice."""
        return self.turns == PAIR


class StackedLoop(Struct, frozen=True):
    """A loop that ends in a stack of its results. scans: whether turns need the one before, but only scale and add."""

    rows: slice
    turns: int
    scans: bool


def stacked_turns(work: StepWork) -> Reals:
    """Return of each row how many turns the loop has that it is in, of loops that end in a stack of their results; 1 of
    all other rows.
    """
    turns = np.ones(len(work.ns))
    for loop in work.once(stacked_loops):
        turns[loop.rows] = loop.turns
    return turns


def scan_passes(work: StepWork) -> Reals:
    """Return of each row how often all turns of its loop at once pass over what they make: a sum over all turns before,
    in steps of 1, 2, 4, .. turns, of loops that only scale and add what the turn before made; 1 of all other rows.
    """
    passes = np.ones(len(work.ns))
    for loop in work.once(stacked_loops):
        if loop.scans:
            passes[loop.rows] = math.ceil(math.log2(loop.turns))
    return passes


def stacked_loops(work: StepWork) -> list[StackedLoop]:
    """Return the loops that end in a stack of their results, but for those whose turns need the one before and do more
    than to scale and to add.
    """
    stacks, loops = np.array([*(operator.outermost in STACKS for operator in work.operators), False]), []
    if not stacks.any():
        return []
    rows = np.flatnonzero(work.operator >= 0)
    starts = rows[np.diff(work.operator_name[rows], prepend=-1) != 0]  # one for kernels of a name one after another
    calls = work.operator_name[starts]
    for end in np.flatnonzero(stacks[work.operator[starts]])[:MOST_STACKS].tolist():
        if not (length := _turn_length(calls[:end])):
            continue
        turn, repeated = work.operator[starts[end - length:end]], _periodic(calls[:end], length)
        scans = _scans([work.operators[number] for number in turn])
        turns, stack = repeated // length, work.operators[work.operator[starts[end]]]
        if (scans or not _usually_needs_the_one_before(work, turn)) and _stacks(stack, turns):
            loops.append(StackedLoop(slice(int(starts[end - repeated]), int(starts[end])), turns, scans))
    return loops


def _stacks(operator: StepOperator, turns: int) -> bool:
    """Return whether an operator may stack what so many turns make: it takes as many tensors, if that is known."""
    listed = operator.arguments.shapes[:1] if operator.arguments else ()
    return all(not tensors or len(tensors) >= turns for tensors in listed)


def _turn_length(calls: Ints) -> int:
    """Return how many operators a turn of the loop has that these calls end in; 0 if they end in no loop."""
    lengths = 1 + np.flatnonzero(calls[-2:-LONGEST_TURN - 2:-1] == calls[-1:])  # back to a call like the last one
    return next((length for length in lengths.tolist()
                 if length > 1 and _periodic(calls[-TURNS * length:], length) == TURNS * length), 0)


def _periodic(calls: Ints, length: int) -> int:
    """Return how many of the last calls repeat with this period."""
    broken = np.flatnonzero(calls[length:] != calls[:-length])
    return len(calls) - (int(broken[-1]) + 1 if len(broken) else 0)


def _usually_needs_the_one_before(work: StepWork, turn: Ints) -> bool:
    operators = [work.operators[number] for number in turn]
    masks = any(operator.name == MASKED for operator in operators)
    if not masks and any(word in operator.name for operator in operators for word in LOOKUPS):
        return True
    multiplies = any(name.family in PRODUCTS for number in turn for name in work.names_by_operator.get(number, ()))
    return (has_gates(operators) or not multiplies) and _may_need_the_one_before(operators)


def _scans(turn: Sequence[StepOperator]) -> bool:
    """Return whether a turn may need the one before and only scales and adds, in tensors of one shape, but for what it
    reads of the result.
    """
    updates = [operator for operator in turn if operator.name.rstrip("_") in LINEAR]
    shapes = {result_shape(operator) for operator in updates}
    return (len(shapes) == 1 < len({operator.name for operator in updates}) and _may_need_the_one_before(turn)
            and all(operator in updates or operator.name == MOVES[0]
                    or (operator.name in READOUTS and result_shape(operator) not in shapes) for operator in turn))


def _may_need_the_one_before(turn: Sequence[StepOperator]) -> bool:
    results = [result_shape(operator) for operator in turn]
    return any((_shapes_read(operator) - set(results[:number])) & set(results[number:])
               for number, operator in enumerate(turn))


def _shapes_read(operator: StepOperator) -> set[Shape | None]:
    """Return the shapes of the tensors that an operator reads, those of lists too; of truth values after TRUTH."""
    return {(TRUTH, *shape) if kind == "bool" else tuple(shape) for shape, kind in operator.each_tensor
            if isinstance(shape, list) and shape}


def rows_in_turn(work: StepWork) -> Reals:
    """Return of each row how many turns the loop has that it is in, of loops that work on the rows of a batch one by
    one and read a number of each; 1 of all other rows.
    """
    turns = np.ones(len(work.ns))
    read = work.number_reads
    if np.count_nonzero(read) < TURNS * max(1, work.steps):
        return turns
    rows = np.flatnonzero((work.operator >= 0) | read)
    numbers = np.where(read, READ, work.operator_name)[rows]
    starts, calls = rows[changed := np.diff(numbers, prepend=-1) != 0], numbers[changed]
    ends, first_of_loop = np.flatnonzero(calls == READ) + 1, len(calls) + 1
    for end in ends[::-1][:MOST_STACKS].tolist():
        length = _row_length(calls[:end]) if end < first_of_loop else 0
        if length:
            first_of_loop = end - _periodic(calls[:end], length)
            # the first turn may lack what others begin with: what they do with the result of the one before
            count = min(round((end - first_of_loop) / length), round(np.count_nonzero(read) / work.steps))
            loop = slice(int(starts[max(first_of_loop, end - count * length)]), int(starts[end - 1]) + 1)
            two_turns = [slice(int(starts[last - length]), int(starts[last - 1])) for last in (end - length, end)]
            if count >= TURNS and _independent(work, loop, two_turns, count):
                turns[loop] = count
    return turns


def _row_length(calls: Ints) -> int:
    """Return how many operators and reads a turn has of the loop that these calls end in; 0 if they end in no loop."""
    lengths = 1 + np.flatnonzero(calls[-2:-LONGEST_ROW - 2:-1] == READ)[:MOST_READS]
    return next((length for length in lengths.tolist()
                 if length > 1 and _periodic(calls[-TURNS * length:], length) == TURNS * length), 0)


def _independent(work: StepWork, loop: slice, two_turns: Sequence[slice], turns: int) -> bool:
    """Return whether it is evident that no turn of a loop needs the one before, by the rows of its last two turns."""
    one_before, last = (operators_of(work, turn) for turn in two_turns)
    if work.copies("h2d")[loop].any() or any(operator.phase in (BACKWARD, OPTIMIZER) for operator in last):
        return False
    if _takes_single_rows(work, turns, last):
        return True
    outside, made = read_and_made(last)
    made |= read_and_made(one_before)[1]
    before = {size_of(shape, floating) for number in np.unique(work.operator[:loop.start]).tolist() if number >= 0
              for shape, floating in tensors_of(work.operators[number])}
    return (all((elements * turns, floating) in before for elements, floating in outside & made)
            or not any(_may_carry(work, turn, frozenset()) for turn in two_turns))


def loops_over_rows(work: StepWork) -> bool:
    """Return whether a step works on the rows of a batch one by one, as its views say."""
    return work.single_rows >= TURNS and any(
        ((turns > 1) & (work.single_rows - turns <= 1)).any()
        for turns in (rows_in_turn(work), work.once(parts_in_turn)))


def _takes_single_rows(work: StepWork, turns: int, turn: Sequence[StepOperator]) -> bool:
    """Return whether a loop of so many turns takes the rows of a batch one by one; its first turn may begin otherwise.

    Gates may be of layers that take the rows of a sequence, each with the state that the row before has left.
    """
    if turns <= 1 or work.single_rows - turns not in (0, 1):
        return False
    if not any(gate in operator.name for operator in turn for gate in (*GATES, "_rnn")):
        return True
    flow = TurnFlow(parts=parts_of_made(turn))
    return all(map(flow.follow, turn)) and not flow.may_carry(set())


def parts_in_turn(work: StepWork) -> Ints32:
    """Return of each row how many turns the loop has that it is in, of loops over independent parts that end in no
    read; 1 of all other rows.
    """
    turns, judged = np.ones(len(work.ns), np.int32), dict[Hashable, bool]()
    for loop in work.once(repeats):
        if loop.phase not in (BACKWARD, OPTIMIZER):
            kind = tuple(column[loop.rows].tobytes() for column in (work.label, work.operator, work.copied))
            if kind not in judged:  # once for all steps
                judged[kind] = _may_be_one_call(work, loop) if loop.is_loop else loop.is_pair and _guides(work, loop)
            if judged[kind]:
                turns[loop.rows] = np.maximum(turns[loop.rows], loop.turns)
    return turns


def repeats(work: StepWork) -> list[Repeat]:
    """Return where the same operators with the same shapes follow each other often, in a step: a turn less than a loop
    has, and more.

    Operators that only move values are left out: what a part is turned or copied for may differ from turn to turn.
    """
    return _repeats(work, lambda operator: (operator.name, operator.phase, repr(operator.shapes)))


def groups_in_turn(work: StepWork) -> Reals:
    """Return of each row how many turns the loop has that it is in, of loops over groups whose rows data decide, as
    those of experts: the same operators again and again, most turns with other numbers of rows; 1 of all other rows.
    """
    turns = np.ones(len(work.ns))
    groups = [sizes for sizes in work.once(products_of_groups) if len(sizes) >= TURNS]
    sized_by_data = np.isin(work.operator, [number for sizes in groups for numbers in sizes for number in numbers])
    masks = any(operator.name == MASKED for operator in work.operators)
    for loop in _repeats(work, lambda operator: (operator.name, operator.phase)) if groups or masks else ():
        if loop.turns >= TURNS and loop.calls <= LONGEST_TURN and (
                loop.turns <= np.count_nonzero(sized_by_data[loop.rows]) or _sized_by_masks(work, loop)):
            turns[loop.rows] = np.maximum(turns[loop.rows], loop.turns)
    return turns


def _sized_by_masks(work: StepWork, loop: Repeat) -> bool:
    """Return whether masks of its turns choose the rows that a loop multiplies by weights of one shape: their numbers
    rise and fall from turn to turn, and no turn takes rows of what others make. Those of a growing text only rise.
    """
    turn, flow = operators_of(work, loop.ends[0]), TurnFlow()
    masks = any(operator.name == MASKED for operator in turn)
    if not masks or not all(map(flow.follow, turn)) or flow.may_carry_rows():
        return False
    rows = defaultdict[ProductShape, list[int]](list)
    for operator in operators_of(work, loop.rows):
        if shape := product(operator.name, operator.arguments):
            rows[replace(shape, rows=0)].append(shape.rows)
    changes = [np.diff(counts) for counts in rows.values() if len(counts) >= loop.turns]
    return any(min((change > 0).mean(), (change < 0).mean()) > LEAST_CHANGING for change in changes)


def products_of_groups(work: StepWork) -> list[list[list[int]]]:
    """Return for each shape of weights, and each number of rows that is rare in a step, the operators that multiply so
    many rows by such weights.
    """
    calls, alike = work.operator_calls.tolist(), dict[tuple[str, ProductShape], list[int]]()
    for number, operator in enumerate(work.operators):
        if calls[number] and (shape := product(operator.name, operator.arguments)):
            alike.setdefault((operator.name, shape), []).append(number)
    groups: dict[tuple[str, ProductShape], list[list[int]]] = {}
    for (name, shape), numbers in alike.items():
        if sum(round(calls[number]) for number in numbers) <= SELDOM * work.steps:
            groups.setdefault((name, replace(shape, rows=0)), []).append(numbers)
    return list(groups.values())


def _repeats(work: StepWork, kind: Callable[[StepOperator], Hashable]) -> list[Repeat]:
    """Return where operators of the same kinds follow each other often, in a step."""
    numbers: dict[Hashable, int] = {}
    of_operator = [numbers.setdefault(kind(operator), len(numbers)) for operator in work.operators]
    rows = np.flatnonzero(work.operated(lambda operator: operator.name not in MOVES) & (work.operator >= 0))
    if len(rows) < 2 * (TURNS - 1):
        return []
    codes = np.array(of_operator)[work.operator[rows]]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    codes, ends = codes[starts], np.r_[rows[starts[1:] - 1], rows[-1]] + 1
    rows, repeated = rows[starts], list[Repeat]()
    for length in _distances(codes):
        most = round(len(codes) / work.steps / length)
        fewest = _least_turns(length) - 1
        for start, end in _runs(codes[length:] == codes[:-length], (fewest - 1) * length) if most >= fewest else ():
            first, last = slice(rows[start], rows[start + length]), slice(ends[end - 1], ends[end + length - 1])
            turns, phase = min((end - start) // length + 1, most), work.operators[work.operator[first.start]].phase
            repeated.append(Repeat(slice(first.start, last.stop), turns, (first, last), phase, length))
    return repeated


def _least_turns(calls: int) -> int:
    """Return how many turns of so many calls are a loop."""
    return TURNS if calls <= LONGEST_TURN else MODEL_TURNS


def _distances(codes: Ints) -> list[int]:
    """Return how far apart calls of one operator often are, of the MOST_DISTANCES that are most frequent; least first.
    """
    order = np.argsort(codes, kind="stable")
    apart = np.diff(order)[np.diff(codes[order]) == 0]
    lengths, count = np.unique(apart[(apart > 1) & (apart <= LONGEST_ROW)], return_counts=True)
    often = np.flatnonzero(count >= np.array([*map(_least_turns, lengths.tolist())], int) - 2)
    return sorted(lengths[often[np.argsort(-count[often], kind="stable")[:MOST_DISTANCES]]].tolist())


def _runs(flags: Flags, least: int) -> list[tuple[int, int]]:
    """Return the starts and ends of runs of at least so many flags."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False]))
    return [(start, end) for start, end in edges.reshape(-1, 2).tolist() if end - start >= least]


def _may_be_one_call(work: StepWork, loop: Repeat) -> bool:
    """Return whether it is evident that no turn of a loop needs the one before. One without products adds to a total.
    """
    turn, read = operators_of(work, loop.ends[0]), (work.copies("d2h") & ~work.result_reads)[loop.rows]
    if read.any() or any(operator.phase == OPTIMIZER for operator in turn) or (given := _given(work, loop)) is None:
        return False
    if not work.of_families(*PRODUCTS)[loop.ends[0]].any():
        if not adds_to_a_total(turn):
            return False
        parts = _parts_taken(work, loop)
        return not any(_may_carry(work, end, given, parts) for end in loop.ends)
    return (any(not _may_carry(work, end, given) for end in loop.ends) or _takes_single_rows(work, loop.turns, turn)
            or (loop.calls > LONGEST_TURN
                and not any(_may_carry(work, end, given, to_products=True) for end in loop.ends)))


def adds_to_a_total(turn: Sequence[StepOperator]) -> bool:
    """Return whether a turn ends in a sum of two tensors of one shape and makes no numbers of what may be the total."""
    *before, last = turn
    taken = tensors_of(last)
    return last.name.rstrip("_") == "aten::add" and taken[:1] == taken[1:2] != [] and not any(
        takes_of(operator, taken[0]) for operator in before
        if operator.name not in (*COMPARISONS, *WRITES, *BY_A_LIST))


def _parts_taken(work: StepWork, loop: Repeat) -> Counter[Size]:
    """Return the sizes of the parts of a larger tensor that a turn takes, as the loop's way back shows: it adds the
    gradient of each to zeros of the whole. Where the turn takes more of a size than these and what it makes, one may be
    of the turn before.
    """
    back = next((back for back in work.once(repeats) if back.phase == BACKWARD and abs(back.turns - loop.turns) <= 1),
                None)
    turn, returned = operators_of(work, loop.ends[0]), operators_of(work, back.ends[0]) if back else ()
    parts = Counter(size_of(*tensor) for operator in returned if operator.name == MOVES[0]
                    and operator.outermost.endswith(PARTS_BACK) for tensor in tensors_of(operator)[:1])
    taken = Counter(size_of(*tensor) for operator in turn for tensor in tensors_of(operator))
    made = Counter(size for operator in turn for size in made_sizes(operator))
    return Counter({size: count for size, count in parts.items() if taken[size] <= count + made[size]})


def _guides(work: StepWork, loop: Repeat) -> bool:
    """Return whether two passes of a model end in products whose results are subtracted at once, as where a denoiser is
    guided by what it makes with and without a text: none of them needs the other.
    """
    after = operators_of(work, slice(loop.rows.stop, loop.rows.stop + LONGEST_TURN))
    subtracts = next((operator for operator in after if operator.name not in MOVES), None)
    last = operators_of(work, loop.rows)[-1]
    if subtracts is None or subtracts.name not in SUBTRACTING or not last.outermost.startswith(WITH_WEIGHTS[:2]):
        return False
    taken = tensors_of(subtracts)[:2]
    return len(taken) == 2 and taken[0] == taken[1] and size_of(*taken[0]) in made_sizes(last)


def _given(work: StepWork, loop: Repeat) -> frozenset[int] | None:
    """Return how many bytes the host sends in its copies; None if what it sends may depend on the turn before.

    It does not where each turn has a part of what was parted before, into as many parts as there are turns.
    """
    sent = work.copies("h2d")[loop.rows]
    if not sent.any():
        return frozenset()
    parts = {round(part.calls / whole.calls) for whole in work.operators if whole.name in PARTING
             for part in work.operators if (part.name, part.outermost) == (PART, whole.name)}
    return frozenset(work.copied[loop.rows][sent].tolist()) if loop.turns in parts else None


def _may_carry(work: StepWork, turn: slice, given: frozenset[int], parts: Mapping[Size, int] = NO_PARTS,
               to_products: bool = False) -> bool:
    """Return whether a turn may need what the one before made, by what it reads and makes; to_products: whether its
    products may, whatever becomes of their results.
    """
    operators, flow = operators_of(work, turn), TurnFlow(given, parts)
    filled = set(work.copied[turn][work.copies("memset")[turn]].tolist())
    count = _to_last_product(work, turn) if to_products else len(operators)
    known = all(map(flow.follow, operators[:count]))
    flow.end_of_products(operators[:count])
    return not known or not all(map(flow.follow, operators[count:])) or flow.may_carry(filled)


def _to_last_product(work: StepWork, turn: slice) -> int:
    """Return how many operators a turn has up to its last product."""
    last = int(np.flatnonzero(work.of_families(*PRODUCTS)[turn])[-1])
    return len(operators_of(work, slice(turn.start, turn.start + last + 1)))


def operators_of(work: StepWork, turn: slice) -> list[StepOperator]:
    """Return the operators of a turn, each once for its kernels."""
    return [operator for _, operator in placed_operators(work, turn)]


def placed_operators(work: StepWork, turn: slice) -> list[tuple[int, StepOperator]]:
    """Return the operators of a turn with their first rows, each once for its kernels."""
    rows = turn.start + np.flatnonzero(work.operator[turn] >= 0)
    numbers = work.operator[rows]
    first = np.diff(numbers, prepend=-1) != 0
    return [(row, work.operators[number])
            for row, number in zip(rows[first].tolist(), numbers[first].tolist(), strict=True)]


def has_gates(operators: Iterable[StepOperator]) -> bool:
    """Return whether operators are those of a recurrent cell."""
    return any(gate in operator.name for operator in operators for gate in GATES)

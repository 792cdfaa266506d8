"""What the operators of a loop's turn read from outside and what they make, by the sizes of their tensors.

A trace does not say which tensor an operator reads: one of the same size counts as it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import StepOperator
from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import call
from aaco.analytics.workload.signs import COMPARISONS

LOOKUPS = ("embedding", "index", "gather")  # what they read next may be what was chosen last
MASKED = "aten::nonzero"  # what a mask of a turn looks up is not what was looked up last
BY_A_LIST = ("aten::index", "aten::_unsafe_index")  # of numbers, which are not recorded
TRUTH = -1  # before the sizes of truth values, which nothing reads in place of numbers
# Operators whose other tensors are weights, by the start of the outermost one's name.
WITH_WEIGHTS = ("aten::linear", "aten::conv", "aten::embedding", "aten::layer_norm", "aten::group_norm",
                "aten::rms_norm", "aten::batch_norm")
UPDATES = ("aten::add", "aten::sub", "aten::lerp", "aten::addcmul", "aten::addcdiv")  # of weights, in turns that train
CHOOSING = ("arg", "topk", "sort", "multinomial", "max", "min")  # of operators that also make integers
LOGICAL = ("aten::bitwise_not", "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor")
WRITES = ("aten::copy_", "aten::fill_", "aten::zero_")  # whatever the tensor held before
FLOATING = ("float", "double", "c10::Half", "c10::BFloat16")
COMPLEX = "c10::complex"  # types of two floating-point numbers each, that views take apart
INTO = "aten::addmv_"  # writes its first tensor where another operator calls it
SELECTED = ("aten::gather", "aten::index_select")  # and what calls it: it takes its result's tensor, too
MOVES = ("aten::copy_", "aten::clone", "aten::flip", "aten::roll")  # of values that stay as they are
ADDING = ("aten::add_", "aten::index_add_", "aten::scatter_add_", "aten::index_add", "aten::scatter_add")
BY_A_MASK = ("aten::index_put_", "aten::_index_put_impl_", "aten::index_copy_")  # where the turn has one
WIDTHS = (1, 2, 4, 8)  # of numbers, bytes
STACKS = ("aten::stack", "aten::cat")
Tensor = tuple[Shape, bool]  # of a tensor: its shape, and whether it has floating-point numbers
Size = tuple[int, bool]  # of a tensor: its elements, and whether they are floating-point numbers
ENDLESS = 1 << 30
NO_PARTS: Mapping[Size, int] = MappingProxyType({})


class TurnFlow:
    """What the operators of a turn read from outside and what they make. given: bytes that the host sends. parts: how
    many of a size the turn takes of a larger tensor.

    What turns only add to is the same in any order, if nothing else reads it. Rows that are added by number are of
    another tensor than those that are taken by number from one of its size; so are rows that are written where a mask
    of the turn is set. What a turn chooses may be what the next one looks up, unless that looks up more than was
    chosen.
    """

    def __init__(self, given: frozenset[int] = frozenset(), parts: Mapping[Size, int] = NO_PARTS) -> None:
        """Begin with what the host and a larger tensor give the turn."""
        self._given, self._parts, self._made, self._filled = given, Counter(parts), set[Size](), set[Size]()
        self._unknown = list[Tensor | None]()  # of each result of unknown size the table that it is of, if it is
        self._most_chosen, self._least_looked_up = 0.0, math.inf  # rows
        self._used: set[Shape] | None = None
        self._masked, self._trains, self._weights = False, False, set[Shape]()
        self._outside, self._tables, self._sums, self._row_sums, self._written = (set[Tensor]() for _ in range(5))

    def make(self, sizes: set[Size]) -> None:
        """Take in what other operators made."""
        self._made |= sizes

    def take(self, size: Size, once: bool) -> None:
        """Take in that the turn has a part of its own of this size. once: whether it is read no more often."""
        self._parts[size] += 1 if once else ENDLESS

    def follow(self, operator: StepOperator) -> bool:
        """Take in what an operator reads and makes. Return whether that is known.

        The places that a mask leaves are only looked up, and may be those of what was chosen last.
        """
        taken, tensors = tensors_of(operator), [*_tensors_read(operator), *_listed(operator)]
        first = taken[:1]
        if operator.outermost.startswith(WITH_WEIGHTS) and operator.name not in MOVES:
            self._weights |= {tuple(sorted(tensor[0])) for tensor in taken if tensor not in tensors}  # some are turned
        elif operator.name.rstrip("_") in UPDATES and len(taken) > 1 and taken[0] == taken[1]:
            self._trains |= tuple(sorted(taken[0][0])) in self._weights
        adding = operator.name in ADDING or (self._masked and operator.name in BY_A_MASK)
        looks_up, adds = not adding and _looks_up(operator), adding and bool(_sizes(first) - self._made)
        if adds or (adding and tensors[1:2] == first):  # it or what is added
            (self._sums if operator.name == ADDING[0] else self._row_sums).update(first)
        if adds:
            tensors = tensors[1:]
        for place, tensor in enumerate(tensors):
            if looks_up and not place and size_of(*tensor) not in self._made - self._filled:
                self._tables.add(tensor)  # nobody looks up rows of what was only filled
            else:
                self._read(tensor)
        if operator.outermost == WRITES[0]:
            self._written.update(first)
        if operator.name in WRITES[1:]:
            self._filled |= _sizes(first)
        moves, masks = operator.name in MOVES, operator.name == MASKED
        results = _sizes(first) if moves else made_sizes(operator)
        by_a_list = operator.name in BY_A_LIST and not results
        if masks:
            self._masked, self._least_looked_up = True, 0
        elif _chooses(operator):
            self._most_chosen = max(self._most_chosen, _choices(operator, results))
        elif looks_up and not by_a_list:
            self._look_up(operator, [tensor for tensor in tensors if not tensor[1]])
        if not adds and (not moves or _sizes(tensors) & self._made):  # what is moved from outside stays that
            self._made |= results
            self._unknown += [] if results or masks else [first[0] if by_a_list and first else None]
        return bool(results) or masks or looks_up

    def end_of_products(self, before: Iterable[StepOperator]) -> None:
        """Begin with what follows the last product: what it reads from outside no product of this turn needs, unless it
        may be one of the tensors that they took, as weights that a turn updates.
        """
        self._used = {shape for operator in before for shape, _ in tensors_of(operator)}

    def may_carry(self, filled: set[int]) -> bool:
        """Return whether the next turn may read what the turn made. filled: bytes of fills in the turn."""
        read, sums = self._outside | self._tables, self._sums | self._row_sums
        made = self._made | _sizes(self._sums)
        looked_up = 0 if any(self._unknown) else self._least_looked_up
        return (self._trains or self._most_chosen >= max(1, looked_up)
                or bool(_sizes(read) & made) or self._reads_all_rows()
                or any(math.prod(shape) * width in filled for shape, _ in sums for width in WIDTHS)
                or any(_is_row(part, whole) for part, _ in read for whole, _ in self._sums)
                or any(_is_slice(part, whole) for part, _ in self._written for whole, _ in read))

    def reads_numbers(self, most: int) -> bool:
        """Return whether the turn reads more than so many floating-point numbers of a tensor from outside."""
        return any(floating and math.prod(shape) > most for shape, floating in self._outside | self._tables)

    def may_carry_rows(self) -> bool:
        """Return whether the next turn may read all rows that the turn writes some of, or take rows of what it made or
        by what it chose.
        """
        return self._most_chosen > 0 or self._reads_all_rows() or bool(_sizes(self._tables) & self._made)

    def _reads_all_rows(self) -> bool:
        """Return whether the turn reads, other than by number, a tensor of the size of one that it writes rows of."""
        return bool(_sizes(self._outside) & _sizes(self._row_sums))

    def _look_up(self, operator: StepOperator, integers: Sequence[Tensor]) -> None:
        """Note how much an operator looks up, if nothing in the turn made the numbers of it, the last integers that it
        takes. Those of a gather may be a few, each again and again; a list of them is not recorded.
        """
        for size in _sizes(integers[-1:]) - self._made:
            self._least_looked_up = min(self._least_looked_up, 0 if "gather" in operator.name else size[0])

    def _read(self, tensor: Tensor) -> None:
        size = size_of(*tensor)
        if size in self._made or any(size[0] * width in self._given for width in WIDTHS):
            return
        if self._parts[size] > 0:
            self._parts[size] -= 1
            return
        if self._unknown:
            if table := self._unknown.pop(0):
                rows, part = divmod(size[0], max(1, math.prod(table[0][1:])))
                self._least_looked_up = min(self._least_looked_up, 0 if part else rows)
            self._made.add(size)
        elif self._used is None or tensor[0] in self._used:
            self._outside.add(tensor)


def result_shape(operator: StepOperator) -> Shape | None:
    """Return the shape of what an operator makes, of truth values after TRUTH; None where it is not known."""
    try:
        formed = call(operator.name, operator.arguments)
        shape = tuple(formed.result()) if formed else None
    except (UnknownShape, ValueError, LookupError, TypeError):
        return None
    return (TRUTH, *shape) if shape is not None and _is_of_truth(operator) else shape


def _is_of_truth(operator: StepOperator) -> bool:
    """Return whether an operator makes truth values: it compares, or takes only such."""
    types = operator.arguments.types if operator.arguments else ()
    return operator.name in COMPARISONS or (operator.name in LOGICAL and set(types) <= {"bool", "Scalar", ""})


def _looks_up(operator: StepOperator) -> bool:
    return operator.name not in ADDING and any(word in operator.name for word in LOOKUPS)


def _chooses(operator: StepOperator) -> bool:
    """Return whether an operator makes numbers of what it chose."""
    name = operator.name.rpartition("::")[2]
    return name in CHOOSING or name.startswith(CHOOSING[:-2])


def _choices(operator: StepOperator, results: set[Size]) -> float:
    """Return how much an operator chooses; infinitely much where it is not known along which axis."""
    known = results and operator.arguments and any(operator.arguments.values or ())
    return min(results)[0] if known else math.inf


def _sizes(tensors: Iterable[Tensor]) -> set[Size]:
    return {size_of(*tensor) for tensor in tensors}


def _is_row(part: Shape, whole: Shape) -> bool:
    """Return whether a tensor may be a row or a column of another: it has some of its axes."""
    part, whole = (tuple(size for size in shape if size > 1) for shape in (part, whole))
    axes = iter(whole)
    return 0 < len(part) < len(whole) and all(size in axes for size in part)


def _is_slice(part: Shape, whole: Shape) -> bool:
    """Return whether a tensor may be a slice of another: it is smaller along one axis."""
    return len(part) == len(whole) and [size < all_of for size, all_of in zip(part, whole, strict=True)
                                        if size != all_of] == [True]


def takes_of(operator: StepOperator, whole: Tensor) -> bool:
    """Return whether what an operator takes may be another tensor, or a row or slice of it."""
    return any(floating == whole[1] and (math.prod(shape) == math.prod(whole[0]) or _is_row(shape, whole[0])
                                         or _is_slice(shape, whole[0]))
               for shape, floating in (*tensors_of(operator), *_listed(operator)))


def parts_of_made(turn: Sequence[StepOperator]) -> Counter[Size]:
    """Return the sizes of the parts that a turn takes of tensors that it made before, as many as those have.

    Only of sizes of which it takes no more tensors than these and what it makes by then: another may be of the turn
    before, as the state of a cell whose gates are such parts.
    """
    parts, taken, made, last, wholes = Counter[Size](), Counter[Size](), Counter[Size](), Counter[Size](), set[Shape]()
    for operator in turn:
        for shape, floating in _tensors_read(operator):
            size, flat = size_of(shape, floating), _flat(shape)
            of_these = {whole for whole in wholes if _is_slice(flat, whole)}
            parts[size] += sum(math.prod(whole) // max(1, size[0]) for whole in of_these)
            wholes -= of_these
            taken[size] += 1
            made[size] += last.pop(size, 0)
        last.update(made_sizes(operator))
        wholes |= {_flat(shape) for shape in [result_shape(operator)] if shape}
    return Counter({size: count for size, count in parts.items() if 0 < taken[size] <= count + made[size]})


def _flat(shape: Shape) -> Shape:
    return tuple(size for size in shape if size > 1)


def read_and_made(turn: Sequence[StepOperator]) -> tuple[set[Size], set[Size]]:
    """Return the sizes that a turn reads before anything in it made them, and those that it makes.

    What an operator with a result of unknown size makes is the next that is read and was not made.
    """
    outside, made, unknown = set[Size](), set[Size](), 0
    for operator in turn:
        for size in reads_of(operator):
            if size not in made and unknown:
                unknown -= 1
                made.add(size)
            elif size not in made:
                outside.add(size)
        results = made_sizes(operator)
        made |= results
        unknown += not results and operator.name != MASKED
    return outside, made


def reads_of(operator: StepOperator) -> list[Size]:
    """Return the sizes of what an operator reads, without weights and lists."""
    return [size_of(*tensor) for tensor in _tensors_read(operator)]


def listed_in(operator: StepOperator) -> list[Size]:
    """Return the sizes of what an operator reads in lists."""
    return [size_of(*tensor) for tensor in _listed(operator)]


def _tensors_read(operator: StepOperator) -> list[Tensor]:
    """Return the shapes of what an operator reads, without weights, and whether they are floating."""
    tensors = tensors_of(operator)
    if operator.outermost.startswith(WITH_WEIGHTS):
        place = int(operator.name == "aten::addmm")
        tensors = [tensor for tensor in tensors if not tensor[1]] if "embedding" in operator.outermost else tensors[
            place:place + 1]
    if (operator.name, operator.outermost) == SELECTED and len(tensors) > 1:
        return [tensors[0], *_places(operator, tensors[1])]
    return tensors[1:] if operator.name in WRITES or operator.outermost != operator.name == INTO else tensors


def _places(operator: StepOperator, spread: Tensor) -> list[Tensor]:
    """Return the list of places that a selection spreads over all other axes; as it is where its axis is not known."""
    try:
        axis = operator.arguments.integer(1) if operator.arguments else 0
        return [((spread[0][axis],), spread[1])]
    except (UnknownShape, IndexError):
        return [spread]


def made_sizes(operator: StepOperator) -> set[Size]:
    """Return the sizes of what an operator makes, of integers or of others as its inputs are; nothing if unknown."""
    tensors = tensors_of(operator)
    floating = any(is_floating for _, is_floating in tensors)
    if operator.name.endswith("_") and tensors:
        return {size_of(*tensors[0])}
    if operator.name in STACKS and (parts := _listed(operator)):
        return {(sum(math.prod(shape) for shape, _ in parts), True)}
    shape = result_shape(operator)
    if shape is None:
        return set()
    sizes = {size_of(shape, floating)} | _further_sizes(operator)
    return sizes | {size_of(shape, False)} if _chooses(operator) else sizes


def _further_sizes(operator: StepOperator) -> set[Size]:
    """Return the sizes of the floating-point results after the first, and of a complex one with both its parts."""
    formed = call(operator.name, operator.arguments)
    first, *others = formed.outputs if formed else [None]
    sizes = {(tensor.elements or 0, True) for tensor in others if tensor and "float" in tensor.dtype}
    return sizes | ({(2 * (first.elements or 0), True)} if first and first.dtype.startswith("complex") else set())


def tensors_of(operator: StepOperator) -> list[Tensor]:
    """Return the shapes of the tensors that an operator takes, those of lists not, and whether they are floating.

    Complex numbers have a last axis of their two parts.
    """
    taken = operator.arguments
    return [] if taken is None else [
        ((*shape, 2), True) if kind.startswith(COMPLEX) else (tuple(shape), kind in FLOATING)
        for shape, kind in zip(taken.shapes, taken.types, strict=False)
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape)
        and kind not in ("", "Scalar", "ScalarList")]


def _listed(operator: StepOperator) -> list[Tensor]:
    """Return the shapes of the tensors in the lists that an operator takes, as floating-point numbers."""
    taken = operator.arguments
    return [] if taken is None else [(tuple(part), True) for shape in taken.shapes if isinstance(shape, list)
                                     for part in shape if isinstance(part, list)]


def size_of(shape: Shape, floating: bool) -> Size:
    """Return how many elements a tensor of this shape has, and whether they are floating-point numbers."""
    return math.prod(shape), floating

"""Loops whose turns each take a part of their own: which are independent, and what that means for a larger batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.analytics.advice.achieved import changed_step
from aaco.analytics.advice.floor import StepTime
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.larger_batch import larger_batch
from aaco.analytics.advice.taken_turns import batch_in_turn, taken_turns
from aaco.analytics.advice.views import ViewKind, Views
from aaco.analytics.advice.work import StepOperator
from aaco.analytics.costs.torch.arguments import OperatorArguments
from tests.step_pieces import copy, kernel, step

ROW = (3, 32, 32)
BATCH = ViewKind((9, *ROW), 0, ROW, True)


def called(name, *shapes, outermost="", phase="", kinds=None, values=None):
    """An operator that takes tensors of these shapes."""
    taken = OperatorArguments([list(shape) for shape in shapes], kinds or ["float"] * len(shapes),
                              values or [""] * len(shapes))
    return StepOperator(name, outermost or name, phase, ("f32",), arguments=taken)


SCALED, CLAMPED, MIRRORED = (called(f"aten::{name}", ROW) for name in ("neg", "relu", "flip"))
LESS = called("aten::sub", ROW, (3, 1, 1))


def work(*turns, kinds=(BATCH,), starts=None, at_once=False, each=None):
    """A step of these turns, each a list of operators or copies, with a view before each, of each of these kinds.

    starts: of the views of the first kind. at_once: whether all are taken before the first turn. each: further views of
    a turn, as (place in it, kind, start).
    """
    pieces, views = [], []
    for number, turn in enumerate(turns):
        start = starts[number] if starts else number
        views += [(0 if at_once else len(pieces), kind, start) for kind in range(len(kinds) if each is None else 1)]
        views += [(len(pieces) + place, kind, start) for place, kind, start in each or ()]
        pieces += [piece if isinstance(piece, dict) else kernel(5, operator=piece) for piece in turn]
    row, kind, start = np.array(views).T
    return replace(step(*pieces, kernel(50)), views=Views(row, kind, start, tuple(kinds)))


def turns_of(*turns, **more):
    """How many turns the rows of a step have."""
    return sorted(set(taken_turns(work(*turns, **more)).tolist()))


def test_turns_that_take_one_part_after_another_are_a_loop():
    assert turns_of(*[[SCALED, LESS]] * 9) == [1, 9]
    assert turns_of(*[[SCALED, LESS]] * 7) == [1]


def test_turns_may_differ():
    plain, mirrored = [SCALED, LESS], [SCALED, MIRRORED, LESS]
    assert turns_of(plain, mirrored, plain, plain, mirrored, mirrored, plain, plain, plain) == [1, 9]


def test_the_last_turn_ends_as_another_did():
    last = taken_turns(work(*[[SCALED, LESS]] * 9))
    assert last.tolist() == [9] * 18 + [1]
    other = taken_turns(work(*[[SCALED, LESS]] * 8, [SCALED, CLAMPED]))
    assert other.tolist() == [9] * 16 + [1] * 3


def test_turns_without_an_order_of_their_parts_are_none():
    assert turns_of(*[[SCALED, LESS]] * 9, starts=[0, 1, 2, 0, 1, 2, 0, 1, 2]) == [1]
    assert turns_of(*[[SCALED, LESS]] * 9, starts=[4] * 9) == [1]


def test_a_state_of_the_size_of_a_part_is_needed():
    """x[t] and the state are of one size: the turn takes one more tensor than it has parts and made."""
    state = called("aten::add", ROW, ROW)
    assert turns_of(*[[SCALED, state]] * 9) == turns_of(*[[SCALED, SCALED, state]] * 9) == [1]
    smaller = ViewKind((9, 4), 0, (4,), True)
    assert turns_of(*[[called("aten::neg", (4,)), called("aten::mul", ROW, (1,)), LESS]] * 9, kinds=(smaller,)) == [1]


def test_turns_with_gates_are_those_of_cells():
    assert turns_of(*[[SCALED, called("aten::tanh", ROW), LESS]] * 9) == [1]


def multiplied(*operators):
    """Turns of which the first operator is a product."""
    return [[kernel(5, "gemm", operators[0]), *operators[1:]]] * 9


def test_of_what_is_multiplied_no_more_is_taken_of_any_size_than_there_is():
    """x @ W makes what a layer adds to what the one before has left."""
    weighed, added = called("aten::mm", (3, 1024), (1024, 8)), called("aten::add", (3, 8), (3, 8))
    assert turns_of(*multiplied(weighed, called("aten::neg", (3, 8)))) == [1, 9]
    assert turns_of(*multiplied(weighed, added, called("aten::neg", (3, 8)))) == [1]


def test_a_layer_that_writes_its_part_of_a_cache_needs_the_one_before():
    stored = called("aten::copy_", ROW, ROW)
    weighed = called("aten::mm", (3, 1024), (1024, 1024))
    assert turns_of(*multiplied(weighed, stored)) == [1] and turns_of(*[[SCALED, stored]] * 9) == [1, 9]


def test_a_part_may_be_read_again_with_what_a_reduction_made_of_it():
    mean = called("aten::mean", ROW, (), (), (), kinds=["float", "", "", ""], values=["", "[0, 1, 2]", "True", ""])
    assert turns_of(*[[mean, called("aten::sub", ROW, ())]] * 9) == [1, 9]
    assert turns_of(*[[called("aten::neg", ROW), called("aten::sub", ROW, ROW)]] * 9) == [1]


def test_parts_of_parts_are_parts_and_those_of_what_was_made_are_made():
    cut, half = ViewKind(ROW, 1, (3, 16, 32), True), called("aten::neg", (3, 16, 32))
    assert turns_of(*[[half, half]] * 9, kinds=(BATCH, cut), each=[(0, 1, 7)]) == [1, 9]
    other = ViewKind((5, 5), 0, (3, 16, 32), True)
    assert turns_of(*[[half, half]] * 9, kinds=(BATCH, other), each=[(0, 1, 7)]) == [1]
    assert turns_of(*[[SCALED, half, half]] * 9, kinds=(BATCH, cut), each=[(1, 1, 7)]) == [1, 9]


def test_what_is_moved_of_a_part_is_a_part():
    bytes_ = ViewKind((9, *ROW), 0, ROW, False)
    cast = called("aten::copy_", ROW, ROW, outermost="aten::to", kinds=["float", "unsignedchar"])
    assert turns_of(*[[cast, SCALED, LESS]] * 9, kinds=(bytes_,)) == [1, 9]
    assert turns_of(*[[SCALED, LESS]] * 9, kinds=(bytes_,)) == [1]


def test_a_list_of_places_is_read_as_such():
    places = ViewKind((9, 7), 0, (7,), False)
    chosen = called("aten::gather", (3, 90), (), (3, 7), (), (3, 7), outermost="aten::index_select",
                    kinds=["unsignedchar", "Scalar", "longint", "Scalar", "unsignedchar"],
                    values=["", "1", "", "False", ""])
    after = called("aten::neg", (3, 7), kinds=["unsignedchar"])
    assert turns_of(*[[chosen, after]] * 9, kinds=(places,)) == [1, 9]


def test_turns_that_go_back_or_ask_the_host_between_are_none():
    back, sent, read = called("aten::neg", ROW, phase="backward"), copy(1, "h2d", 64), copy(1, "d2h", 4)
    assert turns_of(*[[SCALED, back]] * 9) == [1]
    assert turns_of(*[[SCALED, sent]] * 9) == [1, 9] and turns_of(*[[SCALED, read]] * 9) == [1, 9]
    assert turns_of(*[[SCALED, sent, read]] * 9) == [1]


def test_sums_to_a_total_are_the_same_in_any_order():
    total = called("aten::add", (4,), (4,))
    assert turns_of(*[[called("aten::mm", (1, 3072), (3072, 4)), total]] * 9) == [1, 9]


def test_parts_that_are_handed_out_before_are_those_of_turns_that_repeat():
    assert turns_of(*[[SCALED, LESS, CLAMPED]] * 9, at_once=True) == [1, 9]
    state = called("aten::add", ROW, ROW)
    assert turns_of(*[[SCALED, state, CLAMPED]] * 9, at_once=True) == [1]
    assert turns_of(*[[SCALED, LESS, CLAMPED]] * 9, at_once=True, starts=[0, 1, 2, 3, 4, 5, 6, 6, 6]) == [1]


def test_parts_that_were_handed_out_long_before_are_of_something_else():
    found = work(*[[SCALED, LESS, CLAMPED]] * 9, at_once=True)
    later = step(*[kernel(9)] * 9, *[kernel(5, operator=operator) for operator in [SCALED, LESS, CLAMPED] * 9])
    assert (taken_turns(found) > 1).any() and not (taken_turns(replace(later, views=found.views)) > 1).any()


def test_operators_that_are_not_known_may_need_anything():
    assert turns_of(*[[SCALED, called("mine::magic", ROW)]] * 9) == [1]


@pytest.mark.parametrize(("kind", "is_batch"), [
    (BATCH, True), (ViewKind((3, 9, 32, 32), 1, (3, 32, 32), True), False),
    (ViewKind((12, *ROW), 0, ROW, True), False)])
def test_rows_of_a_batch_are_all_of_the_first_axis(kind, is_batch):
    assert batch_in_turn(work(*[[SCALED, LESS]] * 9, kinds=(kind,))).any() == is_batch


def test_rows_that_are_multiplied_by_what_all_turns_share_are_no_samples():
    """Weights of experts are rows of one tensor, too; what they are multiplied with is no part of it."""
    shared, few = called("aten::mul", ROW, (3, 32, 1)), called("aten::mul", ROW, (3, 1, 1))
    assert not batch_in_turn(work(*[[SCALED, shared]] * 9)).any() and batch_in_turn(work(*[[SCALED, few]] * 9)).any()


def test_a_larger_batch_has_more_turns():
    """18 of 19 rows and calls are in turn: four times the samples are four times these."""
    found = work(*[[SCALED, LESS]] * 9)
    changed = changed_step(found, StepTime(1e6, True), [larger_batch(4)], 4)
    assert math.isclose(changed.calls_left, (18 * 4 + 1) / 19)
    other = changed_step(replace(found, views=step(kernel(1)).views), StepTime(1e6, True), [larger_batch(4)], 4)
    assert other.calls_left == 1 and other.device_ns < changed.device_ns


def test_the_turns_are_one_call_together():
    least = MECHANISMS["loop_to_batched_op"]
    assert changed_step(work(*[[SCALED, LESS]] * 9), StepTime(1e6, True), [least]).calls_left < 0.3


def test_a_whole_model_that_begins_with_its_own_words_needs_no_other():
    """It takes what it makes several times, as a layer that adds to its input. With a state it needs another turn."""
    words, layers = ViewKind((9, 8), 0, (8,), False), []
    found = called("aten::embedding", (50, 4), (8,), kinds=["float", "longint"])
    for _ in range(18):
        layers += [called("aten::relu", (8, 4)), called("aten::add", (8, 4), (8, 4))]
    model = [[found, kernel(5, "gemm", called("aten::mm", (8, 4), (4, 4))), *layers]] * 4
    assert turns_of(*model, kinds=(words,)) == [1, 4]
    assert turns_of(*model, kinds=(ViewKind((9, 8), 0, (8,), True),)) == [1]
    memory = called("aten::mean", (900,), (), (), (), kinds=["float", "", "", ""], values=["", "[0]", "True", ""])
    assert turns_of(*[[memory, *turn] for turn in model], kinds=(words,)) == [1]

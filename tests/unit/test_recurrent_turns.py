"""Recurrent cells that are called for one moment after another: where one call of a layer may take all of them."""

from __future__ import annotations

import pytest

from aaco.analytics.advice.achieved import changed_step
from aaco.analytics.advice.floor import StepTime, floor
from aaco.analytics.advice.floors import floors_of
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.recurrent_turns import cells_in_turn
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.torch.arguments import OperatorArguments
from tests.step_pieces import copy, kernel, step

LOOP = MECHANISMS["loop_to_batched_op"]


def called(name, *shapes, outermost="", phase="", kinds=None):
    """An operator that takes tensors of these shapes; 8 rows, states of 32 numbers."""
    taken = OperatorArguments([list(shape) for shape in shapes], kinds or ["float"] * len(shapes), [""] * len(shapes))
    return StepOperator(name, outermost or name, phase, ("f32",), flops=1e6, arguments=taken)


def linear(rows, columns):
    return called("aten::addmm", (columns,), (8, rows), (rows, columns), outermost="aten::linear")


LSTM = (called("aten::mm", (8, 16), (16, 128), outermost="aten::lstm_cell"),
        called("aten::mm", (8, 32), (32, 128), outermost="aten::lstm_cell"),
        called("aten::_thnn_fused_lstm_cell", (8, 128), (8, 128), (8, 32), outermost="aten::lstm_cell"))
WRITTEN_GRU = (linear(16, 96), linear(32, 96), called("aten::add", (8, 32), (8, 32)), called("aten::sigmoid", (8, 32)),
               called("aten::sigmoid", (8, 32)), called("aten::mul", (8, 32), (8, 32)), called("aten::tanh", (8, 32)),
               called("aten::sub", (8, 32), (8, 32)), called("aten::mul", (8, 32), (8, 32)))


def pieces(*operators, us=5):
    return [kernel(us, "gemm" if operator.name in ("aten::mm", "aten::addmm") else "elementwise", operator)
            for operator in operators]


def turns(*operators, count=8, more=()):
    """How many turns the rows of a loop have that does this so many times: one number for all of them."""
    (found,) = {*cells_in_turn(step(*[*pieces(*operators), *more] * count)).tolist()}
    return found


def changed(work):
    return changed_step(work, StepTime(1e6, True), [LOOP])


def test_cells_that_are_called_eight_times_and_more_are_one_layer():
    encoded = (linear(10, 16), called("aten::relu", (8, 16)))
    assert turns(*LSTM) == 8 and turns(*LSTM, count=7) == 1
    assert turns(*encoded, *LSTM) == turns(*LSTM, linear(32, 4)) == 8


def test_the_first_moment_may_begin_otherwise():
    """Two layers: the second cell of the first moment follows what no other does. The cells before it count, too."""
    second = called("aten::mm", (8, 32), (32, 128), outermost="aten::lstm_cell", kinds=["float", "double"])
    work = step(*pieces(*LSTM, called("aten::neg", (8, 3)), second, *LSTM[1:]),
                *pieces(*LSTM, second, *LSTM[1:]) * 8)
    assert cells_in_turn(work).tolist() == [8, 8, 8, 1, *[8] * 51]


def test_kernels_of_no_operator_are_of_a_loop_only_within_it():
    """Mutation: others, too."""
    work = step(*[*pieces(*LSTM), kernel(1)] * 8, kernel(1), *pieces(called("aten::neg", (8, 3))), kernel(1))
    assert cells_in_turn(work).tolist() == [*[8] * 31, *[1] * 4]


def test_cells_that_read_what_the_turn_before_made_are_no_layer():
    """A frame that is fed back, a word that is chosen, attention with a state, and what the host reads or sends."""
    encoded = (linear(10, 16), called("aten::relu", (8, 16)))
    assert turns(*encoded, *LSTM, linear(32, 10)) == 1
    chosen = called("aten::argmax", (8, 50), (), (), kinds=["float", "Scalar", "Scalar"])
    assert turns(called("aten::embedding", (50, 16), (8,), kinds=["float", "long int"]), *LSTM, linear(32, 50),
                 chosen) == 1
    assert turns(called("aten::bmm", (8, 9, 32), (8, 32, 1)), *LSTM) == 1
    assert turns(*LSTM, more=[copy(1, "d2h", 4, pinned=True)]) == 1
    sent = step(*[copy(1, "h2d", 64, pinned=True), *pieces(*LSTM)] * 8)  # by a host that has read nothing
    assert cells_in_turn(sent).tolist() == [1, *[8] * 31]


def layer(moments=1, rows=8, both_ways=False, values=16):
    """A call of a library's LSTM of two layers, for so many moments of these rows."""
    taken = [[moments, rows, values], [[128, values], [128, 32], [128], [128]] * 2, [], [9999], [2, rows, 32],
             [2, rows, 32], *[[]] * 10]
    kinds = ["float", "TensorList", "Scalar", *["float"] * 3, *["Scalar"] * 8, "ScalarList", ""]
    values = ["", "", "4", "", "", "", "2", "32", "0", "2", "False", "0.", "False", str(both_ways), "[]", ""]
    return StepOperator("aten::_cudnn_rnn", "aten::lstm", "", ("f32",), flops=1e6, kernels=2.0,
                        arguments=OperatorArguments(taken, kinds, values))


def called_layer(operator):
    return [kernel(5, "gemm", operator), kernel(2, "recurrent", operator)]


def test_a_layer_that_is_called_for_each_moment_is_a_cell():
    """Its kernels keep their time in one call, and copies of inputs lie between. What takes several moments at once, or
    reads both ways, is none, nor one that takes what follows it. Mutation: any layer is.
    """
    moment = [copy(1, "h2d", 64, pinned=False), *called_layer(layer())]
    work = step(*moment * 8, kernel(3))
    assert cells_in_turn(work).tolist() == [1, *[8] * 23, 1]
    after = changed(work)
    assert after.device_ns == pytest.approx(1000 * (8 * 7 + 3), rel=0.001) and after.calls_left < 0.3
    assert floor(work, [LOOP]).floor_ns is not None
    for other in (layer(moments=2), layer(both_ways=True)):
        assert set(cells_in_turn(step(*called_layer(other) * 8))) == {1}
    assert set(cells_in_turn(step(*called_layer(layer()) * 7))) == {1}
    read = [*called_layer(layer()), copy(1, "d2h", 4, pinned=True)]
    assert set(cells_in_turn(step(*read * 8))) == {1}
    for width, count in ((4, 8), (16, 1), (32, 1)):  # what it makes next is a result, or the next input or state
        told = [*called_layer(layer()), kernel(1, "gemm", linear(32, width))]
        assert set(cells_in_turn(step(*told * 9)).tolist()) == {count + (count == 8)}
    two_steps = step(*called_layer(layer()) * 16, steps=2)
    assert set(cells_in_turn(two_steps).tolist()) == {8}


def test_cells_that_take_what_follows_them_are_no_layer():
    """What a decoder makes of its state is of the size of its input; of another size it is only a result. Mutation:
    only operators beside the cells may read it."""
    frame = called("aten::mul", (8, 16), (8, 16))
    assert turns(*LSTM, linear(32, 16)) == turns(*LSTM, linear(32, 4), frame) == turns(*LSTM, linear(32, 32)) == 1
    neighbours = called("aten::mm", (8, 8), (8, 32))
    assert turns(LSTM[1], *LSTM[1:], neighbours) == 1
    biased = (called("aten::addmm", (128,), (8, 24), (24, 128), outermost="aten::lstm_cell"), *LSTM[1:])
    assert turns(*biased, linear(32, 24)) == 1
    chosen_rows = called("aten::index", (8, 32), (8,), kinds=["float", "long int"])
    assert turns(*LSTM, chosen_rows) == 1 and turns(*LSTM, linear(32, 4)) == 8


@pytest.mark.parametrize(("others", "expected"), [
    ((), 8), ((called("aten::sigmoid", (8, 32)),), 1), ((called("aten::softmax", (8, 32)),), 1),
    ((linear(32, 4),), 1), ((linear(32, 96),), 1), ((called("aten::mul", (8, 32), (8, 1)),), 1),
    ((called("aten::copy_", (8, 32), (8, 32)),), 8),
    ((linear(32, 96), *WRITTEN_GRU[1:]), 8)])
def test_written_cells_are_as_many_gates_and_products_as_they_have_and_nothing_else(others, expected):
    assert turns(*WRITTEN_GRU, *others) == expected
    assert turns(linear(16, 96), linear(32, 4), *WRITTEN_GRU[2:]) == 1


def test_a_layer_computes_moments_in_their_order_and_is_one_call():
    """Products and cells keep their time; what is written between them is a part of one pass. Mutation: 8 at once."""
    after = changed(step(*pieces(*LSTM) * 8))
    assert after.device_ns == pytest.approx(1000 * 8 * 3 * 5)
    assert after.calls_left == pytest.approx(1 / 8) and after.whole_calls
    written = changed(step(*pieces(*WRITTEN_GRU) * 8))
    assert written.device_ns == pytest.approx(1000 * 8 * (2 * 5 + 7 * 5 / 8))


def test_what_a_layer_saves_is_the_idle_time_of_the_calls_that_go():
    """Of a step of 1 ms the device works 120 us; an eighth of the calls is left. Mutation: nothing is saved."""
    work = step(*pieces(*LSTM) * 8)
    assert floors_of(work, StepTime(1e6, True)).saved_ns[LOOP.name] == pytest.approx(7 / 8 * 880e3)


def test_the_way_back_of_cells_has_as_many_turns_give_or_take_one():
    """Layers of another part of the model that are called more often or less often are none of them. Mutation: those
    that are called four and a half times a turn."""
    ahead = pieces(*(called(cell.name, *cell.arguments.shapes, outermost=cell.outermost, phase="forward")
                     for cell in LSTM)) * 9
    back = called("aten::mm", (8, 128), (128, 32), outermost="MmBackward0", phase="backward")
    for count, left in ((8, 1 / 9), (10, 1 / 9), (7, 1.0), (11, 1.0), (17, 1 / 9), (40, 1.0)):
        work = step(*ahead, *pieces(back, called("aten::neg", (8, 32), phase="backward")) * count)
        after = changed(work)
        assert after.calls_left == pytest.approx((27 / 9 + 2 * count * left) / (27 + 2 * count))


def test_a_loop_of_cells_has_a_floor_where_one_layer_may_take_their_place():
    assert floor(step(*pieces(*LSTM) * 8), [LOOP]).floor_ns is not None
    fed_back = pieces(linear(10, 16), *LSTM, linear(32, 10), us=0.1)
    cells = [kernel(50, "recurrent", LSTM[-1])]
    assert "needs the one before" in floor(step(*[*fed_back, *cells] * 8), [LOOP]).why_absent


def test_a_long_trace_is_read_once(monkeypatch):
    """It took minutes for 20,000 kernels. Mutation: shares of all calls are made for each call."""
    work, made = step(*[*called_layer(layer()), *pieces(linear(32, 16))] * 50), list[StepWork]()
    shares = StepWork.call_shares.fget
    monkeypatch.setattr(StepWork, "call_shares", property(lambda read: made.append(read) or shares(read)))
    assert set(cells_in_turn(work).tolist()) == {1} and len(made) < 10

"""What the operators of a turn read and make, by the sizes of their tensors."""

from __future__ import annotations

import math

from aaco.analytics.advice.turn_flow import TurnFlow, made_sizes, read_and_made, reads_of
from aaco.analytics.advice.work import StepOperator
from aaco.analytics.costs.torch.arguments import OperatorArguments
from tests.operator_results import COMPLEX
from tests.recorded import of

STATE = (8, 64, 64)
WAVES = ((8, 64, 33), COMPLEX)


def called(name, *arguments):
    return StepOperator(name, name, arguments=of(*arguments))


def carries(*operators):
    """Whether the next turn may read what these made; each of them is understood."""
    flow = TurnFlow()
    assert all(flow.follow(operator) for operator in operators)
    return flow.may_carry(set())


def test_a_state_that_goes_through_a_transform_is_carried():
    """A step in time of waves; turns over other states make waves that nobody reads. Mutation: numbers of a complex
    tensor are as integers."""
    there = called("aten::_fft_r2c", STATE, [1, 2], 0, True)
    turns = called("aten::mul", WAVES, WAVES)
    back = called("aten::_fft_c2r", WAVES, [1, 2], 2, 64)
    assert carries(there, turns, back)
    assert not carries(there, turns, called("aten::_fft_c2r", WAVES, [1, 2], 2, 65))
    outside, made = read_and_made((there, turns, back))
    assert (math.prod(STATE), True) in outside & made


def test_a_view_of_a_complex_tensor_may_be_its_real_part_or_both():
    """Mutations: a complex result has one part; or both only."""
    size = 8 * 64
    transformed = called("aten::_fft_c2c", ((8, 64), COMPLEX), [1], 0, True)
    assert made_sizes(transformed) == {(size, True), (2 * size, True)}
    assert carries(transformed) and carries(called("aten::relu", (8, 64)), transformed)
    assert carries(called("aten::relu", (8, 64, 2)), transformed)


def test_a_layer_makes_its_states_too():
    """What a turn takes up again is the state, of another size than the result. Mutation: the first result only."""
    weights = [(40, 7), (40, 10), (40,), (40,)]
    layer = called("aten::_cudnn_rnn", (35, 20, 7), weights, 4, (680,), (1, 20, 10), (1, 20, 10), 2, 10, 0, 1, False,
                   0.0, True, False, [], None)
    assert made_sizes(layer) == {(35 * 20 * 10, True), (20 * 10, True)}
    assert carries(layer)


def test_the_loss_of_a_turn_is_known():
    """Turns that only differ in their samples: nothing that one makes is read by the next. Mutation: no such row."""
    scores = called("aten::_log_softmax", (16, 9), 1, False)
    classes = called("aten::nll_loss_forward", (16, 9), ((16,), "long int"), None, 1, -100)
    assert made_sizes(classes) == {(1, True)}
    assert not carries(called("aten::mm", (16, 5), (5, 9)), scores, classes)


def test_a_list_of_places_along_an_axis_that_is_no_number_is_as_it_was_spread():
    chosen = OperatorArguments([[3, 90], [], [3, 7]], ["float", "Scalar", "longint"], ["", "nan", ""])
    assert reads_of(StepOperator("aten::gather", "aten::index_select", arguments=chosen)) == [(270, True), (21, False)]

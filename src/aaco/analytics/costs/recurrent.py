"""FLOPs of recurrent layers: per step and direction the products with W and R, the biases, the gates.

Biases of input and recurrence are two additions per gate. Activations count as if they were separate; those of the
first direction represent all. Full length is assumed: sequence_lens is a value. Source: the ONNX operator specification
(RNN, GRU, LSTM), equations with default activations Sigmoid and Tanh.
"""

from __future__ import annotations

from aaco.analytics.costs.elementwise import ACTIVATIONS
from aaco.analytics.costs.terms import OperatorCall


def lstm(call: OperatorCall) -> int:
    """LSTM: 4 gates; c = f c + i g (3), h = o act(c) (1), peepholes (2 for each of i, o, f)."""
    gate, cell, hidden = _activations(call, ("Sigmoid", "Tanh", "Tanh"))
    return _steps(call, gates=4, other_operations=3 * gate + cell + hidden + 4 + 6 * call.has(7))


def gru(call: OperatorCall) -> int:
    """GRU: 3 gates; r applied to the recurrence (1), h = (1 - z) n + z h (4)."""
    gate, hidden = _activations(call, ("Sigmoid", "Tanh"))
    return _steps(call, gates=3, other_operations=2 * gate + hidden + 5)


def rnn(call: OperatorCall) -> int:
    """RNN: one gate and its activation."""
    return _steps(call, gates=1, other_operations=sum(_activations(call, ("Tanh",))))


def _steps(call: OperatorCall, gates: int, other_operations: int) -> int:
    """All steps of all directions; `other_operations` are those per hidden unit after the gates' sums."""
    directions, _, width = call.shape(1)
    hidden = call.shape(2)[2]
    steps = call.count(0) // width
    per_unit = gates * (2 * (width + hidden) + 2 * call.has(3)) + other_operations
    return steps * directions * hidden * per_unit


def _activations(call: OperatorCall, default: tuple[str, ...]) -> list[int]:
    names = call.attributes.get("activations") or default
    return [ACTIVATIONS[name] for name in names[:len(default)]]

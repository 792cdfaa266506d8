"""Recurrent layers of PyTorch in the terms of `operators.recurrent`: per layer what ONNX's LSTM, GRU and RNN compute.

Source: torch.nn's documentation of LSTM, GRU and RNN; native_functions.yaml of PyTorch. Weights of a layer and
direction are (gates x hidden, inputs) and (gates x hidden, hidden), then perhaps two biases.
"""

from __future__ import annotations

from aaco.analytics.costs import recurrent
from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, form, known

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "gru": 1}
KEPT = {"lstm": 4, "gru": 5}  # of the state's width, for the gradient of a fused cell
_FORMULAS = {"lstm": recurrent.lstm, "gru": recurrent.gru, "rnn": recurrent.rnn}


def stacked(kind: str, parameters: int = 2) -> Form:
    """lstm, gru, rnn (input, states, parameters, whether biases, layers, dropout, training, both ways, batch first)."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        weights = [TensorType(operand.dtype, tensor.shape) for tensor in args.tensors(parameters)]
        return form((operand, *weights), kind=kind, biased=args.flag(parameters + 1),
                    layers=args.integer(parameters + 2), ways=1 + args.flag(parameters + 5))

    return made


def packed(mode: int, layers: int, both: int, mask: int | None = None) -> Form:
    """_cudnn_rnn, miopen_rnn (input, weights, weights of a layer and direction, ...) and their gradients, other
    arguments at these positions. Modes are those of cuDNN: RNN with ReLU or tanh, LSTM, GRU. mask: of a gradient, which
    results are needed, that of the input first. Forward the result and the states, which stand before the mode."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, kind = args.tensor(0), ("rnn", "rnn", "lstm", "gru")[args.integer(mode)]
        weights = [TensorType(operand.dtype, tensor.shape) for tensor in args.tensors(1)]
        states = [args.tensor(index) for index in (mode - 2, mode - 1) if mask is None and args.has(index)]
        ways, needed = 1 + args.flag(both), mask is None or bool(args.numbers(mask)[0])
        made = [TensorType(operand.dtype, (*known(operand)[:-1], ways * known(state)[-1])) for state in states[:1]]
        return form((operand, *weights), *made, *states, kind=kind, biased=args.integer(2) == 4,
                    layers=args.integer(layers), ways=ways, to_input=needed)

    return made


def stacked_flops(call: OperatorCall) -> int:
    """Layer by layer: the first reads the input, the others what the layer before made, both ways side by side."""
    kind, ways, biased = call.attributes["kind"], call.attributes["ways"], call.attributes["biased"]
    per_way = 4 if biased else 2
    total, steps = 0, call.count() // call.shape()[-1]
    for layer in range(call.attributes["layers"]):
        weight = call.shape(1 + layer * ways * per_way)
        hidden, width = weight[0] // GATES[kind], weight[1]
        shapes = [(steps, 1, width), (ways, weight[0], width), (ways, weight[0], hidden), *[(ways, 2 * weight[0])] *
                  biased]
        total += _FORMULAS[kind](OperatorCall({}, [TensorType("", shape) for shape in shapes], []))
    return total


def gradient_flops(call: OperatorCall) -> int:
    """The gradients of inputs, states and weights: two products for each of the forward pass, but for that of the first
    layer's input where nobody needs its gradient. What the library recomputes is not counted.
    """
    unneeded = 2 * call.count() * call.shape(1)[0] * call.attributes["ways"]
    return 2 * stacked_flops(call) - unneeded * (not call.attributes["to_input"])


def stacked_traffic(call: OperatorCall) -> int:
    """Input, weights, and what each layer hands on: written, and by the next layer read."""
    ways, layers = call.attributes["ways"], call.attributes["layers"]
    per_way = 4 if call.attributes["biased"] else 2
    if len(call.inputs) != 1 + layers * ways * per_way:
        raise UnknownShape("as many weights as layers")
    hidden = call.shape(1)[0] // GATES[call.attributes["kind"]]
    handed = TensorType(_dtype(call), (call.count() // call.shape()[-1], ways * hidden)).bytes or 0
    return call.read() + handed * (2 * layers - 1)


def cell(kind: str) -> Form:
    """lstm_cell, gru_cell (input, state or states, weights of both, biases of both)."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        weight, again = (args.tensor(index) for index in (2, 3))
        hidden = known(again)[1]
        made = TensorType(operand.dtype, (known(operand)[0], hidden))
        return form((operand, weight, again, args.optional(4), args.optional(5), made), made, kind=kind)

    return made


def cell_flops(call: OperatorCall) -> int:
    """One step of one direction."""
    shapes = [(1, *call.shape()), (1, *call.shape(1)), (1, *call.shape(2))]
    shapes += [(1, 2 * call.shape(1)[0])] * call.has(3)
    return _FORMULAS[call.attributes["kind"]](OperatorCall({}, [TensorType("", shape) for shape in shapes], []))


def gates(kind: str) -> Form:
    """_thnn_fused_lstm_cell, _thnn_fused_gru_cell (gates of the input, gates of the state, state, biases of both): the
    new state, of an LSTM also its cell, and what the gradient needs."""
    def made(args: OperatorArguments) -> OperatorCall:
        tensors, biases = [args.tensor(index) for index in range(3)], [args.optional(index) for index in (3, 4)]
        state = tensors[2]
        kept = TensorType(state.dtype, (*known(state)[:-1], KEPT[kind] * known(state)[-1]))
        return form((*tensors, *biases), *[state] * STATES[kind], kept, kind=kind)

    return made


def gates_flops(call: OperatorCall) -> int:
    """A cell without its products: the sum of both sides of each gate, and all that follows."""
    kind, hidden = call.attributes["kind"], call.result()[-1]
    count = GATES[kind] * hidden
    rows = call.made() // hidden
    shapes = [(rows, 1, 1), (1, count, 1), (1, count, hidden), *[(1, 2 * count)] * call.has(3)]
    whole = _FORMULAS[kind](OperatorCall({}, [TensorType("", shape) for shape in shapes], []))
    return whole - rows * count * (2 * (1 + hidden) - 1)


def gates_backward(kind: str) -> Form:
    """_thnn_fused_lstm_cell_backward_impl (gradients of state and cell, cell before and after, what was kept, biases)
    and _thnn_fused_gru_cell_backward (gradient, what was kept, biases)."""
    def made(args: OperatorArguments) -> OperatorCall:
        tensors = [args.tensor(index) for index in range(len(args)) if args.has(index)]
        kept, has_bias = tensors[-1], args.flag(5 if kind == "lstm" else 2)
        rows, width = known(kept)[0], known(kept)[1] // KEPT[kind]
        of_gates, of_bias = ((*size, GATES[kind] * width) for size in ((rows,), ()))
        sides = 1 if kind == "lstm" else 2
        shapes = [*[of_gates] * sides, (rows, width), *[of_bias] * (sides * has_bias)]
        return form(tensors, *(TensorType(kept.dtype, shape) for shape in shapes))

    return made


def _dtype(call: OperatorCall) -> str:
    operand = call.inputs[0]
    return operand.dtype if operand else ""

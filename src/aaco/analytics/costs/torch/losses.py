"""Losses of PyTorch and their gradients: rows of the operator table.

Operations per element are those of the formula that torch.nn's documentation gives; one more adds each to the mean or
the sum. Source: native_functions.yaml of PyTorch; Graves et al., Connectionist Temporal Classification (2006).
"""

from __future__ import annotations

import math

from aaco.analytics.costs.terms import OperatorCall, TensorType
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, broadcast, form, known
from aaco.analytics.costs.torch.model import Model, Row
from aaco.analytics.costs.torch.pointwise import per_element

LENGTHS = "how much of its tensors it reads depends on lengths of texts that are not always recorded"
# |x - t| (2), the comparison that selects (2), a square, halved and divided (3), and a linear branch (1). Huber's has
# one product less in the first and one more in the other. Gradients: x - t, its size, the comparison that selects (4),
# a product and a quotient (2) or the sign and a product (2).
SMOOTH_L1 = HUBER = SMOOTH_L1_BACKWARD = HUBER_BACKWARD = 8
# -(t log x + (1 - t) log(1 - x)); its gradient g (x - t) / max(x (1 - x), eps).
CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD = 8, 6
DIVERGENCE = 3  # t (log t - x)


def each(operations: int, reduction: int = 2, weight: int | None = None) -> Form:
    """A loss (input, target, ...): so many operations per element, one more where a weight is given; then their mean or
    sum, unless `reduction`, the argument at this position, asks for none."""
    def made(args: OperatorArguments) -> OperatorCall:
        tensors, weights = [args.tensor(0), args.tensor(1)], _weights(args, weight)
        shape = broadcast(*tensors)
        how = args.integer(reduction, 1)
        result = TensorType(tensors[0].dtype, () if how else shape)
        return form((*tensors, *weights), result,
                    total=math.prod(shape) * (operations + len(weights) + bool(how)))

    return made


def gradient(operations: int, weight: int | None = None) -> Form:
    """Backward of such a loss (gradient, input, target, ...)."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand, weights = args.tensor(1), _weights(args, weight)
        return form((args.tensor(0), operand, args.tensor(2), *weights), operand, operations=operations + len(weights))

    return made


def of_classes(args: OperatorArguments) -> OperatorCall:
    """nll_loss_forward, nll_loss2d_forward (logarithms, classes, weight per class, reduction, ...): the loss and the
    sum of the weights. One logarithm is read per target: its sign, its weight, its sum."""
    operand, target = args.tensor(0), args.tensor(1)
    weights = _weights(args, 2, at_most=target.elements or 0)
    how, rows = args.integer(3), math.prod(known(target))
    result = TensorType(operand.dtype, () if how else target.shape)
    return form((TensorType(operand.dtype, target.shape), target, *weights), result, TensorType(operand.dtype, ()),
                total=rows * (1 + len(weights) + bool(how)))


def of_classes_backward(args: OperatorArguments) -> OperatorCall:
    """nll_loss_backward, nll_loss2d_backward (gradient, logarithms, classes, weight per class, reduction, ...): zero
    but for one place per target, with its sign, its weight and the mean."""
    operand, target = args.tensor(1), args.tensor(2)
    weights = _weights(args, 3, at_most=target.elements or 0)
    rows = math.prod(known(target))
    return form((args.tensor(0), target, *weights), operand,
                total=rows * (1 + len(weights) + (args.integer(4) == 1)))


def total(call: OperatorCall) -> int:
    """What the form counted."""
    return call.number("total")


def of_texts(args: OperatorArguments) -> OperatorCall:
    """_ctc_loss (logarithms per time, texts, lengths of both, ...): a loss per text; and, where the lengths are
    recorded, the logarithm of each prefix with its blanks at each time."""
    operand, batch = args.tensor(0), known(args.tensor(0))[1:-1]
    shapes = [batch] if args.has(3) else [batch, (*batch, known(operand)[0], 2 * max(args.numbers(3)) + 1)]
    return form((operand, args.tensor(1)), *(TensorType(operand.dtype, shape) for shape in shapes))


def of_texts_by_cudnn(args: OperatorArguments) -> OperatorCall:
    """_cudnn_ctc_loss (logarithms per time, ...): a loss per text, and the gradient of the logarithms."""
    operand = args.tensor(0)
    return form((operand,), TensorType(operand.dtype, known(operand)[1:-1]), operand)


def of_texts_backward(args: OperatorArguments) -> OperatorCall:
    """_ctc_loss_backward (gradient, logarithms, ...)."""
    return form((args.tensor(0), args.tensor(1)), args.tensor(1))


def _weights(args: OperatorArguments, index: int | None, at_most: int | None = None) -> list[TensorType]:
    """Return the weight if one is given; of it no more than `at_most` elements are read."""
    weight = None if index is None else args.optional(index)
    if weight is None or at_most is None:
        return [] if weight is None else [weight]
    return [TensorType(weight.dtype, (min(weight.elements or 0, at_most),))]


ROWS: tuple[Row, ...] = (
    (Model("loss", "reduction", each(2), total), "aten::mse_loss aten::l1_loss"),
    (Model("loss", "reduction", each(SMOOTH_L1), total), "aten::smooth_l1_loss"),
    (Model("loss", "reduction", each(HUBER), total), "aten::huber_loss"),
    (Model("loss", "reduction", each(DIVERGENCE), total), "aten::kl_div"),
    (Model("loss", "reduction", each(CROSS_ENTROPY, 3, 2), total), "aten::binary_cross_entropy"),
    (Model("loss backward", "elementwise", gradient(3), per_element), "aten::mse_loss_backward"),
    (Model("loss backward", "elementwise", gradient(SMOOTH_L1_BACKWARD), per_element), "aten::smooth_l1_loss_backward"),
    (Model("loss backward", "elementwise", gradient(HUBER_BACKWARD), per_element), "aten::huber_loss_backward"),
    (Model("loss backward", "elementwise", gradient(CROSS_ENTROPY_BACKWARD, 3), per_element),
     "aten::binary_cross_entropy_backward"),
    (Model("loss of classes", "reduction", of_classes, total), "aten::nll_loss_forward aten::nll_loss2d_forward"),
    (Model("loss of classes backward", "elementwise", of_classes_backward, total),
     "aten::nll_loss_backward aten::nll_loss2d_backward"),
    (Model("loss of texts", "reduction", of_texts, None, None, LENGTHS), "aten::_ctc_loss"),
    (Model("loss of texts", "reduction", of_texts_by_cudnn, None, None, LENGTHS), "aten::_cudnn_ctc_loss"),
    (Model("loss of texts backward", "reduction", of_texts_backward, None, None, LENGTHS), "aten::_ctc_loss_backward"),
)

"""PyTorch operators that look up rows or places, or write at places: rows of the operator table.

Source: native_functions.yaml of PyTorch; aten/src/ATen/native/cuda/EmbeddingBag.cu for what comes with the bags.
"""

from __future__ import annotations

from aaco.analytics.costs.terms import OperatorCall, TensorType, nothing, reading, selected
from aaco.analytics.costs.torch.arguments import OperatorArguments, form, known
from aaco.analytics.costs.torch.model import Model, Row

WRITTEN = "how many places are written depends on indices that are not recorded"
MEAN, LARGEST = 1, 2  # how the rows of a bag become one


def searched(args: OperatorArguments) -> OperatorCall:
    """searchsorted (boundaries, values or a number, 32 bits, ...): the place of each value."""
    return _places(args, args.tensor(0), 1)


def bucketed(args: OperatorArguments) -> OperatorCall:
    """bucketize (values or a number, boundaries, 32 bits, ...)."""
    return _places(args, args.tensor(1), 0)


def search_flops(call: OperatorCall) -> int:
    """A comparison per halving of the boundaries."""
    return call.made() * _halvings(call)


def search_traffic(call: OperatorCall) -> int:
    """No more boundaries are read than are compared with."""
    return reading(call, search_flops(call))


def bags(args: OperatorArguments) -> OperatorCall:
    """_embedding_bag (table, indices, begins of bags, scale, mode, sparse, weights, whether the last end is one too,
    ...): a row per bag; of each index its bag, how many each has, and which rows were the largest."""
    table, indices, begins = (args.tensor(index) for index in range(3))
    count, mode, weights = known(begins)[0] - args.flag(7), args.integer(4, 0), args.optional(6)
    width = known(table)[1]
    largest = (count, width) if mode == LARGEST else (0,)
    extra = [TensorType(indices.dtype, shape) for shape in (indices.shape, begins.shape, largest)]
    return form((table, indices, begins, weights), TensorType(table.dtype, (count, width)), *extra, mode=mode)


def bags_flops(call: OperatorCall) -> int:
    """Rows times their weights, their sum but for the first of each bag, and for a mean a division per result."""
    rows, (count, width) = call.count(1), call.result()
    return width * (rows * call.has(3) + max(0, rows - count) + count * (call.number("mode") == MEAN))


def bags_traffic(call: OperatorCall) -> int:
    """Of the table no more rows are read than there are indices."""
    return reading(call, call.count(1) * call.result()[1])


def bags_backward(args: OperatorArguments) -> OperatorCall:
    """_embedding_bag_dense_backward (gradient, indices, bags of indices, sizes of bags, largest rows, rows, ...)."""
    gradient, indices, bags_of = (args.tensor(index) for index in range(3))
    return form((gradient, indices, bags_of), TensorType(gradient.dtype, (args.integer(5), known(gradient)[1])))


def bags_backward_flops(call: OperatorCall) -> int:
    """Each index adds the gradient of its bag to its row."""
    return call.count(1) * call.shape()[1]


def filled_at(args: OperatorArguments) -> OperatorCall:
    """index_fill (input, axis, indices, value)."""
    operand, axis, indices = args.tensor(0), args.integer(1), args.tensor(2)
    rows = list(known(operand))
    if rows:
        rows[axis] = indices.elements or 0
    return OperatorCall({}, [indices], [operand], part=TensorType(operand.dtype, tuple(rows)))


def written_at(args: OperatorArguments) -> OperatorCall:
    """index_put, masked_scatter (input, ...): a result like the input, of which the values say what is written."""
    return OperatorCall({}, [], [args.tensor(0)], part=TensorType("", None))


def taken(args: OperatorArguments) -> OperatorCall:
    """take (input, indices of its elements)."""
    operand, indices = args.tensor(0), args.tensor(1)
    return form((operand, indices), TensorType(operand.dtype, indices.shape))


def _places(args: OperatorArguments, boundaries: TensorType, values: int) -> OperatorCall:
    sought = args.optional(values) or TensorType(boundaries.dtype, ())
    return form((boundaries, sought), TensorType("int32" if args.flag(2) else "int64", sought.shape))


def _halvings(call: OperatorCall) -> int:
    return (call.shape()[-1] if call.shape() else 1).bit_length()


ROWS: tuple[Row, ...] = (
    (Model("search", "sort", searched, search_flops, search_traffic), "aten::searchsorted"),
    (Model("search", "sort", bucketed, search_flops, search_traffic), "aten::bucketize"),
    (Model("sums of embeddings", "embedding", bags, bags_flops, bags_traffic),
     "aten::_embedding_bag aten::_embedding_bag_forward_only"),
    (Model("sums of embeddings backward", "embedding", bags_backward, bags_backward_flops),
     "aten::_embedding_bag_dense_backward"),
    (Model("index", "embedding", taken, nothing, selected), "aten::take"),
    (Model("scatter", "embedding", filled_at, nothing), "aten::index_fill"),
    (Model("scatter", "embedding", written_at, None, None, WRITTEN),
     "aten::index_put aten::_index_put_impl aten::masked_scatter aten::put"),
)

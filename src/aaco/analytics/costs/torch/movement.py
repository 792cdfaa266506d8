"""PyTorch operators that move, fill, index or exchange data.

Source: native_functions.yaml of PyTorch; torch/csrc/distributed/c10d/Ops.cpp for collective operations. A view moves
nothing. What is picked by index is read no more often than the result has elements.
"""

from __future__ import annotations

from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape, everything
from aaco.analytics.costs.torch.arguments import Form, OperatorArguments, broadcast, form, known

LIES = "whether it copies depends on how its input lies in memory"
LIST = "the capture does not record the element type of a list of tensors"


# What gives an existing tensor another shape, and what only makes room or looks at a value.
VIEWS = """aten::view aten::_unsafe_view aten::t aten::transpose aten::permute aten::expand aten::expand_as
    aten::as_strided aten::select aten::slice aten::unsqueeze aten::squeeze aten::detach aten::alias aten::unbind
    aten::split aten::split_with_sizes aten::chunk aten::narrow aten::unfold aten::view_as aten::_reshape_alias
    aten::movedim aten::swapaxes aten::numpy_T aten::diagonal aten::real aten::resolve_conj aten::resolve_neg
    aten::lift_fresh aten::broadcast_to aten::broadcast_tensors aten::empty aten::empty_like aten::empty_strided
    aten::new_empty aten::resize aten::set aten::result_type aten::item aten::is_nonzero aten::_local_scalar_dense
    aten::imag aten::view_as_real aten::view_as_complex aten::empty_permuted detach"""
# What copies or not, as strides and modes ask for it; the copy itself is an operator inside.
PERHAPS = "aten::reshape aten::contiguous aten::flatten aten::to aten::type_as aten::dropout aten::unflatten"


def nothing(args: OperatorArguments) -> OperatorCall:
    """No operand that matters."""
    return form(())


def perhaps_copied(args: OperatorArguments) -> OperatorCall:
    """Raise UnknownShape: its strides decide."""
    raise UnknownShape(LIES)


def copy(args: OperatorArguments) -> OperatorCall:
    """copy_ (destination, source)."""
    made, source = args.tensor(0), args.tensor(1)
    return form((source,), made)


def same(args: OperatorArguments) -> OperatorCall:
    """clone, contiguous, flip, roll, tril: a result like the input."""
    return form((args.tensor(0),), args.tensor(0))


def filled(args: OperatorArguments) -> OperatorCall:
    """fill_, zero_, normal_, uniform_: the tensor is overwritten."""
    return form((), args.tensor(0))


def created(dtype: int) -> Form:
    """zeros, ones, full, rand (shape, ..., type): single precision by default."""
    return lambda args: form((), TensorType(args.dtype(dtype, "float32"), tuple(args.numbers(0))))


def like(dtype: int) -> Form:
    """zeros_like, ones_like, full_like (input, ..., type)."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        return form((), TensorType(args.dtype(dtype, operand.dtype), operand.shape))

    return made


def counted(count: int, dtype: int, default: str) -> Form:
    """linspace, randperm (..., how many, type)."""
    return lambda args: form((), TensorType(args.dtype(dtype, default), (args.integer(count),)))


def concatenated(args: OperatorArguments) -> OperatorCall:
    """cat, stack (tensors, axis): all are read and written once. The recorded list has no element type."""
    operands = args.tensors(0)
    return OperatorCall({}, operands, operands)


def of_lists(call: OperatorCall) -> int:
    """Bytes of all operands. Raise UnknownShape: the recorded lists have no element types."""
    if any(tensor is not None and not tensor.dtype for tensor in call.inputs):
        raise UnknownShape(LIST)
    return everything(call)


def repeated(args: OperatorArguments) -> OperatorCall:
    """repeat (input, times per axis)."""
    operand, times = args.tensor(0), args.numbers(1)
    shape = (1,) * (len(times) - len(known(operand))) + known(operand)
    if len(shape) != len(times):
        raise UnknownShape("as many repetitions as axes")
    made = tuple(size * count for size, count in zip(shape, times, strict=True))
    return form((operand,), TensorType(operand.dtype, made))


def padded(args: OperatorArguments) -> OperatorCall:
    """constant_pad_nd, pad (input, before and after per axis from the last)."""
    operand, edges = args.tensor(0), args.numbers(1)
    shape = list(known(operand))
    for axis, (before, after) in enumerate(zip(edges[::2], edges[1::2], strict=True), 1):
        shape[-axis] += before + after
    return form((operand,), TensorType(operand.dtype, tuple(shape)))


def embedding(args: OperatorArguments) -> OperatorCall:
    """embedding (table, indices): a row per index."""
    table, indices = args.tensor(0), args.tensor(1)
    return form((table, indices), TensorType(table.dtype, (*known(indices), *known(table)[1:])))


def embedding_backward(args: OperatorArguments) -> OperatorCall:
    """embedding_dense_backward (gradient, indices, rows, ...): each gradient is added to its row."""
    gradient, indices = args.tensor(0), args.tensor(1)
    return form((gradient, indices), TensorType(gradient.dtype, (args.integer(2), known(gradient)[-1])))


def index_select(args: OperatorArguments) -> OperatorCall:
    """index_select (input, axis, indices)."""
    operand, axis, indices = args.tensor(0), args.integer(1), args.tensor(2)
    shape = list(known(operand))
    shape[axis] = indices.elements or 0
    return form((operand, indices), TensorType(operand.dtype, tuple(shape)))


def gather(args: OperatorArguments) -> OperatorCall:
    """gather (input, axis, indices): a result of the indices' shape."""
    operand, indices = args.tensor(0), args.tensor(2)
    return form((operand, indices), TensorType(operand.dtype, indices.shape))


def index(args: OperatorArguments) -> OperatorCall:
    """index (input, indices per axis): those of the first axes, broadcast, then the axes left."""
    operand = args.tensor(0)
    indices = [TensorType("int64", tensor.shape) for tensor in args.tensors(1)]
    if not indices:
        raise UnknownShape("no index")
    shape = (*broadcast(*indices), *known(operand)[len(indices):])
    return form((operand, *indices), TensorType(operand.dtype, shape))


def scatter(args: OperatorArguments) -> OperatorCall:
    """scatter, index_copy (input, dimension, places, values or a number): as much of the input is written as there are
    values, or places if each has one."""
    operand, source = args.tensor(0), args.optional(3)
    places = [args.tensor(at) for at in (1, 2) if args.has(at)]
    each = max([tensor for tensor in (*places[-1:], source) if tensor], key=lambda tensor: len(known(tensor)))
    read = None if source is None else TensorType(source.dtype, each.shape)
    return OperatorCall({}, [read, *places], [operand], part=TensorType(operand.dtype, each.shape))


def scatter_add(args: OperatorArguments) -> OperatorCall:
    """scatter_add, index_add: what is written is read before."""
    call = scatter(args)
    return OperatorCall({}, [*call.inputs, call.part], call.outputs, part=call.part)


def message(sent: int, received: int | None = None) -> Form:
    """A collective operation: what this rank reads and what it writes; without `received` in place."""
    def made(args: OperatorArguments) -> OperatorCall:
        there = _message(args, sent)
        return form(there, *(there if received is None else _message(args, received)))

    return made


def reduced_message(args: OperatorArguments) -> OperatorCall:
    """vllm::all_reduce (message, group): a result in addition to the message."""
    return form((args.tensor(0),), args.tensor(0))


def gathered(ranks: int) -> Form:
    """vllm::all_gather (message, axis, ranks): the result holds the messages of all ranks."""
    def made(args: OperatorArguments) -> OperatorCall:
        operand = args.tensor(0)
        shape, axis = list(known(operand)), args.integer(1)
        shape[axis] *= args.integer(ranks)
        return form((operand,), TensorType(operand.dtype, tuple(shape)))

    return made


def buffers(args: OperatorArguments) -> OperatorCall:
    """A kernel that a compiler fused (its buffers, read or written): each crosses memory once at least."""
    operands = [args.tensor(at) for at in range(len(args)) if args.has(at)]
    if not operands:
        raise UnknownShape("no argument is a tensor")
    return form(operands)


def _message(args: OperatorArguments, at: int) -> list[TensorType]:
    return [args.tensor(at)] if args.has(at) else args.tensors(at)

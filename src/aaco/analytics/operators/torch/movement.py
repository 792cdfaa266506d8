"""PyTorch operators that move, fill, index or exchange data.

Source: native_functions.yaml of PyTorch; torch/csrc/distributed/c10d/Ops.cpp for collective operations. A view moves
nothing. What is picked by index is read no more often than the result has elements.
"""

from __future__ import annotations

from collections.abc import Callable

from aaco.analytics.operators.terms import Call, TensorType, UnknownShape, everything
from aaco.analytics.operators.torch.arguments import Arguments, broadcast, form, known

Form = Callable[[Arguments], Call]
LIES = "whether it copies depends on how its input lies in memory"
LIST = "the capture does not record the element type of a list of tensors"


# What gives an existing tensor another shape, and what only makes room or looks at a value.
VIEWS = """aten::view aten::_unsafe_view aten::t aten::transpose aten::permute aten::expand aten::expand_as
    aten::as_strided aten::select aten::slice aten::unsqueeze aten::squeeze aten::detach aten::alias aten::unbind
    aten::split aten::split_with_sizes aten::chunk aten::narrow aten::unfold aten::view_as aten::_reshape_alias
    aten::movedim aten::swapaxes aten::numpy_T aten::diagonal aten::real aten::resolve_conj aten::resolve_neg
    aten::lift_fresh aten::broadcast_to aten::broadcast_tensors aten::empty aten::empty_like aten::empty_strided
    aten::new_empty aten::resize aten::set aten::result_type aten::item aten::is_nonzero aten::_local_scalar_dense
    detach"""
# What copies or not, as strides and modes ask for it; the copy itself is an operator inside.
PERHAPS = "aten::reshape aten::contiguous aten::flatten aten::to aten::type_as aten::dropout aten::unflatten"


def nothing(args: Arguments) -> Call:
    """No operand that matters."""
    return form(())


def perhaps_copied(args: Arguments) -> Call:
    """Raises UnknownShape: its strides decide."""
    raise UnknownShape(LIES)


def copy(args: Arguments) -> Call:
    """copy_ (destination, source)."""
    made, source = args.tensor(0), args.tensor(1)
    return form((source,), made)


def same(args: Arguments) -> Call:
    """clone, contiguous, flip, roll, tril: a result like the input."""
    return form((args.tensor(0),), args.tensor(0))


def filled(args: Arguments) -> Call:
    """fill_, zero_, normal_, uniform_: the tensor is overwritten."""
    return form((), args.tensor(0))


def created(dtype: int) -> Form:
    """zeros, ones, full, rand (shape, ..., type): single precision unless told."""
    return lambda args: form((), TensorType(args.dtype(dtype, "float32"), tuple(args.numbers(0))))


def like(args: Arguments) -> Call:
    """zeros_like, ones_like (input, type)."""
    given = args.tensor(0)
    return form((), TensorType(args.dtype(1, given.dtype), given.shape))


def concatenated(args: Arguments) -> Call:
    """cat, stack (tensors, axis): all are read and written once. The recorded list has no element type."""
    given = args.tensors(0)
    return Call({}, given, given)


def of_lists(call: Call) -> int:
    """Bytes of all operands. Raises UnknownShape: the recorded lists have no element types."""
    if any(tensor is not None and not tensor.dtype for tensor in call.inputs):
        raise UnknownShape(LIST)
    return everything(call)


def repeated(args: Arguments) -> Call:
    """repeat (input, times per axis)."""
    given, times = args.tensor(0), args.numbers(1)
    shape = (1,) * (len(times) - len(known(given))) + known(given)
    if len(shape) != len(times):
        raise UnknownShape("as many repetitions as axes")
    made = tuple(size * count for size, count in zip(shape, times, strict=True))
    return form((given,), TensorType(given.dtype, made))


def padded(args: Arguments) -> Call:
    """constant_pad_nd, pad (input, before and after per axis from the last)."""
    given, edges = args.tensor(0), args.numbers(1)
    shape = list(known(given))
    for axis, (before, after) in enumerate(zip(edges[::2], edges[1::2], strict=True), 1):
        shape[-axis] += before + after
    return form((given,), TensorType(given.dtype, tuple(shape)))


def embedding(args: Arguments) -> Call:
    """embedding (table, indices): a row per index."""
    table, indices = args.tensor(0), args.tensor(1)
    return form((table, indices), TensorType(table.dtype, (*known(indices), *known(table)[1:])))


def embedding_backward(args: Arguments) -> Call:
    """embedding_dense_backward (gradient, indices, rows, ...): each gradient is added to its row."""
    gradient, indices = args.tensor(0), args.tensor(1)
    return form((gradient, indices), TensorType(gradient.dtype, (args.integer(2), known(gradient)[-1])))


def index_select(args: Arguments) -> Call:
    """index_select (input, axis, indices)."""
    given, axis, indices = args.tensor(0), args.integer(1), args.tensor(2)
    shape = list(known(given))
    shape[axis] = indices.elements or 0
    return form((given, indices), TensorType(given.dtype, tuple(shape)))


def gather(args: Arguments) -> Call:
    """gather (input, axis, indices): a result of the indices' shape."""
    given, indices = args.tensor(0), args.tensor(2)
    return form((given, indices), TensorType(given.dtype, indices.shape))


def index(args: Arguments) -> Call:
    """index (input, indices per axis): those of the first axes, broadcast, then the axes left."""
    given = args.tensor(0)
    chosen = [TensorType("int64", tensor.shape) for tensor in args.tensors(1)]
    if not chosen:
        raise UnknownShape("no index")
    shape = (*broadcast(*chosen), *known(given)[len(chosen):])
    return form((given, *chosen), TensorType(given.dtype, shape))


def scatter(values: int) -> Form:
    """scatter_, index_copy_, index_put_ (input, ..., values): as much of the input as there are values is written."""
    def made(args: Arguments) -> Call:
        given, source = args.tensor(0), args.tensor(values)
        places = [args.tensor(at) for at in range(1, values) if args.has(at)]
        return form((source, *places), TensorType(given.dtype, source.shape))

    return made


def scatter_add(values: int) -> Form:
    """scatter_add_, index_add_: what is written is read before."""
    def made(args: Arguments) -> Call:
        call = scatter(values)(args)
        return form((*call.inputs, call.outputs[0]), *filter(None, call.outputs))

    return made


def message(sent: int, received: int | None = None) -> Form:
    """A collective operation: what this rank reads and what it writes; without `received` in place."""
    def made(args: Arguments) -> Call:
        there = _message(args, sent)
        return form(there, *(there if received is None else _message(args, received)))

    return made


def reduced_message(args: Arguments) -> Call:
    """vllm::all_reduce (message, group): a result beside the message."""
    return form((args.tensor(0),), args.tensor(0))


def gathered(ranks: int) -> Form:
    """vllm::all_gather (message, axis, ranks): the result holds the messages of all ranks."""
    def made(args: Arguments) -> Call:
        given = args.tensor(0)
        shape, axis = list(known(given)), args.integer(1)
        shape[axis] *= args.integer(ranks)
        return form((given,), TensorType(given.dtype, tuple(shape)))

    return made


def buffers(args: Arguments) -> Call:
    """A kernel that a compiler fused (its buffers, read or written): each crosses memory once at least."""
    given = [args.tensor(at) for at in range(len(args)) if args.has(at)]
    if not given:
        raise UnknownShape("no argument is a tensor")
    return form(given)


def _message(args: Arguments, at: int) -> list[TensorType]:
    return [args.tensor(at)] if args.has(at) else args.tensors(at)

"""The size of every dimension of a model's inputs, from the batch, the requested shapes, and named defaults.

The same symbol is the same size everywhere. A batch of 1 in a requested shape means "per sample": --batch decides.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from aaco.core.errors import UsageError

SEQUENCE = 128
PIXELS = 224
PAST = 0  # an empty cache: the first pass over a prompt
SHAPE_FIX = "set it with --shape NAME=1x128x... or in the model's registry entry"
Kind = Literal["batch", "past", "pixels", "sequence", "derived"]
_DEFAULTS: dict[Kind, int] = {"past": PAST, "pixels": PIXELS, "sequence": SEQUENCE}
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


class InputSpec(Struct, frozen=True):
    """A model's declaration of an input: element type by numpy (or ml_dtypes) name, and sizes, symbols or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"

    @property
    def is_integer(self) -> bool:
        """Return whether the elements are signed or unsigned integers."""
        return self.dtype.startswith(("int", "uint"))

    @property
    def is_float(self) -> bool:
        """Return whether the elements are floating-point numbers of any width."""
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_mask(self) -> bool:
        """Return whether the name indicates that it hides or keeps positions."""
        return "mask" in self.name.lower()

    @property
    def is_cache(self) -> bool:
        """Return whether the name indicates keys or values of earlier tokens."""
        return "past" in self.name.lower() or "cache" in self.name.lower()


class ShapeRequest(Struct, frozen=True):
    """Requested shapes. A name or None in a shape leaves that dimension open.

    `exact` shapes belong to arrays that already exist: their batch must be the batch. Shapes that `yield` are defaults:
    they give way to earlier requests.
    """

    where: str
    shapes: Mapping[str, Sequence[int | str | None]]
    exact: bool = False
    yields: bool = False


class _Axis(Struct, frozen=True):
    """A dynamic dimension of one input; an unnamed one has a label of its own."""

    spec: InputSpec
    index: int
    label: str
    kind: Kind


def own_batch(specs: Sequence[InputSpec], asked: Sequence[ShapeRequest]) -> int:
    """Return the batch if none is requested: that of a requested shape, else the one the model fixes, else 1.

    Raise UsageError if shapes are impossible, or a model without a dynamic batch leaves open which size is the batch.
    """
    for request in asked:
        _check_fixed(specs, request)
    axes = list(_dynamic_axes(specs))
    batches = (size for request in asked for axis in axes if axis.kind == "batch"
               and isinstance(size := request.shapes.get(axis.spec.name, axis.spec.shape)[axis.index], int)
               and (request.exact or size != 1))
    if (size := next(batches, None)) is not None:
        return size
    fixed = set() if _batch_symbols(axes) else _leading_sizes(specs)
    if len(fixed) > 1 and 1 not in fixed:
        raise UsageError(f"the batch could be {' or '.join(map(str, sorted(fixed)))}: {signature(specs)}",
                         "say how many samples one inference is: --batch N, or --batch 1 for one")
    return fixed.pop() if len(fixed) == 1 else 1


def fixes_batch(specs: Sequence[InputSpec]) -> bool:
    """Return whether the model itself fixes the batch, so that no other one can be run."""
    return not _batch_symbols(list(_dynamic_axes(specs))) and len(_leading_sizes(specs)) == 1


def resolve(specs: Sequence[InputSpec], batch: int, asked: Sequence[ShapeRequest]) -> dict[str, tuple[int, ...]]:
    """Return a size for each dimension of each input. Raise UsageError if the request is impossible."""
    for request in asked:
        _check_fixed(specs, request)
    axes = list(_dynamic_axes(specs))
    sizes = dict.fromkeys(_batch_symbols(axes), batch)
    if not sizes:
        _check_fixed_batch(specs, batch)
    for request in asked:
        _bind_request(axes, request, batch, sizes)
    _solve_past(axes, sizes)
    for axis in axes:
        if axis.kind != "derived" and axis.label not in sizes:
            sizes[axis.label] = _default_size(axis.kind, axes, sizes)
    for axis in axes:
        if axis.kind == "derived":
            _derive(axis, axes, sizes)
    return _fill_shapes(specs, axes, sizes)


def at_batch(specs: Sequence[InputSpec], shapes: Mapping[str, Sequence[int]], batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that were fed, at another batch. Raise UsageError if the model fixes it."""
    axes = list(_dynamic_axes(specs))
    symbols = _batch_symbols(axes)
    if not symbols:
        raise UsageError(f"the model fixes its batch: {signature(specs)}", "export it with a dynamic batch")
    sizes = {axis.label: shapes[axis.spec.name][axis.index] for axis in axes if axis.kind != "derived"}
    sizes |= dict.fromkeys(symbols, batch)
    for axis in axes:
        if axis.kind == "derived":
            _derive(axis, axes, sizes)
    return _fill_shapes(specs, axes, sizes)


def resized(specs: Sequence[InputSpec], shapes: Mapping[str, Sequence[int]], name: str,
            size: int) -> dict[str, list[int]]:
    """Return the request that gives a dynamic dimension a size: one input per dimension, so that the others follow.

    name: the symbol of the dimension, or its kind: sequence, past, pixels. shapes: the present ones of all inputs.
    Raise UsageError if no input has it.
    """
    axes = [axis for axis in _dynamic_axes(specs) if axis.kind not in ("batch", "derived")]
    matching = [axis for axis in axes if axis.label == name] or [axis for axis in axes if axis.kind == name]
    if not matching:
        labels = ", ".join(dict.fromkeys(axis.label for axis in axes))
        raise UsageError(f"no dynamic dimension is named {name}, or is one: {signature(specs)}",
                         f"one of {labels}" if labels else "export the model with dynamic sizes")
    # The other sizes of these inputs are computed.
    follows = {axis.spec.name for axis in _dynamic_axes(specs) if axis.kind == "derived"}
    asked: dict[str, list[int]] = {}
    for label in dict.fromkeys(axis.label for axis in matching):
        axis = min((axis for axis in matching if axis.label == label), key=lambda axis: axis.spec.name in follows)
        asked.setdefault(axis.spec.name, list(shapes[axis.spec.name]))[axis.index] = size
    return asked


def past_length(specs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the length of the key-value cache in resolved shapes; 0 for a model without one."""
    return next((shapes[axis.spec.name][axis.index] for axis in _dynamic_axes(specs) if axis.kind == "past"), 0)


def refuse_empty(specs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise UsageError where an input would hold nothing; only a key-value cache begins empty."""
    past = {(axis.spec.name, axis.index) for axis in _dynamic_axes(specs) if axis.kind == "past"}
    for spec in specs:
        for index, size in enumerate(shapes[spec.name]):
            if size == 0 and (spec.name, index) not in past and not (spec.is_cache and index == 2):
                shape = list(shapes[spec.name])
                raise UsageError(f"{spec} at shape {shape} holds nothing: dimension {index} is 0",
                                 "give every dimension a size of 1 or more: --shape, --inputs, or export it again")


def _fill_shapes(specs: Sequence[InputSpec], axes: Sequence[_Axis],
                 sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    labels = {(axis.spec.name, axis.index): axis.label for axis in axes}
    return {spec.name: tuple(size if isinstance(size, int) else sizes[labels[spec.name, index]]
                             for index, size in enumerate(spec.shape)) for spec in specs}


def signature(specs: Sequence[InputSpec]) -> str:
    """Return every input in words, for error messages."""
    return ", ".join(map(str, specs))


def _dynamic_axes(specs: Sequence[InputSpec]) -> Iterator[_Axis]:
    """Yield the dynamic dimensions; a symbol that occurs twice has the kind of its first place."""
    has_past = any(spec.is_cache for spec in specs)
    kinds: dict[str, Kind] = {}
    for spec in specs:
        for index, size in enumerate(spec.shape):
            if not isinstance(size, int):
                label = size or f"{spec.name}[{index}]"
                yield _Axis(spec, index, label, kinds.setdefault(label, _kind(spec, index, size or "", has_past)))


def _kind(spec: InputSpec, index: int, symbol: str, has_past: bool) -> Kind:
    """Return the kind by the symbol's name, else by the input's name and the place in its shape."""
    named = _kind_of(symbol) if symbol else None
    if named:
        return named
    if index == 0:
        return "batch"
    if spec.is_cache and index == 2:
        return "past"
    if spec.is_mask and has_past and index == len(spec.shape) - 1:
        return "derived"
    if not symbol and spec.is_float and len(spec.shape) == 4 and index >= 2 and not spec.is_mask:
        return "pixels"
    return "sequence"


def _kind_of(symbol: str) -> Kind | None:
    """Return the kind that a symbol's name indicates; None if it indicates none."""
    text = symbol.lower()
    if _parse_formula(symbol) or "total" in text:
        return "derived"
    if "past" in text:
        return "past"
    if "batch" in text or text in {"b", "bs"}:
        return "batch"
    if "height" in text or "width" in text or text in {"h", "w"}:
        return "pixels"
    return "sequence" if "seq" in text or "len" in text or "token" in text else None


def _check_fixed(specs: Sequence[InputSpec], request: ShapeRequest) -> None:
    specs_by_name = {spec.name: spec for spec in specs}
    for name, shape in request.shapes.items():
        if name not in specs_by_name:
            raise UsageError(f"{request.where}: the model has no input {name!r}", f"it takes {signature(specs)}")
        declared = specs_by_name[name].shape
        fits = len(shape) == len(declared) and all(
            not isinstance(size, int) or not isinstance(asked, int) or size == asked
            for size, asked in zip(declared, shape, strict=True))
        if not fits or any(isinstance(asked, int) and asked < 0 for asked in shape):
            raise UsageError(f"{request.where}: {name} is {_format_shape(shape)}, "
                             f"the model takes {specs_by_name[name]}", SHAPE_FIX)


def _batch_symbols(axes: Sequence[_Axis]) -> set[str]:
    """Return every symbol that is the batch, by itself or inside a formula."""
    formulas = [formula for axis in axes if (formula := _parse_formula(axis.label))]
    names = {tree.id for formula in formulas for tree in ast.walk(formula) if isinstance(tree, ast.Name)}
    return {axis.label for axis in axes if axis.kind == "batch"} | {
        name for name in names if _kind_of(name) == "batch"}


def _leading_sizes(specs: Sequence[InputSpec]) -> set[int]:
    """Return the fixed first sizes of the inputs that have samples as well as a batch: two dimensions and more."""
    return {size for spec in specs if len(spec.shape) > 1 and isinstance(size := spec.shape[0], int)}


def _check_fixed_batch(specs: Sequence[InputSpec], batch: int) -> None:
    """Raise UsageError for a batch that the model does not run: its report would have a false throughput."""
    fixed = _leading_sizes(specs)
    if len(fixed) == 1 and batch not in fixed:
        raise UsageError(f"batch {batch}: the model fixes it at {min(fixed)} (no input has a dynamic batch dimension): "
                         f"{signature(specs)}",
                         f"leave --batch out, or say --batch {min(fixed)}; or export it with a dynamic batch")
    if batch != 1 and batch not in {spec.shape[0] for spec in specs if spec.shape}:
        raise UsageError(f"batch {batch}: no input has a dynamic batch dimension: {signature(specs)}",
                         "run with --batch 1, or export the model with a dynamic batch")


def _bind_request(axes: Sequence[_Axis], request: ShapeRequest, batch: int, sizes: dict[str, int]) -> None:
    """Add the sizes of one request to `sizes`."""
    settled = {axis.label for axis in axes if axis.label in sizes}
    lengths_known = any(axis.label in settled for axis in axes if axis.kind in ("past", "sequence"))
    for axis in axes:
        asked = request.shapes.get(axis.spec.name, axis.spec.shape)[axis.index]
        if not isinstance(asked, int):
            continue
        if axis.kind == "batch" and asked == 1 and not request.exact:
            continue
        given_way = axis.label in settled or (axis.kind == "derived" and lengths_known)
        if request.yields and axis.kind != "batch" and given_way:
            continue
        if sizes.setdefault(axis.label, asked) != asked:
            raise _conflict_error(axis, asked, sizes[axis.label], request.where, batch)


def _conflict_error(axis: _Axis, asked: int, settled: int, where: str, batch: int) -> UsageError:
    place = f"{where}: dimension {axis.index} of {axis.spec}"
    if axis.kind == "batch":
        return UsageError(f"{place} is {asked}, the batch is {batch}", f"run with --batch {asked}")
    return UsageError(f"{place} is {asked}, elsewhere it is {settled}", "give both the same size")


def _solve_past(axes: Sequence[_Axis], sizes: dict[str, int]) -> None:
    """Set the cache length from a total that was requested without one."""
    unbound = [axis for axis in axes if axis.kind == "past" and axis.label not in sizes]
    total = next((axis for axis in axes if axis.kind == "derived" and axis.label in sizes), None)
    if total and unbound and not any(axis.kind == "past" and axis.label in sizes for axis in axes):
        length = sizes[total.label] - _compute_derived(total, axes, sizes | {axis.label: 0 for axis in unbound})
        if length > 0:
            sizes[unbound[0].label] = length


def _default_size(kind: Kind, axes: Sequence[_Axis], sizes: Mapping[str, int]) -> int:
    """Return the size of the first settled dimension of the same kind, or the named default."""
    return next((sizes[axis.label] for axis in axes if axis.kind == kind and axis.label in sizes), _DEFAULTS[kind])


def _derive(axis: _Axis, axes: Sequence[_Axis], sizes: dict[str, int]) -> None:
    size = _compute_derived(axis, axes, sizes)
    if size < 0 or sizes.setdefault(axis.label, size) != size:
        raise UsageError(f"dimension {axis.index} of {axis.spec} must be {size} to agree with the other inputs, "
                         f"not {sizes.get(axis.label)}", "give the other inputs' shapes too, or leave this one out")


def _compute_derived(axis: _Axis, axes: Sequence[_Axis], sizes: Mapping[str, int]) -> int:
    """Return the size that the label computes: its arithmetic, or past + sequence for a total."""
    formula = _parse_formula(axis.label)
    if formula is None:
        return _default_size("past", axes, sizes) + _default_size("sequence", axes, sizes)
    try:
        return _evaluate(formula, axes, sizes)
    except ZeroDivisionError as error:
        raise UsageError(f"dimension {axis.index} of {axis.spec} divides by a size of 0", SHAPE_FIX) from error


def _evaluate(tree: ast.expr, axes: Sequence[_Axis], sizes: Mapping[str, int]) -> int:
    """Return the value of a formula; a symbol that no input has takes the size of its kind."""
    if isinstance(tree, ast.BinOp):
        return _ARITHMETIC[type(tree.op)](_evaluate(tree.left, axes, sizes), _evaluate(tree.right, axes, sizes))
    if isinstance(tree, ast.Name):
        return sizes[tree.id] if tree.id in sizes else _default_size(_kind_of(tree.id) or "sequence", axes, sizes)
    return int(ast.literal_eval(tree))


def _parse_formula(text: str) -> ast.BinOp | None:
    """Return a symbol that is integer arithmetic over symbols, as exporters write "past + sequence" or "2*s0"; else
    None.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    is_name = re.search(r"\S-\S", text)  # "seq-len" is a name with a hyphen
    return tree if isinstance(tree, ast.BinOp) and _is_computable(tree) and not is_name else None


def _is_computable(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _ARITHMETIC and _is_computable(tree.left) and _is_computable(tree.right)
    return isinstance(tree, ast.Name) or (isinstance(tree, ast.Constant) and type(tree.value) is int)


def _format_shape(shape: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"

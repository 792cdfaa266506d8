"""Valid inputs for a model: every dimension decided, every value in range, the same bytes for the same seed.

Values: token ids lie within the embedding table, attention masks hide nothing, position ids count on from the cache,
other integers are 0..99, other floats (images, caches) come from N(0, 1). Dimensions: see `dimensions`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from aaco.core.errors import ModelError, UsageError
from aaco.runner import dimensions
from aaco.runner.dimensions import Asked, InputSpec
from aaco.runner.registry import ModelEntry

INTEGER_LIMIT = 100
Array = NDArray[Any]
# Operators that look rows up: their table and index inputs. The last is how ONNX Runtime fuses BERT's embeddings.
_LOOKUPS = {"Gather": ((0, 1),), "GatherBlockQuantized": ((0, 1),), "EmbedLayerNormalization": ((2, 0), (4, 1))}
_SAME_ROWS = {"Identity", "Cast", "DequantizeLinear"}
_SAME_VALUES = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}


@dataclass(frozen=True)
class Fed:
    """What a model is fed: an array per input, how many samples they are, and whether the model allows no other."""

    arrays: dict[str, Array]
    batch: int
    fixed: bool


def for_model(model: onnx.ModelProto, entry: ModelEntry, *, batch: int | None = None, seed: int = 0,
              shapes: Mapping[str, Sequence[int]] | None = None, npz: Path | None = None) -> Fed:
    """Inputs for a model: arrays of the .npz first, then `shapes`, then the registry entry's shapes, then defaults.

    batch None is the batch of those shapes, else the one that the model fixes, else 1. Raises UsageError for what was
    asked and cannot be, ModelError where the entry's types are not the model's.
    """
    found = specs(model)
    check_types(found, entry)
    return make_inputs(found, batch=batch, seed=seed, shapes=shapes, given=read_npz(npz) if npz else None,
                       vocabulary=vocabulary(model), defaults=entry.shapes)


def make_inputs(specs: Sequence[InputSpec], *, batch: int | None = None, seed: int = 0,
                shapes: Mapping[str, Sequence[int]] | None = None, given: Mapping[str, Array] | None = None,
                vocabulary: Mapping[str, int] | None = None,
                defaults: Mapping[str, Sequence[int | str | None]] | None = None) -> Fed:
    """One array per input. An input's bytes depend on the seed, its name, type and shape only.

    `given` arrays are used as they are; `shapes` must hold; `defaults` give way to both. `vocabulary` maps an input to
    the rows of the table it indexes. Raises UsageError, or ModelError for an element type that cannot be fed.
    """
    kept = {name: _accepted(name, array, specs) for name, array in (given or {}).items()}
    asked = [Asked("--inputs", {name: array.shape for name, array in kept.items()}, exact=True),
             Asked("--shape", shapes or {}), Asked("the model's registry entry", defaults or {}, yields=True)]
    samples = dimensions.own_batch(specs, asked) if batch is None else batch
    sizes = dimensions.resolve(specs, samples, asked)
    past = dimensions.past_length(specs, sizes)
    made = {}
    for spec in specs:
        rows = (vocabulary or {}).get(spec.name)
        made[spec.name] = kept[spec.name] if spec.name in kept else _values(spec, sizes[spec.name], seed, past, rows)
        _check_rows(spec, made[spec.name], rows)
    return Fed(made, samples, dimensions.fixes_batch(specs))


def specs(model: onnx.ModelProto) -> list[InputSpec]:
    """The inputs a caller must feed, in order: the graph's inputs that are not weights. Raises ModelError."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [_spec(value) for value in model.graph.input if value.name not in weights]


def check_types(specs: Sequence[InputSpec], entry: ModelEntry) -> None:
    """Refuse an entry whose types are not those of the model's inputs: nothing is converted.

    `dtype` of an entry is the type of the model's float inputs (an integer dtype: of its integer inputs), so at least
    one input must have it and no input of that kind may have another. Raises ModelError.
    """
    fix = "correct the entry's dtype, export the model in that type, or let the backend convert (fp16_enable: true)"
    known = {spec.name: spec for spec in specs}
    for item in entry.inputs:
        if item.dtype and item.name in known and known[item.name].dtype != item.dtype:
            raise ModelError(f"{entry.name}: the entry says {item.name} is {item.dtype}, the model takes "
                             f"{known[item.name]}", fix)
    if not entry.dtype:
        return
    asked = InputSpec("", entry.dtype, ())
    alike = {spec.dtype for spec in specs if spec.is_float == asked.is_float and spec.is_integer == asked.is_integer}
    if alike != {entry.dtype}:
        raise ModelError(f"{entry.name}: the entry says dtype {entry.dtype}, the model takes "
                         f"{dimensions.signature(specs)}", fix)


def vocabulary(model: onnx.ModelProto) -> dict[str, int]:
    """Per model input that indexes the rows of a weight table: the number of rows, the fewest where there are several.

    Tables and indices are followed through casts and reshapes, in subgraphs too; weights need not be loaded.
    """
    nodes = list(_nodes(model.graph))
    producers = {output: node for node in nodes for output in node.output}
    rows = _weight_rows(model.graph, nodes)
    names = {spec.name for spec in model.graph.input}
    found: dict[str, int] = {}
    for node in nodes:
        for table, index in _LOOKUPS.get(node.op_type, ()):
            if max(table, index) < len(node.input) and not _axis(node):
                count = rows.get(_origin(node.input[table], producers, _SAME_ROWS))
                name = _origin(node.input[index], producers, _SAME_VALUES)
                if name in names and count is not None:
                    found[name] = min(count, found.get(name, count))
    return found


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file; pickled objects are refused. Raises UsageError."""
    fix = "make it with numpy.savez(FILE, input_name=array, ...)"
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UsageError(f"{path}: a single array, not a .npz of named arrays", fix)
            # a runtime reads raw bytes, so another machine's byte order must go
            return {name: archive[name].astype(archive[name].dtype.newbyteorder("="), copy=False)
                    for name in archive.files}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", fix) from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path}: not a .npz file of plain arrays: {' '.join(str(error).split())}", fix) from error


def _spec(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise ModelError(f"input {value.name!r} is not a tensor of known rank",
                         "export the model with tensor inputs that declare their shapes")
    return InputSpec(value.name, _dtype_name(kind.elem_type), tuple(map(_size, kind.shape.dim)))


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """A number, a symbol, or None; some exporters write -1 for a dynamic dimension."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _dtype_name(elem_type: int) -> str:
    if elem_type == onnx.TensorProto.STRING:
        return "string"
    return onnx.helper.tensor_dtype_to_np_dtype(elem_type).name


def _values(spec: InputSpec, shape: tuple[int, ...], seed: int, past: int, rows: int | None) -> Array:
    if not (spec.dtype == "bool" or spec.is_integer or spec.is_float):
        raise ModelError(f"input {spec} cannot be made up", "give it with --inputs FILE.npz")
    try:
        return _drawn(spec, shape, np.random.default_rng([seed, *spec.name.encode()]), past, rows)
    except (MemoryError, ValueError) as error:  # numpy's two ways to say that an array is too large
        raise UsageError(f"{spec} at shape {list(shape)} cannot be held in memory: {error}",
                         "ask for a smaller --shape or --batch") from error


def _drawn(spec: InputSpec, shape: tuple[int, ...], random: np.random.Generator, past: int,
           rows: int | None) -> Array:
    dtype = np.dtype(spec.dtype)
    if spec.is_mask:
        return np.full(shape, _keeping(spec), dtype)
    if spec.name == "use_cache_branch":  # a merged decoder's switch: true when the cache holds something
        return np.full(shape, past > 0, dtype)
    if spec.is_integer and "position" in spec.name.lower():
        length = shape[-1] if shape else 1
        return np.broadcast_to(np.arange(past, past + length), shape or 1).reshape(shape).astype(dtype)
    if spec.is_float:
        return random.standard_normal(shape, dtype=np.float32).astype(dtype)
    limit = 2 if spec.dtype == "bool" else min(rows or INTEGER_LIMIT, _largest(spec) + 1)
    return random.integers(0, limit, shape).astype(dtype)


def _keeping(spec: InputSpec) -> int:
    """The mask value that hides nothing.

    Integers and booleans: 1 keeps. Floats of three or more dimensions are added to attention scores: 0 keeps; flatter
    ones multiply: 1 keeps (and if added, shifts every score alike, which a softmax does not see). A boolean padding
    mask follows torch.nn.MultiheadAttention, where True hides.
    """
    if spec.dtype == "bool":
        return int("padding" not in spec.name.lower())
    return int(not spec.is_float or len(spec.shape) < 3)


def _largest(spec: InputSpec) -> int:
    bits = int(spec.dtype.removeprefix("u").removeprefix("int"))
    return int(2 ** (bits - (not spec.dtype.startswith("u"))) - 1)


def _accepted(name: str, array: Array, specs: Sequence[InputSpec]) -> Array:
    """A given array, if the model has such an input of its type; its shape is checked with all the others."""
    spec = next((spec for spec in specs if spec.name == name), None)
    takes = f"the model takes {dimensions.signature(specs)}"
    if spec is None:
        raise UsageError(f"--inputs: the model has no input {name!r}", takes)
    if spec.dtype == "bfloat16" and array.dtype == np.dtype("V2"):  # numpy's file format has no name for bfloat16
        array = array.view(np.dtype("bfloat16"))
    is_text = spec.dtype == "string" and array.dtype.kind == "U"
    if not is_text and array.dtype.name != spec.dtype:
        raise UsageError(f"--inputs: {name} is {array.dtype.name}{list(array.shape)}, the model takes {spec}",
                         f"numpy: {name}.astype({spec.dtype!r}); {takes}")
    return array


def _check_rows(spec: InputSpec, array: Array, rows: int | None) -> None:
    """Indices outside their table would fail deep inside the runtime (ONNX lets them count from the end too)."""
    if rows is None or not spec.is_integer or not array.size:
        return
    low, high = int(array.min()), int(array.max())
    if low < -rows or high >= rows:
        raise UsageError(f"{spec} would hold values {low}..{high}, its table has {rows} rows",
                         "shorten the sequence or the cache, or correct the values in --inputs")


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(body)


def _weight_rows(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """First dimension of each weight: initializers, and Constant nodes that hold a tensor."""
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t") and attribute.t.dims:
                rows[node.output[0]] = attribute.t.dims[0]
            if attribute.HasField("g"):
                rows |= {tensor.name: tensor.dims[0] for tensor in attribute.g.initializer if tensor.dims}
    return rows


def _axis(node: onnx.NodeProto) -> int:
    """The axis that is looked up; 0 unless the node says otherwise."""
    return next((attribute.i for attribute in node.attribute if attribute.name in ("axis", "gather_axis")), 0)


def _origin(name: str, producers: Mapping[str, onnx.NodeProto], through: set[str]) -> str:
    """The tensor that this one is a copy of, going up through the first inputs of such operators."""
    for _ in producers:  # a damaged graph may run in circles
        node = producers.get(name)
        if node is None or node.op_type not in through or not node.input:
            break
        name = node.input[0]
    return name

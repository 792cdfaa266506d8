"""Valid inputs for a model: every dimension decided, every value in range, the same bytes for the same seed.

Values: token ids are within the embedding table, attention masks hide nothing, position ids count on from the cache,
other integers are 0..99, other floats (images, caches) come from N(0, 1). Dimensions: see `dimensions`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from msgspec import Struct

from aaco.core.arrays import Array
from aaco.core.errors import ModelError, UsageError
from aaco.runner import dimensions
from aaco.runner.dimensions import InputSpec, ShapeRequest
from aaco.runner.model_file import nodes_of
from aaco.runner.registry import ModelEntry

INTEGER_LIMIT = 100
# Operators that look rows up: their table and index inputs. The last is how ONNX Runtime fuses BERT's embeddings.
_LOOKUPS = {"Gather": ((0, 1),), "GatherBlockQuantized": ((0, 1),), "EmbedLayerNormalization": ((2, 0), (4, 1))}
_SAME_ROWS = {"Identity", "Cast", "DequantizeLinear"}
_SAME_VALUES = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}


class FedInputs(Struct, frozen=True):
    """A model's inputs: an array per input, the number of samples, and whether the model allows no other."""

    arrays: dict[str, Array]
    batch: int
    fixed: bool


def for_model(model: onnx.ModelProto, entry: ModelEntry, *, batch: int | None = None, seed: int = 0,
              shapes: Mapping[str, Sequence[int]] | None = None, npz: Path | None = None) -> FedInputs:
    """Return inputs for a model: arrays of the .npz first, then `shapes`, then the registry entry's shapes, then
    defaults.

    batch None is the batch of those shapes, else the one that the model fixes, else 1. Raise UsageError for an
    impossible request, ModelError if the entry's types are not the model's.
    """
    declared = specs(model)
    check_types(declared, entry)
    return make_inputs(declared, batch=batch, seed=seed, shapes=shapes, arrays=read_npz(npz) if npz else None,
                       vocabulary=vocabulary(model), defaults=entry.shapes)


def make_inputs(specs: Sequence[InputSpec], *, batch: int | None = None, seed: int = 0,
                shapes: Mapping[str, Sequence[int]] | None = None, arrays: Mapping[str, Array] | None = None,
                vocabulary: Mapping[str, int] | None = None,
                defaults: Mapping[str, Sequence[int | str | None]] | None = None) -> FedInputs:
    """Return one array per input. An input's bytes depend on the seed, its name, type and shape only.

    `arrays` are used unchanged; `shapes` must hold; `defaults` give way to both. `vocabulary` maps an input to the rows
    of the table it indexes. Raise UsageError, or ModelError for an element type that cannot be fed.
    """
    kept = {name: _accept_array(name, array, specs) for name, array in (arrays or {}).items()}
    asked = [ShapeRequest("--inputs", {name: array.shape for name, array in kept.items()}, exact=True),
             ShapeRequest("--shape", shapes or {}),
             ShapeRequest("the model's registry entry", defaults or {}, yields=True)]
    samples = dimensions.own_batch(specs, asked) if batch is None else batch
    sizes = dimensions.resolve(specs, samples, asked)
    dimensions.refuse_empty(specs, sizes)
    past = dimensions.past_length(specs, sizes)
    made = {}
    for spec in specs:
        rows = (vocabulary or {}).get(spec.name)
        made[spec.name] = (kept[spec.name] if spec.name in kept
                           else _make_values(spec, sizes[spec.name], seed, past, rows))
        _check_rows(spec, made[spec.name], rows)
    return FedInputs(made, samples, dimensions.fixes_batch(specs))


def specs(model: onnx.ModelProto) -> list[InputSpec]:
    """Return the inputs a caller must feed, in order: the graph's inputs that are not weights. Raise ModelError."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [_read_spec(value) for value in model.graph.input if value.name not in weights]


def check_types(specs: Sequence[InputSpec], entry: ModelEntry) -> None:
    """Refuse an entry with types other than those of the model's inputs: nothing is converted.

    `dtype` of an entry is the type of the model's float inputs (an integer dtype: of its integer inputs), so at least
    one input must have it and no input of that kind may have another. Raise ModelError.
    """
    fix = "correct the entry's dtype, export the model in that type, or let the backend convert (fp16_enable: true)"
    specs_by_name = {spec.name: spec for spec in specs}
    for declared in entry.inputs:
        if declared.dtype and declared.name in specs_by_name and specs_by_name[declared.name].dtype != declared.dtype:
            raise ModelError(f"{entry.name}: the entry says {declared.name} is {declared.dtype}, the model takes "
                             f"{specs_by_name[declared.name]}", fix)
    if not entry.dtype:
        return
    asked = InputSpec("", entry.dtype, ())
    alike = {spec.dtype for spec in specs if spec.is_float == asked.is_float and spec.is_integer == asked.is_integer}
    if alike != {entry.dtype}:
        raise ModelError(f"{entry.name}: the entry says dtype {entry.dtype}, the model takes "
                         f"{dimensions.signature(specs)}", fix)


def vocabulary(model: onnx.ModelProto) -> dict[str, int]:
    """Return, per model input that indexes the rows of a weight table, the number of rows, the fewest of several.

    Tables and indices are followed through casts and reshapes, in subgraphs too; weights need not be loaded.
    """
    nodes = list(nodes_of(model.graph.node))
    producers = {output: node for node in nodes for output in node.output}
    rows = _weight_rows(model.graph, nodes)
    names = {spec.name for spec in model.graph.input}
    rows_by_input: dict[str, int] = {}
    for node in nodes:
        for table, index in _LOOKUPS.get(node.op_type, ()):
            if max(table, index) < len(node.input) and not _lookup_axis(node):
                count = rows.get(_origin(node.input[table], producers, _SAME_ROWS))
                name = _origin(node.input[index], producers, _SAME_VALUES)
                if name in names and count is not None:
                    rows_by_input[name] = min(count, rows_by_input.get(name, count))
    return rows_by_input


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file; pickled objects are refused. Raise UsageError."""
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


def _read_spec(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        raise ModelError(f"input {value.name!r} is not a tensor of known rank",
                         "export the model with tensor inputs that declare their shapes")
    return InputSpec(value.name, _dtype_name(kind.elem_type), tuple(map(_read_size, kind.shape.dim)))


def _read_size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """Return a number, a symbol, or None; some exporters write -1 for a dynamic dimension."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _dtype_name(elem_type: int) -> str:
    if elem_type == onnx.TensorProto.STRING:
        return "string"
    return onnx.helper.tensor_dtype_to_np_dtype(elem_type).name


def _make_values(spec: InputSpec, shape: tuple[int, ...], seed: int, past: int, rows: int | None) -> Array:
    if not (spec.dtype == "bool" or spec.is_integer or spec.is_float):
        raise ModelError(f"input {spec} cannot be made up", "give it with --inputs FILE.npz")
    try:
        return _draw_values(spec, shape, np.random.default_rng([seed, *spec.name.encode()]), past, rows)
    except (MemoryError, ValueError) as error:  # numpy's two ways to say that an array is too large
        raise UsageError(f"{spec} at shape {list(shape)} cannot be held in memory: {error}",
                         "ask for a smaller --shape or --batch") from error


def _draw_values(spec: InputSpec, shape: tuple[int, ...], random: np.random.Generator, past: int,
                 rows: int | None) -> Array:
    dtype = np.dtype(spec.dtype)
    if spec.is_mask:
        return np.full(shape, _keeping_value(spec), dtype)
    if spec.name == "use_cache_branch":  # a merged decoder's switch: true when the cache holds something
        return np.full(shape, past > 0, dtype)
    if spec.is_integer and "position" in spec.name.lower():
        length = shape[-1] if shape else 1
        return np.broadcast_to(np.arange(past, past + length), shape or 1).reshape(shape).astype(dtype)
    if spec.is_float:
        return random.standard_normal(shape, dtype=np.float32).astype(dtype)
    limit = 2 if spec.dtype == "bool" else min(rows or INTEGER_LIMIT, _largest_value(spec) + 1)
    return random.integers(0, limit, shape).astype(dtype)


def _keeping_value(spec: InputSpec) -> int:
    """Return the mask value that hides nothing.

    Integers and booleans: 1 keeps. Floats of three or more dimensions are added to attention scores: 0 keeps; flatter
    ones multiply: 1 keeps (and if added, shifts every score equally, which a softmax ignores). A boolean padding mask
    follows torch.nn.MultiheadAttention, where True hides.
    """
    if spec.dtype == "bool":
        return int("padding" not in spec.name.lower())
    return int(not spec.is_float or len(spec.shape) < 3)


def _largest_value(spec: InputSpec) -> int:
    bits = int(spec.dtype.removeprefix("u").removeprefix("int"))
    return int(2 ** (bits - (not spec.dtype.startswith("u"))) - 1)


def _accept_array(name: str, array: Array, specs: Sequence[InputSpec]) -> Array:
    """Return an array of the user if the model has such an input of its type; its shape is checked with all the others.
    """
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
    """Raise UsageError for indices outside their table, which would fail deep inside the runtime (ONNX also lets them
    count from the end).
    """
    if rows is None or not spec.is_integer or not array.size:
        return
    low, high = int(array.min()), int(array.max())
    if low < -rows or high >= rows:
        raise UsageError(f"{spec} would hold values {low}..{high}, its table has {rows} rows",
                         "shorten the sequence or the cache, or correct the values in --inputs")


def _weight_rows(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """Return the first dimension of each weight: initializers, and Constant nodes that hold a tensor."""
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t") and attribute.t.dims:
                rows[node.output[0]] = attribute.t.dims[0]
            if attribute.HasField("g"):
                rows |= {tensor.name: tensor.dims[0] for tensor in attribute.g.initializer if tensor.dims}
    return rows


def _lookup_axis(node: onnx.NodeProto) -> int:
    """Return the axis that is looked up; 0 unless the node has one."""
    return next((attribute.i for attribute in node.attribute if attribute.name in ("axis", "gather_axis")), 0)


def _origin(name: str, producers: Mapping[str, onnx.NodeProto], through: set[str]) -> str:
    """Return the tensor that this one is a copy of, through the first inputs of such operators."""
    for _ in producers:  # a damaged graph may run in circles
        node = producers.get(name)
        if node is None or node.op_type not in through or not node.input:
            break
        name = node.input[0]
    return name

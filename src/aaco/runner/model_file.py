"""ONNX files: loading with a clear reason if it fails, identity by content, and copies without the weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from msgspec import Struct
from onnx import TensorProto

from aaco.core.errors import ModelError
from aaco.core.redaction import redact

KEPT_BYTES = 1024
STRIPPED = "stripped"
EXPORT_AGAIN = "fetch or export the file again"
# What can hold a tensor, directly or further down; anything else is small and copied whole.
_HOLDERS = (onnx.ModelProto, onnx.GraphProto, onnx.NodeProto, onnx.AttributeProto, onnx.FunctionProto,
            onnx.SparseTensorProto, onnx.TrainingInfoProto, TensorProto)
# Element types of known size: the rest is undefined, text, or newer than this onnx.
_SIZED = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
_TEXT_AS_BYTES = ("s", "strings", "string_data")  # of attributes, and of tensors of strings
# Protobuf wire types (protobuf.dev/programming-guides/encoding): bytes after the tag, where that is fixed.
_VARINT, _DELIMITED, _FIXED = 0, 2, {1: 8, 5: 4}


class ModelIdentity(Struct, frozen=True):
    """A model's identity by content: the file and the external data files it names."""

    sha256: str
    bytes: int
    files: tuple[str, ...]


class _ProtoField(Struct, frozen=True):
    """A top-level field of a serialised message: its number, wire type and the payload's place in the file."""

    number: int
    wire: int
    start: int
    length: int


def load(path: Path, weights: bool = True) -> onnx.ModelProto:
    """Return the model; with `weights=False` external data files are not opened, nor need they exist.

    Raise ModelError for a file that is missing, a folder, unreadable, empty, not ONNX, truncated or damaged, newer than
    the installed onnx package, or that names external data which is missing, short, or outside its folder.
    """
    with _readable(path):
        _outline(path)
        try:
            model = onnx.load_model_from_string(path.read_bytes())
        except DecodeError as error:
            raise ModelError(f"{path}: damaged: it begins like ONNX and does not decode", EXPORT_AGAIN) from error
    _refuse_unusable(path, model)
    if not _is_text(model):
        raise ModelError(f"{path}: damaged: a name in it is not text", EXPORT_AGAIN)
    if weights:
        _external_files(path, model)
        _load_external(path, model)
    return model


def metadata(path: Path) -> dict[str, str]:
    """Return the model's metadata properties, read without its graph.

    Raise ModelError as `load` does for a bad file.
    """
    with _readable(path), path.open("rb") as file:
        payloads = [_read_payload(file, field) for field in _outline(path)
                    if field.number == onnx.ModelProto.METADATA_PROPS_FIELD_NUMBER]
    pairs = map(onnx.StringStringEntryProto.FromString, payloads)
    return {pair.key: pair.value for pair in pairs}


def identity(path: Path, model: onnx.ModelProto | None = None) -> ModelIdentity:
    """Return the hash of the file and the external data it names: the file's SHA-256 if there is no external data.

    Otherwise the hash continues over each external file in the order of names: name, size, content. `model` is the file
    as loaded without weights; it saves decoding it again. Raise ModelError.
    """
    places = _external_files(path, model or load(path, weights=False))
    digest = hashlib.sha256()
    with _readable(path):
        total = _hash_file(digest, path)
    for place in places:
        outside = path.parent / place
        with _readable(outside):
            digest.update(f"\0{place}\0{outside.stat().st_size}\0".encode())
            total += _hash_file(digest, outside)
    return ModelIdentity(digest.hexdigest(), total, (path.name, *places))


def strip_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy to keep: without the data of tensors above 1 KiB, anywhere, and with credentials redacted in every
    text; names, types, shapes and small constants stay.

    A stripped tensor has data_location EXTERNAL and the location "stripped". The data is never copied on the way.
    """
    copy: onnx.ModelProto = _copy_lean(model)
    _redact_texts(copy, cache(redact))
    return copy


def redact_nodes(model: onnx.ModelProto) -> int:
    """Redact credentials in the names of nodes, which a profile repeats; return how many had one. Change in place."""
    changed = 0
    for node in chain(nodes_of(model.graph.node), *(nodes_of(function.node) for function in model.functions)):
        clean = redact(node.name)
        changed += clean != node.name
        node.name = clean
    return changed


def _redact_texts(message: Any, clean: Callable[[str], str]) -> None:
    """Redact every text of a message and of those in it, in place; binary data is left as it is."""
    for field, content in message.ListFields():
        if field.message_type is not None:
            for inner in [content] if isinstance(content, Message) else content:
                _redact_texts(inner, clean)
        elif field.type == field.TYPE_STRING or field.name in _TEXT_AS_BYTES:
            texts = [content] if isinstance(content, str | bytes) else content
            redacted = [clean(text) if isinstance(text, str) else
                        clean(text.decode("latin-1")).encode("latin-1") for text in texts]
            if list(texts) != redacted and isinstance(content, str | bytes):
                setattr(message, field.name, redacted[0])
            elif list(texts) != redacted:
                content[:] = redacted


def name_nodes(model: onnx.ModelProto) -> int:
    """Give every node, in bodies and functions too, a unique name; return how many names were made.

    Names do not change a model's meaning, but ONNX Runtime's profile identifies a node by its name only: a node without
    a name appears there by an internal number, two of one name as one node. A made name is the operator with the node's
    number in graph order, bodies after their node, as the graph's tables count. Changes the model in place.
    """
    nodes = list(nodes_of(model.graph.node))
    nodes += (node for function in model.functions for node in nodes_of(function.node))
    taken, seen, made = {node.name for node in nodes}, {""}, 0
    for number, node in enumerate(nodes):
        if node.name in seen:
            node.name = _find_free_name(f"{node.name or node.op_type}_{number}", taken)
            taken.add(node.name)
            made += 1
        seen.add(node.name)
    return made


def _find_free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, each followed by those of its bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from nodes_of(body.node)


def tensors(message: Any) -> Iterator[TensorProto]:
    """Yield every tensor of a model, of its subgraphs, attributes, functions and sparse tensors."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in [value] if isinstance(value, Message) else value:
                if isinstance(item, _HOLDERS):
                    yield from tensors(item)


def _copy_lean(message: Any) -> Any:
    if isinstance(message, TensorProto):
        return _lean_tensor(message)
    copy = type(message)()
    for field, value in message.ListFields():
        if isinstance(value, (int, float, str, bytes)):
            setattr(copy, field.name, value)
        elif isinstance(value, Message):
            getattr(copy, field.name).CopyFrom(_copy_or_keep(value))
        elif field.message_type is None:
            getattr(copy, field.name).extend(value)
        else:
            getattr(copy, field.name).extend(map(_copy_or_keep, value))
    return copy


def _copy_or_keep(message: Any) -> Any:
    return _copy_lean(message) if isinstance(message, _HOLDERS) else message


def _lean_tensor(tensor: TensorProto) -> TensorProto:
    if _is_external(tensor) or _data_bytes(tensor) <= KEPT_BYTES:
        return tensor
    lean = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, doc_string=tensor.doc_string,
                       data_location=TensorProto.EXTERNAL)
    lean.external_data.add(key="location", value=STRIPPED)
    return lean


def _data_bytes(tensor: TensorProto) -> int:
    """Return the size of a tensor's data by its shape: asking protobuf for it would serialise the data."""
    if tensor.data_type not in _SIZED:
        return int(tensor.ByteSize())
    return int(math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise the file system's refusal inside the block as a ModelError about `path`."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file", "check the path, or take a name from: aaco models") from error
    except IsADirectoryError as error:
        raise ModelError(f"{path}: a folder, not a model file", "name the .onnx file inside it") from error
    except PermissionError as error:
        raise ModelError(f"{path}: permission denied", f"chmod u+r {path}, or run as its owner") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}", "check the disk and the path") from error


def _outline(path: Path) -> list[_ProtoField]:
    """Return the top-level fields of a serialised ModelProto, skipping over their content. Raise ModelError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if not size:
            raise ModelError(f"{path}: empty", EXPORT_AGAIN)
        # Every known writer puts ir_version first, as the byte 8; no text and no common binary format begins so.
        first = file.read(1)
        file.seek(0)
        fields: list[_ProtoField] = []
        while file.tell() < size:
            field = _next_field(file)
            if field is None or field.start + field.length > size:
                raise _not_whole_error(path, size, field, likely_onnx=first == b"\x08")
            fields.append(field)
            file.seek(field.start + field.length)
    if onnx.ModelProto.GRAPH_FIELD_NUMBER not in {field.number for field in fields}:
        raise _not_whole_error(path, size, None, likely_onnx=first == b"\x08")
    return fields


def _next_field(file: IO[bytes]) -> _ProtoField | None:
    """Return the field at the file's position; None if there is no complete and valid one."""
    tag = _read_varint(file)
    if tag is None or tag >> 3 == 0:
        return None
    wire = tag & 7
    start = file.tell()
    if wire == _VARINT:
        return None if _read_varint(file) is None else _ProtoField(tag >> 3, wire, start, file.tell() - start)
    length = _read_varint(file) if wire == _DELIMITED else _FIXED.get(wire)
    return None if length is None else _ProtoField(tag >> 3, wire, file.tell(), length)


def _read_varint(file: IO[bytes]) -> int | None:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def _not_whole_error(path: Path, size: int, cut: _ProtoField | None, likely_onnx: bool) -> ModelError:
    if not likely_onnx:
        return ModelError(f"{path}: not an ONNX file", "give the .onnx file; export other formats to ONNX first")
    if cut:
        return ModelError(f"{path}: truncated: it needs {cut.start + cut.length} bytes and has {size}", EXPORT_AGAIN)
    return ModelError(f"{path}: truncated or damaged: it begins like ONNX and has no complete graph", EXPORT_AGAIN)


def _read_payload(file: IO[bytes], field: _ProtoField) -> bytes:
    file.seek(field.start)
    return file.read(field.length)


def _refuse_unusable(path: Path, model: onnx.ModelProto) -> None:
    newest, newest_ir = onnx.defs.onnx_opset_version(), onnx.IR_VERSION
    opset = next((import_.version for import_ in model.opset_import if import_.domain in ("", "ai.onnx")), None)
    if model.ir_version > newest_ir:
        raise ModelError(f"{path}: ONNX IR version {model.ir_version}; onnx {onnx.__version__} reads up to {newest_ir}",
                         "upgrade onnx and onnxruntime, or export for an older ONNX")
    if not model.ir_version or not model.opset_import:
        raise ModelError(f"{path}: names no IR version or no operator set: not a whole ONNX model", EXPORT_AGAIN)
    if opset is not None and opset > newest:
        raise ModelError(f"{path}: opset {opset}; onnx {onnx.__version__} knows up to {newest}",
                         "upgrade onnx and onnxruntime, or export with an older opset")


def _is_text(message: Any) -> bool:
    """Return whether every string is UTF-8; protobuf gives bytes if it is not. Weight data is skipped."""
    if isinstance(message, TensorProto):
        return isinstance(message.name, str) and all(map(_is_text, message.external_data))
    for field, value in message.ListFields():
        for item in [value] if isinstance(value, (Message, str, bytes, int, float)) else value:
            if field.type == field.TYPE_STRING and not isinstance(item, str):
                return False
            if field.message_type is not None and not _is_text(item):
                return False
    return True


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _external_value(tensor: TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def _external_files(path: Path, model: onnx.ModelProto) -> list[str]:
    """Return the names of the external data files, sorted. Raise ModelError if one is not whole."""
    outside = [tensor for tensor in tensors(model) if _is_external(tensor)]
    for tensor in outside:
        _check_external(path, tensor)
    return sorted({_external_value(tensor, "location") for tensor in outside})


def _load_external(path: Path, model: onnx.ModelProto) -> None:
    with _readable(path):
        try:
            onnx.load_external_data_for_model(model, str(path.parent))
        except (ValueError, onnx.checker.ValidationError) as error:  # e.g. a link that leads out of the folder
            raise ModelError(f"{path}: external data refused: {error}", EXPORT_AGAIN) from error


def _check_external(path: Path, tensor: TensorProto) -> None:
    place = _external_value(tensor, "location")
    if place == STRIPPED:
        raise ModelError(f"{path}: its weights were stripped", "use the original model")
    if not place or Path(place).is_absolute() or ".." in Path(place).parts:
        raise ModelError(f"{path}: names external data {place!r}, outside its own folder",
                         "save the model and its data file in one folder")
    data_file = path.parent / place
    with _readable(path):
        if not data_file.is_file():
            raise ModelError(f"{path}: its external data file {data_file} is missing", f"put {place} next to the model")
        end = _external_end(path, tensor)
        if end > data_file.stat().st_size:
            raise ModelError(f"{data_file}: truncated: tensor {tensor.name!r} of {path.name} ends at byte {end}, "
                             f"the file has {data_file.stat().st_size}", EXPORT_AGAIN)


def _external_end(path: Path, tensor: TensorProto) -> int:
    """Return the end of the tensor's data in its file; the length may be missing and is then not checked."""
    try:
        return int(_external_value(tensor, "offset") or 0) + int(_external_value(tensor, "length") or 0)
    except ValueError as error:
        raise ModelError(f"{path}: tensor {tensor.name!r} has a damaged external data entry", EXPORT_AGAIN) from error


def _hash_file(digest: Any, path: Path) -> int:
    """Add a file to the digest in blocks; return its size."""
    with path.open("rb") as file:
        hashlib.file_digest(file, lambda: digest)
        return file.tell()

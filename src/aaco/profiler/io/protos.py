"""Protobuf messages declared where they are read, with the fields that are read; google.protobuf skips the others.

A declaration names a message and its fields as `name number type`, separated by commas: * for repeated, a default
after =. Read strings as bytes, because a file may hold text that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

_TYPES = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"uint64": _TYPES.TYPE_UINT64, "int64": _TYPES.TYPE_INT64, "uint32": _TYPES.TYPE_UINT32,
            "int32": _TYPES.TYPE_INT32, "bool": _TYPES.TYPE_BOOL, "double": _TYPES.TYPE_DOUBLE,
            "bytes": _TYPES.TYPE_BYTES, "fixed64": _TYPES.TYPE_FIXED64}


def classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """Return the class of every declared message, by its name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for title, fields in messages.items():
        declared = file.message_type.add(name=title)
        for field in fields.split(", "):
            _declare(package, declared, *field.split(" "))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {title: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{title}"))
            for title in messages}


def varint(text: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there and where it ends; 0 for the end if the text ends first."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(text):
            return 0, 0
        number |= (text[at] & 127) << shift
        at += 1
        if text[at - 1] < 128:
            return number, at
    return 1 << 70, at


def _declare(package: str, declared: Any, name: str, number: str, kind: str) -> None:
    kind, _, default = kind.partition("=")
    plain = kind.removeprefix("*")
    field = declared.field.add(
        name=name, number=int(number), label=_TYPES.LABEL_REPEATED if kind != plain else _TYPES.LABEL_OPTIONAL,
        type=_SCALARS.get(plain, _TYPES.TYPE_MESSAGE))
    if plain not in _SCALARS:
        field.type_name = f".{package}.{plain}"
    if default:
        field.default_value = default

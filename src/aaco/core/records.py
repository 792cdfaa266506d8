"""Records as what JSON is made of."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


def as_dict(record: Struct) -> dict[str, Any]:
    """Return a record's fields by name; records in them become dicts, too, and all else stays what it is.

    `msgspec.to_builtins` refuses the numbers of numpy, and `msgspec.structs.asdict` leaves the records in a record.
    """
    return {name: _plain(getattr(record, name)) for name in record.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return as_dict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = map(_plain, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value

"""Typed access to the fields of a model's config.json, under the names that families of models give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aaco.core.errors import UsageError

LARGEST = 2**40  # a size above it is none
TRY = "pass the config.json of the served model, as its publisher wrote it"


class ConfigFields:
    """The fields of one configuration, with the reasons for those that are missing. Null counts as missing.

    A field of the language model's part stands before one of the whole document."""

    def __init__(self, fields: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
        self.fields, self.whole = fields, whole
        self.absent: dict[str, str] = {}

    def value(self, *names: str) -> Any:
        """Return the first of the fields that is there, of any type; None if none is."""
        return next((place[name] for name in names for place in (self.fields, self.whole)
                     if place.get(name) is not None), None)

    def size(self, purpose: str, *names: str, least: int = 1) -> int | None:
        """Return a whole number. `purpose` names the field of the result whose absence is noted; empty: none."""
        name = next((name for name in names if self.value(name) is not None), None)
        if name is None:
            if purpose:
                self.absent[purpose] = f"config.json has no {names[0]}"
            return None
        return self._whole(name, self.value(name), least)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value, or its default."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(name, value, "true or false")
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Return a text."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise wrong(name, value, "a text")
        return value

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts."""
        value = self.value(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise wrong(name, value, "a list of texts")
        return value

    def whole_numbers(self, name: str) -> Sequence[int] | None:
        """Return a list of whole numbers; a single number is a list of one."""
        value = self.value(name)
        listed = value if isinstance(value, list) else [value]
        return None if value is None else [self._whole(name, number, 0) for number in listed]

    def part(self, name: str) -> ConfigFields | None:
        """Return the fields of an object inside."""
        value = self.value(name)
        if value is not None and not isinstance(value, Mapping):
            raise wrong(name, value, "a JSON object")
        return None if value is None else ConfigFields(value, {})

    def _whole(self, name: str, value: Any, least: int) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= LARGEST:
            raise wrong(name, value, f"a whole number of at least {least}")
        return number


def wrong(name: str, value: object, expected: str) -> UsageError:
    """Return the error that names a key of config.json with a value of a wrong type."""
    shown = repr(value) if isinstance(value, bool | int | float | str) else type(value).__name__
    return UsageError(f"config.json: {name} is {shown[:60]}, not {expected}", TRY)

"""Typed access to the fields of a model's config.json, under the names that families of models give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aaco.core.errors import UsageError

LARGEST = 2**40  # a size above it is none
TRY = "pass the config.json of the served model, as its publisher wrote it"


class ConfigFields:
    """The fields of one configuration, with the reasons for those that are missing. Null counts as missing.

    A field of the language model's part precedes one of the whole document."""

    def __init__(self, fields: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
        self.fields, self.whole = fields, whole
        self.absent: dict[str, str] = {}

    def raw(self, *names: str) -> Any:
        """Return the first of the fields that is there, of any type; None if none is."""
        return next((place[name] for name in names for place in (self.fields, self.whole)
                     if place.get(name) is not None), None)

    def size(self, purpose: str, *names: str, least: int = 1) -> int | None:
        """Return a whole number. `purpose` names the field of the result that notes the absence; empty: none."""
        name = next((name for name in names if self.raw(name) is not None), None)
        if name is None:
            if purpose:
                self.absent[purpose] = f"config.json has no {names[0]}"
            return None
        return self._whole(name, self.raw(name), least)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value, or its default."""
        raw = self.raw(name)
        if raw is not None and not isinstance(raw, bool):
            raise wrong(name, raw, "true or false")
        return default if raw is None else raw

    def text(self, name: str) -> str | None:
        """Return a text."""
        raw = self.raw(name)
        if raw is not None and not isinstance(raw, str):
            raise wrong(name, raw, "a text")
        return raw

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts."""
        raw = self.raw(name)
        if raw is not None and not (isinstance(raw, list) and all(isinstance(text, str) for text in raw)):
            raise wrong(name, raw, "a list of texts")
        return raw

    def whole_numbers(self, name: str) -> Sequence[int] | None:
        """Return a list of whole numbers; a single number is a list of one."""
        raw = self.raw(name)
        listed = raw if isinstance(raw, list) else [raw]
        return None if raw is None else [self._whole(name, number, 0) for number in listed]

    def part(self, name: str) -> ConfigFields | None:
        """Return the fields of an object inside."""
        raw = self.raw(name)
        if raw is not None and not isinstance(raw, Mapping):
            raise wrong(name, raw, "a JSON object")
        return None if raw is None else ConfigFields(raw, {})

    def _whole(self, name: str, raw: Any, least: int) -> int:
        number = int(raw) if isinstance(raw, float) and raw.is_integer() else raw
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= LARGEST:
            raise wrong(name, raw, f"a whole number of at least {least}")
        return number


def wrong(name: str, raw: object, expected: str) -> UsageError:
    """Return the error that names a key of config.json with a value of a wrong type."""
    shown = repr(raw) if isinstance(raw, bool | int | float | str) else type(raw).__name__
    return UsageError(f"config.json: {name} is {shown[:60]}, not {expected}", TRY)

"""Frozen dataclasses that are quick to declare: `@dataclass(frozen=True)`, as in the standard library.

The standard library compiles seven functions for each. Here only `__init__` is compiled, and closures do what the other
six do, which saves a seventh of the time to import `aaco.pipeline`. `fields`, `replace` and `asdict` work. One that is
declared here and a frozen one of the standard library cannot inherit from each other. Source: PEP 557.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

FROM_FACTORY = object()  # the default of a parameter whose value a factory makes

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    def dataclass(cls=None, /, **options):
        """Declare a dataclass: the standard library's, except where `frozen=True` is its only option."""
        declare = _declare_frozen if options == {"frozen": True} else dataclasses.dataclass(**options)
        return declare if cls is None else declare(cls)


def _declare_frozen(cls: type) -> type:
    declared: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(declared)
    methods = [_init(fields, hasattr(cls, "__post_init__")), _repr([field.name for field in fields if field.repr]),
               *_eq_and_hash([field.name for field in fields if field.compare]),
               *_refusals(cls, frozenset(field.name for field in fields))]
    for method in methods:
        # A class that has an __eq__ has None for its __hash__.
        if vars(cls).get(method.__name__) is None:
            method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
            setattr(cls, method.__name__, method)
    return cls


def _init(fields: Sequence[Field[Any]], has_post_init: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_FROM_FACTORY": FROM_FACTORY}
    for field in fields:
        scope |= {f"_default_{field.name}": field.default, f"_make_{field.name}": field.default_factory}
    parameters = ", ".join(["self", *(_parameter(field) for field in fields if field.init)])
    body = [*_assignments(fields), *(["self.__post_init__()"] if has_post_init else [])] or ["pass"]
    # The text holds nothing but the names of the class's own fields.
    exec(f"def __init__({parameters}):\n " + "\n ".join(body), scope)  # noqa: S102
    return scope["__init__"]


def _parameter(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_FROM_FACTORY" if field.default_factory is not MISSING else field.name


def _assignments(fields: Sequence[Field[Any]]) -> Iterator[str]:
    for field in fields:
        has_factory = field.default_factory is not MISSING
        made = f"_make_{field.name}()"
        if field.init:
            value = f"{made} if {field.name} is _FROM_FACTORY else {field.name}" if has_factory else field.name
            yield f"_set(self, {field.name!r}, {value})"
        elif has_factory:  # otherwise its value is the class's, or comes with __post_init__
            yield f"_set(self, {field.name!r}, {made})"


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
    return __repr__


def _eq_and_hash(names: Sequence[str]) -> tuple[Callable[[Any, Any], bool], Callable[[Any], int]]:
    values: Callable[[Any], Any] = attrgetter(*names) if len(names) > 1 else partial(_few_values, names)

    def __eq__(self: Any, right: Any) -> bool:
        return values(self) == values(right) if right.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))
    return __eq__, __hash__


def _few_values(names: Sequence[str], instance: Any) -> tuple[Any, ...]:
    return tuple(getattr(instance, name) for name in names)


def _refusals(cls: Any, names: frozenset[str]) -> tuple[Callable[[Any, str, Any], None], Callable[[Any, str], None]]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)
    return __setattr__, __delattr__

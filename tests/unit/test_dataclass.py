"""Frozen dataclasses of core/dataclass.py do what those of the standard library do, class for class."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, replace
from typing import Any, ClassVar

import pytest

from aaco.core.dataclass import dataclass
from aaco.core.readings import Reading

Declare = Callable[[type], type]
STANDARD: Declare = dataclasses.dataclass(frozen=True)


def declared(declare: Declare) -> list[Any]:
    """The same four classes: fields of every kind, no field, one of their own methods, a child of the first."""

    @declare
    class Every:
        x: int
        y: Any = (1,)
        made: list[int] = field(default_factory=list)
        hidden: str = field(default="", repr=False, compare=False)
        later: int = field(init=False)
        filled: dict[str, int] = field(init=False, default_factory=dict)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.x + 1)

    @declare
    class Nothing: ...

    @declare
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @declare
    class Child(Every):  # type: ignore[misc,valid-type]
        z: int = 5

    return [Every, Nothing, Own, Child]


OURS, THEIRS = declared(dataclass(frozen=True)), declared(STANDARD)


@pytest.mark.parametrize(("ours", "theirs"), list(zip(OURS, THEIRS, strict=True)), ids=[made.__name__ for made in OURS])
def test_a_class_has_what_the_standard_library_gives_it(ours: Any, theirs: Any) -> None:
    assert vars(ours).keys() == vars(theirs).keys() and ours.__match_args__ == theirs.__match_args__
    assert [str(each) for each in dataclasses.fields(ours)] == [str(each) for each in dataclasses.fields(theirs)]
    assert list(inspect.signature(ours.__init__).parameters) == list(inspect.signature(theirs.__init__).parameters)


def outcome(act: Callable[[], Any]) -> tuple[str, str]:
    """The kind and text of what comes out of a call, also where it is an exception."""
    try:
        answer = act()
    except Exception as error:  # noqa: BLE001 - it is compared
        answer = error
    return type(answer).__name__, str(answer).replace("declared.<locals>.", "")


@pytest.mark.parametrize("act", [
    lambda every, *_: every(1), lambda every, *_: every(1, y=2, made=[3], hidden="h"), lambda every, *_: every(),
    lambda every, *_: every(1, later=2), lambda every, *_: every(1).made is every(1).made,
    lambda every, *_: every(1) == every(1, hidden="h"), lambda every, *_: every(1) == every(2),
    lambda every, nothing, *_: nothing() == nothing(), lambda _, nothing, *__: hash(nothing()),
    lambda every, *_: hash(every(1)), lambda _, __, own, ___: hash(own(7)) == hash(own(7)),
    lambda _, __, own, ___: own(7) == own(8), lambda _, __, own, ___: own(7),
    lambda every, _, __, child: every(1) == child(1), lambda *made: made[3](1, z=9), lambda *made: made[3](1).later,
    lambda every, *_: setattr(every(1), "x", 2), lambda every, *_: setattr(every(1), "other", 2),
    lambda every, *_: delattr(every(1), "x"), lambda *made: setattr(made[3](1), "x", 2),
    lambda every, *_: setattr(type("Sub", (every,), {})(1), "other", 2),
    lambda every, *_: setattr(type("Sub", (every,), {})(1), "y", 2),
    lambda every, *_: asdict(every(1)), lambda every, *_: vars(copy.copy(every(1))),
    lambda *made: replace(made[2](7), x=8).x])
def test_what_is_done_with_instances_has_the_same_outcome(act: Callable[..., Any]) -> None:
    """Mutations: what is compared or shown though it is left out; a list that two instances share; a field that can be
    assigned to; a hash that an own __eq__ takes away."""
    assert outcome(lambda: act(*OURS)) == outcome(lambda: act(*THEIRS))


def test_an_instance_that_holds_itself_is_shown() -> None:
    ours, theirs = OURS[0](1, made=[]), THEIRS[0](1, made=[])
    for each in (ours, theirs):
        each.made.append(each)
    assert repr(ours).replace("declared.<locals>.", "") == repr(theirs).replace("declared.<locals>.", "")


def test_further_options_are_the_standard_librarys() -> None:
    ordered = dataclass(frozen=True, order=True)(type("Pair", (), {"__annotations__": {"x": int}}))
    assert ordered(1) < ordered(2)
    plain = dataclass(type("Plain", (), {"__annotations__": {"x": int}}))(1)
    plain.x = 2
    assert plain.x == 2


def test_what_the_package_declares_is_frozen() -> None:
    reading = Reading("x", "ms", None, "why")
    assert copy.deepcopy(reading) == reading
    with pytest.raises(FrozenInstanceError):
        reading.value = 1  # type: ignore[misc]

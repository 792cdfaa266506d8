"""Extension points: what is declared here is what runs, what is documented and what is tested.

The parameter names of a metric or rule are its inputs: tables, `machine`, `settings`, or other metrics.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import TypeVar

from msgspec import Struct

from aaco.core.advice import Step, steps_of
from aaco.core.readings import Estimate, Evidence, Verdict

Compute = Callable[..., float | Estimate]
Judge = Callable[..., Iterator[Evidence]]
Declared = TypeVar("Declared")
_BAND = re.compile(r"^(<=|>=|<|>)\s*([-+.\deE]+)\s+(.+)$")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda value, limit: value <= limit,
    ">=": lambda value, limit: value >= limit,
    "<": lambda value, limit: value < limit,
    ">": lambda value, limit: value > limit,
}


class Band(Struct, frozen=True):
    """A named region of a metric's values."""

    relation: str
    limit: float
    label: str

    @classmethod
    def parse(cls, text: str) -> Band:
        """From the form "<=1.2 excellent"; raises TypeError on any other."""
        match = _BAND.match(text)
        if not match:
            raise TypeError(f"band {text!r}: write it as '<=1.2 label'")
        return cls(match[1], float(match[2]), match[3])

    def holds(self, value: float) -> bool:
        """Return whether the value is in this region (the first region that contains the value names it)."""
        return _HOLDS[self.relation](value, self.limit)

    def __str__(self) -> str:
        return f"{self.relation}{self.limit:g} {self.label}"


class Metric(Struct, frozen=True):
    """A metric's definition; its meaning is the docstring of the function that computes it."""

    name: str
    unit: str
    better: str
    formula: str
    source: str
    bands: tuple[Band, ...]
    aliases: tuple[str, ...]
    meaning: str
    inputs: tuple[str, ...]
    compute: Compute

    def band(self, value: float) -> str:
        """The label of the first band that holds, or an empty string."""
        return next((band.label for band in self.bands if band.holds(value)), "")


class Rule(Struct, frozen=True):
    """A bottleneck class or condition, and the generator of evidence for it."""

    label: str
    kind: str
    steps: tuple[Step, ...]
    source: str
    meaning: str
    inputs: tuple[str, ...]
    judge: Judge

    @property
    def advice(self) -> tuple[str, ...]:
        """Everything that the rule can advise, whatever the workload."""
        return tuple(step.text for step in self.steps)

    def verdict(self, *readings: object, advice: tuple[str, ...] = ()) -> Verdict:
        """This rule's verdict over the readings of its inputs, in order, with the advice that fits the workload."""
        return Verdict(self.label, tuple(self.judge(*readings)), advice)


METRICS: dict[str, Metric] = {}
RULES: dict[str, Rule] = {}
_ALIASES: dict[str, str] = {}


def metric(*, unit: str, better: str, formula: str, source: str, bands: tuple[str, ...] = (),
           aliases: tuple[str, ...] = ()) -> Callable[[Compute], Compute]:
    """Register a function as the metric named after it. A second declaration of a name or alias is a TypeError."""

    def register(function: Compute) -> Compute:
        declared = Metric(function.__name__, unit, better, formula, source, tuple(map(Band.parse, bands)), aliases,
                          _meaning(function), _inputs(function), function)
        for name in (declared.name, *aliases):
            _refuse_twice(_ALIASES, name.lower(), function)
        _ALIASES.update({name.lower(): declared.name for name in (declared.name, *aliases)})
        METRICS[declared.name] = declared
        return function

    return register


def rule(*, label: str, source: str, advice: tuple[str | Step, ...], kind: str = "class") -> Callable[[Judge], Judge]:
    """Register a generator of Evidence as a bottleneck rule; kind is "class" or "condition"."""

    def register(function: Judge) -> Judge:
        _refuse_twice(RULES, label, function)
        RULES[label] = Rule(label, kind, steps_of(advice), source, _meaning(function), _inputs(function), function)
        return function

    return register


def find_metric(name: str) -> Metric | None:
    """The metric of this name or alias, in any case."""
    return METRICS.get(_ALIASES.get(name.lower(), ""))


def import_modules(package: ModuleType) -> list[ModuleType]:
    """Return the modules of a package and of the packages in it, imported, by name."""
    modules = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(module.name) for module in modules]


def load(package: ModuleType, group: str) -> None:
    """Import every file of `package`, then every installed plug-in of the entry-point group.

    What is declared is then in the order of files and lines, independent of earlier imports.
    """
    _import_declarations(package, group)
    _sort(METRICS, lambda one: one.compute)
    _sort(RULES, lambda one: one.judge)


@cache
def _import_declarations(package: ModuleType, group: str) -> None:
    """Import them once: to look for plug-ins reads a file of every distribution that is installed."""
    import_modules(package)
    for plugin in entry_points(group=group):
        plugin.load()


def _sort(declared: dict[str, Declared], function: Callable[[Declared], Callable[..., object]]) -> None:
    def place(item: tuple[str, Declared]) -> tuple[str, int]:
        code = inspect.unwrap(function(item[1]))
        return code.__module__, code.__code__.co_firstlineno

    in_order = sorted(declared.items(), key=place)
    declared.clear()
    declared.update(in_order)


def _meaning(function: Callable[..., object]) -> str:
    if not function.__doc__:
        raise TypeError(f"{function.__qualname__}: say in a docstring what it means")
    return " ".join(function.__doc__.split())


def _inputs(function: Callable[..., object]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _refuse_twice(declared: dict[str, object] | dict[str, str] | dict[str, Rule], name: str,
                  function: Callable[..., object]) -> None:
    if name in declared:
        raise TypeError(f"{name!r} is declared twice; second time in {function.__module__}")

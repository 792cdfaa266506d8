"""A change that can be tried on a session of ONNX Runtime, and the situation that decides whether it applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from aaco.optimize import changes as catalogue


@dataclass(frozen=True)
class Situation:
    """What a session ran, as far as changes depend on it.

    settings: what its backend sets, by the names of Change.settings. cpus: those its process may use, and cores: the
    physical ones among them; None where not known. operators: the operator types of the model's nodes, by how many
    nodes have them. product_types: the element types that its matrix products and convolutions compute in.
    graph_width: the most nodes that could run beside each other. latency_ms: its median. slo_ms: what the user allows.
    """

    model: Path
    provider: str
    settings: Mapping[str, str]
    batch: int
    batch_fixed: bool
    operators: Mapping[str, int] = field(default_factory=dict)
    product_types: frozenset[str] = frozenset()
    graph_width: int | None = None
    cpus: int | None = None
    cores: int | None = None
    latency_ms: float | None = None
    slo_ms: float | None = None


@dataclass(frozen=True)
class Change:
    """Something to try. advice: the actions (analytics/advice) that it puts to the test.

    settings: what differs from the session, by the names that `aaco compare --option-b` takes. rewrite: the name of a
    rewrite of the model file (optimize/rewriting.py), or empty. lossy: whether it changes the arithmetic, so that its
    error is stated and must be accepted. batch_factor: how many times the samples an inference holds.
    """

    name: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    rewrite: str = ""
    lossy: bool = False
    batch_factor: int = 1

    def conflicts(self, other: Change) -> bool:
        """Return whether the two cannot be made together: both set the same thing, or both rewrite the model."""
        return bool(self.settings.keys() & other.settings.keys()) or bool(self.rewrite and other.rewrite)


@dataclass(frozen=True)
class Inapplicable:
    """A change that cannot be tried here, and why."""

    name: str
    title: str
    why: str
    advice: tuple[str, ...] = ()


def together(parts: Iterable[Change]) -> Change:
    """Return several changes as one. They must not conflict."""
    members = sorted(parts, key=lambda change: change.name)
    settings = {name: value for change in members for name, value in change.settings.items()}
    factor = max(change.batch_factor for change in members)
    return Change(" + ".join(change.name for change in members), "; ".join(change.title for change in members), settings,
                  tuple(dict.fromkeys(action for change in members for action in change.advice)),
                  next((change.rewrite for change in members if change.rewrite), ""),
                  any(change.lossy for change in members), factor)


def candidates(situation: Situation) -> tuple[list[Change], list[Inapplicable]]:
    """Return every change of the catalogue that can be tried here, and those that cannot with their reasons."""
    offered = list(_all(situation))
    return ([change for change in offered if isinstance(change, Change)],
            [change for change in offered if isinstance(change, Inapplicable)])


def _all(situation: Situation) -> Iterator[Change | Inapplicable]:
    for module in sorted(entry.name for entry in iter_modules(catalogue.__path__)):
        yield from import_module(f"{catalogue.__name__}.{module}").changes(situation)

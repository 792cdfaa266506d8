"""What can be tried, one file per kind of change: `changes(situation)` yields each, or why it cannot be tried here.

The files are read by walking this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from aaco.optimize.change import Change, Inapplicable, Situation


def candidates(situation: Situation) -> tuple[list[Change], list[Inapplicable]]:
    """Return every change of the catalogue that can be tried here, and those that cannot with their reasons."""
    offered = list(_all(situation))
    return ([change for change in offered if isinstance(change, Change)],
            [change for change in offered if isinstance(change, Inapplicable)])


def _all(situation: Situation) -> Iterator[Change | Inapplicable]:
    for module in sorted(entry.name for entry in iter_modules(__path__)):
        yield from import_module(f"{__name__}.{module}").changes(situation)

"""What can be tried, one file per kind of change: `changes(situation)` yields each, or why it cannot be tried here.

The files are read by walking this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from aaco.core.candidate import Candidate, Inapplicable
from aaco.optimize.situation import Situation


def candidates(situation: Situation) -> tuple[list[Candidate], list[Inapplicable]]:
    """Return every change of the catalogue that can be tried here, and those that cannot with their reasons."""
    offered = list(_all(situation))
    return ([change for change in offered if isinstance(change, Candidate)],
            [change for change in offered if isinstance(change, Inapplicable)])


def _all(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    for module in sorted(entry.name for entry in iter_modules(__path__)):
        yield from import_module(f"{__name__}.{module}").changes(situation)

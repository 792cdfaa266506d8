"""The kinds of changes that advice knows, a file for each: its floor, what it usually leaves, and the actions offered.

A file declares a Mechanism, for changes that act on a device, and ACTIONS; both are found by walking this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

from aaco.analytics.advice.action import Action
from aaco.analytics.advice.mechanism import Mechanism
from aaco.core.registry import import_modules

_FILES = import_modules(sys.modules[__name__])


def _mechanisms(file: ModuleType) -> Iterator[Mechanism]:
    return (declared for declared in vars(file).values() if isinstance(declared, Mechanism))


MECHANISMS: Mapping[str, Mechanism] = {mechanism.name: mechanism for file in _FILES for mechanism in _mechanisms(file)}
ACTIONS: tuple[Action, ...] = tuple(action for file in _FILES for action in getattr(file, "ACTIONS", ()))

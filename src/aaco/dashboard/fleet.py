"""The lake of a fleet as the server shows it: one overview for all readers, computed again when the lake changes."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from aaco.fleet.catalog import Catalog, LakeState
from aaco.fleet.overview import overview
from aaco.fleet.scan import FleetFilter

MOST_KEPT = 16  # overviews, of the filters that were asked for last


class FleetLake:
    """The lake in a folder. One reader at a time computes: a question takes up to 500 MB."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._kept: OrderedDict[FleetFilter, tuple[LakeState, dict[str, Any]]] = OrderedDict()

    def overview(self, choice: FleetFilter) -> dict[str, Any]:
        """Return the overview of the present state. Raise NoBaseline where there is no lake, AacoError."""
        with self._lock:
            with Catalog.open(self._folder) as catalog:
                state = catalog.state()
            kept = self._kept.pop(choice, None)
            if kept is None or kept[0] != state:
                kept = state, overview(self._folder, choice)
            self._kept[choice] = kept
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return kept[1]

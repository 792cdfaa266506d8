"""What the operators of an imported session cost, by their shapes."""

from __future__ import annotations

from aaco.analytics.operators.torch.priced import priced
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import OPERATORS
from aaco.tracelake import store


def examine(session: Session, settings: Analysis) -> None:
    """Fill in FLOPs and bytes of the operators table, where there is one. Raises BadBundle, StorageError."""
    if store.holds(session, OPERATORS):
        store.write(session, OPERATORS, priced(store.read(session, OPERATORS)))

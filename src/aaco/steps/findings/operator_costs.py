"""What the operators of an imported session cost, by their shapes."""

from __future__ import annotations

from aaco.analytics.costs.torch.priced import priced
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import OPERATORS
from aaco.tracelake import layout, store


@finding(reads=(OPERATORS, layout.CAPTURES), after=("attribution",), writes=(OPERATORS,))
def operator_costs(session: Session, settings: Analysis) -> Results:
    """What the operators cost in FLOPs and bytes, by their shapes."""
    yield OPERATORS, priced(store.read(session, OPERATORS))
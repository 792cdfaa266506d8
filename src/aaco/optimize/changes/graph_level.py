"""How far ONNX Runtime rewrites the graph: more fuses nodes, and less keeps some that are faster as they are."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.optimize.situation import Situation

# Without any, constants are computed in each inference: that is not tried.
LEVELS = ("disable", "basic", "extended", "all")


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each level, or why it is not there to try."""
    for place, level in enumerate(LEVELS[1:], 1):
        raises = any(situation.has("graph_optimization", lower) for lower in LEVELS[:place])
        yield unless(Candidate(f"graph_{level}", f"Optimise the graph to the level {level}",
                               {"graph_optimization": level},
                            ("graph_level",) if raises else ()),
                     (situation.has("graph_optimization", level), ALREADY))

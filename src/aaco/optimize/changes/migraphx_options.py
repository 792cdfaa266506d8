"""Options of the MIGraphX provider (migraphx_execution_provider_info.h); its types: precision."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import MIGRAPHX
from aaco.optimize.situation import Situation


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    yield unless(Candidate("exhaustive_tune", "Tune every kernel when the model is compiled",
                        {"option.exhaustive_tune": "true"}),
                 (situation.provider != MIGRAPHX, f"it runs on {situation.provider}"),
                 (situation.has("option.migraphx_exhaustive_tune", "1"), ALREADY))

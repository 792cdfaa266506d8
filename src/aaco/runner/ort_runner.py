"""A run from Python: `ORTRunner(model_path=...).run(iterations=100)`."""

from __future__ import annotations

from typing import Any

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.session import Session


class ORTRunner:
    """Runs one model down the same road as `aaco run`; keyword arguments are those of aaco.core.plan.Plan."""

    def __init__(self, model_path: str, session: Session | None = None, **plan: Any) -> None:
        self.model_path, self.session, self.plan = model_path, session, plan

    def run(self, **plan: Any) -> pipeline.Run:
        """Run, record and explain, into the given session or a new one. Raises AacoError."""
        settings = resolve()
        run_plan = pipeline.plan(settings, self.model_path, **{**self.plan, **plan})
        return pipeline.run(run_plan, settings, session=self.session)

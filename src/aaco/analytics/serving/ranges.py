"""What the ranges around a call say together of an engine's step, and of the batch of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from aaco.analytics.serving.annotations import DECODE, StepAnnotation, merge, read_capture, read_step

REMEMBERED = 1 << 14  # annotations
read_once = lru_cache(REMEMBERED)(read_step)


def step_of(ranges: Sequence[str]) -> StepAnnotation | None:
    """Return the step that ranges, innermost first, are of: nested ones complement each other. None: of no step."""
    return _step_of(tuple(ranges))


@lru_cache(REMEMBERED)
def _step_of(ranges: tuple[str, ...]) -> StepAnnotation | None:
    step: StepAnnotation | None = None
    for outer in filter(None, map(read_once, ranges)):
        step = outer if step is None else merge(outer, step)
    return step


def captured_batch(ranges: Sequence[str]) -> int | None:
    """Return the batch that a graph was captured for, by the ranges around its capture, innermost first."""
    return next((capture.batch for name in ranges if (capture := read_capture(name))), None)


def replayed_batch(ranges: Sequence[str]) -> tuple[int | None, int | None]:
    """Return the batch of the graph, and the requests of the step, by the ranges around its launch; None: not said.

    Only of steps that decode one token a request: graphs of others are captured for a number of tokens.
    """
    step = step_of(ranges)
    if step is None or step.phase not in (DECODE, None) or step.speculative:
        return None, None
    return step.graph_batch or step.batch, step.requests

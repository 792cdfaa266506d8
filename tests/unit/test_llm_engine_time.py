"""What bounds a load by the steps of the server's engine: planted steps, and the parts of single stretches added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aaco.analytics.llm.engine_time import bound_of_trace, time_of_parts
from aaco.analytics.llm.load import WHOLE_TRACE, TracedClass
from aaco.analytics.llm.slow_tokens import parts, times_of
from aaco.core.tables import ENGINE_STEPS

MS = 1_000_000
BASE = 10**15  # CLOCK_MONOTONIC of a machine that runs for days
NO_CLASS = TracedClass("decode", None, None, "no counters")


def engine(*rows: tuple[str | None, float, float, float | None, float | None, float | None]) -> pa.Table:
    """Steps: phase, begin, end, begin and end on the device, ms; busy there, ms."""
    def ns(at: float | None, base: int = BASE) -> int | None:
        return None if at is None else base + round(at * MS)

    phases, *times, busy = zip(*rows, strict=True)
    begin, end, first, last = ([ns(at) for at in column] for column in times)
    return ENGINE_STEPS.build(
        step=range(len(rows)), phase=phases, t_start_ns=begin, t_end_ns=end, kernels=[1] * len(rows),
        device_start_ns=first, device_end_ns=last, busy_ns=[ns(at, 0) for at in busy])


def bound(steps: pa.Table, *classes: TracedClass, begin: float = 0, end: float = 100) -> Any:
    at = np.array([[begin], [end]])
    return bound_of_trace(*(BASE + (at * MS)).astype(np.int64), steps, classes)


def test_time_in_parts_is_that_of_each_stretch():
    """Random steps that overlap, some without kernels, and 40 requests. Mutation: host time counts as device."""
    drawn = np.random.default_rng(3)
    begin = np.cumsum(drawn.uniform(1, 6, 60))
    rows = [(str(drawn.choice(["prefill", "decode", "mixed"])), at, at + length,
             *((at + wait, at + wait + more) if drawn.random() > 0.2 else (None, None)), 1.0)
            for at, length, wait, more in zip(begin, *drawn.uniform(0.5, 7, (3, 60)), strict=True)]
    times, since = times_of(engine(*rows)), BASE + (drawn.uniform(-9, 200, 40) * MS).astype(np.int64)
    until = since + (drawn.uniform(0, 60, 40) * MS).astype(np.int64)
    truth = sum(parts(times, *request) for request in zip(since.tolist(), until.tolist(), strict=True))
    spent = time_of_parts(times, since, until)
    inside = np.clip(until, times.begin.min(), None) - np.clip(since, times.begin.min(), None)
    assert spent[:3] == pytest.approx(truth[:3], abs=1000) and spent[3] <= truth[3] + 1000
    assert inside.sum() > spent.sum() > 0


@pytest.mark.parametrize(("rows", "classes", "label", "share", "why"), [
    ([("prefill", 0, 60, 5, 60, 55), ("decode", 60, 100, 60, 100, 40)], [], "prefill", 55, "computes prompts"),
    ([("decode", 0, 30, 0, 30, 30), ("decode", 90, 100, 90, 100, 10)], [], "queue", 60, "no step"),
    ([("decode", 0, 100, 0, 100, 90)], [TracedClass("decode", "memory_bound", 0.9, "")], "decode-memory", 90,
     "class memory_bound of the server's trace"),
    ([("decode", 0, 100, 0, 100, 90)], [NO_CLASS], None, 90, "not known: no counters"),
    ([("decode", 0, 100, 0, 100, 20)], [NO_CLASS, TracedClass(WHOLE_TRACE, "launch_bound", None, "")], "launch", 80,
     "waits within a step; class launch_bound"),
    ([("decode", 0, 100, 0, 100, 20)], [TracedClass(WHOLE_TRACE, "sync_bound", None, "")], "host", 80, "sync_bound"),
    ([("prefill", 0, 30, 0, 30, 30), ("decode", 30, 66, 30, 66, 36), ("decode", 99, 100, None, None, 0)], [], None, 36,
     "no part takes 40 %")])
def test_the_largest_part_and_the_class_of_the_trace_are_the_bound(rows: Any, classes: Any, label: str | None,
                                                                   share: float, why: str):
    """Mutations: gaps between the kernels of a step are work; the class of decoding names what the host does."""
    found = bound(engine(*rows), *classes)
    assert (found.label, found.share_pct) == (label, pytest.approx(share)) and why in found.why
    assert sum(found.parts_pct.values()) == pytest.approx(100)


def test_a_trace_of_a_small_part_of_the_load_bounds_nothing():
    """Mutation: what lies outside of the trace is queue."""
    found = bound(engine(("decode", 0, 40, 0, 40, 40)), end=100)
    assert found.label is None and "less than half" in found.why and not found.parts_pct
    assert bound(engine(("decode", 0, 60, 0, 60, 60)), NO_CLASS, end=100).parts_pct["device"] == pytest.approx(100)

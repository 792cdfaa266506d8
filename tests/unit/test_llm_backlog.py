"""Whether requests pile up, on simulated queues whose truth is known."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aaco.analytics.llm.backlog import LEAST, Backlog, backlog_of
from aaco.analytics.llm.points import points_of
from aaco.analytics.llm.window import NO_CLOCK
from aaco.core.documents import encode
from aaco.core.tables import REQUESTS
from aaco.report.sections.finding_views import sections
from tests.unit.test_llm_summary import LOAD, replace, request

S = 1_000_000_000
SLOTS, SERVICE_S = 4, 0.1  # 40 requests a second at most


def ends(due: NDArray[np.float64], service: NDArray[np.float64], slots: int = SLOTS) -> NDArray[np.float64]:
    """When each ends: first come, first served, by so many at once."""
    free, out = [0.0] * slots, np.empty(len(due))
    for number, at in enumerate(due):
        out[number] = max(at, heapq.heappop(free)) + service[number]
        heapq.heappush(free, float(out[number]))
    return out


def found(due: NDArray[np.float64], end: NDArray[np.float64], status: str = "ok", from_send: bool = False, **load: Any
          ) -> Backlog:
    """What is found of requests with these times in s."""
    rows = [request(number, 0.0) | {"t_intended_ns": round(S * begin), "t_send_ns": round(S * begin),
                                    "t_end_ns": round(S * last), "t_last_ns": round(S * last), "status": status,
                                    "from_send": from_send}
            for number, (begin, last) in enumerate(zip(due, end, strict=True))]
    table = REQUESTS.build(**{name: [row.get(name) for row in rows] for name in REQUESTS.columns})
    return backlog_of(points_of(table), replace(LOAD, **load))


def queue(rate: float, seed: int, seconds: float = 30.0) -> Backlog:
    """A queue with random arrivals at a rate, and random service."""
    generator = np.random.default_rng(seed)
    due = np.cumsum(generator.exponential(1 / rate, round(rate * seconds)))
    return found(due, ends(due, generator.exponential(SERVICE_S, len(due))), arrivals="poisson")


def test_the_growth_is_what_arrives_and_is_not_answered():
    """60 a second are due, 40 are answered: 20 more are under way each second. Mutation: answers are left out."""
    due = np.arange(1200) / 60
    backlog = found(due, ends(due, np.full(1200, SERVICE_S)))
    assert backlog.growth_per_s == pytest.approx(20, rel=0.02) and backlog.is_over_saturated is True
    assert backlog.growth_low is not None and backlog.growth_high is not None
    assert backlog.growth_low < 20 < backlog.growth_high
    assert backlog.answered_per_s == pytest.approx(40, rel=0.01)
    assert backlog.seconds == pytest.approx(due[-1] - SERVICE_S)


def test_a_queue_that_keeps_up_is_hardly_ever_called_saturated():
    """At 50 and 80 % of what can be answered, by random service: of 200 queues at most 5 are, the level being 2.5 %.

    Mutation: the interval is left out.
    """
    for rate in (20.0, 32.0):
        alarms = sum(queue(rate, seed).is_over_saturated is True for seed in range(200))
        assert alarms <= 5


def test_a_queue_that_does_not_keep_up_is_seen():
    """At 130 % nearly every one is, and the interval holds the truth of 12 a second as often as it says."""
    backlogs = [queue(52.0, seed) for seed in range(200)]
    assert sum(backlog.is_over_saturated is True for backlog in backlogs) >= 195
    held = sum(backlog.growth_low < 12 < backlog.growth_high for backlog in backlogs)
    assert held >= 184  # 92 %: of 200 draws at 95 % fewer come once in 40 times


def test_the_ramp_is_no_growth():
    """Requests take 5 s of 20: the 250 that come to be under way until the first ends do not count."""
    due = np.arange(1000) / 50
    backlog = found(due, due + 5.0)
    assert backlog.growth_per_s == pytest.approx(0, abs=0.1) and backlog.is_over_saturated is False


def test_a_load_without_times_has_a_rate_and_no_backlog():
    due = np.arange(400) / 40
    backlog = found(due, due + 0.1, arrivals="closed", concurrency=4)
    assert backlog.answered_per_s == pytest.approx(40, rel=0.01) and backlog.growth_per_s is None
    assert backlog.is_over_saturated is None and "has no backlog" in backlog.why_no_growth


def test_what_failed_is_not_answered_but_gone():
    due = np.arange(400) / 40
    backlog = found(due, due + 0.1, status="http_error")
    assert backlog.answered_per_s == 0 and backlog.is_over_saturated is False


@pytest.mark.parametrize(("count", "latency", "why"), [
    (LEAST, 0.1, "at least 64"), (200, 100.0, "before the last was due"), (1, 0.1, "before the last was due")])
def test_too_little_says_nothing(count: int, latency: float, why: str):
    """Mutation: so few are judged."""
    due = np.arange(count) / 40
    backlog = found(due, due + latency)
    assert backlog.growth_per_s is None and backlog.answered_per_s is None and why in backlog.why_no_growth
    (_, rows), = sections({"backlog": encode(backlog)})
    assert all(why in row.text for row in rows)


def test_times_on_no_common_clock_say_nothing():
    """As of an imported result whose requests count from their own dispatch. Mutation: they are judged."""
    due = np.arange(400) / 40
    backlog = found(due, due + 0.1, from_send=True)
    assert backlog.answered_per_s is None and backlog.why_no_rate == backlog.why_no_growth == NO_CLOCK

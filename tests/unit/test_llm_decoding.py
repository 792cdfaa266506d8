"""The slope over the context, the share of prefill and what bounds: against NumPy, SciPy and planted answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from aaco.analytics.llm.decoding import (
    BLOCKS,
    NO_COUNTS,
    NO_DEVICE,
    NO_PREFILL,
    NO_PROMPT_LENGTHS,
    NO_RATE,
    NOBODY,
    ONE_CONTEXT,
    DecodeFigure,
    bound_of,
    jackknifed,
    phase_rates,
    prefill_share,
)
from aaco.analytics.llm.gaps import EventTally
from aaco.analytics.llm.points import points_of
from aaco.core.tables import LLM_EVENTS, REQUESTS

MS = 1_000_000


def load(times: list[Any], prompts: list[int | None], tokens: int = 1, sends: list[float] | None = None,
         intended: list[float] | None = None, pieces: int = 500) -> EventTally:
    """A tally of answers: of each the times of its events in ms, with so many tokens each."""
    sends = sends or [float(each[0]) - 10 for each in times]
    rows: dict[str, list[Any]] = {name: [None] * len(times) for name in REQUESTS.columns}
    rows |= {"request_id": list(range(len(times))), "t_send_ns": [round(at * MS) for at in sends],
             "t_intended_ns": [round(at * MS) for at in intended or sends],
             "t_first_ns": [round(each[0] * MS) for each in times],
             "t_last_ns": [round(each[-1] * MS) for each in times],
             "prompt_tokens": prompts, "output_tokens": [tokens * len(each) for each in times],
             "chunks": [len(each) for each in times], "status": ["ok"] * len(times), "sent_again": [0] * len(times)}
    points = points_of(REQUESTS.build(**rows))
    flat = [(round(at * MS), request, index) for request, each in enumerate(times) for index, at in enumerate(each)]
    columns = list(zip(*sorted(flat), strict=True))
    events = LLM_EVENTS.build(request_id=columns[1], index=columns[2], t_ns=columns[0], kind=["content"] * len(flat),
                              tokens=[tokens or None] * len(flat), earliest_ns=[None] * len(flat),
                              delay_ns=[None] * len(flat))
    tally = EventTally(points, points.is_ok, (0, 0))
    for piece in events.to_batches(max_chunksize=pieces):
        tally.feed(piece)
    return tally


def answers(drawn: np.random.Generator, slope: float, base: float = 2.0, count: int = 60, tokens: int = 30,
            noise: float = 0.05) -> tuple[list[Any], list[int]]:
    """One answer after the other, times per token base + slope x context / 1,000 with noise that drifts, ms."""
    times, prompts, at, drift = [], [], 100.0, 0.0
    for _ in range(count):
        prompt, each = int(drawn.integers(50, 3000)), [at]
        for token in range(1, tokens):
            drift = 0.6 * drift + float(drawn.normal(0, noise))
            each.append(each[-1] + base + slope * (prompt + token) / 1e3 + drift)
        times.append(each)
        prompts.append(prompt)
        at = each[-1] + 20
    return times, prompts


def gaps_of(times: list[Any], prompts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The context before each token after the first, in thousands of tokens, and its time, ms."""
    stamps = [np.array([round(at * MS) for at in each]) for each in times]
    contexts = [(prompt + np.arange(1, len(each))) / 1e3 for prompt, each in zip(prompts, times, strict=True)]
    return np.concatenate(contexts), np.concatenate([np.diff(each) / MS for each in stamps])


@pytest.mark.parametrize("pieces", [7, 10_000])
def test_the_slope_is_that_of_a_regression(pieces: int):
    """Against scipy.stats.linregress over the same gaps, however events come in. Mutation: the context starts again
    with each piece."""
    times, prompts = answers(np.random.default_rng(4), 0.7)
    found = load(times, prompts, pieces=pieces).contexts.slope(True)
    assert found.value == pytest.approx(stats.linregress(*gaps_of(times, prompts)).slope, rel=1e-9)
    assert found.low < 0.7 < found.high and found.high - found.low < 0.1


def test_a_chunk_counts_as_its_tokens():
    """Chunks of 4: a token takes a quarter of the gap, at the context in the middle of them."""
    times, prompts = answers(np.random.default_rng(5), 0.0, noise=1e-6)
    spread = [[at * 4 for at in each] for each in times]
    assert load(spread, prompts, tokens=4).contexts.slope(True).value == pytest.approx(0, abs=1e-5)
    steep = [np.cumsum([100.0 + 1e5 * number, *(4 * (2 + 0.5 * (prompt + 4 * index + 1.5) / 1e3)
                                              for index in range(1, 20))])
             for number, prompt in enumerate(prompts)]
    assert load(steep, prompts, tokens=4).contexts.slope(True).value == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_intervals_hold_a_planted_slope(slope: float):
    """Noise that lasts over tokens: the interval of independent gaps is too narrow."""
    held, independent = 0, 0
    for seed in range(300):
        times, prompts = answers(np.random.default_rng(seed), slope, count=40, tokens=12, noise=0.2)
        found = load(times, prompts).contexts.slope(True)
        held += found.low <= slope <= found.high
        plain = stats.linregress(*gaps_of(times, prompts))
        independent += abs(plain.slope - slope) <= 1.96 * plain.stderr
    assert 0.92 <= held / 300 <= 0.985 and independent / 300 < 0.85


def test_the_jackknife_is_that_of_numpy():
    drawn = np.random.default_rng(8)
    x, y, block = drawn.normal(size=640), drawn.normal(size=640), np.repeat(np.arange(BLOCKS), 20)
    sums = np.array([[20, x[at].sum(), y[at].sum(), x[at] @ x[at], x[at] @ y[at], y[at] @ y[at]]
                     for at in (block == number for number in range(BLOCKS))])
    slope, low, high = jackknifed(sums)
    without = np.array([np.polyfit(x[block != number], y[block != number], 1)[0] for number in range(BLOCKS)])
    error = np.sqrt((BLOCKS - 1) / BLOCKS * ((without - without.mean()) ** 2).sum())
    assert slope == pytest.approx(np.polyfit(x, y, 1)[0])
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, BLOCKS - 1) * error)


def test_stability_is_that_of_all_gaps():
    times, prompts = answers(np.random.default_rng(6), 0.2)
    tally = load(times, prompts)
    gaps = tally.itl()[0]
    assert tally.contexts.stability(True).value == pytest.approx(1 - gaps.std() / gaps.mean(), rel=1e-6)


@pytest.mark.parametrize(("prompts", "counted", "tokens", "why"), [
    ([40] * 60, True, 3, ONE_CONTEXT), ([None] * 60, True, 30, NO_PROMPT_LENGTHS), ([40] * 60, False, 30, NO_COUNTS)])
def test_no_slope_without_contexts(prompts: list[int | None], counted: bool, tokens: int, why: str):
    times, _ = answers(np.random.default_rng(7), 0.2, tokens=tokens)
    found = load(times, prompts).contexts.slope(counted)
    assert found.value is None and found.why_absent == why


def test_few_tokens_have_no_slope():
    times, prompts = answers(np.random.default_rng(7), 0.2, count=4, tokens=20)
    assert "too few tokens: 76 exact gaps" in load(times, prompts).contexts.slope(True).why_absent


def share_and_bound(sends: list[float], intended: list[float] | None = None, timed: bool = False, waits: bool = True,
                    in_process: bool = True) -> tuple[DecodeFigure, Any]:
    """Two answers with 10 ms between their first and last token, dispatched at these times."""
    points = load([[100.0, 110.0], [200.0, 210.0]], [5, 5], sends=sends, intended=intended).points
    prefill = prefill_share(points, points.is_ok, in_process)
    return prefill, bound_of(points, points.is_ok, timed, waits, prefill)


def test_what_bounds_is_what_takes_the_time():
    """By hand. Mutations: the queue is blamed on a closed loop; prefill from the intended time."""
    prefill, bound = share_and_bound([90.0, 180.0])
    assert prefill.value == pytest.approx(100 * 30 / 50) and bound.label == "prefill"
    prefill, bound = share_and_bound([99.0, 199.0])
    assert prefill.value == pytest.approx(100 * 2 / 22) and bound.label is None and NO_DEVICE in bound.why
    prefill, bound = share_and_bound([99.0, 199.0], [50.0, 120.0], timed=True)
    assert prefill.value == pytest.approx(100 * 2 / 22) and bound.label == "queue"
    assert bound.share_pct == pytest.approx(100 * (49 + 79) / (60 + 90))
    assert share_and_bound([99.0, 199.0], [50.0, 120.0], timed=True, waits=False)[1].label == "client"
    assert share_and_bound([99.0, 199.0], [50.0, 120.0])[1].label is None
    prefill, bound = share_and_bound([90.0, 180.0], in_process=False)
    assert (prefill.value, prefill.why_absent, bound.label, bound.why) == (None, NO_PREFILL, None, NO_PREFILL)


def test_rates_of_the_phases_count_the_time_of_a_batch_once():
    """By hand: two of a batch read 300 tokens in 10 ms, the third 50 in 20 ms; 3 + 1 and 2 tokens follow in 30 and
    20 ms. Mutation: the time of each request."""
    points = load([[100.0, 110.0, 120.0, 130.0], [100.0, 110.0], [200.0, 210.0, 220.0]], [100, 200, 50],
                  sends=[90.0, 90.0, 180.0]).points
    prefill, decode = phase_rates(points, points.is_ok, True)
    assert prefill.value == pytest.approx(350 / 0.030) and decode.value == pytest.approx(6 / 0.050)
    assert {figure.why_absent for figure in phase_rates(points, points.is_ok, False)} == {NO_RATE}
    assert {figure.why_absent for figure in phase_rates(points, ~points.is_ok, True)} == {NOBODY}


def test_nothing_answered():
    tally = load([[100.0, 110.0]], [5])
    none = np.zeros(1, bool)
    assert prefill_share(tally.points, none, True).value is None
    assert bound_of(tally.points, none, True, True, prefill_share(tally.points, none, True)).label is None
    assert isinstance(pa.array([1]), pa.Array)

"""Requests of two endpoints as pairs: how they are drawn, which count, and how often equal ends look different."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aaco.core.errors import UsageError
from aaco.core.tables import REQUESTS
from aaco.governance.interleaved import duet_verdict, request_pairs
from aaco.governance.interleaved.duet_verdict import TPOT

MS = 1_000_000


def answered(tpot_ms: Any, tokens: int = 11, offset: int = 0, **columns: Any) -> pa.Table:
    """Requests that took these times per token, a second apart."""
    count = len(tpot_ms)
    send = np.arange(count) * 1000 * MS + offset
    first = send + 20 * MS
    return REQUESTS.build(**{
        "request_id": np.arange(count), "t_send_ns": send, "t_first_ns": first,
        "t_last_ns": first + np.asarray(np.asarray(tpot_ms) * (tokens - 1) * MS, np.int64),
        "output_tokens": np.full(count, tokens), "status": ["ok"] * count, **columns})


def judged(baseline: pa.Table, current: pa.Table, tolerance_pct: float = 2.0, alpha: float = 0.05) -> Any:
    pairs = request_pairs.table(baseline, current)
    return request_pairs.verdict(pairs, request_pairs.terms(pairs, tolerance_pct, alpha), len(baseline), ("A", "B"),
                                 ("a", "b"), 1, "0", "aaco llm")


def test_each_side_is_first_as_often_and_the_order_is_drawn():
    sides = request_pairs.sides(100, 3).reshape(-1, 2)
    assert (sides.sum(axis=1) == 1).all() and sides[:, 0].sum() == 50
    assert len(set(map(tuple, sides[:4].tolist()))) == 2 or not np.array_equal(sides, request_pairs.sides(
        100, 4).reshape(-1, 2))
    assert np.array_equal(sides.ravel(), request_pairs.sides(100, 3))


def test_a_pair_counts_only_where_both_answered():
    """Fails when a failed or a one-token answer is half of a pair."""
    status = ["ok"] * 98 + ["cut", "ok"]
    pairs = request_pairs.table(answered([5.0] * 100, status=status),
                                answered([5.0] * 100, output_tokens=[1] + [11] * 99))
    assert pairs["pair"].to_pylist() == [*range(1, 98), 99]
    generator = np.random.default_rng(1)
    verdict = judged(answered(generator.normal(5, .1, 100), status=status), answered(generator.normal(5, .1, 100)))
    assert "1 of 100 pairs are left out" in verdict.warnings[0]


def test_too_few_pairs_are_refused():
    with pytest.raises(UsageError, match="0 of 3 pairs"):
        judged(answered([5.0] * 3, status=["cut"] * 3), answered([5.0] * 3))


@pytest.mark.parametrize(("factor", "status"), [(1.0, "equivalent"), (1.1, "regressed"), (0.9, "improved")])
def test_a_planted_change_is_seen(factor, status):
    generator = np.random.default_rng(2)
    verdict = judged(answered(generator.normal(5, .1, 300)), answered(factor * generator.normal(5, .1, 300), offset=MS))
    assert verdict.status == status and verdict.metric == TPOT and verdict.design == request_pairs.DESIGN
    assert verdict.effect_pct == pytest.approx(100 * (factor - 1), abs=1)
    assert verdict.latency_delta_pct is None and verdict.baseline_ids == ["a"] and verdict.session_ids == ["b"]


def test_equal_ends_look_different_as_often_as_the_level_says():
    """Drift that both ends share, and scatter: 5 % of the intervals leave out zero. Fails when single pairs are units
    and neighbours have something in common, or when order in a pair is not balanced."""
    generator, seen = np.random.default_rng(5), 0
    for _ in range(400):
        drift = np.repeat(np.exp(generator.normal(0, .05, 20)), 10)
        ends = [drift * generator.lognormal(1.5, .05, 200) for _ in range(2)]
        pairs = request_pairs.table(answered(ends[0]), answered(ends[1], offset=MS))
        found = duet_verdict.find_requests(pairs, request_pairs.terms(pairs, 5.0, 0.05))
        low, high = found.each[TPOT].comparison.low_pct, found.each[TPOT].comparison.high_pct
        seen += not low <= 0 <= high
    assert 3 <= 100 * seen / 400 <= 7.5

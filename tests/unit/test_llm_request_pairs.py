"""Requests of two endpoints as pairs: how they are drawn, which count, and how often equal ends look different."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aaco.core.errors import UsageError
from aaco.core.tables import REQUESTS
from aaco.governance.interleaved import duet, duet_verdict, request_pairs
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
    assert (sides.sum(axis=1) == 1).all() and (sides[:, 0].reshape(-1, 2).sum(axis=1) == 1).all()
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


def noises(pairs: int) -> dict[str, Any]:
    """Log ratios of equal ends: some far off, and such that are like their neighbours."""
    generator = np.random.default_rng(5)
    fading = np.power(0.5, np.abs(np.subtract.outer(np.arange(pairs), np.arange(pairs))))
    alike = np.linalg.cholesky(fading)
    return {"normal": lambda: generator.normal(0, .05, pairs), "far off": lambda: generator.standard_t(1, pairs) / 50,
            "alike": lambda: alike @ generator.normal(0, .05, pairs),
            "alike and far off": lambda: alike @ generator.standard_t(2, pairs) / 50}


@pytest.mark.parametrize("noise", noises(8))
def test_equal_ends_look_different_as_often_as_the_level_says(noise):
    """5 % of the intervals leave out zero. Fails when single pairs are units, and where neighbours are alike when
    blocks stay short."""
    pairs = 100
    draw, seen = noises(pairs)[noise], 0
    for _ in range(300):
        ends = np.full(pairs, 5.0), 5 * np.exp(np.clip(draw(), -3, 3))
        table = request_pairs.table(answered(ends[0]), answered(ends[1], offset=MS))
        found = duet_verdict.find_requests(table, request_pairs.terms(table, 5.0, 0.05)).each[TPOT].comparison
        seen += not found.veto and not found.low_pct <= 0 <= found.high_pct
    assert 3 <= 100 * seen / 300 <= 7.5


def slow_for_long(pairs: int = 100) -> Any:
    """Times per token that are half as long again for every second fifth of the pairs."""
    fifth = np.arange(pairs) // (pairs // 5)
    return np.where(fifth % 2, 1.5, 1.0) * np.random.default_rng(3).lognormal(1.5, .01, pairs)


def test_pairs_that_are_alike_for_long_are_judged_by_few_long_blocks():
    """One end is slow for 40 of 100 pairs. Mutation: blocks of ten pairs whatever is in them."""
    verdict = judged(answered(np.full(100, 5.0)), answered(slow_for_long(), offset=MS))
    assert verdict.status == "inconclusive" and verdict.n_units.current == 5 and "Student's t" in verdict.estimator
    slower = judged(answered(np.full(100, 5.0)), answered(3 * slow_for_long(), offset=MS))
    assert slower.status == "regressed" and slower.n_units.current == 5
    mixed = np.random.default_rng(3).permutation(slow_for_long())
    few = judged(answered(np.full(100, 5.0)), answered(mixed, offset=MS))
    assert few.n_units.current == 10 and "sign flips" in few.estimator


def test_how_long_pairs_are_alike_is_found_where_a_load_has_few_such_times():
    """An autoregression of 0.95: of each pair as much is in the next, so 39 pairs are alike, and blocks of 20 are no
    ground for a verdict. Mutations: the sum alone, which finds 10; a block may be as long as pairs are alike."""
    generator, lasting, vetoes, times = np.random.default_rng(1), [], [], []
    for _ in range(100):
        ratios = generator.normal(0, .01, 300)
        for at in range(1, len(ratios)):
            ratios[at] += 0.95 * ratios[at - 1]
        table = request_pairs.table(answered(np.full(100, 5.0)), answered(5 * np.exp(ratios[200:]), offset=MS))
        terms = request_pairs.terms(table, 5.0, 0.05)
        lasting.append(request_pairs._alike({name: table[name].to_numpy() for name in table.column_names
                                             if name.endswith("_ms")}, np.array(table["ran_first"].to_pylist())))
        vetoes.append(bool(terms.too_few))
        times.append(lasting[-1] > 20 / request_pairs.MARGIN)
    assert 25 < np.median(lasting) < 45 and max(lasting) <= 100
    assert vetoes == times and any(16 < each < 20 for each in lasting)


def test_few_pairs_that_are_alike_for_long_are_no_verdict():
    """Their blocks would be of eight pairs. Mutation: short blocks are judged."""
    verdict = judged(answered(np.full(40, 5.0)), answered(3 * slow_for_long(40), offset=MS))
    assert verdict.status == "inconclusive" and "a verdict needs 50" in verdict.why


def test_an_interval_is_widened_by_what_neighbouring_blocks_have_in_common():
    """Held against the matrix of their covariances: the scatter of the mean over what the spread of the blocks says.
    Mutation: the interval stays as it is."""
    units = [duet.Unit("change", ratio, 0.0, 10) for ratio in (.1, .2, -.1, .3, .05)]
    found, count, correlation = duet.fit(units), 5, 0.2
    covariance = np.eye(count) + correlation * (np.eye(count, k=1) + np.eye(count, k=-1))
    of_mean = covariance.mean()
    spread = (np.trace(covariance) - count * of_mean) / (count - 1)
    wider = duet.widened(found, correlation).standard_error / found.standard_error
    assert wider == pytest.approx(np.sqrt(of_mean / (spread / count)))


def test_which_request_of_a_pair_was_first_is_in_no_answer():
    """The second takes twice as long, in every pair. Fails when orders are not balanced in each block."""
    first = request_pairs.sides(100, 4).reshape(-1, 2)[:, 0] == 0
    generator = np.random.default_rng(4)
    ends = [generator.lognormal(1.5, .02, 100) * np.where(is_second, 2.0, 1.0) for is_second in (~first, first)]
    baseline = answered(ends[0])
    current = baseline.set_column(baseline.column_names.index("t_send_ns"), "t_send_ns", [answered(
        ends[1])["t_send_ns"].to_numpy() + np.where(first, MS, -MS)])
    current = current.set_column(current.column_names.index("t_last_ns"), "t_last_ns",
                                 answered(ends[1])["t_last_ns"])
    verdict = judged(baseline, current)
    assert abs(verdict.effect_pct) < 5 and verdict.ci[0] <= 0 <= verdict.ci[1]

"""Requests to two endpoints of a language model, sent in turns with the same prompts: pairs of them, and the terms.

The two requests of a pair are dispatched one after the other, in an order that is drawn and the opposite in every
second pair, so that what the client and a shared machine do meets both. A block of pairs is a unit: its median of
log(current / baseline). Blocks follow each other in time, so that slow drift, and what neighbouring requests have in
common, scatter between blocks and are in the interval. The longer pairs stay alike, the longer a block must be:
neighbouring means of n values with an autocorrelation time of t correlate by (t - 1 / t) / 4n, if it fades
exponentially. Where that leaves fewer than eight blocks, the pairs are cut into five long ones with nearly normal
means, and judged by Student's t, which holds its level with a few blocks that hardly depend on each other (Ibragimov
and Mueller 2010); its interval is widened by what adjacent blocks still have in common. Sign flips of short blocks
would judge mostly loads of which the correlation is estimated too low. Where a load holds only a few autocorrelation
times, so that a sum of autocorrelations is too low, the first of them gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.quality.stability import autocorrelation
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.tables.spec import whole
from aaco.governance.interleaved import duet, duet_verdict, sign_flips
from aaco.governance.interleaved.duet_verdict import TIMES, TPOT, TTFT, Terms, Traced
from aaco.governance.verdict_document import RegressionVerdict

LEAST_PAIRS, MOST_BLOCKS = 10, 30  # in a block, unless there are fewer than FEW blocks of so many; of all
FEW = 10  # blocks
LEAST_FLIPPED, FEWEST = 8, duet.LEAST_PROCESSES  # blocks that are left to the flips; into which the others are cut
ALIKE = 0.05  # correlation of neighbouring blocks that changes no interval
MARGIN = 1.25  # on an autocorrelation time: those that are estimated too low are the ones that look different
WINDOW = 3  # autocorrelation times over which autocorrelations are added up (Sokal 1997)
SURE = 2.0  # standard deviations: such an autocorrelation has no series without memory
ORDER_SEED = 27
DESIGN = "interleaved requests"
ESTIMATOR = "mean over blocks of requests of the median of log(current / baseline) over pairs; interval by "
ADVICE = {"regressed": "The current endpoint is slower: aaco report shows either session.",
          "improved": "Keep it: the current endpoint is faster.",
          "equivalent": "Nothing to do: any change is within the tolerance.",
          "inconclusive": "Send more requests: -n."}
NO_PRIOR = "earlier loads are no measure of the scatter of this one"


def sides(pairs: int, seed: int) -> Ints:
    """Return of each of 2 x pairs requests its side, 0 or 1: which is first in a pair is drawn, and the other one is in
    the next, so that each is as often in any stretch."""
    firsts = np.random.default_rng((ORDER_SEED, seed)).integers(0, 2, (pairs + 1) // 2)
    firsts = np.stack([firsts, 1 - firsts], axis=1).ravel()[:pairs]
    return np.asarray(np.stack([firsts, 1 - firsts], axis=1).ravel(), np.int64)


def table(baseline: pa.Table, current: pa.Table) -> pa.Table:
    """Return pairs of requests that both ends answered with two tokens or more, as the comparison in turns reads them.

    Row n of either table is of pair n. Times are from dispatch; where reads were merged, the first and last token are
    taken at their stamps.
    """
    figures = [_figures(side) for side in (baseline, current)]
    both = figures[0][2] & figures[1][2]
    order = np.flatnonzero(both)
    first = np.where((whole(baseline, "t_send_ns") <= whole(current, "t_send_ns"))[order], "baseline", "current")
    times = {f"{side}_{TIMES[metric]}": np.asarray(figures[index][place][order], np.float64)
             for place, metric in enumerate((TPOT, TTFT)) for index, side in enumerate(("baseline", "current"))}
    blocks = _blocks(len(order), _alike(times, first))
    return pa.table({"process": np.arange(len(order)) * blocks // max(len(order), 1),
                     "kind": pa.array(["change"] * len(order), pa.string()), "pair": order,
                     "created_first": pa.nulls(len(order), pa.string()), "ran_first": first, **times,
                     "disturbed": np.zeros(len(order), bool)})


def terms(pairs: pa.Table, tolerance_pct: float, alpha: float) -> Terms:
    """Return what the pairs are judged by: one look, at all of them."""
    blocks = len(pc.unique(pairs["process"]))
    alike = _alike({name: pairs[name].to_numpy() for name in pairs.column_names if name.endswith("_ms")},
                   pairs["ran_first"].to_numpy(zero_copy_only=False))
    needed, length = sign_flips.least_blocks(alpha / len((TPOT, TTFT))), len(pairs) / max(blocks, 1)
    correlation, too_few = None, ""
    if len(pairs) < needed:
        too_few = f"{len(pairs)} pairs: a verdict needs {needed}"
    elif blocks < needed:
        alike *= MARGIN
        correlation = (alike - 1 / alike) / (4 * length)
        if length < max(LEAST_PAIRS, alike):
            too_few = (f"neighbouring pairs may be alike for {alike:.0f} of them: a verdict needs "
                       f"{math.ceil(FEWEST * max(LEAST_PAIRS, alike)):,}")
    return Terms(tolerance_pct, alpha, (duet.Look(max(blocks, 2), alpha),), "block", False, None, NO_PRIOR,
                 correlation=correlation, too_few=too_few)


def verdict(pairs: pa.Table, terms: Terms, asked: int, labels: tuple[str, str], sessions: tuple[str, str], seed: int,
            tool_version: str, reproduce_command: str) -> RegressionVerdict:
    """Return the verdict on the current endpoint. asked: pairs that were sent. Raise UsageError where too few of them
    were answered to judge anything."""
    try:
        found = duet_verdict.find_requests(pairs, terms)
    except Absent as reason:
        raise UsageError(f"{len(pairs):,} of {asked:,} pairs were answered with two tokens or more by both: {reason}",
                         "aaco report SESSION  # says what failed; -n for more requests") from reason
    made = duet_verdict.document(pairs, terms, found, Traced(), "processes", (), labels, sessions[1], seed,
                                 tool_version, reproduce_command)
    left_out, how = asked - len(pairs), "sign flips" if terms.correlation is None else "Student's t"
    warnings = [f"{left_out:,} of {asked:,} pairs are left out: one of both failed, or had no time per token"] if \
        left_out else []
    return made.model_copy(update={
        "warnings": warnings, "design": DESIGN, "baseline_ids": [sessions[0]],
        "estimator": ESTIMATOR + how + duet_verdict.OF_A_TURN[made.metric], "recommendation": ADVICE[made.status]})


def _blocks(pairs: int, alike: float) -> int:
    """Return into how many blocks to cut so many pairs with this autocorrelation time; at least 1."""
    independent = int(pairs / _least(alike))
    if independent < min(LEAST_FLIPPED, pairs):
        return min(FEWEST, pairs)
    return max(min(max(min(pairs // LEAST_PAIRS, MOST_BLOCKS), min(FEW, pairs)), independent), 1)


def _least(alike: float) -> float:
    """Return the length of a block from which on neighbours are hardly correlated; at least 1."""
    return max(1.0, (alike - 1 / alike) / (4 * ALIKE))


def _alike(times: Mapping[str, Reals], first: NDArray[np.object_]) -> float:
    """Return the longest autocorrelation time of the pairs' ratios by any metric, in pairs; at least 1.

    Of ranks, which a few far values do not hide, and among the pairs of one order, whose effect alternates.
    """
    if len(first) < FEW:
        return 1.0
    found = [1.0]
    for name in (TIMES[TPOT], TIMES[TTFT]):
        ratios = np.log(times[f"current_{name}"] / times[f"baseline_{name}"])
        for side in ("baseline", "current"):
            of_order = first == side
            ratios[of_order] -= np.median(ratios[of_order]) if of_order.any() else 0.0
        ranks = np.unique(ratios, return_inverse=True)[1].astype(np.float64)
        found.append(_autocorrelation_time(ranks) if ranks.any() else 1.0)
    return max(found)


def _autocorrelation_time(series: Reals) -> float:
    total, lag = 1.0, 1
    count = len(series)
    while lag <= WINDOW * total and lag < count // 2:
        unbiased = autocorrelation(series, lag) + 1 / count  # of a series without memory (Kendall 1954)
        total, lag = total + 2 * unbiased, lag + 1
    # Of one that fades exponentially the first is enough, and its bias is known (Kendall): the sum is too low where the
    # series has only a few such times. The time is the series' length at most.
    first = min((autocorrelation(series, 1) + 1 / count) / (1 - 4 / count), 1 - 2 / (count + 1))
    fading = (1 + first) / (1 - first) if first > SURE / math.sqrt(count) else 1.0
    return max(total, fading, 1.0)


def _figures(requests: pa.Table) -> tuple[Reals, Reals, Flags]:
    """Return time per output token and time to the first token, ms, and which requests have both."""
    send, first, last, tokens = (whole(requests, name) for name in ("t_send_ns", "t_first_ns", "t_last_ns",
                                                                       "output_tokens"))
    ok = np.asarray(pc.equal(requests["status"].cast(pa.string()), "ok").to_numpy(), bool)
    has_both = ok & (tokens > 1) & (last > first) & (first > send)
    return (last - first) / np.maximum(tokens - 1, 1) / 1e6, (first - send) / 1e6, has_both

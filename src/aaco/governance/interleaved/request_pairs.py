"""Requests to two endpoints of a language model, sent in turns with the same prompts: pairs of them, and the terms.

The two requests of a pair are dispatched one after the other, in an order that is drawn and balanced, so that what the
client and a shared machine do meets both. A block of pairs is a unit: its median of log(current / baseline). Blocks
follow each other in time, so that slow drift, and what neighbouring requests have in common, scatter between blocks and
are in the interval.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.tables.spec import whole
from aaco.governance.interleaved import duet, duet_verdict
from aaco.governance.interleaved.duet_verdict import TIMES, TPOT, TTFT, Terms, Traced
from aaco.governance.verdict import RegressionVerdict

LEAST_PAIRS, MOST_BLOCKS = 10, 30  # in a block, unless there are fewer than five of so many; of all
ORDER_SEED = 27
DESIGN = "interleaved requests"
ESTIMATOR = "mean over blocks of requests of the median of log(current / baseline) over pairs, less the order in a pair"
ADVICE = {"regressed": "The current endpoint is slower: aaco report shows either session.",
          "improved": "Keep it: the current endpoint is faster.",
          "equivalent": "Nothing to do: any change is within the tolerance.",
          "inconclusive": "Send more requests: -n."}
NO_PRIOR = "earlier loads are no measure of the scatter of this one"


def sides(pairs: int, seed: int) -> Ints:
    """Return of each of 2 x pairs requests its side, 0 or 1: which is first in a pair is drawn, each way as often."""
    firsts = np.arange(pairs) % 2
    np.random.default_rng((ORDER_SEED, seed)).shuffle(firsts)
    return np.asarray(np.stack([firsts, 1 - firsts], axis=1).ravel(), np.int64)


def table(baseline: pa.Table, current: pa.Table) -> pa.Table:
    """Return pairs of requests that both ends answered with two tokens or more, as the comparison in turns reads them.

    Row n of either table is of pair n. Times are from dispatch; where reads were merged, the first and last token are
    taken at their stamps.
    """
    figures = [_figures(side) for side in (baseline, current)]
    both = figures[0][2] & figures[1][2]
    order = np.flatnonzero(both)
    blocks = max(min(len(order) // LEAST_PAIRS, MOST_BLOCKS), min(duet.LEAST_PROCESSES, len(order)))
    process = np.arange(len(order)) * blocks // max(len(order), 1)
    first = np.where((whole(baseline, "t_send_ns") <= whole(current, "t_send_ns"))[order], "baseline", "current")
    times = {f"{side}_{TIMES[metric]}": figures[index][place][order] for place, metric in enumerate((TPOT, TTFT))
             for index, side in enumerate(("baseline", "current"))}
    return pa.table({"process": process, "kind": pa.array(["change"] * len(order), pa.string()), "pair": order,
                     "created_first": pa.nulls(len(order), pa.string()), "ran_first": first, **times,
                     "disturbed": np.zeros(len(order), bool)})


def terms(pairs: pa.Table, tolerance_pct: float, alpha: float) -> Terms:
    """Return what the pairs are judged by: one look, at all of them."""
    blocks = len(pc.unique(pairs["process"]))
    return Terms(tolerance_pct, alpha, (duet.Look(max(blocks, 2), alpha),), "block", False, None, NO_PRIOR)


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
    left_out = asked - len(pairs)
    warnings = [f"{left_out:,} of {asked:,} pairs are left out: one of both failed, or had no time per token"] if \
        left_out else []
    return made.model_copy(update={
        "warnings": warnings, "design": DESIGN, "baseline_ids": [sessions[0]],
        "estimator": ESTIMATOR + duet_verdict.OF_A_TURN[made.metric], "recommendation": ADVICE[made.status]})


def _figures(requests: pa.Table) -> tuple[Reals, Reals, Flags]:
    """Return time per output token and time to the first token, ms, and which requests have both."""
    send, first, last, tokens = (whole(requests, name) for name in ("t_send_ns", "t_first_ns", "t_last_ns",
                                                                       "output_tokens"))
    ok = np.asarray(pc.equal(requests["status"].cast(pa.string()), "ok").to_numpy(), bool)
    has_both = ok & (tokens > 1) & (last > first) & (first > send)
    return (last - first) / np.maximum(tokens - 1, 1) / 1e6, (first - send) / 1e6, has_both

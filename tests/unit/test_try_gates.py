"""aaco.optimize.gates and input_sets: what lets a change through, and what each gate says when it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.tables import PAIRS
from aaco.governance import agreement
from aaco.governance.verdict_document import MetricVerdict, RegressionVerdict
from aaco.optimize import gates, input_sets
from aaco.optimize.gates import TimeSaved
from aaco.tracelake.document_schemas.ledger import SearchTerms
from aaco.tracelake.outputs import Output, digest

TERMS = SearchTerms(seed=1)
MIB = 1 << 20


def output(*values, name="y", dtype="float32", shape=None):
    array = np.array(values, dtype)
    return Output(name, dtype, shape or array.shape, array.size, digest(array), None, array)


def passed(*sides, lossy=False, accept=0.0, error=None):
    """Whether pairs of outputs, one for each set of inputs, agree."""
    return gates.same_outputs([agreement.agree([one], [other]) for one, other in sides], lossy, accept, error)


def test_outputs_must_agree_for_every_set_of_inputs():
    """Fails when the first set alone is looked at."""
    same, other = (output(1, 2), output(1, 2)), (output(1, 2), output(1, 2.5))
    assert passed(same, same, same).passed and "3 sets" in passed(same, same, same).why
    refused = passed(same, same, other)
    assert not refused.passed and "output y, inputs 3: 1 of 2 elements differ" in refused.why


@pytest.mark.parametrize("wrong", [
    output(1, math.nan), output(1, math.inf), output(1, 2, name="z"), output(1, 2, 3), output(1, 2, dtype="float16"),
    output(1, 2.01), output(-1, 2), output(0, 0)])
def test_what_is_no_number_missing_or_off_is_refused(wrong):
    if wrong.dtype == "float16":  # holds both elements exactly: another type alone is no other result
        assert passed((output(1, 2), wrong)).passed
    else:
        assert not passed((output(1, 2), wrong)).passed


def test_one_element_of_many_is_enough_to_refuse():
    values = np.zeros(1_000_000, np.float32)
    values[0] = 1
    wrong = values.copy()
    wrong[654_321] = 0.01
    assert not passed((Output("y", "float32", values.shape, values.size, "a", 0, values),
                       Output("y", "float32", values.shape, values.size, "b", 0, wrong))).passed


def test_outputs_that_cannot_be_compared_are_refused():
    unknown = Output("y", "string", (1,), 1, None, None, None, "text")
    assert not passed((unknown, unknown)).passed


def test_an_error_of_the_arithmetic_must_be_known_and_accepted():
    close = (output(1.0, 2.0), output(1.0, 2.0005))
    assert passed(close, lossy=True, accept=0.01, error=0.00025).passed
    refused = passed(close, lossy=True, accept=0.0, error=0.00025)
    assert not refused.passed and "--accept-error 0.00025" in refused.why
    assert not passed(close, lossy=True, accept=1.0, error=None).passed
    assert not passed((output(1.0), output(2.0)), lossy=True, accept=1.0, error=1.0).passed


@given(st.floats(1e-12, 1e3))
def test_the_error_that_is_proposed_is_accepted_and_short(error):
    why = passed((output(1), output(1)), lossy=True, error=error).why
    proposed = float(why.rpartition("--accept-error ")[2].split()[0])
    assert error <= proposed * (1 + 1e-9) and proposed <= 1.2 * error


def test_the_largest_error_is_of_the_largest_element():
    def error(before, after):
        return gates.largest_error([{"y": (np.array(before, np.float32), np.array(after, np.float32))}])

    assert error([1, 4], [1, 3]) == 0.25 and error([0, 0], [0, 0]) == 0 and error([0, 0], [0, 1]) == math.inf
    assert error([1, math.nan], [1, math.nan]) == 0 and error([1, 2], [1, math.nan]) == math.inf
    assert error([1, math.inf], [1, math.inf]) == 0
    assert gates.largest_error([]) is None
    assert gates.largest_error([{"y": (np.array([1]), np.array([2]))}]) is None


def verdict(effect, low, high, metrics=()):
    return RegressionVerdict.model_construct(effect_pct=effect, ci=None if low is None else (low, high),
                                             metrics=list(metrics), current_value=10.0)


def metric(name, baseline, effect, status="equivalent", current=1.0):
    return MetricVerdict.model_construct(metric=name, baseline_value=baseline, effect_pct=effect,
                                         ci=(effect - 1, effect + 1), status=status, current_value=current)


def saved(percent, low, high, of="latency"):
    return TimeSaved(percent, low, high, of)


def test_a_gain_is_time_saved_with_its_interval_the_other_way_round():
    assert gates.gain(verdict(-10, -12, -8)) == saved(10, 8, 12)
    assert gates.gain(verdict(None, None, None)) == saved(None, None, None)
    assert gates.gain(verdict(60, 50, 80), batch_factor=2)[:3] == pytest.approx((20, 10, 25))


def test_the_device_counts_where_it_fills_the_latency():
    filled = [metric("device_time_ms", 9.5, -20), metric("latency_ms", 10, -5)]
    waits = [metric("device_time_ms", 5, -20), metric("latency_ms", 10, -5)]
    assert gates.gain(verdict(-20, -21, -19, filled)) == saved(20, 19, 21, "device time")
    assert gates.gain(verdict(-20, -21, -19, waits)) == saved(5, 4, 6)
    assert gates.fills_latency(verdict(-20, -21, -19, filled)) and not gates.fills_latency(verdict(0, 0, 0, filled[1:]))
    outcome = gates.fast_enough(gates.gain(verdict(-20, -21, -19, filled)), TERMS, "")
    assert outcome.why == "20.0 % less time [19.0, 21.0] by device time"


@pytest.mark.parametrize(("gain", "kept", "says"), [
    (saved(3, 0.1, 6), True, "3.0 % less time"), (saved(3, 0.0, 6), False, "holds 0"),
    (saved(3, -1, 6), False, "holds 0"),
    (saved(1.9, 1, 3), False, "below 2 %"), (saved(2, 1, 3), True, "less time"), (saved(-5, -6, -4), False, "holds 0"),
    (saved(None, None, None), False, "could not be judged: too few"), (saved(5, None, None), False, "could not")])
def test_a_gain_is_kept_above_zero_and_at_least_two_per_cent(gain, kept, says):
    outcome = gates.fast_enough(gain, TERMS, "too few")
    assert outcome.passed is kept and says in outcome.why


@pytest.mark.parametrize(("before", "after", "worse"), [
    ([500 * MIB] * 3, [600 * MIB] * 3, True), ([500 * MIB] * 3, [500 * MIB, 900 * MIB, 900 * MIB], False),
    ([500 * MIB] * 3, [540 * MIB] * 3, False), ([50 * MIB] * 3, [80 * MIB] * 3, False), ([50 * MIB], [83 * MIB], True),
    ([], [9], False), ([9], [], False)])
def test_memory_is_worse_where_every_process_needs_much_more(before, after, worse):
    assert gates.memory(before, after).worse is worse


@pytest.mark.parametrize(("before", "after", "factor", "worse", "says"), [
    ([10.0, 11.0], [12.2, 13.0], 1, True, "10.5 -> 12.6 J"), ([10.0, 11.0], [12.0, 30.0], 1, False, "10.5 -> 21 J"),
    ([10.0, 11.0], [20.0, 21.0], 2, False, "10.5 -> 10.2 J"), ([10.0, 11.0], [30.0], 1, False, "not measured: no RAPL"),
    ([], [], 1, False, "not measured: no RAPL")])
def test_energy_is_worse_where_every_process_needs_much_more(before, after, factor, worse, says):
    guard = gates.energy(before, after, factor, "no RAPL")
    assert guard.worse is worse and guard.why.startswith(says)


def test_the_first_guard_that_is_worse_refuses():
    fine, worse = (gates.GuardedMetric(metric=name, worse=bad, why="x") for name, bad in (("a", False), ("b", True)))
    passed = gates.GateOutcome(True, "faster", 0.1)
    assert gates.guarded(passed, [fine]) == passed
    assert gates.guarded(passed, [fine, worse]) == gates.GateOutcome(False, "b is worse: x", 0.1)


def test_neither_the_latency_nor_the_device_may_get_worse():
    worse = [metric("device_time_ms", 5, -20, "improved"), metric("latency_ms", 10, 9, "regressed")]
    assert gates.no_metric_worse(verdict(-20, -21, -19, worse)).why == "latency_ms"
    assert gates.no_metric_worse(verdict(-20, -21, -19, worse)).worse
    assert not gates.no_metric_worse(verdict(-20, -21, -19, worse[:1])).worse


def test_a_larger_batch_must_stay_within_what_is_allowed():
    taken = verdict(60, 50, 70, [metric("latency_ms", 10, 60, current=16.0)])
    assert not gates.within_slo(taken, 16.0).worse and gates.within_slo(taken, 15.9).worse
    assert gates.within_slo(taken, None).worse


def pairs(tails, processes=5, count=200, slow=0.05):
    """Processes in which the slowest inferences of the changed side take so many times as long."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(processes):
        times = rng.normal(1, 0.01, (count, 2))
        times[: int(slow * count), 1] *= tails
        times[: int(slow * count)] *= 1.2
        rows.append(times)
    return table(rows, count)


def table(rows, count):
    """The pairs table of processes of so many pairs."""
    every, whole = np.concatenate(rows), len(rows) * count
    return PAIRS.build(process=np.repeat(range(len(rows)), count), kind=["change"] * whole, pair=np.arange(whole),
                       created_first=["baseline"] * whole, ran_first=["baseline"] * whole, baseline_ms=every[:, 0],
                       current_ms=every[:, 1], spin_ns=np.ones(whole, int), **{
                           f"{side}_{end}_ns": np.arange(whole) for side in ("baseline", "current")
                           for end in ("start", "end")})


def test_a_heavier_tail_is_worse_and_few_pairs_show_none():
    assert gates.tail(pairs(1.5), 0.99).worse and gates.tail(pairs(1.5), 0.99).metric == "p99"
    assert not gates.tail(pairs(1.0), 0.99).worse and not gates.tail(pairs(0.5), 0.99).worse
    assert gates.tail(pairs(1.5, count=50, slow=0.2), 0.99).metric == "p90"
    assert gates.tail(pairs(1.5, count=50, slow=0.2), 0.99).worse
    assert "too few" in gates.tail(pairs(1.5, count=9), 0.99).why and not gates.tail(pairs(9, count=9), 0.99).worse
    assert not gates.tail(pairs(1.5), 0.99, batch_factor=2).worse


def test_inputs_that_are_slower_are_told_from_a_busy_machine():
    """The rest is faster, so that the median is. Fails when pairs below the median are not set against those above."""
    assert gates.some_inputs(mixed(0.15, 0.5), 0.99).worse
    assert "15 % of the inputs" in gates.some_inputs(mixed(0.15, 0.5, busy=0.0), 0.99).why
    for faster in (0.5, 0.95, 1.0):
        assert not gates.some_inputs(mixed(0.0, faster), 0.99).worse
    assert not gates.some_inputs(mixed(0.15, 0.4, takes=1.0), 0.99).worse  # no faster there, and no slower
    assert gates.some_inputs(mixed(0.15, 0.5, takes=4.0), 0.99, batch_factor=2).worse
    assert not gates.some_inputs(mixed(0.15, 0.5, takes=2.0), 0.99, batch_factor=2).worse
    assert "too few" in gates.some_inputs(mixed(0.15, 0.5, processes=1), 0.99).why


def mixed(slow, faster, takes=10.0, busy=0.2, processes=6, count=200):
    """Processes in which a share of the inputs takes so many times as long as before, the others `faster` times; a
    busy machine delays both sides at random.
    """
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(processes):
        times = rng.normal(1, 0.01, (count, 2))
        times[:, 1] *= np.where(rng.random(count) < slow, takes, faster)
        rows.append(times + (rng.random((count, 2)) < busy) * rng.exponential(20, (count, 2)))
    return table(rows, count)


def test_other_inputs_hold_the_same_values_in_another_order():
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "text": np.array(["a", "b"], object)}
    sets = [input_sets.permuted(inputs, number) for number in range(input_sets.COUNT)]
    assert (sets[0]["x"] == inputs["x"]).all() and all((one["text"] == inputs["text"]).all() for one in sets)
    assert len({one["x"].tobytes() for one in sets}) == input_sets.COUNT
    assert all((np.sort(one["x"], None) == np.arange(12)).all() and one["x"].shape == (3, 4) for one in sets)


@pytest.mark.parametrize(("values", "varied"), [
    ([1, 2, 3, 4], True), ([0, 0, 0, 0, 1], True), ([1, 1, 1], False), ([1, 2, 1, 2], False), ([5], False),
    ([1, 2, 3], False), ([], False)])
def test_inputs_that_repeat_within_a_few_turns_are_not_varied(values, varied):
    """What was remembered of them would be right, and fast, too often."""
    mask = np.ones(9, np.int64)
    assert input_sets.varied({"x": np.array(values, np.float32), "mask": mask}) is varied


def test_parts_of_a_batch_are_its_rows_and_their_outputs_join():
    larger = {"x": np.arange(8).reshape(4, 2), "scale": np.ones(1)}
    small = {"x": np.zeros((2, 2)), "scale": np.ones(1)}
    first, second = input_sets.parts(larger, small, 2)
    assert first["x"].tolist() == [[0, 1], [2, 3]] and second["x"].tolist() == [[4, 5], [6, 7]]
    assert first["scale"] is larger["scale"]
    whole = input_sets.joined([output(1, 2), output(3, 4)])
    assert whole.shape == (4,) and whole.elements == 4 and whole.values.tolist() == [1, 2, 3, 4]

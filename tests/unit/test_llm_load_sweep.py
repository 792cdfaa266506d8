"""What steps of a rising load say together."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from aaco.analytics.llm import context_slope
from aaco.analytics.llm.backlog import Backlog
from aaco.analytics.llm.load_sweep import LoadStep, LoadSteps, LoadSweep, StepFigure, sweep_of
from aaco.cli import llm_loads, llm_sweep
from aaco.core.documents import encode
from aaco.core.readings import Reading
from aaco.report.sections.finding_views import sections
from aaco.workflows import decode_sweep
from aaco.workflows.decode_sweep import DecodePoint, DecodeSweep
from aaco.workflows.load_sweep import RisingLoad, doublings, next_loads

FIGURES = [StepFigure("output_tokens_per_s", "1/s", None, None, None, "not counted"),
           *[StepFigure(name, "ms", 5.0, None, None, "") for name in "abcd"]]


def step(load: float, answered: float | None, growth: float | None = 0.0, between: bool = False, failed: int = 0,
         width: float = 0.01) -> LoadStep:
    """A step with a relative width of its intervals; growth: None where it is not known."""
    rate: tuple[Any, ...] = (None,) * 3 if answered is None else (answered, answered * (1 - width),
                                                                 answered * (1 + width))
    grown: tuple[Any, ...] = (None,) * 3 if growth is None else (growth, growth - 1, growth + 1)
    return LoadStep(load, between, f"s{load:g}", 1000, failed, Backlog(10.0, *rate, *grown, "no rate", "no growth"),
                    FIGURES)


def rates(*steps: LoadStep) -> LoadSweep:
    return sweep_of(LoadSteps("rate", list(steps)))


def test_the_knee_is_where_answers_no_longer_follow():
    """500 a second can be answered; steps come in the order of asking. Mutation: the order of asking counts."""
    sweep = rates(step(100, 100), step(200, 200), step(400, 400), step(800, 500, 300), step(566, 500, 66, True),
                  step(476, 476, between=True))
    assert [judged.step.load for judged in sweep.steps] == [100, 200, 400, 476, 566, 800]
    assert [judged.saturated for judged in sweep.steps] == [False] * 4 + [True] * 2
    assert (sweep.sustained, sweep.saturated_from, sweep.knee) == (476, 566, 400)
    assert sweep.most_answered_per_s == 500 and sweep.most_answered_low == 495


def test_a_server_that_answers_nothing_has_no_knee():
    """There is no gain from nothing. Mutation: there is."""
    steps = [step(load, 0.0, failed=1000) for load in (1, 2, 4)]
    for sweep in (rates(*steps, step(8, 5)), sweep_of(LoadSteps("concurrency", [*steps, step(8, 5)]))):
        assert sweep.knee is None and sweep.saturated_from == 1 and sweep.most_answered_per_s == 5


def test_steps_in_between_do_not_move_the_knee():
    """Their gain per doubling is that of a small part of one, and noise is as much larger. Mutation: they count."""
    sweep = rates(step(100, 100), step(150, 200, between=True), step(200, 200), step(400, 400), step(800, 500, 9))
    assert sweep.knee == 400


def test_where_all_keep_up_nothing_is_called_a_knee():
    sweep = rates(*(step(load, load) for load in (1, 2, 4, 8)))
    assert (sweep.sustained, sweep.saturated_from, sweep.knee) == (8, None, None) and "never drops" in sweep.why_no_knee


def test_a_growth_that_may_be_none_is_not_saturated_and_an_unknown_one_is_neither():
    """Mutation: a growth is one whatever its interval."""
    sweep = rates(step(1, 1, 0.9), step(2, 2, 1.1), step(4, 3, None))
    assert [judged.saturated for judged in sweep.steps] == [False, True, None]
    assert sweep.steps[2].why == "no growth" and sweep.saturated_from == 2


def test_a_server_that_refuses_is_saturated():
    """It sheds the load, and no backlog grows. Mutation: failures are passed over."""
    sweep = rates(step(1, 1), step(2, 1.9, failed=50))
    assert sweep.steps[1].saturated is True and "5 % of the requests failed" in sweep.steps[1].why
    assert rates(step(1, 1, failed=10)).steps[0].saturated is False


def test_more_requests_at_once_saturate_where_they_bring_little():
    """Four can be answered at once. Mutation: a gain of any size is one."""
    steps = [step(1, 10), step(2, 20), step(4, 40), step(8, 41, None)]
    sweep = sweep_of(LoadSteps("concurrency", steps))
    assert [judged.saturated for judged in sweep.steps] == [None, False, False, True]
    assert (sweep.sustained, sweep.saturated_from, sweep.knee) == (4, 8, 4)
    assert sweep_of(LoadSteps("concurrency", [step(1, 10), step(2, None)])).steps[1].why == "no rate"


@pytest.mark.parametrize(("capacity", "width", "asked"), [
    (500, 0.01, [100, 200, 400, 800, 566, 476]),  # the knee is seen at 400
    (790, 0.01, [100, 200, 400, 800, 1600, 566, 673]),  # answers fall behind at 1600 only
    (500, 0.5, [100, 200, 400, 800, 1600, 566, 476])])  # it is never seen, and the load does not rise for ever
def test_loads_rise_until_the_knee_is_seen_or_one_step_further(capacity: float, width: float, asked: list[int]):
    """Mutation: a knee that is not seen is looked for without end."""
    steps: list[LoadStep] = []
    for load, between in next_loads(RisingLoad("rate", doublings(100, 100_000), True), steps):
        steps.append(step(load, min(load, capacity), 3 * max(0.0, load - capacity), between, width=width))
    assert [round(each.load) for each in steps] == asked


def test_a_step_that_says_nothing_ends_a_rising_rate():
    steps: list[LoadStep] = []
    for load, between in next_loads(RisingLoad("rate", [1, 2, 4], True), steps):
        steps.append(step(load, None, None, between))
    assert len(steps) == 1


def test_loads_double_until_the_largest():
    assert doublings(1, 8) == [1, 2, 4, 8] and doublings(3, 10) == [3, 6, 10] and doublings(5, 5) == [5]
    assert doublings(0.25, 1.1) == [0.25, 0.5, 1, 1.1]


def test_a_table_says_what_tokens_cost_and_why_it_does_not():
    """The report and the terminal, of a server's loads and of a decoder's. Mutation: a reason hides what was measured.
    """
    costs = [StepFigure("device_energy_per_output_token_j", "J", 0.5, 0.4, 0.6, ""),
             StepFigure("device_power_mean_w", "W", 300.0, 280.0, 320.0, ""),
             StepFigure("package_power_mean_w", "W", None, None, None, "no counter")]
    measured, other = (replace(step(load, load), figures=FIGURES + costs[:most]) for load, most in ((1, 3), (2, 0)))
    sweep = rates(measured, other)
    (_, rows), = sections({"load_sweep": encode(sweep)})
    labels = {row.label: row.text for row in rows}
    cost = "devices 0.500 J [0.400, 0.600] per output token, 300 W [280, 320]"
    assert labels["1"].endswith(f"; {cost}") and "devices" not in labels["2"]
    assert labels["Energy not shown"] == "no counter" and labels["Not shown"] == "not counted"
    shown = "\n".join(llm_loads.lines(sweep))
    assert " 1  devices 0.500 J" in shown and "Energy not shown  no counter" in shown
    others = [Reading(name, "1", 1.0) for name in (*llm_sweep.TIMES, "output_tokens_per_s")]
    point = DecodePoint(4, "64", "s", (*others, *measured.readings.values()), None)
    shown = "\n".join(llm_sweep.lines(DecodeSweep((point,), {}, {}, "concurrency")))
    assert "64     4  devices 0.500 J" in shown and "energy n/a: no counter" in shown


def test_a_slope_without_times_per_token_says_why_they_are_absent():
    """Mutation: it speaks of one context where there are two."""
    few = Reading("tpot_p50_ms", "ms", None, "not enough requests")
    lacking = [DecodePoint(1, length, "s", (few,), 64.0) for length in ("32", "64")]
    assert decode_sweep._slope(lacking).why_absent == "not enough requests"
    known = DecodePoint(1, "64", "s", (Reading("tpot_p50_ms", "ms", 2.0),), 64.0)
    assert decode_sweep._slope([known]).why_absent == context_slope.ONE
    assert decode_sweep._slope([known, *lacking]).why_absent == "not enough requests"
    assert decode_sweep._slope([known._replace(context=None)]).why_absent == decode_sweep.NO_CONTEXT


@pytest.mark.parametrize("steps", [[step(100, 100), step(200, 150, 50)], [step(100, None, None)]])
def test_the_report_has_a_line_for_each_step_and_says_what_is_absent(steps: list[LoadStep]):
    (_, rows), = sections({"load_sweep": encode(rates(*steps))})
    labels = {row.label: row.text for row in rows}
    assert [row.label for row in rows[:len(steps)]] == [f"{each.load:g}" for each in steps]
    assert "needs three" in labels["Knee"] and labels["Not shown"] == "not counted"
    assert ("Most answered" in labels) == (steps[0].answered is not None)
    if len(steps) == 2:
        assert labels["Keeps up with"] == "100" and labels["Saturated from"] == "200"
        assert "TTFT 5.00 / 5.00 ms" in labels["200"]
        assert "saturated: requests under way: +50 /s (+49 .. +51)" in labels["200"]

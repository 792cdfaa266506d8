"""aaco.optimize.search: whatever the steps find, nothing is kept that was not proved twice, and the budget holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aaco.core.candidate import Candidate, together
from aaco.optimize import ledger
from aaco.optimize.search import CheckStep, ConfirmStep, ScreenStep, Search, announced_s, next_step
from aaco.tracelake.document_schemas.ledger import (
    ConfirmationPlanned,
    FirstLook,
    OutputsChecked,
    SearchBegun,
    SearchDecided,
    SearchOrigin,
    SearchTerms,
    TurnsMeasured,
)

ORIGIN = SearchOrigin(model_sha256="m", config_hash="c", machine="here", versions={})
PROCESS_S = 1.0
CHECK_PROCESSES = 3
SOME = st.floats(-0.3, 0.3)


@dataclass(frozen=True)
class World:
    """What each step of a search will find, by change; a combination finds what its parts' sum says."""

    changes: list[Candidate]
    terms: SearchTerms
    same: dict[str, bool]
    looks: dict[str, list[float]]
    gains: dict[str, float]
    proved: dict[str, bool]
    proved_again: dict[str, bool]
    seconds: float = field(default=PROCESS_S)
    around: float = 0.0  # before and after the processes of a comparison

    def begin(self) -> SearchBegun:
        return SearchBegun(search="s", origin=ORIGIN, terms=self.terms, announced_s=0, candidates=self.changes,
                           inapplicable=[])

    def make(self, step):
        """Return the line that a step leaves."""
        if isinstance(step, CheckStep):
            passed = self.of(self.same, step.change, all)
            return OutputsChecked(search="s", change=step.change.name, passed=passed, why="",
                                  took_s=CHECK_PROCESSES * self.seconds)
        if isinstance(step, ScreenStep):
            return FirstLook(search="s", change=step.change.name, session="x", log_ratios=self.looks[step.change.name],
                             **self.took(self.terms.screen_processes))
        if isinstance(step, ConfirmStep):
            proved = self.proved_again if step.again else self.proved
            gain = self.of(self.gains, step.change, sum)
            return TurnsMeasured(search="s", step="again" if step.again else "confirmed", change=step.change.name,
                            session="x", gain_pct=gain, low_pct=gain - 1, high_pct=gain + 1, level=step.level,
                            processes=step.processes, guards=[], passed=self.of(proved, step.change, all), why="",
                            **self.took(2 * step.processes))
        return step

    def took(self, processes):
        return {"took_s": processes * self.seconds + self.around, "processes_s": [self.seconds] * processes}

    def of(self, values, change, join):
        return join(values[name] for name in change.name.split(" + "))

    def end(self, lines=()):
        """Return the lines of the whole search, the given ones first."""
        lines = list(lines) or [self.begin()]
        while not isinstance(lines[-1], SearchDecided):
            lines.append(self.make(next_step(Search(lines))))
        return lines


@st.composite
def worlds(draw) -> World:
    names = [f"c{number}" for number in range(draw(st.integers(1, 6)))]
    changes = [Candidate(name, name, {f"option{draw(st.integers(0, 3))}": name} if draw(st.booleans()) else {},
                      rewrite=draw(st.sampled_from(["", "", name]))) for name in names]
    looks = st.one_of(st.just([]), st.lists(SOME, min_size=2, max_size=2), st.just([-0.1, -0.12]))
    likely = st.sampled_from([True, True, True, False])
    same, found, gains, proved, again = (draw(st.fixed_dictionaries(dict.fromkeys(names, values)))
                                         for values in (likely, looks, st.floats(-5, 30), likely, likely))
    terms = SearchTerms(seed=draw(st.integers(0, 9)), process_s=PROCESS_S, budget_s=draw(st.floats(10, 400)))
    return World(changes, terms, same, found, gains, proved, again)


def gain_everywhere(count: int = 3, **terms) -> World:
    """So many changes that are all proved, at once and together."""
    names = [f"c{number}" for number in range(count)]
    yes = dict.fromkeys(names, True)
    return World([Candidate(name, name, {name: "1"}) for name in names],
                 SearchTerms(seed=1, process_s=PROCESS_S, budget_s=1e4, **terms), yes,
                 {name: [-0.1, -0.11] for name in names}, {name: 10.0 + at for at, name in enumerate(names)}, yes, yes)


@given(worlds())
@example(replace(gain_everywhere(1), proved_again={"c0": False}))
def test_nothing_is_kept_without_two_comparisons_that_passed_and_the_same_outputs(world):
    lines = world.end()
    kept, state = lines[-1].kept, Search(lines)
    again = [line for line in lines if isinstance(line, TurnsMeasured) and line.step == "again"]
    assert len(again) <= 1
    if kept is None:
        return
    assert state.checked[kept].passed and state.confirmed[kept].passed
    assert [line.change for line in again if line.passed] == [kept]
    assert lines[-1].settings == dict(state.change(kept).settings)


@given(worlds())
def test_the_one_kept_gained_most_of_those_that_were_confirmed(world):
    state = Search(world.end())
    if state.decided.kept is not None:
        assert state.confirmed[state.decided.kept].gain_pct == max(
            line.gain_pct for line in state.confirmed.values() if line.passed)


@given(worlds())
def test_the_budget_is_respected(world):
    """Where a process takes what was announced. Fails when checks begin whatever is left, or the first confirmation
    leaves no room for the last comparison."""
    assert Search(world.end()).spent_s <= world.terms.budget_s


@given(worlds(), st.floats(1, 20))
def test_slow_processes_leave_room_for_the_last_comparison(world, factor):
    """What the screenings took is the measure, not what was announced."""
    slow = World(**vars(world) | {"seconds": factor * PROCESS_S})
    lines = slow.end()
    if any(isinstance(line, TurnsMeasured) for line in lines):
        assert Search(lines).spent_s <= slow.terms.budget_s


@given(worlds())
def test_a_search_that_is_resumed_after_any_step_decides_the_same(world):
    whole = world.end()
    for count in range(1, len(whole)):
        assert world.end(whole[:count]) == whole


@given(worlds(), st.data())
def test_a_search_that_is_cut_at_any_byte_decides_the_same(tmp_path_factory, world, data):
    """Through the file: a torn line is passed over, and the step is made again."""
    path, whole = tmp_path_factory.mktemp("ledger") / "trials.jsonl", world.end()
    for line in whole:
        ledger.append(path, line)
    first = len(path.read_bytes().splitlines(keepends=True)[0])
    path.write_bytes(path.read_bytes()[:data.draw(st.integers(first, path.stat().st_size))])
    read = ledger.read(path)
    left = ledger.unfinished(read.lines, ORIGIN, whole[0].candidates)
    assert read.unreadable <= 1 and list(read.lines) == whole[:len(read.lines)]
    if not left:
        assert len(read.lines) == len(whole)
        return
    lines = list(left)
    while not isinstance(lines[-1], SearchDecided):
        lines.append(world.make(next_step(Search(lines))))
        ledger.append(path, lines[-1])
    assert lines == whole and list(ledger.read(path).lines) == whole


@given(worlds())
def test_only_what_was_confirmed_and_does_not_conflict_is_combined(world):
    state = Search(world.end())
    for combined in state.combination():
        parts = [state.change(name) for name in combined.name.split(" + ")]
        assert len(parts) > 1 and all(state.confirmed[part.name].passed for part in parts)
        assert not any(one.conflicts(other) for one in parts for other in parts if one is not other)
        assert combined.settings == {name: value for part in parts for name, value in part.settings.items()}


@given(worlds())
def test_finalists_are_the_fastest_that_compute_the_same(world):
    state = Search(world.end())
    if state.planned is None:
        return
    finalists = state.planned.finalists
    assert 0 < len(finalists) <= state.terms.finalists
    assert all(state.checked[name].passed and state.gain(name) > 0 for name in finalists)
    others = [state.gain(name) for name in state.screened if name not in finalists]
    assert min(map(state.gain, finalists)) >= max(others, default=-math.inf)
    assert state.planned.level == pytest.approx(1 - state.terms.alpha / (state.terms.finalists + 2))


@given(worlds())
def test_no_search_takes_longer_than_was_announced(world):
    """Where a process takes what was expected; nothing is announced where the budget has no room."""
    lines = world.end()
    announced = announced_s(len(world.changes), world.terms, CHECK_PROCESSES * PROCESS_S)
    assert announced <= world.terms.budget_s
    if any(isinstance(line, ConfirmationPlanned) for line in lines):
        assert announced
    roomy = replace(world, terms=world.terms.model_copy(update={"budget_s": 1e4}))
    assert Search(roomy.end()).spent_s <= announced_s(len(world.changes), roomy.terms, CHECK_PROCESSES * PROCESS_S)


def test_what_is_announced_is_what_can_be_done():
    """One change: a check, a first look, two comparisons of 12 processes and as many controls at most."""
    terms = SearchTerms(seed=1, process_s=1.0, budget_s=1e4)
    assert announced_s(1, terms, 3.0) == pytest.approx(2 * 3 + 1.1 * (2 + 2 * 24))
    assert announced_s(1, terms.model_copy(update={"budget_s": 31.0}), 3.0) == pytest.approx(6 + 1.1 * 22)
    assert announced_s(1, terms.model_copy(update={"budget_s": 30.0}), 3.0) == 30.0  # if the checks are quick
    assert announced_s(1, terms.model_copy(update={"budget_s": 24.0}), 3.0) == 0


def test_a_first_process_that_is_slow_does_not_count_and_what_is_around_counts_once():
    """A look of 2 processes of which the first starts the device: 20 processes of 4 s still fit 122 s."""
    world = gain_everywhere(1)
    lines = [world.begin(), world.make(CheckStep(world.changes[0])),
             world.make(ScreenStep(world.changes[0])).model_copy(update={"took_s": 20.0, "processes_s": [13.0, 4.0]})]
    state = Search(lines)
    assert state.process_s == 4.0 and state.comparison_s(10) == pytest.approx(1.1 * (3.0 + 10 * 4.0))
    roomy = state.terms.model_copy(update={"budget_s": 23.0 + 2 * 1.1 * 43})
    assert isinstance(next_step(Search([lines[0].model_copy(update={"terms": roomy}), *lines[1:]])),
                      ConfirmationPlanned)


def test_a_confirmation_without_room_says_how_long_it_takes_and_which_budget_suffices():
    world = gain_everywhere(1)
    slow = replace(world, seconds=6.0, terms=world.terms.model_copy(update={"budget_s": 150.0}))
    lines = slow.end()
    assert not any(isinstance(line, TurnsMeasured) for line in lines)
    assert lines[-1].why == ("c0: 10.0 % less time at first sight, and no time to confirm it: that takes about 132 s, "
                             "120 s are left: --budget 180s")
    enough = replace(slow, terms=slow.terms.model_copy(update={"budget_s": 180.0}))
    assert enough.end()[-1].kept == "c0"


def test_finalists_that_the_budget_left_out_are_counted():
    world = gain_everywhere(3)
    lines = replace(world, proved=dict.fromkeys(world.same, False),
                    terms=world.terms.model_copy(update={"budget_s": 15.0 + 22 + 3 * 3.3})).end()
    assert lines[-1].why.startswith("none of 1 that looked faster was confirmed, 2 more would have been confirmed: "
                                    "that takes about 22 s, ")


def test_changes_that_are_proved_are_tried_together_and_the_best_is_kept():
    lines = gain_everywhere().end()
    assert lines[-1].kept == "c0 + c1 + c2" and lines[-1].settings == {"c0": "1", "c1": "1", "c2": "1"}
    assert [line.step for line in lines[-7:]] == [*["confirmed"] * 3, "checked", "confirmed", "again", "decided"]


@pytest.mark.parametrize("conflicting", [{"settings": {"c2": "2"}}, {"rewrite": "other"}])
def test_changes_that_conflict_are_not_combined(conflicting):
    """The one that gained less is left out."""
    world = gain_everywhere()
    least, middle, best = world.changes
    changes = [replace(least, **conflicting), middle, replace(best, rewrite="fp16")]
    assert World(**vars(world) | {"changes": changes}).end()[-1].kept == "c1 + c2"


def test_a_combination_that_computes_something_else_is_not_timed():
    world = gain_everywhere(2)
    lines = world.end()
    cut = next(at for at, line in enumerate(lines) if isinstance(line, OutputsChecked) and " + " in line.change)
    refused = lines[cut].model_copy(update={"passed": False})
    ended = world.end([*lines[:cut], refused])
    assert ended[-1].kept == "c1" and not any(
        isinstance(line, TurnsMeasured) and " + " in line.change for line in ended)


@pytest.mark.parametrize(("taken", "says"), [
    ("proved_again", "the last comparison did not confirm it"),
    ("proved", "none of 3 that looked faster was confirmed"), ("same", "no candidate computes the same")])
def test_without_proof_there_is_no_change(taken, says):
    world = gain_everywhere()
    lines = World(**vars(world) | {taken: dict.fromkeys(world.same, False)}).end()
    assert lines[-1].kept is None and says in lines[-1].why


def test_what_did_not_run_when_it_was_timed_is_not_confirmed():
    world = gain_everywhere()
    lines = World(**vars(world) | {"looks": world.looks | {"c2": []}}).end()
    state = Search(lines)
    assert state.gain("c2") == -math.inf and "c2" not in state.planned.finalists and lines[-1].kept == "c0 + c1"


def test_nothing_faster_and_too_short_a_budget_say_so():
    world = gain_everywhere()
    slower = World(**vars(world) | {"looks": {name: [0.1, 0.1] for name in world.looks}}).end()
    assert slower[-1].why == "none of 3 looked faster when timed in turns"
    short = World(**vars(world) | {"terms": world.terms.model_copy(update={"budget_s": 12.0})}).end()
    assert len(short) == 2 and short[-1].why == (
        "the budget is too short to look at a change and confirm it: that takes about 24 s, 12 s are left: "
        "--budget 30s")


def test_the_plan_has_more_processes_where_they_scatter_and_no_more_than_the_budget_holds():
    world = gain_everywhere()
    def planned(**changed):
        lines = World(**vars(world) | changed).end()
        return next(line for line in lines if isinstance(line, ConfirmationPlanned))
    scattered = {name: [-0.08, -0.12] for name in world.looks}
    assert planned().processes == world.terms.processes and planned().detectable_pct < 2
    assert planned(looks=scattered).processes == world.terms.most_processes
    assert planned(looks=scattered, terms=world.terms.model_copy(update={"budget_s": 48.0})).processes < 12


def test_the_seed_decides_the_order():
    orders = {tuple(change.name for change in Search([gain_everywhere(6).begin().model_copy(
        update={"terms": SearchTerms(seed=seed)})]).in_order()) for seed in range(20)}
    assert len(orders) > 10


def test_together_joins_what_its_parts_set():
    made = together([Candidate("b", "B", {"y": "2"}, ("two",), "fp16", ("float16",)), Candidate("a", "A", {"x": "1"})])
    assert (made.name, made.settings, made.rewrite, made.precisions) == (
        "a + b", {"x": "1", "y": "2"}, "fp16", ("float16",))
    assert made.conflicts(Candidate("c", "C", {"y": "3"})) and made.conflicts(Candidate("c", "C", rewrite="int8"))
    assert not made.conflicts(Candidate("c", "C", {"z": "3"}))

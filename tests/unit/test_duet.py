"""The raw record of a duet, the turns of its processes, and its sides, without measuring anything."""

from __future__ import annotations

import random
from itertools import groupby

import numpy as np
import pytest

from aaco.core.config import resolve
from aaco.core.errors import BadCapture, Missing, UsageError
from aaco.core.plan import Planned
from aaco.runner import duet_worker, pairs
from aaco.runner.duet_worker import OPEN, WARMUP
from aaco.runner.job import DuetJob
from aaco.runner.pairs import DuetPlan
from aaco.workflows.duet import kept, sides
from aaco.workflows.duet.compare import DuetRequest, DuetSide

PLANNED = DuetPlan(0, "change", (1, 0), (0, 1, 1))


def rows(*changed, planned=PLANNED):
    """Rows as the plan says, each turn 100 ns + 10 x side long; changed: (row, column, value)."""
    turns = [(pair, side) for pair, first in enumerate(planned.first) for side in (first, 1 - first)]
    found = [[pair, side, 1000 * turn + 1, 1000 * turn + 101 + 10 * side, 50 + turn]
             for turn, (pair, side) in enumerate(turns)]
    for row, column, value in changed:
        found[row][column] = value
    return np.array(found, "<i8").tobytes()


def written(folder, content, process=0):
    path = pairs.path_of(folder, process)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return folder


def test_pairs_say_which_side_was_created_and_ran_first(tmp_path):
    """Mutation: the sides of a pair in the order they ran."""
    table = pairs.parse(written(tmp_path, rows()), [PLANNED]).to_pydict()
    assert table["baseline_ms"] == pytest.approx([1e-4] * 3) and table["current_ms"] == pytest.approx([1.1e-4] * 3)
    assert table["ran_first"] == ["baseline", "current", "current"] and set(table["created_first"]) == {"current"}
    assert table["spin_ns"] == [51, 53, 55] and table["disturbed"] == [None] * 3
    commands = DuetPlan(0, "change", None, (0, 1, 1))
    assert pairs.parse(tmp_path, [commands])["created_first"].null_count == 3


@pytest.mark.parametrize("changed", [(0, 0, 1), (1, 1, 0), (2, 3, 2001), (3, 2, 1), (4, 4, 0), (5, 0, -1)])
def test_rows_that_cannot_be_are_refused(tmp_path, changed):
    """Mutation: the order of rows not held against the plan."""
    with pytest.raises(BadCapture):
        pairs.parse(written(tmp_path, rows(changed)), [PLANNED])


def test_cut_and_flipped_records_are_read_or_refused(tmp_path):
    whole, rng = rows(), random.Random(5)
    for cut in range(len(whole)):
        assert pairs.parse(written(tmp_path, whole[:cut]), [PLANNED]).num_rows == cut // pairs.ROW.size // 2
    for _ in range(200):
        broken = bytearray(whole)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        try:
            table = pairs.parse(written(tmp_path, bytes(broken)), [PLANNED])
        except BadCapture:
            continue
        assert min(table["baseline_ms"].to_pylist() + table["current_ms"].to_pylist()) > 0


def test_a_record_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadCapture, match="No such file"):
        pairs.parse(tmp_path, [PLANNED])


def test_more_rows_than_planned_are_refused(tmp_path):
    with pytest.raises(BadCapture, match="planned"):
        pairs.parse(written(tmp_path, rows(planned=DuetPlan(0, "change", (1, 0), (0, 1, 1, 0)))), [PLANNED])


@pytest.mark.parametrize("changed", [{"created": [0, 0]}, {"first": [2]}, {"kind": "neither"}])
def test_a_plan_that_cannot_be_is_refused(changed):
    with pytest.raises(ValueError):
        DuetPlan.of(PLANNED.document() | changed)
    assert DuetPlan.of(PLANNED.document()) == PLANNED


def test_controls_are_one_side_twice():
    assert [DuetPlan(0, kind, (0, 1), ()).sides for kind in ("change", "baseline control", "current control")] \
        == [(0, 1), (0, 0), (1, 1)]


def test_sides_are_opened_as_drawn_and_warmed_up_in_turns():
    """Mutation: warm-up of one side only."""
    job = DuetJob(parent=0, outcome="", rows="", sides=[], mine=[0, 1], created=[1, 0], first=[0, 1, 1], warmup=2)
    found = [(turn.pair, turn.side) for turn in duet_worker.turns(job)]
    assert found[:2] == [(OPEN, 1), (OPEN, 0)] and found[2:6] == [(WARMUP, 1), (WARMUP, 0)] * 2
    assert found[6:] == [(0, 0), (0, 1), (1, 1), (1, 0), (2, 1), (2, 0)]
    assert [len(list(group)) for _, group in groupby(found[6:], key=lambda turn: turn[0])] == [2, 2, 2]


@pytest.fixture(scope="module")
def settings_here(tmp_path_factory):
    return resolve(overrides={"storage": {"cache_dir": tmp_path_factory.mktemp("cache")}}, environment={})


def test_what_differs_between_two_sides_is_named(settings_here):
    """Mutation: the session's options left out of the facts."""
    before = sides.prepare(DuetSide(model="bert-tiny"), settings_here, {})
    after = sides.prepare(DuetSide(model="bert-tiny", options={"intra_op_threads": "1", "graph_optimization": "basic"},
                               environment={"OMP_NUM_THREADS": "1", "MY_TOKEN": "hunter2hunter2"}), settings_here, {})
    ran = {"baseline": {"onnxruntime": "1.2"}, "current": {"onnxruntime": "1.3"}}
    found = {item.fact: (item.baseline, item.current) for item in sides.differences(before, after, ran)}
    assert found == {"graph_optimization": ("all", "basic"), "session.intra_op_num_threads": (None, "1"),
                     "environment.OMP_NUM_THREADS": (None, "1"), "environment.MY_TOKEN": (None, "<withheld>"),
                     "onnxruntime": ("1.2", "1.3")}
    assert before.same_as != after.same_as and before.on_host
    assert before.same_as == sides.prepare(DuetSide(model="bert-tiny"), settings_here, {}).same_as


@pytest.mark.parametrize("side, error", [
    (DuetSide(model="bert-tiny", options={"speed": "1"}), UsageError),
    (DuetSide(model="bert-tiny", options={"intra_op_threads": "many"}), UsageError),
    (DuetSide(model="bert-tiny", options={"batch": "0"}), UsageError),
    (DuetSide(model="bert-tiny", options={"session.enable_mem_patern": "false"}), UsageError),
    (DuetSide(model="bert-tiny", environment={"a b": "1"}), UsageError),
    (DuetSide(command=("true",), options={"batch": "1"}), UsageError),
    (DuetSide(command=("no-such-command-here",)), Missing)])
def test_sides_that_cannot_be_are_refused(settings_here, side, error):
    with pytest.raises(error):
        sides.prepare(side, settings_here, {})


@pytest.mark.parametrize("asked", [
    {"processes": 1}, {"pairs": 0}, {"level": 1.0}, {"level": 0.1}, {"tolerance_pct": 0.4}, {"most": 4}])
def test_requests_that_cannot_be_are_refused(asked):
    with pytest.raises(UsageError):
        DuetRequest(**asked)


def test_the_command_to_do_it_again_names_all_but_secrets():
    side = DuetSide(command=("tool", "--password", "hunter2hunter2"))
    words = kept.words(side, DuetSide(command=("tool",), environment={"A": "b c"}), DuetRequest(most=9),
                       {"timeout_s": 3.0}, 7)
    assert "hunter2" not in words and "--seed 7" in words and "--most-processes 9" in words
    assert "--env-b 'A=b c'" in words and "--timeout 3.0" in words


def test_how_a_run_measures_is_no_setting_of_a_duet(settings_here):
    """Mutation: the laboratory and the warm-up of runs taken over, of models alone: that of commands has neither."""
    of_runs = resolve(overrides={"storage": {"cache_dir": settings_here.config.storage.cache_dir},
                                 "profiling": {"warmup": "auto", "lab": "basic"}}, environment={})
    plan = sides.prepare(DuetSide(model="bert-tiny"), of_runs, {}).plan
    assert (plan.lab, plan.settle) == (None, False)
    assert sides.prepare(DuetSide(model="bert-tiny"), of_runs, {"lab": "strict"}).plan.lab == "strict"


def test_a_plan_of_a_comparison_is_one_of_a_session(settings_here):
    prepared = sides.prepare(DuetSide(command=("true",)), settings_here, {})
    assert Planned.model_validate(dict(prepared.identifies["plan"])).model == "true"

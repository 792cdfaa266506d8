"""Kernels that another process stopped: found where steps repeat, and not where the program itself does more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from aaco import pipeline
from aaco.analytics.timeline.preempted import find
from aaco.core.config import resolve

OWN = Path(__file__).parents[1] / "captures/whole_programs"
STEPS, PLACES = 10, 6
USUAL = np.arange(300_000, 300_000 + 10_000 * PLACES, 10_000)
SLICE_NS = 2_200_000


def lengths(stopped=()):
    """Ten steps of six kernels, those at (step, place) a time slice longer."""
    table = np.tile(USUAL, (STEPS, 1))
    for step, place in stopped:
        table[step, place] += SLICE_NS
    return table


def found(table, steps=STEPS, launch=None):
    """What is found in a table of steps x places; each kernel's id is 100 + its place in the order."""
    count = table.size
    launch = np.tile(np.arange(table.shape[1]), len(table)) if launch is None else launch
    return find(100 + np.arange(count), launch, table.reshape(-1), steps)


SCATTERED = ((0, 5), (2, 1), (5, 0), (9, 3))


def test_executions_that_took_a_slice_longer_are_found_with_their_usual_time():
    stopped = found(lengths(SCATTERED))
    assert stopped.kernel_id.tolist() == [100 + PLACES * step + place for step, place in SCATTERED]
    assert stopped.usual_ns.tolist() == [USUAL[place] for _, place in SCATTERED]


def test_two_are_no_evidence():
    """Mutation: `FEWEST = 3` -> `FEWEST = 1`."""
    assert not len(found(lengths(SCATTERED[:2])).kernel_id)


def test_a_place_without_a_usual_time_tells_nothing():
    """Mutation: `return longer & alike` -> `return longer`."""
    table = lengths([(step, 2) for step in (0, 1, 4, 6)])
    table[7:, 2] += np.array([300_000, 600_000, 900_000])  # so few take the same time that none is usual
    assert not len(found(table).kernel_id)


def test_a_step_in_which_most_kernels_take_longer_had_more_to_do():
    """Mutation: `<= MOST` for steps -> `<= 1`."""
    assert not len(found(lengths([(step, place) for step in (1, 4, 8) for place in range(PLACES)])).kernel_id)


def test_executions_at_one_distance_are_the_programs_own():
    """Mutation: `< 2` distances -> `< 1`."""
    table = np.full((60, 1), 300_000)
    table[::6] += SLICE_NS
    assert not len(found(table, 60).kernel_id)
    table[6], table[7] = 300_000, 300_000 + SLICE_NS
    assert len(found(table, 60).kernel_id) == 10


def test_steps_that_run_other_kernels_tell_nothing():
    """Mutation: `(launches != launches[0]).any()` -> `False`."""
    launch = np.tile(np.arange(PLACES), STEPS)
    launch[7] = 99
    assert not len(found(lengths(SCATTERED), launch=launch).kernel_id)
    assert not len(found(lengths(SCATTERED)[:, :5], steps=7).kernel_id)
    assert not len(find(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int), 5).kernel_id)


@pytest.mark.parametrize(("name", "alone"), [("shared_passes", "start_up_passes"),
                                             ("shared_products", "start_up_products")])
def test_a_program_that_shares_its_device_is_told_so_first(name, alone, tmp_path):
    """What remains of its kernels' time is what they take without the other process, to 12 %. Mutation: the kernels'
    usual time is not cut."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    own = {}
    for recording in (name, alone):
        session = pipeline.import_captures([OWN / f"{recording}.trace.json.gz"], settings).session
        explanation = pipeline.explain(session, settings)
        windows = json.loads((session.folder / "metrics/windows.json").read_text())
        (rank,), (parts,) = windows["ranks"], windows["budgets_ns"]
        assert sum(parts.values()) == rank["time"]["t_end_ns"] - rank["time"]["t_start_ns"]
        own[recording] = (parts["compute"] + parts["memory"]) / rank["time"]["kernels"]
        stopped = rank["preempted_kernels"]
        assert bool(stopped) == (recording == name)
        assert (explanation.diagnosis.label == "shared_device_bound") == (recording == name)
        if stopped:
            method = explanation.readings["shared_device_limited_pct"].method
            assert f"{stopped} kernels took 1 ms or more longer" in method
            assert explanation.diagnosis.recommendations[0].name == "have_the_device"
    assert own[name] == pytest.approx(own[alone], rel=0.12)

"""What must hold of any series of rounds, any memory and any caches."""

from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.calibration import cpu, rounds

rates = st.floats(1e-3, 1e15)


@given(st.lists(rates, max_size=30), st.integers(1, 5))
def test_settled_is_what_the_running_best_says(best, window):
    running = list(accumulate(best, max))
    slow = len(running) > window and (running[-1] - running[-1 - window]) / running[-1] < 0.01
    assert rounds.settled(best, window) == slow


@given(st.lists(rates, min_size=1, max_size=30))
def test_as_many_rounds_as_the_window_without_a_better_one_always_settle(best):
    assert rounds.settled([*best, *[min(best)] * rounds.WINDOW])


@given(st.integers(1, 3), st.integers(1, 8), st.integers(500, 2000))
def test_rows_stay_inside_their_lane(lanes, passes, length):
    memory = np.zeros(length, np.float32)
    for number, lane in enumerate(cpu.overlapping_rows(memory, lanes, passes), start=1):
        lane[:] = number  # as the streams write
    span = length // lanes
    assert [set(memory[at * span:(at + 1) * span]) for at in range(lanes)] == [{at + 1} for at in range(lanes)]
    assert not memory[lanes * span:].any()


@given(st.lists(st.integers(1 << 10, 1 << 32), min_size=1, max_size=4), st.integers(1, 256))
def test_a_working_set_lies_between_two_levels(sizes, cpus):
    caches = dict(enumerate(sizes, start=1))
    for level, size in cpu.working_sets(caches, cpus).items():
        assert 2 * (caches[level - 1] // cpus) <= size <= caches[level] / cpus / 2

"""Offsets between clocks."""

import time

from aaco.core import clocks


def test_an_instant_maps_from_realtime_to_monotonic():
    began = time.monotonic_ns()
    offsets = clocks.snapshot()
    before = time.monotonic_ns()
    mapped = offsets.from_realtime(time.time_ns())
    after = time.monotonic_ns()
    slack = offsets.uncertainty_ns + 1_000_000  # the kernel may slew the realtime clock a little meanwhile
    assert before - slack <= mapped <= after + slack
    assert 0 <= offsets.uncertainty_ns <= (before - began) / 9  # the tightest of nine brackets


def test_a_planted_offset_is_taken_out_exactly():
    offsets = clocks.ClockOffsets(monotonic_ns=1_000, boottime_ns=5_000, realtime_ns=9_000_000, uncertainty_ns=10)
    assert offsets.from_realtime(9_000_250) == 1_250

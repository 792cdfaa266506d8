"""The raw rows of a timing run, and when the run stops."""

import os
import struct

import numpy as np
import pytest

from aaco.core.errors import BadCapture
from aaco.runner import iterations
from aaco.runner.stopping import Stop


def write(folder, process, rows, tail=b""):
    path = iterations.path_of(folder, process)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    for row in rows:
        iterations.append(descriptor, *row)
    os.write(descriptor, tail)
    os.close(descriptor)
    return path


def test_rows_come_back_as_the_table(tmp_path):
    write(tmp_path, 0, [(0, 0, 10, 1_000_010), (0, 1, 20, 2_000_020)])
    path = write(tmp_path, 1, [(0, 1, 30, 500_030)])
    table = iterations.parse(tmp_path, batch=3)
    assert table["phase"].to_pylist() == ["warmup", "measurement", "measurement"]
    assert table["latency_ms"].to_pylist() == [1.0, 2.0, 0.5]
    assert table["process"].to_pylist() == [0, 0, 1]
    assert table["batch"].to_pylist() == [3, 3, 3]
    assert iterations.count(path) == 1


def test_a_torn_last_row_costs_only_itself(tmp_path):
    path = write(tmp_path, 0, [(0, 1, 1, 2)], tail=b"\0" * 31)
    assert iterations.parse(tmp_path, 1).num_rows == iterations.count(path) == 1


def test_no_rows_is_an_empty_table(tmp_path):
    assert iterations.parse(tmp_path, 1).num_rows == 0
    assert iterations.count(tmp_path / "none") == 0


@pytest.mark.parametrize("row", [(0, 2, 1, 2), (0, -1, 1, 2), (0, 1, 5, 4)])
def test_an_impossible_row_is_a_bad_capture(tmp_path, row):
    write(tmp_path, 0, [(0, 1, 1, 2)], tail=struct.pack("<4q", *row))
    with pytest.raises(BadCapture, match="row 1 is impossible"):
        iterations.parse(tmp_path, 1)


def warmed_up(series):
    """The count at which a warm-up of at most 500 ends, and why."""
    rule = Stop(500, settle=True)
    count = next(count for count in range(1, 501) if rule.reason(series[:count], 0))
    return count, rule.reason(series[:count], 0)


def test_a_warm_up_ends_once_the_latencies_have_settled():
    """Mutation: the rule of a whole series, which ends the third at 58."""
    noise = np.random.default_rng(0).normal(1, 0.02, 500)
    flat, falling = np.full(500, 1e6), 1e6 * (2 - np.arange(500) / 500)
    assert warmed_up(flat.astype(int).tolist()) == (47, "settled")
    assert warmed_up(falling.astype(int).tolist()) == (500, "iterations")
    for slow in (5, 20, 50):
        count, why = warmed_up((1e6 * noise * (1 + np.exp(-np.arange(500) / slow))).astype(int).tolist())
        assert why == "settled" and np.exp(-count / slow) < 0.005


def test_an_interrupted_inference_does_not_prolong_a_warm_up():
    series = np.full(500, 10**6)
    series[[0, 26, 40]] = 10**8
    assert warmed_up(series.tolist()) == (47, "settled")
    assert Stop(500, budget_ns=9, settle=True).reason([1] * 3, 9) == "budget"


def test_stops_at_the_count():
    assert Stop(3).reason([1, 1], 0) is None
    assert Stop(3).reason([1, 1, 1], 0) == "iterations"


def test_stops_when_the_budget_is_spent():
    assert Stop(100, budget_ns=50).reason([1], 49) is None
    assert Stop(100, budget_ns=50).reason([1], 50) == "budget"


def test_stops_when_the_median_is_known_well_enough():
    noise = np.random.default_rng(0).normal(1e6, 1e4, 4000).astype(int).tolist()
    rule = Stop(4000, precision_pct=0.2)
    stopped = next(count for count in range(1, 4001) if rule.reason(noise[:count], 0))
    # the interval of a median is about 2 x 1.96 x 1.2533 sigma / sqrt(n): 0.2 % of 1e6 with sigma 1e4 needs n near 600
    assert 300 < stopped < 1200
    assert rule.reason(noise[:stopped], 0) == "precision"


def test_a_noisy_series_goes_on_to_the_count():
    noise = np.random.default_rng(0).lognormal(0, 1, 200).tolist()
    assert Stop(200, precision_pct=0.1).reason(noise[:199], 0) is None

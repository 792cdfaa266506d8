"""The benchmark of a switch's cost: its interval covers the truth, and what it attaches is what its modes say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aaco.collectors.host import bpf, bpf_scheduler
from aaco.core.host import Host
from benchmarks import switch_cost
from benchmarks.switch_cost import Cost

live = pytest.mark.skipif(bool(reason := bpf_scheduler.why_not(Host())), reason=reason or "BPF loads here")


def test_the_interval_covers_the_truth_though_rounds_of_a_sitting_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truth 90; sittings differ by 10, rounds by 30. Mutation: draw single rounds: that covers it 75 times of 100."""
    monkeypatch.setattr(switch_cost, "RESAMPLES", 400)
    random = np.random.default_rng(3)
    found = [switch_cost.cost(90 + random.normal(0, 10, (20, 1)) + random.normal(0, 30, (20, 12)), [])
             for _ in range(200)]
    assert 180 <= sum(row.low <= 90 <= row.high for row in found) < 200
    assert np.mean([row.ns for row in found]) == pytest.approx(90, abs=1)


def test_a_bar_holds_only_if_the_whole_interval_is_within_it() -> None:
    """Mutation: judge the estimate."""
    assert switch_cost.held(Cost(90, 80, 100), "family") == "  the upper end is <= 100 ns: met"
    assert switch_cost.held(Cost(90, 80, 100.1), "filtered") == "  the upper end is > 100 ns: missed"
    assert not switch_cost.held(Cost(90, 80, 100.1), "empty")


@live
def test_each_mode_traces_whom_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every switch runs the program; it sees both players, or neither. Mutation: let them start untraced."""
    loaded: list[bpf.Feature] = []
    load = switch_cost._loaded

    def keep(*process: Any, events: bool) -> bpf.Feature:
        loaded.append(load(*process, events=events))
        return loaded[-1]

    monkeypatch.setattr(switch_cost, "_loaded", keep)
    monkeypatch.setattr(switch_cost, "TURNS", 300)
    seen = 3 + 2 * bpf_scheduler.KINDS.index("switch_voluntary")  # behind the records emitted, lost and untold
    with switch_cost.bystanders() as strangers, switch_cost.traced() as players:
        filtered, _, totals, events = loaded
        for game in (strangers, players):
            for mode, runs in game.runs.items():
                before = runs()[1]
                assert game.weigh(mode) > 0
                assert runs()[1] - before >= 600, mode
        assert sum(words[seen] for words in filtered.per_cpu("accounts")) == 0
        for feature in (totals, events):
            assert sum(words[seen] for words in feature.per_cpu("accounts")) >= 600

"""What the store knows of a benchmark enters the verdict: its own key, recent sessions, without the judged ones."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.governance.compare import Side
from aaco.tracelake.history import baselines
from aaco.tracelake.history.history import History
from aaco.tracelake.history.replicates import ProcessSample, Replicate
from aaco.workflows import compare_runs

REQUEST = compare_runs.DiffRequest(5.0)


def side(name, seed, day=1, **facts):
    rng = np.random.default_rng(seed)
    facts = {"model": "net", "machine_id": "m", "config_hash": "c", "batch": 1,
             "created_utc": f"2024-01-{day:02}T00:00:00+00:00", **facts}
    samples = tuple(ProcessSample.of(10 * np.exp(0.01 * rng.standard_normal() + 0.001 * rng.standard_normal(20)))
                    for _ in range(5))
    return Side(name, (Replicate(session_id=name, processes=samples, **facts),))


def remembered(folder, *sides):
    for one in sides:
        compare_runs.remember(folder, one)


def test_sessions_of_the_same_key_make_the_spread_better_known(tmp_path):
    """Mutation: a store that is not asked."""
    before, after = side("a", 1), side("b", 2, day=20)
    remembered(tmp_path, before, after, *(side(f"h{day}", 10 + day, day) for day in range(2, 14)))
    known = compare_runs.histories(tmp_path, before, after)
    assert set(known) == {"latency_ms", "latency_p90_ms", "throughput_per_s"}
    assert [len(epoch) for epoch in known["latency_ms"]] == [12]
    found, alone = compare_runs.judge(before, after, REQUEST, known), compare_runs.judge(before, after, REQUEST)
    assert (found.n_history, alone.n_history) == (12, 0)
    assert "12 of the history" in found.design and "not covered" in alone.design
    values = [*(one for epoch in known["latency_ms"] for one in epoch), *before.log_values(), *after.log_values()]
    assert 0.6 * np.std(values) < found.sigma_session < 1.6 * np.std(values)


def test_other_machines_configurations_and_the_judged_sessions_are_no_history(tmp_path):
    before, after = side("a", 1), side("b", 2)
    remembered(tmp_path, before, after, side("x", 3, machine_id="other"), side("y", 4, config_hash="other"),
               side("z", 5, model="other"))
    assert compare_runs.histories(tmp_path, before, after)["latency_ms"] == []
    assert compare_runs.histories(tmp_path / "nowhere", before, after) == {}


def test_only_recent_sessions_say_what_the_noise_is_today(tmp_path, monkeypatch):
    monkeypatch.setattr(compare_runs, "RECENT", 3)
    before, after = side("a", 1, day=1), side("b", 2, day=28)
    remembered(tmp_path, *(side(f"h{day}", day, day) for day in range(2, 12)), before, after)
    known = compare_runs.histories(tmp_path, before, after)["latency_ms"]
    latest = [np.log(side(f"h{day}", day, day).replicates[0].values("latency_ms")) for day in (10, 11)]
    assert np.allclose(known, [latest])  # the third is the judged session itself


def test_an_accepted_shift_splits_the_history(tmp_path):
    remembered(tmp_path, *(side(f"h{day}", day, day) for day in range(2, 12)))
    key = baselines.key(side("a", 1).replicates[0])
    with History.open(tmp_path) as history:
        history.accept(key, "h7", "Ada", "why")
    known = compare_runs.histories(tmp_path, side("a", 1), side("b", 2))["latency_ms"]
    assert [len(epoch) for epoch in known] == [5, 5]


def test_an_unlike_environment_is_said(tmp_path):
    before, after = side("a", 1, environment={"kernel": "6.1"}), side("b", 2, environment={"kernel": "6.2"})
    found = compare_runs.judge(before, after, REQUEST)
    assert [(item.fact, item.baseline, item.current) for item in found.env_diff] == [("kernel", "6.1", "6.2")]


def test_sessions_in_turns_are_paired_by_their_times():
    """Times that are equal, or not known, are no order. Mutation: sessions paired in the order they were given."""
    replicates = [side(f"s{day}", day, day).replicates[0] for day in range(1, 11)]
    first = [0, 3, 4, 7, 8]
    sides = [Side("x", tuple(replicates[index] for index in chosen))
             for chosen in (first, [index for index in range(10) if index not in first])]
    assert "in turns" in compare_runs.judge(*sides, REQUEST).design
    for unknown in (None, replicates[1].created_utc):
        changed = replicates[0].model_copy(update={"created_utc": unknown})
        other = replace(sides[0], replicates=(changed, *sides[0].replicates[1:]))
        assert "in turns" not in compare_runs.judge(other, sides[1], REQUEST).design

"""Which sessions make one twin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aaco.core.errors import UsageError
from aaco.core.readings import Reading
from aaco.core.session import Session
from aaco.core.tables import SYSTEM_EVENTS
from aaco.workflows import what_if


def ran(root, **plan):
    session = Session.create(root, {"model": "m"} | plan, "sweep", "0")
    session.amend(backend_ran="CUDAExecutionProvider")
    session.finish("complete")
    return session.id


def test_latencies_with_copies_and_without_make_no_twin_together(tmp_path):
    """Mutation: sessions of one tag taken whatever --io was: the mean of both is the latency of neither."""
    groups = [{ran(tmp_path), ran(tmp_path, io="host")}, {ran(tmp_path, io="device")}]
    newest = next(group for group in groups if max(set.union(*groups)) in group)
    assert {session.id for session in what_if.tagged("sweep", tmp_path)} == newest


def told(backend, **values):
    """A session with readings of these values and a resident set of 7."""
    names = ("latency_p50_ms", "own_peak_vram_bytes", "peak_vram_bytes", "device_power_mean_w")
    rows = SYSTEM_EVENTS.build(t_ns=[0], dur_ns=[1], kind=["rss_peak"], value=[7.0], unit=["bytes"],
                               tier=["T1"])
    return SimpleNamespace(
        session_id="s", record={"backend_ran": backend, "plan": {"batch": 1}}, runtime={"batch": 4},
        tables={"system_events": rows},
        readings={name: Reading(name, "1", values.get(name), low=values.get(name), high=values.get(name))
                  for name in names})


def test_a_twins_memory_and_power_are_those_of_the_run():
    """By one measure for all sessions. Mutations: each by its own measure; the device's under a run on CPUs; a session
    without either decides.
    """
    of_both = told("CUDAExecutionProvider", own_peak_vram_bytes=3.0, peak_vram_bytes=5.0)
    unseen = told("CUDAExecutionProvider", peak_vram_bytes=6.0)
    assert what_if._memory([of_both, of_both]) == [3.0, 3.0] and what_if._memory([of_both, unseen]) == [5.0, 6.0]
    assert what_if._memory([of_both, told("CUDAExecutionProvider")]) == [3.0, None]
    assert what_if._memory([told("CPUExecutionProvider", peak_vram_bytes=6.0)]) == [7.0]
    one = what_if._measured(told("CUDAExecutionProvider", latency_p50_ms=2.0, device_power_mean_w=305.0), 3.0)
    assert (one.batch, one.latency_ms, one.memory_bytes, one.power_w) == (4, 2.0, 3.0, 305.0)


def test_named_sessions_that_differ_in_where_data_lay_are_refused():
    def one(number, **plan):
        return SimpleNamespace(session_id=str(number), captures={}, model={"sha256": "a"}, machine={"id": "b"},
                               record={"plan": {"batch": 1} | plan, "backend_ran": "c"}, status="complete", runtime={})

    what_if._refuse_strangers([one(1), one(2, io="host")])
    with pytest.raises(UsageError, match="sessions 1 and 2 differ in their --io"):
        what_if._refuse_strangers([one(1), one(2, io="device")])

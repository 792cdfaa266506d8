"""Which sessions make one twin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aaco import whatif
from aaco.core.errors import UsageError
from aaco.core.session import Session


def ran(root, **plan):
    session = Session.create(root, {"model": "m"} | plan, "sweep", "0")
    session.amend(backend_ran="CUDAExecutionProvider")
    session.finish("complete")
    return session.id


def test_latencies_with_copies_and_without_make_no_twin_together(tmp_path):
    """Mutation: sessions of one tag taken whatever --io was: the mean of both is the latency of neither."""
    groups = [{ran(tmp_path), ran(tmp_path, io="host")}, {ran(tmp_path, io="device")}]
    newest = next(group for group in groups if max(set.union(*groups)) in group)
    assert {session.id for session in whatif.tagged("sweep", tmp_path)} == newest


def test_named_sessions_that_differ_in_where_data_lay_are_refused():
    def one(number, **plan):
        return SimpleNamespace(session_id=str(number), captures={}, model={"sha256": "a"}, machine={"id": "b"},
                               record={"plan": {"batch": 1} | plan, "backend_ran": "c"}, status="complete", runtime={})

    whatif._refuse_strangers([one(1), one(2, io="host")])
    with pytest.raises(UsageError, match="sessions 1 and 2 differ in their --io"):
        whatif._refuse_strangers([one(1), one(2, io="device")])

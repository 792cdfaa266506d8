"""Which processes are ours: by descent, and by the mark that they inherit."""

import os
import subprocess
import sys

from aaco.collectors.gpu import own_processes
from aaco.collectors.gpu.own_processes import MARK, OwnProcesses, marked, own_mark
from tests.fakes.daemons import daemon

NOBODY = 2**30  # of no process


def test_a_daemon_is_known_by_its_mark_alone():
    """Mutations: descent alone; any recording's mark; a mark that a longer one begins with."""
    with marked() as mark, daemon() as pid:
        assert OwnProcesses(NOBODY, mark).has(pid) is True
        for other in ("", mark[:-1], "0" * 16):
            assert OwnProcesses(NOBODY, other).has(pid) is False
    with marked() as mark, daemon({"PATH": os.environ["PATH"]}) as pid:
        assert OwnProcesses(NOBODY, mark).has(pid) is False, "an environment of its own: a limit that is documented"


def test_a_recording_within_another_is_of_both():
    """And the environment is as before, after each. Mutations: the inner mark alone; the outer one told as its own."""
    before = os.environ.get(MARK)
    with marked() as outer:
        with marked() as inner, daemon() as pid:
            assert own_mark() == inner
            assert OwnProcesses(NOBODY, outer).has(pid) and OwnProcesses(NOBODY, inner).has(pid)
        assert os.environ[MARK] == (f"{before}:{outer}" if before else outer)
    assert os.environ.get(MARK) == before


def test_a_descendant_needs_no_mark():
    """Of whom the environment tells nothing. Mutation: marks alone."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={}) as child:
        assert OwnProcesses(os.getpid(), "0" * 16).has(child.pid) is True
        child.communicate(b"\n")
    assert OwnProcesses(os.getpid(), "0" * 16).has(child.pid) is None


def test_environments_are_read_once_per_process(monkeypatch):
    """Mutation: at each look."""
    with marked() as mark, daemon() as pid:
        known = OwnProcesses(NOBODY, mark)
        assert known.has(pid)
        monkeypatch.setattr(own_processes.OwnProcesses, "_is_marked", lambda *given: 1 / 0)
        assert known.has(pid)

"""The guest is what the other tests take it for."""

from __future__ import annotations

import os
from pathlib import Path


def test_it_is_debians_kernel() -> None:
    assert os.uname().release.startswith("6.1.0-")
    assert os.cpu_count() == 2


def test_control_groups_are_version_2_alone() -> None:
    controllers = Path("/sys/fs/cgroup/cgroup.controllers").read_text().split()
    assert {"cpuset", "cpu", "memory", "io", "pids"} <= set(controllers)

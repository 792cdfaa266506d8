"""Nothing half-written looks whole: a small part of benchmarks/durability, which disturbs more often."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import durability


@pytest.fixture
def can_mount(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs")
    subprocess.run(["umount", folder], check=True)


def test_an_import_that_is_killed_is_told(tmp_path: Path) -> None:
    """Mutation: the status is written before the tables."""
    (row,) = durability.measure(tmp_path, 5, 0, ["import"])
    assert row["wrong"] == [] and sum(row["left"].values()) >= 5


@pytest.mark.usefixtures("can_mount")
def test_a_full_disk_leaves_nothing_that_looks_whole_and_nothing_hidden(tmp_path: Path) -> None:
    """Mutation: the folder of a session that could not be begun stays."""
    (row,) = durability.measure(tmp_path, 0, 3, ["import"])
    assert row["wrong"] == [] and "complete" not in row["left"]

"""Bundles of generated fleets for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet._bundles import FleetPlan, write


def bundles_of(plan: FleetPlan) -> Any:
    """Return a fixture: a folder with the bundles of a fleet, in the order of their sessions, made once for a file."""
    @pytest.fixture(scope="module")
    def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("fleet") / "bundles"
        list(write(path, plan))
        return path

    return folder

"""Bundles of generated fleets for tests."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from aaco.fleet import compaction
from aaco.fleet.catalog import Catalog
from aaco.fleet.store import FolderStore
from benchmarks.fleet._bundles import FleetPlan, write

KEPT = "TESTS_KEPT_FLEETS"  # a folder where programs that run one test each keep what they made for the next


def bundles_of(plan: FleetPlan) -> Any:
    """Return a fixture: a folder with the bundles of a fleet, in the order of their sessions, made once for a file."""
    @pytest.fixture(scope="module")
    def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("fleet") / "bundles"
        if KEPT not in os.environ:
            list(write(path, plan))
            return path
        kept = Path(os.environ[KEPT], hashlib.sha256(repr(plan).encode()).hexdigest())
        if not kept.is_dir():
            list(write(part := kept.with_suffix(".part"), plan))
            part.rename(kept)
        return shutil.copytree(kept, path)

    return folder


def manifest_of(lake: Path) -> compaction.LakeManifest:
    """Return the present list of a lake's compacted files."""
    store = FolderStore(lake)
    with Catalog.open(store) as catalog:
        return compaction.read_manifest(store, catalog.state().manifest)

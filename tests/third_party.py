"""Where the third-party captures lie, which are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def captures() -> Path:
    """The folder that AACO_CAPTURES names, by default ../shared/data; a test without it is skipped, on CI it fails."""
    folder = Path(os.environ.get("AACO_CAPTURES") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        assert os.environ.get("CI") != "true", f"CI needs the third-party captures, and {folder} is not there"
        pytest.skip(f"no third-party captures: {folder} is not there; AACO_CAPTURES names another folder")
    return folder


def cases() -> Path:
    """The folder of small inputs with a planted or recorded fault, beside the captures."""
    folder = captures().parent / "cases"
    if not folder.is_dir():
        assert os.environ.get("CI") != "true", f"CI needs the cases, and {folder} is not there"
        pytest.skip(f"no cases: {folder} is not there, beside the folder that AACO_CAPTURES names")
    return folder

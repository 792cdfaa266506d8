"""The Python page: its blocks run in order in one process, as a reader would; and every public name is on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aaco as package
from aaco import Analysis, Comparison, Observatory
from tests.system.conftest import Aaco

GUIDE = (Path(__file__).parents[2] / "docs/guides/python.md").read_text()


def test_the_blocks(tmp_path, cache):
    """Mutation: a has_regression that is False where nothing can be told."""
    aaco = Aaco(tmp_path, cache)
    code = "".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=aaco.environment(), text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "bottleneck: " in lines[0] and lines[1] == "first.html" and (tmp_path / "first.html").stat().st_size > 10_000
    assert lines[2].startswith("throughput_per_s ") and "ran on the host CPU" in lines[3]
    assert lines[4].startswith("20 latencies") and "kernel_name" in lines[5]
    assert lines[6] == "inconclusive None" and lines[7].startswith("INCONCLUSIVE: ")
    assert "Measure 5 processes a side" in done.stdout
    assert lines[-3:-1] == ["elsewhere", "2.0"] and lines[-1].endswith("| 5")


def test_every_public_name_is_on_the_page():
    """Mutation: a public method that the page does not name."""
    known = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    members = {name for kind in (Observatory, Analysis, Comparison) for name in vars(kind) if not name.startswith("_")}
    fields = {name for kind in (Analysis, Comparison) for name in kind.__dataclass_fields__}
    assert (members | fields | set(package.__all__)) - {"__version__"} <= known

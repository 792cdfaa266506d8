"""The Python page: its blocks run in order in one process, as a reader would; and every public name is on it."""

from __future__ import annotations

import re
from pathlib import Path

import aaco as package
from aaco import Analysis, Comparison, Observatory

GUIDE = (Path(__file__).parents[2] / "docs/guides/python.md").read_text()


def test_the_blocks(walked):
    """Mutation: a has_regression that is False where nothing can be told."""
    page = walked("docs/guides/python.md")
    said = "".join(page.printed)
    lines = said.splitlines()
    assert "bottleneck: " in lines[0] and lines[1] == "first.html"
    assert (page.aaco.folder / "first.html").stat().st_size > 10_000
    assert lines[2].startswith("throughput_per_s ") and "ran on the host CPU" in lines[3]
    assert lines[4].startswith("20 latencies") and "kernel_name" in lines[5]
    assert lines[6] == "inconclusive None" and lines[7].startswith("INCONCLUSIVE: ")
    assert "Measure 5 processes a side" in said
    assert lines[-3:-1] == ["elsewhere", "2.0"] and lines[-1].endswith("| 5")


def test_every_public_name_is_on_the_page():
    """Mutation: a public method that the page does not name."""
    known = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    members = {name for kind in (Observatory, Analysis, Comparison) for name in vars(kind) if not name.startswith("_")}
    fields = {name for kind in (Analysis, Comparison) for name in kind.__dataclass_fields__}
    assert (members | fields | set(package.__all__)) - {"__version__"} <= known

"""What the guides list is what the code has: formats of imports, levels of the laboratory."""

from __future__ import annotations

import re
from pathlib import Path

from aaco.laboratory import levels
from aaco.profiler.formats import registry

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/import.md").read_text()


def test_every_format_is_in_the_guide():
    table = GUIDE.partition("## What is taken from each")[2]
    first = "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
    named = set(re.findall(r"`([a-z0-9_]+)`", first))
    assert set(registry.parsers()) <= named


def test_the_levels_of_the_laboratory_are_those_in_the_code():
    """Essential knobs in bold."""
    guide = (ROOT / "docs/guides/laboratory.md").read_text()
    rows = {row[0].strip(): row[1] for row in re.findall(r"^\| `?([a-z ]+)`?[^|]*\| (.*) \|$", guide, re.MULTILINE)}
    for level, added in levels.ADDED.items():
        assert [name.strip("*`") for name in rows[level].split(", ") if added] == list(added)
        assert {name.strip("*`") for name in rows[level].split(", ") if name.startswith("**")} \
            == {name for name, essential in added.items() if essential}
    assert re.findall(r"`(\w+)`", rows["on request"]) == list(levels.ON_REQUEST)

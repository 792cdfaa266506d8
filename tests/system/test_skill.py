"""The skill for agents: its front matter, its fields, its commands; tests/system/test_pages.py runs its blocks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from aaco import cli

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills/aaco"
ANSWERS = "skills/aaco/references/answers.md"


def test_the_front_matter_names_it():
    """As the format demands: a short name like the folder's, and one description of at most 1024 characters."""
    head, _, body = (SKILL / "SKILL.md").read_text().removeprefix("---\n").partition("\n---\n")
    facts = yaml.safe_load(head)
    assert set(facts) == {"name", "description"} and facts["name"] == SKILL.name
    assert 20 < len(facts["description"]) <= 1024 and len(body.splitlines()) < 500


def test_every_command_that_it_names_exists():
    named = {command for path in SKILL.rglob("*.md") for command in re.findall(r"`aaco ([a-z-]+)", path.read_text())}
    assert len(named) > 12 and named <= set(cli.app.commands_table)


def fields(title: str) -> set[str]:
    part = next(part for part in (ROOT / ANSWERS).read_text().split("\n## ") if part.startswith(title))
    return {name for row in re.findall(r"^\| (`[^|]*`) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def test_the_fields_that_it_names_are_in_the_documents(walked):
    """Mutation: a field of the verdict renamed."""
    page = walked(ANSWERS)
    verdict = json.loads(page.printed[-1])
    assert fields("A verdict") <= verdict.keys()
    text = (ROOT / ANSWERS).read_text()
    assert verdict["status"] in re.findall(r"`(\w+)`", text)
    bottleneck = json.loads((page.aaco.latest / "metrics/bottleneck.json").read_text())
    assert fields("A bottleneck") <= bottleneck.keys()
    readings = json.loads((page.aaco.latest / "metrics/derived_metrics.json").read_text())
    median = readings["latency_p50_ms"]
    assert median["value"] is not None and {"unit", "ci_low", "ci_high"} <= median.keys()
    absent = [each for each in readings.values() if isinstance(each, dict) and each.get("value", 0) is None]
    assert absent and all(each["why_absent"] for each in absent)

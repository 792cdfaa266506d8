"""`aaco root-cause` on real sessions: the documented commands, and what is said where evidence is missing."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def folder(walked):
    """The documented commands, in order."""
    page = walked("docs/concepts/root-cause.md")
    return page.aaco, page.said


def test_the_documented_commands_answer_and_rest_on_what_was_fed(folder):
    """Four times as much was fed: whatever else a busy machine does, that speaks for the batch, and the sums are whole.
    """
    aaco, said = folder
    document = json.loads(aaco.inside("root-cause", "after", "--baseline", "before", "--json").stdout)
    answers = {one["cause"]: one for one in document["answers"]}
    assert answers["batch"]["parts"]["elements"] > 5
    for one in answers.values():
        total = one["log_prior_odds"] + one["head_start"] + sum(one["parts"].values())
        assert one["log_odds"] == pytest.approx(total)
    assert {"fact": "batch", "baseline": 1, "current": 4} in document["differences"]
    assert document["confirmed"] == {"batch": 1}
    evidence = {item["name"]: item for item in document["evidence"]}
    assert evidence["elements"]["value"] == 4 * evidence["elements"]["baseline"]
    assert not evidence["memory_copy"]["missing"] and not evidence["parallelism"]["missing"]
    deep = next(text for line, text in said.items() if "deep-dive" in line)
    assert "log odds against no_fault" in deep and "missing evidence" in deep
    assert "experiment" in next(text for line, text in said.items() if "--check" in line)


def test_without_telemetry_the_evidence_is_missing_and_said_so(folder):
    aaco, _ = folder
    aaco.inside("run", "bert-tiny", "--iterations", 20, "--no-profile", "--quiet", "--tag", "blind")
    document = json.loads(aaco.inside("root-cause", "blind", "--baseline", "before", "--json").stdout)
    evidence = {item["name"]: item for item in document["evidence"]}
    for name in ("parallelism", "interrupts", "memory_copy", "operators_executed"):
        assert evidence[name]["missing"] and evidence[name]["value"] is None and evidence[name]["why_missing"]
        assert all(one["parts"][name] == 0 for one in document["answers"])
    assert any("no telemetry" in note for note in document["notes"])
    assert any("was not profiled" in note for note in document["notes"])


def test_a_session_against_itself_has_nothing_to_explain(folder):
    """The change is 0 exactly, whatever the machine does. Mutation: `why` without the measured change."""
    aaco, _ = folder
    document = json.loads(aaco.inside("root-cause", "before", "--baseline", "before", "--json").stdout)
    assert document["status"] == "nothing_to_explain" and document["cause"] is None and document["answers"]
    assert document["measured"]["period_pct"] == document["measured"]["latency_pct"] == 0
    text = aaco.inside("root-cause", "before", "--baseline", "before").stdout
    assert "nothing to explain" in text and "unknown" not in text
    explained = json.loads(aaco.inside("root-cause", "after", "--baseline", "before", "--json").stdout)
    assert explained["status"] == "explained" and explained["cause"] is not None
    sides = {(item["side"], item["session_id"]) for item in explained["contaminated"]}
    assert sides <= {("baseline", explained["baseline_sessions"][0]), ("session", explained["session_id"])}


def test_what_cannot_be_answered_is_refused(folder):
    aaco, _ = folder
    assert "name a baseline" in aaco.inside("root-cause", "after", expect=2).stderr
    assert "neither a baseline" in aaco.inside("root-cause", "after", "--baseline", "nothing", expect=2).stderr
    refused = aaco.inside("root-cause", "after", "--confirm", "gremlins", expect=2)
    assert "no cause that can be answered" in refused.stderr

"""`aaco summary` and `aaco chi` of a recorded run."""

import json


def test_a_summary_is_a_few_lines_and_a_document(recorded):
    lines = recorded.inside("summary").stdout.splitlines()
    assert len(lines) <= 25 and any(recorded.latest.name in line for line in lines[:14])
    assert any(line.strip().startswith("Measurement: quality score ") for line in lines[:14])
    document = json.loads(recorded.inside("summary", "latest", "--json").stdout)
    assert document["bottleneck"]["bottleneck_class"] and document["readings"]["latency_p50_ms"] > 0


def test_chi_says_what_it_rests_on_and_why_there_is_no_trend(recorded):
    text = recorded.inside("chi").stdout
    assert text.startswith("COMPUTE HEALTH INDEX: ") and "% of the weight measured" in text and "no trend: " in text
    document = json.loads(recorded.inside("chi", "--json").stdout)
    assert set(document["parts"]) == {"stability", "efficiency", "launch", "clock", "thermal", "system"}
    weight = sum(part["weight"] for part in document["parts"].values() if part["worth"] is not None)
    assert abs(document["coverage"] - weight) < 1e-9
    assert (document["value"] is None) == (weight < 0.6 - 1e-9)
    assert all(part["why_absent"] for part in document["parts"].values() if part["worth"] is None)

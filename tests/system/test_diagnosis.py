"""The page about the diagnosis, command by command, on a recording with a planted bottleneck; and what it answers."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "captures" / "torch_scenarios"


@pytest.mark.parametrize(("name", "label", "first"), [
    ("launch_tiny_mlp", "launch_bound", "larger_device_batch"), ("memory_adam", "memory_bound", "fusion"),
    ("compute_gemm_fp32_4096", "compute_bound", "narrower_types"),
    ("compute_gemm_bf16_4096", "compute_bound", "eight_bit_types"), ("latency_chase_1", "memory_latency_bound",
                                                                "more_in_flight"),
    ("cpu_allocation_churn", "cpu_bound", "keep_memory"), ("transfer_upload_pageable", "transfer_bound",
                                                                           "inputs_on_device")])
def test_a_planted_bottleneck_is_named_with_what_to_do(aaco, name, label, first):
    """Mutation: HOST parts without `pause` call cpu_allocation_churn launch_bound."""
    aaco.inside("import", OWN / f"{name}.trace.json.gz", "--latency", OWN / f"{name}.lat.csv")
    found = json.loads(next((aaco.folder / "sessions").glob("latest/metrics/bottleneck.json")).read_text())
    assert found["bottleneck_class"] == label and found["confidence"] > 0.6
    best = found["optimization_priority"][0]
    assert best["action"] == first and 0 < best["gain_pct"] <= 100 and best["share_pct"] <= 100
    if best.get("speedup_at_most"):
        assert best["gain_pct"] <= 100 * (1 - 1 / best["speedup_at_most"]) + 1e-9


def test_a_latency_that_is_none_leaves_no_session(aaco):
    refused = aaco.inside("import", OWN / "memory_softmax.trace.json.gz", "--latency", "-3", expect=2)
    assert "no time that a step takes" in refused.stderr and not (aaco.folder / "sessions").exists()


def test_a_damaged_verdict_is_said_and_mended(aaco):
    aaco.inside("import", OWN / "launch_tiny_mlp.trace.json.gz")
    verdict = next((aaco.folder / "sessions").glob("latest/metrics/bottleneck.json"))
    whole = verdict.read_text()
    verdict.write_text(whole[:100])
    said = aaco.inside("report", "--format", "markdown").stdout
    assert "metrics/bottleneck.json is damaged (not valid JSON" in said and "aaco analyze" in said
    aaco.inside("analyze")
    assert verdict.read_text() == whole


def test_a_missing_part_of_the_examination_is_named(aaco):
    aaco.inside("import", OWN / "launch_tiny_mlp.trace.json.gz")
    part = next((aaco.folder / "sessions").glob("latest/metrics/idle.json"))
    part.unlink()
    refused = aaco.inside("report", expect=2).stderr
    assert "metrics/idle.json: missing" in refused and "try: aaco analyze" in refused
    aaco.inside("analyze")
    assert part.exists()


def test_how_active_the_device_was_says_of_which_steps(aaco):
    """It stands beside the timeline of the whole trace. Mutation: the steps are left out."""
    aaco.inside("import", OWN / "launch_tiny_mlp.trace.json.gz")
    report = aaco.inside("report").stdout
    assert "GPU active            0.0599 (host-limited), steps 2-4\n" in report


def test_of_a_trace_what_if_names_the_command_that_answers(aaco):
    """Mutation: only runs of a model are named."""
    aaco.inside("import", OWN / "launch_tiny_mlp.trace.json.gz")
    assert f"aaco critical-path {aaco.latest.name} --what-if graph" in aaco.inside("what-if", expect=2).stderr
    assert "at most" in aaco.inside("critical-path", "--what-if", "graph").stdout

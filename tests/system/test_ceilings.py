"""Ceilings of recorded steps on every screen: one number, T / F, and never less than what the change gained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aaco.analytics.advice.floors import Floors
from aaco.analytics.advice.work import LAUNCH_NS
from aaco.core.session import Session
from aaco.steps.findings import step_work
from tests.third_party import captures

CHANGES = Path(__file__).parents[1] / "captures/torch_changes"

# Changes of the recorded pairs, and the action that advises them.
PAIRS = {"rnn__cell_loop_to_graph": "device_graph", "dlrm__pageable_to_pinned": "pin_memory",
         "diffusion__fp32_to_bf16": "narrower_types", "unet_train__checkpointing_off": "keep_activations",
         "gpt_prefill__all_logits_to_last": "last_logits", "unet_train__tf32_to_bf16_autocast": "narrower_types",
         "dlrm__table_loop_to_stacked": "batch_the_loop", "unet_train__loop_to_fused_adamw": "fuse_optimizer",
         "gpt_prefill__manual_attention_to_sdpa": "fuse_attention", "dlrm__fp32_to_bf16_tables": "narrower_types",
         "moe__where_per_expert_to_sorted_bmm": "batch_the_loop"}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_ceiling_is_above_what_was_measured_and_the_same_everywhere(aaco, pair):
    """Mutation: a floor is twice as high."""
    recorded = next(entry for entry in json.loads((captures() / "pairs/pairs.json").read_text())["pairs"]
                    if entry["pair"] == pair)
    step_ms = recorded["before"]["step_ms"]
    aaco.inside("import", captures() / "pairs" / pair / "before.trace.json.gz", "--latency", str(step_ms), "--quiet")
    floors = json.loads((aaco.latest / "metrics/floors.json").read_text())
    answer = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
    (action,) = [entry for entry in answer["optimization_priority"] if entry["action"] == PAIRS[pair]]
    assert floors["unprofiled"] and floors["step_ns"] == pytest.approx(1e6 * step_ms)
    assert action["speedup_at_most"] == pytest.approx(step_ms / action["floor_ms"])
    assert action["speedup_at_most"] >= 0.98 * recorded["speedup"]
    assert action["ceiling_of"] == "the step without a profiler"
    ceiling = action["speedup_at_most"]
    words = f"at most {ceiling:.2f} x faster" if ceiling <= 20 else "no telling ceiling"
    screen = " ".join(aaco.inside("summary").stdout.split())
    assert ceiling > 20 or action["title"] not in screen or f"at most {ceiling:.2f} x" in screen
    assert words in " ".join(aaco.inside("report").stdout.split())
    asked = json.loads(aaco.inside("critical-path", "--what-if", action["mechanism"], "--json").stdout)["ceiling"]
    assert asked["speedup_at_most"] == pytest.approx(ceiling) and asked["floor_ms"] == pytest.approx(action["floor_ms"])


@pytest.mark.parametrize("pair", PAIRS)
def test_what_confirms_a_change_moved_as_said_where_it_gained(aaco, pair):
    """Mutations: `compute_limited_pct` of activations that are kept, whose share of a shorter step is larger, and of a
    recommender in 16 bits, whose products take more of a step with shorter gathers; `memory_limited_pct` of a fused
    optimizer.
    """
    recorded = next(entry for entry in json.loads((captures() / "pairs/pairs.json").read_text())["pairs"]
                    if entry["pair"] == pair)
    answers, readings = dict[str, dict](), dict[str, dict]()
    for side in ("before", "after"):
        trace = captures() / "pairs" / pair / f"{side}.trace.json.gz"
        aaco.inside("import", trace, "--latency", str(recorded[side]["step_ms"]), "--quiet")
        answers[side] = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
        readings[side] = json.loads((aaco.latest / "metrics/derived_metrics.json").read_text())
    (confirm,) = [entry["confirm"] for entry in answers["before"]["optimization_priority"]
                  if entry["action"] == PAIRS[pair]]
    before, after = (readings[side][confirm["metric"]]["value"] for side in ("before", "after"))
    assert (after < before) if confirm["direction"] == "down" else (after > before)


def test_the_ceiling_of_a_larger_batch_is_of_as_many_samples_everywhere(aaco):
    """Mutation: a what-if takes the most samples that advice looks at."""
    capture = captures() / "pairs/diffusion__b1_eager_to_graph/before.trace.json.gz"
    aaco.inside("import", capture, "--latency", "3.311", "--quiet")
    answer = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
    (action,) = [entry for entry in answer["optimization_priority"] if entry["action"] == "larger_device_batch"]
    asked = json.loads(aaco.inside("critical-path", "--what-if", "larger_batch", "--json").stdout)["ceiling"]
    assert action["expected"]["samples"] < 16
    assert asked["speedup_at_most"] == pytest.approx(action["speedup_at_most"])


def test_waits_of_the_host_are_counted_in_the_judged_steps(aaco):
    """Sixteen experts read their rows in each of three steps."""
    aaco.inside("import", CHANGES / "expert_masks/before.trace.json.gz", "--quiet")
    work, _ = step_work.find(Session(aaco.latest))
    assert (work.steps, work.syncs) == (3, 48)


def test_how_long_the_host_launches_is_read_from_its_calls(aaco):
    """A device that works all the time: the host launches 60 operators in less than half of each step, traced."""
    aaco.inside("import", CHANGES / "encoder_fp32/before.trace.json.gz", "--quiet")
    work, step = step_work.find(Session(aaco.latest))
    assert 60 * LAUNCH_NS < work.launching_ns < step.ns / 2


def test_a_file_of_latencies_tells_how_long_the_fastest_steps_are(aaco, tmp_path):
    """What the host takes of a floor is that of the fastest tenth, so the ceiling is higher than of the median."""
    times = tmp_path / "times.csv"
    times.write_text("latency_ms\n" + "14\n" * 3 + "15.3\n" * 17)
    ceilings = []
    for latency in ("15.3", times):
        aaco.inside("import", CHANGES / "joined_molecules/before.trace.json.gz", "--latency", latency, "--quiet")
        floors = Floors.of(json.loads((aaco.latest / "metrics/floors.json").read_text()))
        assert floors.step_ns == 15_300_000 and floors.fastest_ns == (None if latency == "15.3" else 14_000_000)
        ceilings.append(floors.ceiling("remove_syncs"))
    assert ceilings[0] < ceilings[1]


def test_on_amd_nothing_is_expected_yet_and_the_reason_is_told(aaco):
    """The ceilings are there. Mutation: the track record is used on any device."""
    capture = captures() / "kineto/mi300_gaunernst_bert-small-uncased__1016001.json.gz"
    aaco.inside("import", capture, "--latency", "5", "--steps", "1", "--quiet")
    floors = json.loads((aaco.latest / "metrics/floors.json").read_text())
    assert not floors["why_absent"] and floors["unprofiled"] and not floors["expected"]
    assert set(floors["why_not_expected"].values()) == {"no changes were recorded on devices of AMD yet"}
    assert any(floor["floor_ns"] for floor in floors["floors"])

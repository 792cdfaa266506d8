"""Floors of recorded changes hold, from the file to the figure: one pair of each kind of floor.

`python -m benchmarks.advice_floors` does the same over every pair.
"""

from __future__ import annotations

import json

import pytest

from aaco.core.config import resolve
from benchmarks import advice_floors

# Pairs with the highest ratio of ceiling and measured gain that they may have.
PAIRS = {"gpt_prefill__b1_s128_eager_to_graph": 1.2, "dlrm__pageable_to_pinned": 1.1, "gather__fp32_to_bf16": 1.01,
         "diffusion__fp32_to_bf16": 4.0, "gpt_prefill__manual_attention_to_sdpa": 1.4,
         "gpt_prefill__all_logits_to_last": 1.1, "gather__small_queries_to_one": 1.1,
         "unet_train__checkpointing_off": 3.0}


@pytest.mark.parametrize("name", PAIRS)
def test_the_floor_of_a_recorded_change_holds_and_is_of_use(captures, tmp_path, name):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    pairs = json.loads((captures / "pairs" / "pairs.json").read_text())["pairs"]
    pair = advice_floors.pair_floor(next(pair for pair in pairs if pair["pair"] == name), captures / "pairs", settings)
    assert pair.holds and pair.ratio is not None and pair.ratio <= PAIRS[name]
    assert max(pair.chains) <= 1 / advice_floors.HOLDS
    assert "holds" in advice_floors.line(pair, with_targets=True)


def test_a_before_with_alternatives_is_read_once_and_its_floors_hold(tmp_path):
    """Attention written out: four alternatives with a floor, and one that gained nothing and is promised nothing."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    befores = json.loads((advice_floors.CHANGES / "pairs.json").read_text())["befores"]
    before = next(before for before in befores if before["name"] == "written_attention")
    pairs = {pair.pair.partition("__")[2]: pair
             for pair in advice_floors.change_pairs(before, advice_floors.CHANGES, settings)}
    assert {name for name, pair in pairs.items() if pair.holds} == {"fused_attention", "softmax_in_bf16", "to_graph",
                                                                    "compiled"}
    assert pairs["mask_kept"].is_control and pairs["mask_kept"].ceiling is None
    assert pairs["to_graph"].is_control and 1 <= pairs["to_graph"].ceiling < 1.01  # its kernels were traced 1 % longer


def test_late_ranks_and_a_shared_device_have_a_floor_below_the_program_alone(captures, tmp_path):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    pairs = list(advice_floors.circumstances(captures, settings))
    assert [pair.mechanisms for pair in pairs] == [("co_tenant",)] * 2 + [("straggler",)] * 2
    assert all(pair.holds and pair.ratio is not None and pair.ratio <= 1.7 for pair in pairs)

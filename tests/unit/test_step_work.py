"""Work of whole serving steps: equal to the truth file, and bounds of what a step must move."""

from __future__ import annotations

import pytest

from aaco.analytics.serving import step_work
from aaco.analytics.serving.annotations import merge, read_step
from aaco.analytics.serving.model_config import read_config
from aaco.analytics.serving.served_model import ServedModel
from aaco.analytics.serving.step_costs import ServedWorkload
from aaco.core.readings import Absent
from tests.unit.test_attention_work import recorded_engine
from tests.unit.test_model_config import DEEPSEEK_V3, GPT_OSS, QWEN3_8B

SGLANG = read_step("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)")


@pytest.mark.captures
def test_equal_to_the_truth_of_every_step():
    traces, shape = recorded_engine()
    steps = [step for trace in traces.values() for step in trace.get("steps", ())]
    for step in steps:
        cost = step_work.executed(read_step(step["annotation"]), shape)
        assert (cost.flops, cost.bytes, cost.exact) == (step["work"]["flops"], step["work"]["bytes"], True)
    assert len(steps) == 33
    for trace in traces.values():
        if "annotations" in trace:
            cost = step_work.executed(read_step(trace["annotations"][0]), shape)
            total = trace["work_first_step"]["total"]
            assert (cost.flops, cost.bytes) == (total["flops"], total["bytes"])


@pytest.mark.captures
def test_products_equal_to_the_truth():
    traces, shape = recorded_engine()
    for trace in traces.values():
        if "work_first_step" not in trace:
            continue
        step = read_step(trace["steps"][0]["annotation"] if "steps" in trace else trace["annotations"][0])
        for product in step_work.step_products(step, shape):
            truth = trace["work_first_step"][product.name]
            assert {key: getattr(product, key) for key in truth} == truth


@pytest.mark.captures
def test_a_padded_graph_executes_more_than_is_useful():
    """11 requests in a graph of 16: the products of 16 rows, the attention of 11."""
    traces, shape = recorded_engine()
    for step in traces["serving_window"]["steps"]:
        read = read_step(step["annotation"])
        if read.phase != "decode":
            continue
        padded = merge(read, read_step("step[DECODE bs=16]"))
        assert {product.m for product in step_work.step_products(padded, shape)} == {read.requests}
        rows = {product.m for product in step_work.step_products(padded, shape, padded=True)}
        per_row = sum(product.times * product.flops // product.m for product in step_work.step_products(read, shape))
        more = step_work.executed(padded, shape).flops - step_work.executed(read, shape).flops
        assert rows == {16} and more == per_row * (16 - read.requests)


def test_what_a_decode_step_of_qwen3_8b_must_move():
    """15.1 GB of weights and 4.8 GB of the cache: 3.8 ms at 5.3 TB/s (issue 25)."""
    moved = step_work.step_bytes(SGLANG, read_config(QWEN3_8B))
    assert [round(part / 1e9, 1) for part in (moved.total, moved.weights, moved.kv)] == [20.1, 15.1, 4.8]
    assert round(1e3 * moved.total / 5.3e12, 2) == 3.8 and moved.most_weights == moved.weights
    assert moved.total == step_work.executed(SGLANG, read_config(QWEN3_8B)).bytes
    eighth = step_work.step_bytes(SGLANG, read_config(QWEN3_8B), tp=8)
    assert (8 * eighth.weights, 8 * eighth.kv) == (moved.weights, moved.kv)


@pytest.mark.parametrize(("requests", "hit"), [(1, (4, 4)), (4, (4, 16)), (32, (4, 32))])
def test_experts_that_tokens_can_reach(requests, hit):
    """At least those of one token, at most one for each choice, and never more than there are."""
    step = read_step(f"step[DECODE bs={requests} g_sqsq={requests} g_sqsk={9 * requests} g_sk={9 * requests}]")
    shape = read_config(GPT_OSS)
    products = {product.name: product for product in step_work.step_products(step, shape)}
    assert products["expert_down_proj"].copies == hit and products["expert_down_proj"].m == 4 * requests
    moved = step_work.step_bytes(step, shape)
    assert moved.most_weights - moved.weights == (hit[1] - hit[0]) * 24 * 3 * 2880 * 2880 * 17 // 32


def test_a_step_with_latent_attention():
    """FLOPs of one token of DeepSeek-V3: twice its 37e9 active parameters, and attention."""
    step = read_step("execute_1_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq1sk1sqsq1sqsk1)")
    assert step_work.executed(step, read_config(DEEPSEEK_V3)).flops == pytest.approx(2 * 37e9, rel=.03)


def test_speculative_tokens_pass_the_products_too():
    step = read_step("decode[bs=3/4 tok=12 d=3 spec=3 sqsq=48 sqsk=400 sk=100]")
    assert {product.m for product in step_work.step_products(step, read_config(QWEN3_8B))} == {12}
    assert {product.m for product in step_work.step_products(step, read_config(QWEN3_8B), padded=True)} == {16}


@pytest.mark.parametrize(("name", "config", "reason"), [
    ("execute_context_0(0)_generation_4(4)", QWEN3_8B, "no sums"),
    ("step[MIXED bs=4 toks=90]", QWEN3_8B, "no sums"),
    ("step[DECODE bs=1 g_sqsq=1 g_sqsk=9 g_sk=9]", None, "--model-config"),
])
def test_what_is_missing_is_said(name, config, reason):
    with pytest.raises(Absent, match=reason):
        step_work.step_bytes(read_step(name), config and read_config(config))


@pytest.mark.parametrize(("workload", "reason"), [
    (ServedWorkload(None), "--model-config"),
    (ServedWorkload(ServedModel("config.json", None, read_config(QWEN3_8B)), engines=2), "2 engines are in one"),
    (ServedWorkload(ServedModel("config.json", None, read_config(QWEN3_8B)), world_size=2), "of several ranks")])
def test_of_whose_work_the_configuration_tells_must_be_known(workload, reason):
    """Mutation: any engine of a capture is the one."""
    with pytest.raises(Absent, match=reason):
        workload.ranks()


def test_with_the_number_of_ranks_several_engines_are_those_of_the_model():
    assert ServedWorkload(ServedModel("config.json", 2, read_config(QWEN3_8B)), 2, engines=2).ranks() == 2

"""Attention of a serving step: equal to the truth file of our recordings, to plain loops over requests, and bounds."""

from __future__ import annotations

import json
import random

import pytest

from aaco.analytics.serving import attention_work
from aaco.analytics.serving.annotations import NO_TOKENS, TokenSums, read_step
from aaco.analytics.serving.model_config import read_config
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from tests.third_party import captures
from tests.unit.test_model_config import DEEPSEEK_V3, QWEN3_8B


def recorded_engine():
    """The truth file of the serving recordings, and the model of its engine."""
    truth = json.loads((captures() / "serving" / "truth.json").read_text())
    config = truth["config"]
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
             "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "ffn": "intermediate_size",
             "vocab": "vocab_size", "dtype": "torch_dtype"}
    return truth["traces"], read_config({names[key]: value for key, value in config.items() if key in names})


def _sums(requests):
    return TokenSums(sum(query for query, _ in requests), sum(keys for _, keys in requests),
                     sum(query**2 for query, _ in requests), sum(query * keys for query, keys in requests))


def _shape(**changes):
    return read_config({**QWEN3_8B, **changes})


@pytest.mark.captures
def test_equal_to_the_truth_of_every_trace():
    """FLOPs and bytes of the first step's attention groups, of all traces that have them."""
    traces, shape = recorded_engine()
    compared = 0
    for trace in traces.values():
        step = read_step(trace["steps"][0]["annotation"] if "steps" in trace else trace["annotations"][0])
        for group, sums, requests in (("attention_prefill", step.context, step.context_requests),
                                      ("attention_decode", step.generation, step.generation_requests)):
            truth = trace.get("work_first_step", {}).get(group)
            if truth:
                work = attention_work.of_layer(sums, requests, shape)
                assert (work.flops, work.bytes, work.exact) == (truth["flops"], truth["bytes"], True)
                compared += 1
    assert compared >= 15


def test_pairs_of_causal_requests_are_counted_one_by_one():
    requests = [(5, 5), (3, 40), (1, 17)]
    pairs = sum(keys - query + index + 1 for query, keys in requests for index in range(query))
    work = attention_work.of_layer(_sums(requests), 3, _shape())
    assert work.flops == 2 * 32 * 256 * pairs
    assert (work.query_bytes, work.kv_bytes) == (2 * 9 * 32 * 256, 2 * 62 * 8 * 256)


def test_latent_attention_absorbed_and_not():
    """DeepSeek: 576 and 512 wide against the compressed cache in decoding, 192 and 128 of each head with prompts."""
    shape, sums = read_config(DEEPSEEK_V3), TokenSums(4, 4000, 4, 4000)
    decode = attention_work.of_layer(sums, 4, shape)
    assert (decode.flops, decode.kv_bytes) == (2 * 128 * (576 + 512) * 4000, 2 * 4000 * 576)
    prompt = attention_work.of_layer(sums, 4, shape, absorbed=False)
    assert (prompt.flops, prompt.kv_bytes) == (2 * 128 * 320 * 4000, 2 * 4000 * 128 * 320)
    assert attention_work.of_layer(sums, 4, shape, tp=8).kv_bytes == decode.kv_bytes  # every rank reads the whole cache


def test_ranks_share_the_heads():
    sums, shape = TokenSums(2, 100, 2, 100), _shape()
    whole, part = (attention_work.of_layer(sums, 2, shape, tp=tp) for tp in (1, 8))
    assert (8 * part.flops, 8 * part.bytes) == (whole.flops, whole.bytes)
    assert attention_work.of_layer(sums, 2, shape, tp=16).kv_bytes == part.kv_bytes  # a head is copied
    with pytest.raises(UsageError):
        attention_work.of_layer(sums, 2, shape, tp=5)


@pytest.mark.parametrize("kind", ["sliding", "chunked"])
def test_a_window_against_requests_one_by_one(kind):
    """Never below the work; equal where it says exact; of one request always exact."""
    rng, window = random.Random(1), 16
    shape = _shape(num_hidden_layers=1, sliding_window=window, model_type="x", use_sliding_window=None)
    exact = 0
    for _ in range(400):
        requests = [(query, query + rng.randrange(rng.choice((3, 60)))) for query in
                    rng.choices((1, 1, 2, 7, 40), k=rng.choice((1, 1, 2, 3)))]
        spans = [(position, max(0, position + 1 - window) if kind == "sliding" else position // window * window)
                 for query, keys in requests for position in range(keys - query, keys)]
        pairs = sum(position + 1 - start for position, start in spans)
        seen = sum(keys - (max(0, keys - query + 1 - window) if kind == "sliding"
                           else (keys - query) // window * window) for query, keys in requests)
        work = attention_work.of_layer(_sums(requests), len(requests), shape, kind)
        truth = (2 * 32 * 256 * pairs, 2 * seen * 8 * 256)
        assert work.flops >= truth[0] and work.kv_bytes >= truth[1]
        if work.exact:
            assert (work.flops, work.kv_bytes) == truth
            exact += 1
        assert work.exact or len(requests) > 1
    assert exact > 150


def test_a_window_of_long_decodes_is_a_bound():
    """Of a window sk <= n W."""
    shape = _shape(sliding_window=128, model_type="mistral", use_sliding_window=None, max_window_layers=None)
    work = attention_work.of_layer(TokenSums(32, 55086, 32, 55086), 32, shape, "sliding")
    assert (work.exact, work.kv_bytes) == (False, 2 * 32 * 128 * 8 * 256)


def test_layers_of_both_kinds_are_added():
    step = read_step("execute_1_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq1sk1000sqsq1sqsk1000)")
    shape = _shape(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=128,
                   use_sliding_window=True)
    context, generation = attention_work.of_step(step, shape)
    assert context == attention_work.AttentionWork() and generation.kv_bytes == 2 * 2 * (1000 + 128) * 8 * 256


@pytest.mark.parametrize(("name", "shape", "reason"), [
    ("execute_context_0(0)_generation_4(4)", QWEN3_8B, "no sums of tokens"),
    ("step[DECODE bs=1 g_sqsq=1 g_sqsk=9 g_sk=9]", None, "--model-config"),
    ("step[DECODE bs=1 g_sqsq=1 g_sqsk=9 g_sk=9]", {"hidden_size": 8}, "num_hidden_layers|num_attention_heads"),
    ("step[DECODE bs=1 g_sqsq=1 g_sqsk=9 g_sk=9]", {**QWEN3_8B, "layer_types": ["linear_attention"] * 36}, "linear"),
])
def test_without_sums_or_sizes_there_is_a_reason(name, shape, reason):
    with pytest.raises(Absent, match=reason):
        attention_work.of_step(read_step(name), None if shape is None else read_config(shape))


def test_no_requests_no_work():
    assert attention_work.of_layer(NO_TOKENS, 0, _shape()) == attention_work.AttentionWork()

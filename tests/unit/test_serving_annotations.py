"""Annotations of serving engines: each form that an engine writes, and what two around one step say together."""

from __future__ import annotations

import gzip
import json

import pytest

from aaco.analytics.serving.annotations import (
    NO_TOKENS,
    CapturedBatch,
    StepAnnotation,
    TokenSums,
    merge,
    read_capture,
    read_step,
    step_family,
)
from tests.third_party import captures

DECODE_OF_11 = "execute_11_context_0(sq0sk0sqsq0sqsk0)_generation_11(sq11sk8811sqsq11sqsk8811)"
SUMS_OF_11 = TokenSums(11, 8811, 11, 8811)


@pytest.mark.parametrize(("name", "step"), [
    (DECODE_OF_11, StepAnnotation("vllm", "decode", 11, 0, 11, NO_TOKENS, SUMS_OF_11)),
    ("execute_528_context_1(sq512sk600sqsq262144sqsk307200)_generation_16(sq16sk16027sqsq16sqsk16027)",
     StepAnnotation("vllm", "mixed", 528, 1, 16, TokenSums(512, 600, 262144, 307200),
                    TokenSums(16, 16027, 16, 16027))),
    ("execute_128_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq128sk65536sqsq512sqsk262144)",
     StepAnnotation("vllm", "decode", 128, 0, 32, NO_TOKENS, TokenSums(128, 65536, 512, 262144), speculative=True)),
    ("execute_context_2(6144)_generation_0(0)", StepAnnotation("vllm", "prefill", 6144, 2, 0, None, NO_TOKENS)),
    ("execute_context_1(888_788544)_generation_0(0)",
     StepAnnotation("vllm", "prefill", 888, 1, 0, None, NO_TOKENS)),
    ("execute_context_2(6144)_generation_3(3)", StepAnnotation("vllm", "mixed", 6147, 2, 3)),
    ("execute_context_0(0)_generation_32(128)",
     StepAnnotation("vllm", "decode", 128, 0, 32, NO_TOKENS, speculative=True)),
    ("execute_context_0(0)_generation_0(0)", StepAnnotation("vllm", None, 0, 0, 0, NO_TOKENS, NO_TOKENS)),
    ("execute_context_1024_generation_64", StepAnnotation("vllm", "mixed")),
    ("execute_new_3_cached_0", StepAnnotation("vllm", "prefill", None, 3, 0, batch=3)),
    ("execute_new_1_cached_7", StepAnnotation("vllm", None, batch=8)),
    ("gpu_model_runner: forward", StepAnnotation("vllm")),
    ("step[DECODE bs=32]", StepAnnotation("sglang", "decode", 32, 0, 32, NO_TOKENS, batch=32)),
    ("step[EXTEND bs=2 toks=662]", StepAnnotation("sglang", "prefill", 662, 2, 0, None, NO_TOKENS, 2)),
    ("step[MIXED bs=12 toks=799]", StepAnnotation("sglang", "mixed", 799, batch=12)),
    ("step[IDLE bs=0]", StepAnnotation("sglang", batch=0)),
    ("step[TARGET_VERIFY bs=4]", StepAnnotation("sglang", "decode", None, 0, 4, NO_TOKENS, batch=4, speculative=True)),
    ("step[EXTEND bs=1 toks=4 c_sqsq=16 c_sqsk=40 c_sk=10]",
     StepAnnotation("sglang", "prefill", 4, 1, 0, TokenSums(4, 10, 16, 40), NO_TOKENS, 1)),
    ("step[DECODE bs=16 g_sqsq=11 g_sqsk=8811 g_sk=8811]",
     StepAnnotation("sglang", "decode", 11, 0, 11, NO_TOKENS, SUMS_OF_11, 16, 16)),
    ("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]",
     StepAnnotation("sglang", "mixed", 6, 1, 1, TokenSums(5, 8, 25, 40), TokenSums(1, 12, 1, 12), 2)),
    ("decode[bs=117/128 tok=117 d=117]", StepAnnotation("atom", "decode", 117, 0, 117, NO_TOKENS, None, 117, 128)),
    ("eager_decode[bs=2 tok=2 ctx=[10, 20]]",
     StepAnnotation("atom", "decode", 2, 0, 2, NO_TOKENS, TokenSums(2, 30, 2, 30), 2)),
    ("prefill[bs=2 tok=30 ctx=[10, 20]]",
     StepAnnotation("atom", "prefill", 30, 2, 0, TokenSums(30, 30, 500, 500), NO_TOKENS, 2)),
    ("prefill[bs=1 tok=8 ctx=32]", StepAnnotation("atom", "prefill", 8, 1, 0, TokenSums(8, 32, 64, 256), NO_TOKENS, 1)),
    ("prefill[bs=2 tok=8 ctx=[10, 20]]", StepAnnotation("atom", "prefill", 8, 2, 0, None, NO_TOKENS, 2)),
    ("prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 sqsq=59768832 sqsk=59768832 sk=17408 tbo=1]",
     StepAnnotation("atom", "prefill", 17408, 6, 0, TokenSums(17408, 17408, 59768832, 59768832), NO_TOKENS, 6)),
    ("[Executor] _forward_step 7: 2 ctx reqs, 64 gen reqs", StepAnnotation("tensorrt-llm", "mixed", None, 2, 64)),
    ("TensorRT-LLM:[Executor] _forward_step 7: 2 ctx reqs, 64 gen reqs",
     StepAnnotation("tensorrt-llm", "mixed", None, 2, 64)),
    (":execute_context_2(6144)_generation_3(3)", StepAnnotation("vllm", "mixed", 6147, 2, 3)),
    ("_forward_step: 0 ctx reqs, 64 gen reqs", StepAnnotation("tensorrt-llm", "decode", None, 0, 64)),
    ("[Executor] _forward_step 7: 2 ctx reqs, 90 ctx tokens, 0 gen reqs",
     StepAnnotation("tensorrt-llm", "prefill", 90, 2, 0)),
    ("executeStep: 1 ctx reqs, 0 gen reqs", StepAnnotation("tensorrt-llm", "prefill", None, 1, 0)),
    ("decode{size=4}", StepAnnotation("tgi", "decode", None, 0, 4, batch=4)),
    ("batch{batch_size=1}:prefill:prefill{id=0 size=1}", StepAnnotation("tgi", "prefill", None, 1, 0, batch=1)),
    ("/generate.v2.TextGenerationService/Decode", StepAnnotation("tgi", "decode", None, 0, None)),
], ids=lambda value: value if isinstance(value, str) else "")
def test_each_form(name, step):
    assert read_step(name) == step


@pytest.mark.parametrize("name", [
    "", "ProfilerStep#3", "aten::mm", "execute_model", "step[DECODE]", "step[DECODE bs=x]", "step[DANCE bs=3]",
    "step[DECODE bs=3 bs=4]",
    "decode[bs=3", "draft[1/3 bs=4]", "decode", "prefill", "execute_context_1(2)_generation_3",
    "decode[bs=2 tok=3 p=4]",
    "step[DECODE bs=٣]", "step[DECODE bs=" + "9" * 5000 + "]", f"execute_context_0(0)_generation_1({2**62 + 1})",
    "step[DECODE bs=³]", "step[DECODE bs=1]" + " " * 5000, "step[DECODE bs=-1]",
])
def test_what_is_no_step(name):
    assert read_step(name) is None


def test_the_largest_count_is_read():
    assert read_step(f"execute_context_0(0)_generation_1({2**62})").scheduled_tokens == 2**62


@pytest.mark.parametrize(("name", "warning"), [
    ("execute_1_context_3(sq128sk256sqsq1sqsk1)_generation_0(sq0sk0sqsq0sqsk0)", "no context requests"),
    ("execute_9_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk80sqsq8sqsk80)", "names 9 tokens, its sums are of 8"),
    ("step[DECODE bs=8 g_sqsq=11 g_sqsk=8811 g_sk=8811]", "a batch of 8 has 11 tokens"),
    ("decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048]", "one sum for prompts and generation"),
])
def test_an_annotation_that_contradicts_itself_says_so(name, warning):
    assert any(warning in text for text in read_step(name).warnings)


def test_nested_annotations_complement_each_other():
    """Sums of one, the graph's batch of the other, in either order; a batch alone proves the graph's."""
    outer, inner = read_step(DECODE_OF_11), read_step("step[DECODE bs=16]")
    for both in (merge(outer, inner), merge(inner, outer)):
        assert (both.generation, both.requests, both.scheduled_tokens, both.graph_batch) == (SUMS_OF_11, 11, 11, 16)
        assert not both.warnings and both.decode_batch == 16
    assert inner.decode_batch == 16 and merge(outer, read_step("gpu_model_runner: forward")) == outer


def test_nested_annotations_of_a_mixed_step():
    outer = read_step("execute_799_context_1(sq788sk788sqsq620944sqsk620944)_generation_11(sq11sk8125sqsq11sqsk8125)")
    both = merge(outer, read_step("step[MIXED bs=12 toks=799]"))
    assert (both.phase, both.requests, both.batch, both.graph_batch, both.warnings) == ("mixed", 12, 12, None, ())


@pytest.mark.parametrize(("inner", "field"), [
    ("step[EXTEND bs=2 toks=662]", "phase"), ("step[DECODE bs=8]", "batch"),
    ("execute_context_0(0)_generation_12(12)", "generation_requests"),
])
def test_a_contradiction_is_said_and_no_side_chosen(inner, field):
    both = merge(read_step(DECODE_OF_11), read_step(inner))
    assert getattr(both, field) is None and any("differ" in warning for warning in both.warnings)


@pytest.mark.parametrize(("name", "captured"), [
    ("capture_32_DECODE", CapturedBatch(32, "decode")),
    ("capture_256_mixed_prefill", CapturedBatch(256, "mixed")),
    ("capture_1_prefill", CapturedBatch(1, "prefill")),
    ("capture_graph_bs_64", CapturedBatch(64)),
    ("capture_64_PIECEWISE", CapturedBatch(64)),
    ("capture_traces/bs_32_rank0.json.gz", CapturedBatch(32, None, 0)),
    ("sglang_capture_traces_bs_32_rank1.json.gz", CapturedBatch(32, None, 1)),
    ("capture_32_DECODE.trace.json.gz", CapturedBatch(32, "decode")),
    ("capture_8_DECODE_with_stack.trace.json.gz", CapturedBatch(8, "decode")),
    ("bs_16-TP-2.trace.json.gz", CapturedBatch(16, None, 2)),
    ("capture_8_DECODE_rank3.json", CapturedBatch(8, "decode", 3)),
])
def test_names_of_captures(name, captured):
    assert read_capture(name) == captured


@pytest.mark.parametrize("name", ["capture", "capture_x", "capture_0_DECODE", "jobs_32_files", "capture_" + "9" * 40,
                                  "bs_٣_rank0", "screen_capture_12.png/", "decode_bs8_ctx1000_graph.trace.json.gz"])
def test_what_is_no_capture(name):
    assert read_capture(name) is None


@pytest.mark.captures
def test_all_annotations_of_the_recordings_are_read():
    """Each step annotation of every serving trace, and its sums against the contexts that the truth file holds."""
    folder = captures() / "serving"
    truth = json.loads((folder / "truth.json").read_text())["traces"]
    for trace in truth.values():
        for step in trace.get("steps", ()):
            contexts = step.get("lens", step.get("decodes", []))
            read = read_step(step["annotation"])
            prompts = step.get("prompts", [])
            assert read.generation == TokenSums(len(contexts), sum(contexts), len(contexts), sum(contexts))
            assert read.context.sqsq == sum(prompt**2 for prompt in prompts)
            assert read.requests == len(contexts + prompts)
    for path in [*folder.glob("*.json.gz"), *(captures() / "kineto").glob("inference_*.json.gz")]:
        names = {event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
                 if event.get("cat") == "user_annotation"}
        steps = [name for name in names if name.startswith(("execute_", "step["))]
        assert all(read_step(name) and not read_step(name).warnings for name in steps)
        assert all(read_capture(name) for name in names if name.startswith("capture_"))


@pytest.mark.parametrize(("name", "family"), [
    ("execute_context_0(0)_generation_8(8)", "vllm"), ("step[DECODE bs=8]", "sglang"),
    ("decode[bs=117/128 tok=117]", "atom"), ("execute_8_context_0(sq0)_generation_8(sq8)", "execute"),
    ("execute_model", "execute"), ("step[SOMETHING_NEW 3]", "step"), ("bs=117/128", "bs"),
    ("executed", None), ("step 3", None), ("bs=3", None), ("execute_models", None)])
def test_steps_of_unknown_forms_are_of_a_family_too(name, family):
    """Mutation: only what `read_step` reads."""
    assert step_family(name) == family

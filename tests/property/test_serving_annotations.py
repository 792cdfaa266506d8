"""Annotations of serving steps: what is written is read back, and no text raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.serving.annotations import LARGEST, StepAnnotation, TokenSums, merge, read_capture, read_step

REQUEST = st.tuples(st.integers(1, 10**5), st.integers(0, 10**6)).map(lambda pair: (pair[0], sum(pair)))
REQUESTS = st.lists(REQUEST, max_size=6)
PIECES = st.sampled_from([
    "execute_", "context_", "_generation_", "(", ")", "sq", "sk", "sqsq1", "sqsk1", "step[", "DECODE ", "MIXED ", "bs=",
    "]", "decode[", "prefill[", "tok=", "ctx=[", "...+3", "capture_", "bs_", "_rank", "²", "٣", "1", "9" * 30, "/",
    "16", "ctx reqs, ", "gen reqs", " ", "toks=", "c_sq=", "g_sqsk=", "{size=", "}", "_DECODE"])
COUNT = st.integers(0, 99)
MODES = st.sampled_from(["DECODE", "EXTEND", "MIXED", "TARGET_VERIFY"])
STEPS = st.one_of(
    st.builds("step[{} bs={}]".format, MODES, COUNT),
    st.builds("execute_context_{}({})_generation_{}({})".format, *[COUNT] * 4),
    st.builds("decode[bs={}/{} tok={}]".format, *[COUNT] * 3))


def _sums(requests):
    return TokenSums(sum(query for query, _ in requests), sum(keys for _, keys in requests),
                     sum(query**2 for query, _ in requests), sum(query * keys for query, keys in requests))


def _text(sums):
    return f"(sq{sums.sq}sk{sums.sk}sqsq{sums.sqsq}sqsk{sums.sqsk})"


@given(REQUESTS, REQUESTS)
def test_a_detailed_annotation_of_any_requests_is_read_back(prompts, generating):
    context, generation = _sums(prompts), _sums(generating)
    step = read_step(f"execute_{context.sq + generation.sq}_context_{len(prompts)}{_text(context)}"
                     f"_generation_{len(generating)}{_text(generation)}")
    assert (step.context, step.generation, step.requests) == (context, generation, len(prompts) + len(generating))
    assert not step.warnings and step.scheduled_tokens == context.sq + generation.sq
    assert step.phase == {(1, 0): "prefill", (0, 1): "decode", (1, 1): "mixed"}.get((bool(prompts), bool(generating)))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.integers(0, 7))
def test_a_decode_step_of_sglang_is_read_back_with_its_padding(contexts, padding):
    count, keys = len(contexts), sum(contexts)
    step = read_step(f"step[DECODE bs={count + padding} g_sqsq={count} g_sqsk={keys} g_sk={keys}]")
    assert step.generation == TokenSums(count, keys, count, keys) and step.decode_batch == count + padding
    assert step.graph_batch == (count + padding if padding else None) and step.requests == count


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=14).map("".join)))
def test_no_text_raises(name):
    step, captured = read_step(name), read_capture(name)
    assert step is None or isinstance(step, StepAnnotation)
    assert captured is None or 0 < captured.batch <= LARGEST


@given(STEPS, STEPS)
def test_merging_chooses_nothing_in_silence(outer, inner):
    """A field of the merged step is one that both have, or that only one has, or None with a warning."""
    first, second = read_step(outer), read_step(inner)
    for one, other in ((first, second), (second, first)):
        both = merge(one, other)
        for field in ("phase", "context", "generation", "context_requests", "graph_batch"):
            told = {getattr(step, field) for step in (one, other)} - {None}
            if len(told) > 1:
                assert getattr(both, field) is None and both.warnings

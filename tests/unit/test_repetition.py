"""Planted repetitions: what repeats, how often, and which of nested blocks, with everything that disturbs it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import repetition

LAYER = list(range(10, 20))
STEP = [1, 2, *LAYER * 24, 3, 4, 5]
CHANCE = np.random.default_rng(7)


def found(codes):
    result = repetition.find(np.array(codes, np.int64))
    return None if result is None else (result.length, len(result.starts))


def noise(count):
    return CHANCE.integers(100, 200, count).tolist()


def test_steps_between_a_start_up_and_a_tail():
    result = repetition.find(np.array(noise(40) + STEP * 6 + STEP[:30] + noise(5)))
    assert (result.length, int(result.identical.sum())) == (len(STEP), 6)
    assert result.coverage == pytest.approx((6 * 245 + 30) / (40 + 6 * 245 + 35), abs=0.01)


def test_the_step_wins_over_its_layers():
    """Mutation: NEARLY = 0.1."""
    assert found(STEP * 5) == (245, 5)


def test_the_step_wins_over_a_group_of_steps_that_differ_by_a_rare_kernel():
    """Mutation: NEARLY = 0."""
    group = [*(STEP * 16)[:-1], 77, 5]
    assert found(group * 4) == (245, 64)


def test_deep_models_have_few_kernels_outside_their_layers():
    layer = list(range(10, 22))
    assert found([1, 2, *layer * 80, 3, 4] * 5) == (964, 5)


def test_an_insertion_into_every_other_step():
    """Mutation: `begin + finish` -> `begin`."""
    steps = []
    for turn in range(9):
        step = list(STEP)
        if turn % 2:
            step.insert(int(CHANCE.integers(1, len(step))), 77)
        steps += step
    result = repetition.find(np.array(steps))
    assert (result.length, len(result.starts), int(result.alike.sum())) == (245, 9, 9) or (
        result.length, len(result.starts)) == (245, 9)
    assert result.coverage > 0.99


def test_two_requests_of_prefill_and_decode_steps():
    """The request repeats twice and explains all; its decode steps leave the prefill out."""
    decode, prefill = [1, 2, *LAYER * 12, 3], [31, *range(32, 40), 41]
    assert found((prefill * 6 + decode * 8) * 2) == (60 + 8 * 123, 2)
    assert found(prefill * 6 + decode * 80) == (123, 80)


def test_denoising_steps_between_an_encoder_and_a_decoder():
    unet = [40, 41, *[42, 43, 44] * 6, 45]
    result = repetition.find(np.array(noise(60) + unet * 50 + noise(60)))
    assert (result.length, len(result.starts)) == (21, 50)


def test_one_kernel_over_and_over():
    assert found([5] * 1500) == (1, 1500)


@pytest.mark.parametrize("codes", [[], [1], [1, 2, 3], noise(400), list(range(5000)), STEP + noise(2000)])
def test_what_does_not_repeat_has_no_block(codes):
    """Mutation: the modal block counted although it occurs once."""
    assert found(codes) is None


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(3, 8),
       st.lists(st.integers(6, 9), max_size=20))
def test_a_repeated_block_is_found_whole(block, repeats, before):
    """Whatever is found covers the planted repetition, and is its shortest period where that is exact."""
    codes = np.array(before + block * repeats)
    result = repetition.find(codes)
    planted = len(block) * repeats
    if planted < len(codes) / 2 + 2 or planted < 8:
        return
    assert result is not None
    assert result.coverage >= planted / len(codes) - repetition.NEARLY - 2 / len(codes)
    assert result.length <= len(block) or result.coverage > planted / len(codes)
    for start in result.starts[result.identical].tolist():
        assert codes[start:start + result.length].tolist() in [
            codes[other:other + result.length].tolist() for other in result.starts[result.identical].tolist()]


@pytest.mark.parametrize("offset", [0, 1, 100, 244])
def test_blocks_may_begin_anywhere(offset):
    codes = np.array(STEP * 6)
    result = repetition.find(codes)
    moved = repetition.aligned(result, codes, (offset - int(result.starts[0])) % 245)
    assert (moved.starts[moved.starts >= 0] % 245 == offset % 245).all()
    assert int(moved.identical.sum()) >= 5
    assert len(moved.starts) == 6

"""A floor never exceeds the device's chain, and more changes never raise it, whatever the step is made of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics.advice.floor import device_chain_ns, floor
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.work import StepOperator
from tests.step_pieces import BF16, CONV, FP32, LIMITS, copy, kernel, product, step

TIMES = st.integers(0, 500)
AMOUNTS = st.none() | st.integers(0, 10**11).map(float)
PHASES = st.sampled_from(["", "optimizer", "recompute"])
LANES = st.integers(0, 2)
NAMED = st.sampled_from(["aten::mm", "aten::bmm", "aten::addmm", "aten::cudnn_convolution"])
FAMILIES = st.sampled_from(["elementwise", "norm", "softmax", "copy", "transpose", "embedding", "attention", "sort",
                            "collective", "unknown", "recurrent"])
OPERATORS = st.none() | st.builds(StepOperator, st.sampled_from(["aten::add", "aten::copy_", "aten::gather"]),
                                  phase=PHASES, types=st.sampled_from([(), ("f32",), ("bf16",)]),
                                  integers=st.booleans(), kernels=st.sampled_from([0.5, 1.0, 3.0]), flops=AMOUNTS,
                                  bytes=AMOUNTS)
PRODUCTS = st.builds(lambda us, flops, name, called, phase, bytes, lane: product(
    us, flops, name, called, phase=phase, bytes=bytes) | {"lane": lane}, TIMES, AMOUNTS,
    st.sampled_from([BF16, FP32, CONV]), NAMED, PHASES, AMOUNTS, LANES)
KERNELS = st.builds(kernel, TIMES, FAMILIES, OPERATORS, st.sampled_from(["", "vectorized_gather_kernel<16, long>"]),
                    LANES, blocks=st.integers(0, 10**6))
COPIES = st.builds(copy, TIMES, st.sampled_from(["h2d", "d2h", "d2d", "memset"]), st.integers(0, 10**8),
                   st.sampled_from([None, True, False]))
DEVICES = st.sampled_from([LIMITS, DeviceLimits(), DeviceLimits(LIMITS.rates), DeviceLimits({}, 1e12)])
STEPS = st.builds(lambda pieces, steps, limits: step(*pieces, steps=steps, limits=limits),
                  st.lists(PRODUCTS | KERNELS | COPIES, min_size=1, max_size=24), st.integers(1, 3), DEVICES)
SEVERAL = st.lists(st.sampled_from(sorted(MECHANISMS)), min_size=1, max_size=4, unique=True)
NOISE = 1 + 1e-9


@given(STEPS, SEVERAL)
def test_a_floor_is_at_most_the_chain_and_that_of_a_union_at_most_each_part(work, names):
    chain = device_chain_ns(work)
    together = floor(work, [MECHANISMS[name] for name in names])
    parts = [floor(work, [MECHANISMS[name]]) for name in names]
    assert chain <= work.ns.sum() / work.steps * NOISE
    for part in parts:
        assert part.floor_ns is None or 0 <= part.floor_ns <= chain * NOISE
    if together.floor_ns is None:
        assert together.why_absent and any(part.floor_ns is None for part in parts)
    else:
        assert together.floor_ns <= min(part.floor_ns for part in parts) * NOISE


@given(STEPS, SEVERAL, st.sampled_from(sorted(MECHANISMS)))
def test_one_more_change_never_raises_the_floor(work, names, another):
    before, after = (floor(work, [MECHANISMS[name] for name in chosen]) for chosen in (names, [*names, another]))
    assert before.floor_ns is None or after.floor_ns is None or after.floor_ns <= before.floor_ns * NOISE


@given(STEPS, st.sampled_from(sorted(MECHANISMS)))
def test_least_times_leave_the_work_as_it_was(work, name):
    """A mechanism reads the columns; it never writes them."""
    before = own_time(work)
    floor(work, [MECHANISMS[name]])
    assert np.array_equal(before, own_time(work))


@given(STEPS, st.sampled_from(sorted(MECHANISMS)), st.floats(0.1, 1.0, exclude_max=True))
def test_a_change_at_a_higher_clock_has_no_higher_floor(work, name, clock):
    throttled = replace(work, clock=clock)
    changed, raised = MECHANISMS[name], MECHANISMS["throttling"]
    together, alone, clocked = (floor(throttled, some) for some in ([changed, raised], [changed], [raised]))
    if together.floor_ns is not None:
        assert together.floor_ns <= clocked.floor_ns * NOISE
        assert alone.floor_ns is None or together.floor_ns <= alone.floor_ns * NOISE


@given(STEPS, st.sampled_from(sorted(MECHANISMS)))
def test_a_faster_device_has_no_higher_floor(work, name):
    if work.limits is not LIMITS:
        return
    faster = DeviceLimits({rate: 2 * value for rate, value in LIMITS.rates.items()}, 4e12, LIMITS.cache_bytes, 2e13,
                          0.25, 100e9)
    now, then = (floor(step_of, [MECHANISMS[name]]) for step_of in (work, _on(work, faster)))
    assert now.floor_ns is None or then.floor_ns <= now.floor_ns * NOISE


def _on(work, limits):
    return replace(work, limits=limits)

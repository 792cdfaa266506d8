"""Floors of steps that are a few kernels long, by hand. LIMITS of tests/step_pieces.py has round figures."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.analytics.advice.achieved import changed_step
from aaco.analytics.advice.floor import (
    CALL_NS,
    DEVICE_WORK,
    LAUNCH_NS,
    PROFILED,
    UNPROFILED,
    StepTime,
    ceiling,
    ceiling_of,
    device_chain_ns,
    floor,
    kept_ns,
    scaled,
)
from aaco.analytics.advice.floors import floors_of
from aaco.analytics.advice.limits import DeviceLimits, limits_of
from aaco.analytics.advice.loops import groups_in_turn, parts_in_turn, repeats, rows_in_turn, scan_passes, stacked_turns
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.larger_batch import larger_batch
from aaco.analytics.advice.mechanisms.list_updates import listed_updates
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import (
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    OPERATOR_COLUMNS,
    StepOperator,
    advance_ns,
    step_work,
)
from aaco.analytics.costs.torch.arguments import OperatorArguments
from aaco.analytics.roofline.devices.ceilings import Identity, at_highest_clock, theoretical
from aaco.analytics.streaming.calls import waits_for_the_device
from aaco.analytics.streaming.stream_ids import NONE
from aaco.core import tables
from aaco.core.readings import Absent
from tests import timed
from tests.step_pieces import (
    BF16,
    CONV,
    FP32,
    LIMITS,
    US,
    copy,
    floor_us,
    gathered,
    gradient_sum,
    kernel,
    product,
    step,
)

H100 = Identity("sm_90", 132, "NVIDIA H100 80GB HBM3", 85017493504)


def why(work, name):
    found = floor(work, [MECHANISMS[name]])
    assert found.floor_ns is None and (found.targets == () or MECHANISMS[name].acts_on)
    return found.why_absent


def targets(work, name):
    """The names that a mechanism acts on, with their own time and what is left, us."""
    return {target.name: (target.own_ns / 1000, pytest.approx(target.least_ns / 1000))
            for target in floor(work, [MECHANISMS[name]]).targets}


# The device-only chain
def test_the_chain_is_the_longest_stream_per_step():
    work = step(kernel(10), kernel(25, lane=1), kernel(20), steps=2)
    assert device_chain_ns(work) == 15_000
    assert floor_us(work, "graph") == 15 and floor_us(work, "remove_syncs") == 15


def test_collectives_count_from_the_arrival_of_the_last_rank():
    assert floor_us(step(kernel(10), kernel(30, "collective"), waited_us=12), "graph") == 28


def test_only_the_stream_of_the_collectives_waits():
    assert floor_us(step(kernel(30, "collective"), kernel(25, lane=1), waited_us=12), "graph") == 25
    assert floor_us(step(kernel(30, "unknown"), kernel(25, lane=1), waited_us=12), "graph") == 18


def test_work_that_overlaps_in_its_stream_counts_once():
    lane, start, end = (np.array(column) for column in ([0, 0, 1, 0], [0, 5, 6, 30], [10, 12, 9, 31]))
    assert advance_ns(lane, start, end).tolist() == [10, 2, 3, 1]
    assert advance_ns(np.zeros(2, int), np.array([0, 2]), np.array([10, 5])).tolist() == [10, 0]


def test_calls_of_all_steps_are_whole_ones():
    """Eight kernels, three a call: three calls in two steps. What a function makes of the work is made once."""
    called, made = StepOperator("aten::mm", kernels=3), []
    work = step(*(kernel(5, operator=called) for _ in range(8)), kernel(4), steps=2)
    assert work.calls_of(lambda operator: operator.name).tolist() == [1.5] * 8 + [0]
    assert [work.once(made.append) for _ in range(2)] == [None, None] and made == [work]


def test_without_steps_there_is_no_floor():
    assert "no steps are counted" in why(step(kernel(10), steps=0), "graph")


def test_a_ceiling_says_of_which_step_it_is_and_is_never_below_one():
    found = floor(step(kernel(10)), [MECHANISMS["graph"]])
    assert ceiling(StepTime(25_000, True), found) == 2.5 and StepTime(1, True).of == UNPROFILED
    assert ceiling(StepTime(9_900, False), found) == 1 and StepTime(1, False).of == PROFILED


def test_kernels_that_the_profiler_slowed_keep_no_step_from_being_as_fast_as_it_was():
    """10 us of kernels were traced in a step of 9.7: 9.7 x 9.7 / 10 stay. Mutations: all of the traced time, or 9.7."""
    found = floor(step(kernel(10)), [MECHANISMS["graph"]])
    assert found.floor_ns == 10_000
    assert kept_ns(StepTime(9_700, True), found) == 9_409
    assert ceiling(StepTime(9_700, True), found) == pytest.approx(10 / 9.7)
    assert kept_ns(StepTime(10_000, True), found) == 10_000 and ceiling(StepTime(10_000, True), found) == 1
    assert kept_ns(StepTime(9_700, False), found) == 10_000


def test_a_change_that_leaves_the_host_as_it_is_takes_no_wait_for_the_host():
    """Mutations: no `most_ns`; of a step without a profiler the whole floor; rows beside others count what is left."""
    work = step(kernel(90), kernel(10, "collective"))
    timed, profiled = StepTime(400_000, True), StepTime(400_000, False)
    beside = floor(work, [MECHANISMS["overlap_communication"]])
    assert (beside.floor_ns, beside.most_ns) == (90_000, 10_000)
    assert kept_ns(timed, beside) == 390_000 and ceiling(timed, beside) == pytest.approx(400 / 390)
    assert kept_ns(profiled, beside) == 90_000 and ceiling(profiled, beside) == pytest.approx(100 / 90)
    assert (ceiling_of(timed, beside), ceiling_of(profiled, beside)) == (UNPROFILED, DEVICE_WORK)
    both = floor(work, [MECHANISMS["overlap_communication"], MECHANISMS["graph"]])
    assert both.most_ns is None and ceiling(profiled, both) == pytest.approx(400 / 90)
    assert ceiling(StepTime(95_000, False), beside) == pytest.approx(95 / 90)


def test_a_product_in_another_type_may_need_one_kernel_where_it_needed_more():
    """A call in two parts may need one: 10 us of a launch. Conversions, and what is no product, stay."""
    split = StepOperator("aten::mm", types=("f32",), flops=5e9, kernels=2)
    work = step(kernel(60, "gemm", split, FP32, types=("f32",)), kernel(4, "reduction", split, "splitKreduce"),
                kernel(9, operator=StepOperator("aten::add", kernels=1)))
    lost = {name: floor(work, [MECHANISMS[name]]).most_ns for name in ("tf32", "cudnn_benchmark", "throttling")}
    one = floor(step(product(64, 5e9, FP32), kernel(9)), [MECHANISMS["tf32"]]).most_ns
    assert lost["tf32"] == pytest.approx(one + LAUNCH_NS) and not lost["cudnn_benchmark"]
    converted = step(kernel(60, "gemm", split, FP32, types=("f32",)), kernel(4, "transpose", split))
    assert floor(converted, [MECHANISMS["tf32"]]).most_ns == one


def test_conversions_that_go_take_their_calls_along():
    """5 us of a convolution above its roof, 8 us of a conversion and 30 us of its call; no shortest kernel is left."""
    conv = product(15, 4e10, CONV, "aten::cudnn_convolution")
    work = step(conv, kernel(8, "transpose", StepOperator("aten::clone")),
                limits=replace(LIMITS, shortest_ns=1000.0))
    found = floor(work, [MECHANISMS["channels_last"]])
    assert found.most_ns == pytest.approx(5_000 + 8_000 + CALL_NS) and found.floor_ns == pytest.approx(10_000)
    both = StepOperator("aten::cudnn_convolution", types=("bf16",), flops=4e10, kernels=2)
    inside = step(kernel(8, "transpose", both), kernel(15, "conv", both, CONV))
    lost = 8_000 + 15_000 * (1 - 10 / 23) + LAUNCH_NS  # the call is held as a whole: 10 of 23 us
    assert floor(inside, [MECHANISMS["channels_last"]]).most_ns == pytest.approx(lost)


def test_with_fewer_bytes_the_host_fills_and_empties_pageable_buffers_sooner():
    """A small copy and a pinned one tell nothing of that."""
    def most_ns(*copied):
        return floor(step(product(40, 1e9, FP32), copy(*copied)), [MECHANISMS["narrower_types"]]).most_ns

    for kind in ("h2d", "d2h"):
        assert most_ns(20, kind, 100_000, False) is None and most_ns(20, kind, 100_000) is None
        assert most_ns(20, kind, 1000, False) is not None and most_ns(20, kind, 100_000, True) is not None


def test_what_the_host_takes_of_pinned_results_is_not_known():
    """It asks for no memory in each step then, and so works on them sooner; of inputs it is what it was."""
    def waits_ns(kind):
        return floor(step(product(40, 1e9), copy(20, kind, 100_000, False)), [MECHANISMS["pinned_copies"]]).waits_ns

    assert waits_ns("d2h") is None and waits_ns("h2d") == 60_000 + 50_000


def test_what_is_computed_only_to_be_read_as_a_number_may_go_with_the_read():
    """Three passes before a read of a number at most, in its stream; none before a product, or before more bytes."""
    def left_us(*pieces):
        return floor_us(step(kernel(50, "gemm"), *pieces), "remove_syncs")

    read, result = copy(1, "d2h", 8, True), copy(1, "d2h", 800, True)
    assert left_us(kernel(9), kernel(2, "reduction"), read) == 51
    assert left_us(kernel(9), kernel(9), kernel(9), kernel(9), read) == 60
    assert left_us(kernel(9), kernel(5, "gemm"), kernel(2), read) == 65
    assert left_us(kernel(9), result) == 60 and left_us(kernel(9, lane=1), read) == 51


def test_results_that_the_host_computes_on_are_copied_no_more():
    """10 MB that operators of the host take 20 ms for. Inputs of as many bytes, more time for each byte, or nothing
    that the host computes, say that it is not the results that it works on.
    """
    def after(sent=0, on_host_us=20_000):
        read = [copy(500, "d2h", 10_000_000)] + [copy(5, "h2d", sent, True)] * bool(sent)
        return step(kernel(100, "gemm"), *read, on_host_ns=1000.0 * on_host_us)

    assert floor_us(after(), "results_on_device") == 100
    assert MECHANISMS["results_on_device"].shown(after(sent=1_000_000))
    for other in (after(sent=10_000_000), after(on_host_us=101_000), after(on_host_us=0)):
        assert "results" in why(other, "results_on_device") and not MECHANISMS["results_on_device"].shown(other)


def test_without_waits_the_hosts_calls_are_as_long():
    """Of 1000 us the host waits 100 at most while the device works; it wakes up and asks three times, 80 us each."""
    work = step(kernel(95, "gemm"), copy(5, "d2h", 8, True), syncs=3)
    found = floor(work, [MECHANISMS["remove_syncs"]])
    assert (found.floor_ns, found.most_ns, found.waits_ns) == (100_000, None, 100_000 + 3 * 80_000)
    assert kept_ns(StepTime(1_000_000, True), found) == 660_000
    assert kept_ns(StepTime(1_000_000, True, 900_000), found) == 460_000  # and as much less again
    read = step(kernel(95, "gemm"), copy(5, "d2h", 8, True), syncs=0)
    assert floor(read, [MECHANISMS["remove_syncs"]]).waits_ns == 180_000
    summed = step(kernel(85, "gemm"), kernel(10), copy(5, "d2h", 8, True), syncs=3)
    assert floor(summed, [MECHANISMS["remove_syncs"]]).waits_ns == 100_000 + 3 * 80_000 + 30_000 + 10_000
    assert floor(step(kernel(95)), [MECHANISMS["remove_syncs"]]).waits_ns is None


def test_a_host_that_reads_how_many_rows_a_mask_chose_cannot_go_on_without():
    """Two masks of three reads; one of two leaves as many results."""
    mask, read = kernel(5, operator=StepOperator("aten::nonzero")), copy(1, "d2h", 8, True)
    shown = MECHANISMS["remove_syncs"].shown
    assert not shown(step(mask, read, mask, read, read)) and shown(step(mask, read, read))


def test_the_host_waits_in_synchronising_calls_and_in_copies_that_are_not_asynchronous():
    waits = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "hipEventSynchronize", "cudaMemcpy", "cuMemcpyDtoH_v2")
    assert all(map(waits_for_the_device, waits))
    assert not any(map(waits_for_the_device, ("cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamWaitEvent")))


def test_there_is_no_ceiling_where_nothing_is_left():
    found = floor(step(kernel(10)), [MECHANISMS["pointwise_fusion"]])
    assert found.floor_ns == 0 and ceiling(StepTime(25_000, True), found) is None


def test_a_pageable_copy_counts_as_its_bytes_for_the_host_feeds_it():
    """50 GB/s: 500 kB take 10 us; a copy that is known to be pinned is what it is."""
    assert floor_us(step(kernel(10), copy(200, "h2d", 500_000, False)), "graph") == 20
    assert floor_us(step(kernel(10), copy(200, "h2d", 500_000)), "graph") == 20
    assert floor_us(step(kernel(10), copy(200, "d2h", 500_000, True)), "graph") == 210
    assert floor_us(step(kernel(10), copy(200, "h2d", 500_000, False), limits=DeviceLimits()), "graph") == 10


def test_a_pinned_copy_takes_as_long_as_the_shortest_of_as_many_bytes():
    """What one takes longer is the host's: its memory was in use. Other sizes and directions say nothing of it."""
    copies = [copy(us, kind, moved, True) for us, kind, moved in
              ((200, "h2d", 500), (150, "h2d", 500), (90, "h2d", 400), (20, "d2h", 500), (5, "d2d", 500))]
    assert floor_us(step(kernel(10), *copies), "graph") == 10 + 150 + 150 + 90 + 20 + 5
    assert floor_us(step(copy(9, "d2d", 500), copy(7, "d2d", 500)), "graph") == 16


def test_of_a_compiler_the_passes_that_it_fuses_are_named():
    """Not the products, which its floor has at their roof. Mutation: `named=fusible` is left out."""
    work = step(product(100, 1e10), kernel(30), kernel(8, "norm"))
    found = floor(work, [MECHANISMS["compile"]])
    assert found.floor_ns < 100_000 and {target.own_ns for target in found.targets} == {30_000, 8_000}


def test_floors_of_several_mechanisms_are_of_the_union_of_their_targets():
    work = step(product(100, 1e10), kernel(30), copy(20, "h2d", 1000, True))
    assert floor_us(work, "pointwise_fusion", "inputs_on_device") == 100
    assert floor(work, [MECHANISMS["graph"], MECHANISMS["pointwise_fusion"]]).mechanism == "graph + pointwise_fusion"
    absent = floor(work, [MECHANISMS["graph"], MECHANISMS["fused_optimizer"]])
    assert absent.floor_ns is None and absent.why_absent.startswith("fused_optimizer: ")
    assert absent.why_absent == f"fused_optimizer: {why(work, 'fused_optimizer')}"  # alone it needs no name


# What a device can do at most
def test_rates_are_those_of_the_highest_clock():
    rated, highest = theoretical(H100).rates, at_highest_clock(H100)
    assert highest["matrix_bf16"] == pytest.approx(rated["matrix_bf16"] * 1980 / 1830)
    assert highest["vector_f32"] == rated["vector_f32"]
    assert at_highest_clock(Identity("gfx000", 1)) == {}


def test_the_limits_have_the_rates_of_the_highest_clock():
    assert limits_of(H100).rates == at_highest_clock(H100)


def test_limits_of_a_board_and_of_none():
    limits = limits_of(H100)
    assert (limits.cache_bytes, limits.dram_bytes_per_s, limits.link_bytes_per_s) == (50 << 20, 3.35e12, 63e9)
    assert limits.cache_bytes_per_s == pytest.approx(12.67e12, rel=1e-3) and limits.ns_per_block == 0.6
    mi300 = limits_of(Identity("gfx942", 304, "AMD Instinct MI300X", 192 << 30))
    assert mi300.cache_bytes_per_s == pytest.approx(128 * 128 * 2.1e9) and mi300.ns_per_block is None
    assert limits_of(Identity(None, None)) == DeviceLimits()


def test_bytes_that_the_cache_may_hold_need_only_its_rate():
    """100 MB may come from the cache and stay in it: of 300 MB at 10 and 2 TB/s 200 MB need the memory."""
    assert LIMITS.memory_ns(50e6) == pytest.approx(5_000)
    assert LIMITS.memory_ns(300e6) == pytest.approx(100_000)
    assert DeviceLimits().memory_ns(1e9) == 0


# Mechanisms
def test_tf32_holds_float32_products_against_its_peak():
    """5e9 FLOPs at 5e14 a second are 10 us."""
    work = step(product(100, 5e9, FP32), product(40, 1e9), kernel(7))
    assert floor_us(work, "tf32") == 57 and targets(work, "tf32") == {FP32: (100, 10)}
    assert "outside of TF32" in why(step(product(40, 1e9)), "tf32")
    vector = kernel(40, "gemm", StepOperator("aten::mv", types=("f32",), flops=1e9), "gemv2T_kernel_val<float>")
    attention = kernel(40, "attention", StepOperator("aten::_scaled_dot_product_efficient_attention", types=("f32",)),
                       "fmha_cutlassF_f32_aligned_64x64")
    assert "outside of TF32" in why(step(vector, attention), "tf32")
    assert "peak of TF32" in why(step(product(40, 1e9, FP32), limits=DeviceLimits()), "tf32")


def test_a_change_with_nothing_to_act_on_acts_on_none_of_the_step():
    """So that no share of another reading stands for it. Without any known product nothing is sure."""
    attention = kernel(40, "attention", StepOperator("aten::_scaled_dot_product_efficient_attention", types=("f32",)),
                       "fmha_cutlassF_f32_aligned_64x64")
    unprofiled = StepTime(100 * US, True)
    assert floors_of(step(attention), unprofiled).acts_on_pct()["tf32"] == 0
    assert floors_of(step(product(40, 1e9)), unprofiled).acts_on_pct()["narrower_types"] == 0
    assert "tf32" not in floors_of(step(kernel(40)), unprofiled).acts_on_pct()


def test_an_operator_is_held_as_a_whole_with_all_its_kernels():
    """The reduction of a split product is part of the 5e9 FLOPs, 10 us."""
    operator = StepOperator("aten::mm", types=("f32",), flops=5e9, kernels=2)
    work = step(kernel(60, "gemm", operator, FP32, types=("f32",)), kernel(40, "reduction", operator, "splitKreduce"))
    assert floor_us(work, "tf32") == 10


def test_narrower_types_halve_what_is_no_product():
    """1e10 FLOPs at 1e15 are 10 us; integers and what is narrow stay."""
    narrow, integers = StepOperator("aten::add", types=("bf16",)), StepOperator("aten::add", integers=True)
    work = step(product(100, 1e10, FP32), kernel(40), kernel(8, operator=narrow), kernel(4, operator=integers))
    assert floor_us(work, "narrower_types") == 10 + 20 + 8 + 4
    assert "already" in why(step(product(100, 1e10)), "narrower_types")


def test_halves_that_fit_the_cache_need_only_its_rate():
    """Of 120 MB two thirds are sure; half of them, 40 MB at 10 TB/s are 4 us. 30 MB fitted before, 300 MB never do."""
    held = [step(kernel(60, operator=StepOperator("aten::mul", types=("f32",), bytes=size))) for size in
            (120e6, 30e6, 300e6)]
    assert [floor_us(work, "narrower_types") for work in held] == [4, 30, 30]


def test_a_gather_keeps_a_block_for_each_row_however_narrow():
    """80,000 rows at .5 ns are 40 us, more than half of the 50 us that they take."""
    gather = "void at::native::vectorized_gather_kernel<16, long>"
    work = step(kernel(50, "embedding", StepOperator("aten::gather", types=("f32",)), gather, blocks=160_000,
                       blocks_x=80_000))
    assert floor_us(work, "narrower_types") == 40


def test_rows_of_which_halves_are_read_otherwise_need_the_time_of_their_bytes():
    """Rows of 4 numbers are 8 bytes in 16 bits, no multiple of 16; rows of 8 numbers are one, and keep their blocks."""
    def gathered(numbers, kinds=("float", "long int")):
        table = OperatorArguments([[80_000, numbers], [80_000]], list(kinds), ["", ""])
        called = StepOperator("aten::index_select", types=("f32",), bytes=80_000 * numbers * 8, arguments=table)
        return step(kernel(50, "embedding", called, "void at::native::vectorized_gather_kernel<16, long>",
                           blocks=160_000, blocks_x=80_000))

    narrow = MECHANISMS["narrower_types"]
    assert floor_us(gathered(8), "narrower_types") == 40
    odd = gathered(4)
    assert narrow.least_ns(odd).sum() < 2_000
    assert narrow.respond(odd, narrow.least_ns(odd)).device_ns.sum() == FIXED_NS


def test_what_the_host_computes_itself_may_take_less_by_chance():
    """60 of 1000 us of a step are in operators on the host's own tensors, which other threads hasten or slow down."""
    work = step(kernel(95, "gemm"), copy(5, "d2h", 8, True), syncs=3, on_host_ns=60_000.0)
    assert floor(work, [MECHANISMS["remove_syncs"]]).waits_ns == 100_000 + 3 * 80_000 + 60_000
    assert floor(step(product(100, 1e10, FP32), on_host_ns=60_000.0), [MECHANISMS["tf32"]]).most_ns == pytest.approx(
        floor(step(product(100, 1e10, FP32)), [MECHANISMS["tf32"]]).most_ns + 60_000)


def test_products_whose_work_is_not_known_leave_no_floor():
    assert "most products" in why(step(product(100, None, FP32), kernel(10)), "narrower_types")
    assert floor_us(step(product(10, None, FP32), kernel(90)), "narrower_types") == 45


def test_pointwise_fusion_leaves_the_rest():
    work = step(product(100, 1e10), kernel(30), kernel(20, "norm"), copy(5, "d2d"), kernel(3, "sort"))
    assert floor_us(work, "pointwise_fusion") == 103
    assert "of this kind" in why(step(product(100, 1e10)), "pointwise_fusion")


def test_written_out_norms_go_with_the_run_that_they_are_in():
    """Of two runs of passes one holds a norm. A way back shows none, so all runs may be one's."""
    norm = kernel(10, operator=StepOperator("aten::rsqrt"))
    work = step(product(100, 1e10), kernel(30), norm, product(50, 1e10), kernel(20), kernel(3, "sort"))
    assert floor_us(work, "norm_fusion") == 100 + 50 + 20 + 3
    by_root = [kernel(4, operator=StepOperator(f"aten::{name}")) for name in ("mean", "sqrt", "div")]
    assert floor_us(step(product(100, 1e10), kernel(30), *by_root, product(50, 1e10)), "norm_fusion") == 150
    assert "of this kind" in why(step(*by_root[:2], product(50, 1e10), by_root[2]), "norm_fusion")  # two runs
    back = step(product(100, 1e10), norm, product(50, 1e10), kernel(20, operator=StepOperator("mul", phase="backward")))
    assert floor_us(back, "norm_fusion") == 150
    assert "of this kind" in why(step(product(100, 1e10), kernel(30)), "norm_fusion")


def test_eight_bits_double_the_rate_and_may_quarter_what_is_wide():
    """1e10 FLOPs at 2e15 are 5 us; 40 us of sixteen bits are 20, 8 us of what may be wider 2."""
    limits = replace(LIMITS, rates={**LIMITS.rates, "matrix_f8": 2e15})
    work = step(product(100, 1e10), kernel(40, types=("bf16",)), kernel(8, name="other"), limits=limits)
    assert floor_us(work, "eight_bit_types") == 5 + 20 + 2
    assert "peak of eight bits" in why(step(product(100, 1e10)), "eight_bit_types")
    assert "more than eight bits" in why(step(kernel(8), limits=limits), "eight_bit_types")


def test_doubles_become_floats_at_their_rate_and_in_half_of_the_bytes():
    """1e10 FLOPs at 5e14 are 20 us; of 12 MB two thirds are sure, and half of those take .4 us in the cache."""
    added = StepOperator("aten::add", types=("f64",), bytes=12_000_000)
    of_doubles = kernel(100, "gemm", StepOperator("aten::mm", types=("f64",), flops=1e10), "gemm", types=("f64",))
    work = step(of_doubles, kernel(40, operator=added, types=("f64",)), kernel(30, types=("f32",)))
    assert floor_us(work, "single_precision") == 20 + 0.4 + 30
    assert "float64" in why(step(product(100, 1e10)), "single_precision")
    assert "peak of float32" in why(replace(work, limits=replace(LIMITS, rates={})), "single_precision")


def test_narrow_images_take_the_least_of_both_kernel_by_kernel():
    """A convolution at 16 bits, no conversion, and half of a pass; the two together, and less than either."""
    work = step(product(400, 1e10, FP32, "aten::cudnn_convolution"), kernel(9, "transpose"), kernel(8, types=("f32",)))
    both = floor(work, [MECHANISMS["narrower_types"], MECHANISMS["channels_last"]]).floor_ns
    assert floor(work, [MECHANISMS["narrow_images"]]).floor_ns == both
    assert all(both < floor(work, [MECHANISMS[name]]).floor_ns for name in ("narrower_types", "channels_last"))


def test_kernels_at_a_factor_take_that_part_and_never_longer():
    work = step(product(100, 1e10), kernel(40, name="slow"), kernel(8, name="fast"))
    assert floor(work, [scaled({"slow": 0.25, "fast": 3.0})]).floor_ns == 118 * US


def test_a_loop_is_many_calls_in_a_row_or_groups_of_many_sizes_and_no_layers():
    """Mutation: `>= LOOP or` -> `>= LOOP and`."""
    def called(name, rows):
        taken = OperatorArguments([[rows, 64], [64, 128]], ["c10::BFloat16"] * 2, ["", ""])
        return kernel(5, "gemm", StepOperator(name, types=("bf16",), flops=1e9, arguments=taken), BF16)

    layers = [called("aten::mm", 32) if place % 2 else kernel(5, operator=StepOperator("aten::add"))
              for place in range(32)]
    tables = [kernel(5, "embedding", StepOperator("aten::embedding")) for _ in range(8)]
    groups = [piece for rows in range(1, 9) for piece in (called("aten::mm", rows),
                                                          kernel(5, operator=StepOperator("aten::gelu")))]
    shown = [floor(step(*pieces), [MECHANISMS["loop_to_batched_op"]]).shown for pieces in (layers, tables, groups)]
    assert shown == [False, True, True]


def _reading(name, *shapes, values=()):
    return StepOperator(name, types=("f32",), flops=1e6, outermost=name,
                        arguments=OperatorArguments([list(shape) for shape in shapes], ["float"] * len(shapes),
                                                    [*values, *[""] * (len(shapes) - len(values))]))


def _product_of(rows, columns):
    taken = OperatorArguments([[8, rows], [rows, columns]], ["float", "float"], ["", ""])
    return StepOperator("aten::mm", types=("f32",), flops=1e6, arguments=taken)


def _turns(count, *operators):
    return [kernel(5, "gemm" if operator.name == "aten::mm" else "elementwise", operator)
            for _ in range(count) for operator in operators]


STACK = kernel(3, "copy", StepOperator("aten::cat", "aten::stack"))
QUERY = (_product_of(32, 16), _reading("aten::sum", (8, 16)))


def test_turns_whose_results_are_stacked_are_a_loop():
    """Not the layers of a model, after which something else comes, or nothing; and not what is called fewer times."""
    turns = _turns(9, *QUERY)
    assert stacked_turns(step(kernel(4), *turns, STACK)).tolist() == [1, *[9] * 18, 1]
    assert stacked_turns(step(turns[1], *turns, STACK)).tolist() == [*[9] * 19, 1]
    for others in (turns, [*turns, kernel(5, operator=_reading("aten::relu", (8,))), STACK], [*turns[:14], STACK]):
        assert set(stacked_turns(step(*others)).tolist()) == {1}


@pytest.mark.parametrize(("listed", "expected"), [(9, 9), (0, 9), (2, 1)])
def test_what_joins_two_tensors_stacks_no_turns(listed, expected):
    """As a layer of a model does with two parts of its result. Of long lists a trace tells no sizes."""
    lists = OperatorArguments([[[8, 16]] * listed, []], ["TensorList", "Scalar"], ["", "1"])
    joins = kernel(3, "copy", StepOperator("aten::cat", "aten::cat", arguments=lists))
    assert stacked_turns(step(kernel(4), *_turns(9, *QUERY), joins))[1] == expected


def _masked(name, kind):
    """An operator that reads 64 values of a kind."""
    return StepOperator(name, arguments=OperatorArguments([[64]], [kind], [""]))


def test_turns_of_a_kind_that_needs_the_one_before_are_left_out():
    """An elementwise update of a state, a recurrent layer and a lookup; networks one after another are none of them."""
    def turns(*operators):
        return stacked_turns(step(*_turns(8, *operators), STACK))[0]

    updates = (_reading("aten::mul", (8, 32), (32,)), _reading("aten::relu", (8, 32)))
    assert turns(*QUERY) == turns(_product_of(32, 32), _reading("aten::silu", (8, 32))) == 8
    assert turns(*updates) == turns(_product_of(32, 32), _reading("aten::tanh", (8, 32))) == 1
    assert turns(_product_of(32, 16), _reading("aten::tanh", (8, 16))) == 8
    assert turns(_reading("aten::embedding", (50, 64), (1,)), *QUERY) == 1
    group = (_reading("aten::eq", (64,), ()), _masked("aten::nonzero", "bool"), _reading("aten::index", (64, 8), ()),
             _reading("aten::mean", (9, 8)))
    assert turns(*group) == 8
    assert turns(*group[2:]) == 1  # rows by number
    assert turns(_masked("aten::nonzero", "float"), _reading("aten::mul", (64,), (64,)), *group[2:]) == 1
    assert turns(*group[1:], group[0]) == 1  # the mask of the turn before
    lists = OperatorArguments([[[8, 16], [8, 16]], []], ["TensorList", ""], ["", "1"])
    joined = StepOperator("aten::cat", arguments=lists)
    assert turns(joined, _product_of(32, 16), _reading("aten::tanh", (8, 16))) == 1


SCAN = (_reading("aten::mul", (8, 32), (32,)), _reading("aten::add", (8, 32), (8, 32)))


@pytest.mark.parametrize(("operators", "passes"), [
    (SCAN, 4), ((*SCAN, _product_of(32, 16)), 4),  # 9 turns at once: sums of the 1, 2, 4 and 8 turns before
    ((*SCAN, _reading("aten::tanh", (8, 32))), None), ((SCAN[0], _reading("aten::mul", (8, 32), (8, 32))), None),
    ((SCAN[0], _reading("aten::add", (8, 16), (8, 16))), None),
    ((_reading("aten::mul", (8, 1), (8, 32)), _reading("aten::add", (8, 32), (32,))), 4),
    ((_reading("aten::mul", (8, 1), (1, 32)), _reading("aten::add", (8, 32), (32,))), 1),
    ((_reading("aten::add", (8, 32), (8, 32)), _product_of(32, 16)), 1), ((*SCAN, _product_of(32, 32)), 1),
    ((_product_of(32, 16), _reading("aten::tanh", (8, 16))), 1)])
def test_turns_that_only_scale_and_add_are_a_scan(operators, passes):
    """Each turn needs the one before; all at once they are sums of what came in. passes: None where it is no loop."""
    work = step(*_turns(9, *operators), STACK)
    assert stacked_turns(work)[0] == (9 if passes else 1)
    assert scan_passes(work)[0] == (passes or 1)


READ = copy(1, "d2h", 4, pinned=True)
WHOLE = kernel(4, operator=_reading("aten::relu", (64, 32)))  # a batch of eight times what a turn reads
KEEPS_ITS_SIZE = (_product_of(32, 32), _reading("aten::relu", (8, 32)))


def _rows(operators, *more, count=8, before=()):
    """The turns that such rows have: operators and then a read, so many times."""
    return set(rows_in_turn(step(*before, *[piece for _ in range(count) for piece in (
        *_turns(1, *operators), *more, READ)])).tolist()[len(before):])


def test_rows_of_a_batch_one_by_one_are_a_loop_if_no_turn_reads_what_one_may_have_made():
    """Mutation: nothing comes from the host, no size is suspect, and any batch before."""
    assert _rows(QUERY) == {8} and _rows(QUERY, count=9) == {9} and _rows(QUERY, count=7) == {1}
    assert _rows(QUERY, copy(2, "h2d", 99)) == {1}
    assert _rows((*QUERY, replace(_reading("aten::sum", (7, 7)), phase="optimizer"))) == {1}
    assert _rows(KEEPS_ITS_SIZE) == {1} and _rows(KEEPS_ITS_SIZE, before=[WHOLE]) == {8}
    assert _rows(KEEPS_ITS_SIZE, count=9, before=[WHOLE]) == {1}


def test_rows_that_views_take_one_by_one_are_a_loop_of_as_many_turns():
    """The first turn may lack what the others begin with; a loop of other turns takes no such rows."""
    def rows(single_rows, first=0):
        pieces = [piece for _ in range(9) for piece in (*_turns(1, *KEEPS_ITS_SIZE), READ)]
        work = replace(step(*pieces[first:]), single_rows=single_rows)
        assert set(rows_in_turn(work).tolist()) == set(parts_in_turn(replace(step(*[
            piece for piece in pieces[first:] if piece is not READ]), single_rows=single_rows)).tolist()) or first
        return set(rows_in_turn(work).tolist())
    assert rows(9) == {9} and rows(10) == {9} and rows(11) == {1} and rows(8) == {1} and rows(0) == {1}
    assert rows(9, first=1) == {9} and rows(9, first=2) == {1, 8}


def test_rows_of_a_sequence_go_through_gates_one_after_another():
    for name, turns in (("aten::relu", 9), ("aten::tanh", 1), ("aten::sigmoid_", 1)):
        turn = (*_turns(1, _product_of(32, 32), _reading(name, (8, 32))), READ)
        assert set(rows_in_turn(replace(step(*turn * 9), single_rows=9)).tolist()) == {turns}


def test_gates_of_parts_that_a_turn_made_need_no_turn_before():
    """(8, 32) is split into two of (8, 16), a gate and what it opens. A state in addition is one tensor too many."""
    gate, result, state = (_reading(name, *[(8, 16)] * count) for name, count in (
        ("aten::sigmoid", 1), ("aten::mul", 2), ("aten::add", 2)))
    for more, turns in (((), 9), ((state,), 1)):
        turn = (*_turns(1, _product_of(48, 32), gate, result, *more, _reading("aten::sum", (8, 16))), READ)
        assert set(rows_in_turn(replace(step(*turn * 9), single_rows=9)).tolist()) == {turns}


def test_what_was_chosen_in_a_turn_may_be_looked_up_in_the_next():
    """A token of each of 8 texts is chosen of 50; a lookup of 16 words reads what no turn made."""
    def looks_up(words):
        taken = OperatorArguments([[50, 32], [words]], ["float", "longint"], ["", ""])
        return StepOperator("aten::embedding", "aten::embedding", arguments=taken)

    taken = OperatorArguments([[8, 50], [], []], ["float", "Scalar", "Scalar"], ["", "1", "False"])
    chosen = StepOperator("aten::argmax", arguments=taken)
    assert _rows((looks_up(16), _product_of(32, 50), chosen)) == {8}
    assert _rows((looks_up(8), _product_of(32, 50), chosen)) == {1}
    weighed = StepOperator("aten::_softmax", arguments=OperatorArguments(
        [[8, 50], [], []], ["float", "Scalar", "Scalar"], ["", "1", "False"]))
    assert _rows((looks_up(400), _product_of(32, 50), weighed)) == {8}


def _called(name, *shapes, outermost="", phase="", kinds=None, calls=0):
    """An operator that takes tensors of these shapes, in floating-point numbers where no kinds are given."""
    taken = OperatorArguments([list(shape) for shape in shapes], kinds or ["float"] * len(shapes), [""] * len(shapes))
    return StepOperator(name, outermost or name, phase, ("f32",), flops=1e6, arguments=taken, calls=calls)


def _sum(*shape):
    """An operator that makes one number of such a tensor."""
    return _called("aten::sum", shape)


def _parts(*operators, count=8, before=(), after=(), between=lambda turn: ()):
    """How many turns the rows of a loop have that does this so many times: one number for all of them."""
    pieces = [piece for turn in range(count) for piece in (*between(turn), *_turns(1, *operators))]
    turns = parts_in_turn(step(kernel(4, operator=_called("aten::erf", (3,))), *before, *pieces, *after))
    return set(turns[1 + len(before):len(turns) - len(after)].tolist())


MULTIPLY = _called("aten::mm", (8, 32), (32, 5))  # 8 rows of a part with weights
ROW_OF_SUM = (MULTIPLY, _called("aten::add_", (8, 5), (8, 5)))


def test_turns_that_read_nothing_that_one_made_are_parts_of_a_loop():
    """Also those that a copy or a mirrored one begins; not fewer, and not what does not multiply or is no forward pass.
    """
    gelu = _called("aten::gelu", (8, 5))
    assert _parts(MULTIPLY, gelu) == {8} and _parts(MULTIPLY, gelu, count=9) == {9}
    assert _parts(MULTIPLY, gelu, count=7) == {1}
    assert _parts(_sum(8, 4), _sum(8, 6)) == {1} and _parts(_sum(8, 4), _sum(8, 6), MULTIPLY) == {8}
    for phase in ("backward", "optimizer"):
        assert _parts(*(replace(operator, phase=phase) for operator in (MULTIPLY, gelu))) == {1}
    flip = kernel(2, operator=_called("aten::flip", (8, 32)))
    assert 8 in _parts(MULTIPLY, gelu, between=lambda turn: [flip] * (turn % 3))
    assert _parts(MULTIPLY, gelu, between=lambda turn: [copy(1, "d2h", 4)]) == {1}
    whole = [kernel(9, operator=_called("aten::erf", (7, 7)))]
    assert 8 not in _parts(MULTIPLY, gelu, count=4, between=lambda turn: whole if turn == 2 else [])


def _model(count=20):
    """So many products, each with a pass over its result, none with the same arguments as another."""
    pairs = [replace(MULTIPLY, outermost="aten::linear"), _called("aten::gelu", (8, 5))] * count
    return [replace(operator, arguments=OperatorArguments(
        [*operator.arguments.shapes, [number]], [*operator.arguments.types, "Scalar"], [""] * 3))
        for number, operator in enumerate(pairs)]


def test_a_whole_model_called_three_times_and_more_is_a_loop():
    """Parts of more operators than a small loop has. Two passes may be two models; layers need the one before."""
    assert _parts(*_model(), count=5) == {5} and _parts(*_model(), count=3) == {3}
    assert _parts(*_model(), count=2) == {1} and _parts(*_model(15), count=5) == {1}
    assert _parts(*_model(), _called("aten::mm", (8, 5), (5, 32)), count=5) == {1}


CONVOLVED = _called("aten::add_", (4, 9), (1, 9), outermost="aten::conv2d")


@pytest.mark.parametrize(("turns", "last", "after", "expected"), [
    (2, CONVOLVED, _called("aten::sub", (4, 9), (4, 9)), 2), (2, CONVOLVED, _called("aten::lerp", (4, 9), (4, 9)), 2),
    (2, CONVOLVED, _called("aten::add", (4, 9), (4, 9)), 1), (2, CONVOLVED, _called("aten::sub", (4, 9), (1, 9)), 1),
    (2, CONVOLVED, _called("aten::sub", (4, 8), (4, 8)), 1),
    (2, _called("aten::gelu", (4, 9)), _called("aten::sub", (4, 9), (4, 9)), 1)])
def test_two_passes_whose_results_are_subtracted_do_not_need_each_other(turns, last, after, expected):
    """As of a denoiser with and without a text. Layers end in other operators, and nothing subtracts two of them."""
    assert _parts(*_model(), last, count=turns, after=[kernel(3, operator=after)]) == {expected}
    moved = [kernel(3, "copy", _called("aten::copy_", (4, 9), (4, 9))), kernel(3, operator=after)]
    assert _parts(*_model(), last, count=turns, after=moved) == {expected}
    assert _parts(MULTIPLY, last, count=7, after=[kernel(3, operator=after)]) == {1}  # layers


def test_calls_of_several_steps_are_no_loop_of_one():
    """Three fills in each of three steps follow each other; a whole model that is called three times is a loop."""
    fills = [kernel(9, "fill", StepOperator("aten::fill_")) for _ in range(9)]
    assert "called 8 times" in why(step(*fills, steps=3), "loop_to_batched_op")
    model = step(*_turns(3, *_model()))
    assert floor(model, [MECHANISMS["loop_to_batched_op"]]).floor_ns is not None


def test_what_a_model_needs_after_its_last_product_keeps_no_pass_apart():
    """Noise of the size of a result; not where it may be what a product takes, a weight, or part of a list. In a small
    loop what follows may be all that matters.
    """
    noise = _called("aten::add", (8, 7), (8, 7))
    assert _parts(*_model(), noise, count=5) == {5} and _parts(MULTIPLY, noise) == {1}
    assert _parts(*_model(), noise, _called("aten::mm", (8, 7), (7, 9)), count=5) == {1}
    assert _parts(*_model(), _called("aten::mul", (32, 5), (32, 5)), count=5) == {1}
    listed = replace(noise, name="aten::cat", arguments=OperatorArguments([[[8, 7], [8, 6]]], ["TensorList"], [""]))
    assert _parts(listed, *_model(), noise, count=5) == {1}


def test_layers_and_recurrences_are_no_parts_of_a_loop():
    """Each reads what the one before made: of its size, chosen by it, written into a cache, or not known."""
    layer = (_called("aten::native_layer_norm", (8, 32), (), (32,), (32,)), _called("aten::mm", (8, 32), (32, 128)),
             _called("aten::gelu", (8, 128)), _called("aten::mm", (8, 128), (128, 32)))
    assert _parts(*layer, _called("aten::add", (8, 32), (8, 32))) == {1}
    assert _parts(*layer, _called("aten::add_", (8, 32), (8, 32))) == {1}
    assert _parts(MULTIPLY, _called("aten::mm", (8, 5), (5, 32)), _called("aten::tanh", (8, 32))) == {1}
    assert _parts(MULTIPLY, _called("aten::no_such_operator", (8, 5))) == {1}
    looked_up = _called("aten::index", (50, 32), (), kinds=["float", ""])
    chosen = _called("aten::argmax", (8, 5), (), (), kinds=["float", "Scalar", "Scalar"])
    relu = _called("aten::clamp_min", (8, 5))
    assert _parts(looked_up, MULTIPLY, relu) == {8}
    assert _parts(looked_up, MULTIPLY, chosen) == {1}
    joined = replace(_called("aten::cat", outermost="aten::cat"), arguments=OperatorArguments(
        [[[4, 5], [4, 6]]], ["TensorList"], [""]))
    assert _parts(_sum(8, 6), MULTIPLY, joined) == {8} and _parts(_sum(4, 11), MULTIPLY, joined) == {1}
    key = _called("aten::copy_", (8, 1, 5), (8, 1, 5), outermost="aten::copy_")
    assert _parts(MULTIPLY, key, _sum(8, 40, 6)) == {8} and _parts(MULTIPLY, key, _sum(8, 40, 5)) == {1}
    assert _parts(_sum(2, 8, 5), MULTIPLY) == {8}
    assert _parts(_sum(2, 8, 5), MULTIPLY, _called("aten::copy_", (2, 8, 5), (8, 5), outermost="aten::expand")) == {1}


def test_a_turn_that_looks_up_more_than_was_chosen_looks_up_something_else():
    """The best 4 of 8 candidates for each question. As many as were chosen may be those; so may what a mask of them
    finds, a few of them gathered again and again, and what is chosen along an axis that is not known.
    """
    def best(of, values=("", "", "", "")):
        return StepOperator("aten::amax", "aten::amax", "", ("f32",), arguments=OperatorArguments(
            [[8, 5], [], []], ["float", "ScalarList", "Scalar"], ["", "[1]", "False"])), StepOperator(
            "aten::topk", "aten::topk", "", ("f32",), arguments=OperatorArguments(
                [[8], [], [], [], []], ["float", *["Scalar"] * 4], list(values) if of is None else [
                    "", str(of), "-1", "True", "True"]))

    candidates = _called("aten::index", (50, 32), (), kinds=["float", ""])
    assert _parts(candidates, MULTIPLY, *best(4)) == {8}
    assert _parts(candidates, MULTIPLY, *best(8)) == {1} and _parts(candidates, MULTIPLY, *best(None)) == {1}
    assert _parts(MULTIPLY, candidates, *best(4)) == {1}  # of which nothing says how many they are
    masked = _called("aten::nonzero", (50,), kinds=["bool"])
    assert _parts(masked, candidates, MULTIPLY, *best(4)) == {1}
    assert _parts(masked, _called("aten::gelu", (8, 5)), MULTIPLY) == {1}  # what it reads is no list of places
    assert _parts(_called("aten::index", (50, 31), (), kinds=["float", ""]), MULTIPLY, *best(4)) == {1}  # of 31 each
    for name, count in (("aten::index_select", 8), ("aten::gather", 1)):
        by_number = replace(_called(name, (50, 32), (), (8, 32) if "gather" in name else (8,),
                                    kinds=["float", "Scalar", "long int"]))
        assert _parts(by_number, MULTIPLY, *best(4)) == {count} and _parts(by_number, MULTIPLY) == {8}


def _turns_of_experts(sizes, between=()):
    """A loop over groups of rows of so many sizes: what chose them, a product with weights of one shape, a pass."""
    return [*between, *[piece for rows in sizes for piece in (
        kernel(1, operator=_called("aten::nonzero", (64,), kinds=["bool"])),
        kernel(5, "gemm", replace(_called("aten::mm", (rows, 32), (32, 48)), flops=1e6), FP32, types=("f32",)),
        kernel(2, operator=_called("aten::silu", (rows, 48))))]]


def test_groups_of_rows_that_data_decide_are_turns_and_what_is_between_the_loops_is_not():
    """Two layers of eight experts, and one of each size. Layers of a network have weights of other shapes."""
    norm = [kernel(3, operator=_called(f"aten::{name}", (64, 32))) for name in ("rms_norm", "neg", "mul") * 8]
    work = step(*_turns_of_experts(range(1, 9), norm), *_turns_of_experts(range(11, 19), norm))
    turns = groups_in_turn(work)
    assert set(turns[:24].tolist()) == set(turns[48:72].tolist()) == {1}
    assert set(turns[24:48].tolist()) == set(turns[72:].tolist()) == {8}
    assert set(groups_in_turn(step(*_turns_of_experts(range(1, 8)))).tolist()) == {1}
    for often in ([5] * 8, [*range(1, 9)] * 3):
        assert set(groups_in_turn(step(*_turns_of_experts(often))).tolist()) == {1}
    response = MECHANISMS["loop_to_batched_op"].respond(work, MECHANISMS["loop_to_batched_op"].least_ns(work))
    assert response.left[:24].tolist() == [1] * 24 and response.left[25] == 1 / 8
    layers = [piece for width in range(1, 9) for piece in (
        kernel(5, "gemm", replace(_called("aten::mm", (64, width), (width, 48)), flops=1e6), FP32, types=("f32",)),
        kernel(2, operator=_called("aten::silu", (64, 48))))]
    assert set(groups_in_turn(step(*layers)).tolist()) == {1}


def test_groups_whose_numbers_of_rows_come_again_are_turns_where_masks_choose_them():
    """Many small experts: their rows are of few sizes. Those of a text that grows only rise, and layers have no masks.
    """
    sizes = (3, 5, 4) * 8
    assert set(groups_in_turn(step(*_turns_of_experts(sizes))).tolist()) == {24}
    assert set(groups_in_turn(step(*_turns_of_experts([*range(1, 9)] * 3))).tolist()) == {1}
    taken = _called("aten::index", (64, 32), (), kinds=["float", ""])
    score, whole = _called("aten::mv", (64, 32), (32,)), _called("aten::add", (64, 32), (64, 32))
    chosen = _called("aten::argmax", (64,), (), (), kinds=["float", "Scalar", "Scalar"])
    summed = _called("aten::index_add", (64, 32), (), (8,), (8, 32), kinds=["float", "Scalar", "long int", "float"])
    for others, turns in (((taken,), 24), ((score, taken), 24), ((taken, whole), 1), ((taken, chosen), 1),
                          ((taken, summed), 24), ((score, taken, summed), 1)):  # layers that leave out some rows
        pieces = [[*_turns_of_experts([rows]), *_turns(1, *others)] for rows in sizes]
        assert set(groups_in_turn(step(*[piece for turn in pieces for piece in turn])).tolist()) == {turns}
    mask, *without_masks = [piece for place, piece in enumerate(_turns_of_experts(sizes)) if not place or place % 3]
    assert set(groups_in_turn(step(mask, *without_masks)).tolist()) == {1}


def test_turns_that_add_to_a_total_need_no_products():
    """Trees that are walked one after another, and pairs of parts of a tensor: the way back shows that a turn takes two
    of it. With one, the other may be what the turn before made.
    """
    add = _called("aten::add", (8,), (8,))
    tree = (_called("aten::gather", (90, 64), (), (90, 1), kinds=["float", "Scalar", "long int"]),
            _called("aten::gt", (90, 1), (90, 1)), _called("aten::add", (90,), (90,)))
    assert _parts(*tree[:2]) == {1} and _parts(*tree) == {8}
    summed = StepOperator("aten::sum", arguments=OperatorArguments(
        [[8, 16], [], [], []], ["float", "ScalarList", "Scalar", ""], ["", "[1]", "False", ""]))
    pair = (_called("aten::mul", (8, 16), (8, 16)), summed, add)
    assert _parts(*pair) == {1}

    def back(parts):
        taken = [_called("aten::copy_", (8, 16), (8, 16), phase="backward", outermost="autograd: SelectBackward0"),
                 _called("aten::add_", (8, 24, 16), (8, 24, 16), phase="backward")]
        return _turns(8, *taken * parts, _called("aten::neg", (8, 16), phase="backward"))

    assert _parts(*pair, after=back(2)) == {8} and _parts(*pair, after=back(1)) == {1}
    unknown = [replace(operator, arguments=None) for operator in (
        *pair, _called("aten::copy_", phase="backward", outermost="autograd: SelectBackward0"),
        _called("aten::neg", phase="backward"), _called("aten::add_", phase="backward"))]
    for turn in (unknown[:3], pair):  # of a trace without shapes, and of a way back without them
        assert _parts(*turn, after=_turns(8, *unknown[3:])) == {1}
    scan = (_called("aten::mul", (8, 16), (8, 16)), _called("aten::add", (8, 16), (8, 16)), summed, add)
    assert _parts(*scan, after=back(2)) == {1}  # a state, scaled by one part and added to another
    assert _parts(*scan[:2], _called("aten::mm", (8, 16), (16, 4)), after=back(2)) == {1}


def test_turns_that_make_numbers_of_what_may_be_their_total_need_the_one_before():
    """A running mean, and a grid of which each turn takes neighbours; a lookup from outside makes what hides the total.
    """
    looked_up = _called("aten::index_select", (50, 16), (), (8,), kinds=["float", "Scalar", "long int"])
    add = _called("aten::add", (8, 16), (8, 16))
    assert _parts(looked_up, add) == {8} and _parts(looked_up, _called("aten::tanh", (8, 16)), add) == {1}
    padded = _called("aten::mul", (8, 1, 4), (8, 4, 1))
    assert _parts(padded, add) == {8}
    assert _parts(_sum(8, 4), padded, add) == {1} and _parts(_sum(8), padded, add) == {1}


@pytest.mark.parametrize("update", ["aten::sub", "aten::sub_", "aten::add_", "aten::lerp_"])
def test_turns_that_train_the_weights_that_they_take_need_the_one_before(update):
    """Steps of a descent that is written by hand or is an optimizer's; the input of a layer is no weight."""
    def turn(weights, phase=""):
        return (_called("aten::mm", (32, 16), (16, 4), outermost="aten::linear"),
                _called("aten::sub", (32, 4), (32, 4)), _called("aten::mm", (16, 32), (32, 4)),
                _called(update, weights, weights, phase=phase))

    assert _parts(*turn((4, 16))) == {1} and _parts(*turn((2, 32))) == {8}
    assert _parts(*turn((2, 32), "optimizer")) == {1}


def test_what_turns_only_add_to_needs_no_order():
    """Rows of a sum for each turn, or of one sum by number, as messages along edges of many kinds."""
    assert _parts(*ROW_OF_SUM) == {8}
    assert _parts(*ROW_OF_SUM, _sum(7)) == {8} and _parts(*ROW_OF_SUM, _sum(8)) == {1}  # a column of the sum
    wide = (MULTIPLY, _called("aten::add_", (3, 8, 5), (8, 5)))
    assert _parts(_sum(3, 8, 6), *wide) == {8} and _parts(_sum(3, 8, 5), *wide) == {1}
    edges = (_called("aten::index", (90, 32), (), kinds=["float", ""]), _called("aten::mm", (8, 32), (32, 32)),
             _called("aten::index_add_", (90, 32), (8,), (8, 32), kinds=["float", "long int", "float"]))
    assert _parts(*edges) == _parts(_sum(90, 31), *edges) == {8}
    assert _parts(_sum(90, 32), *edges) == {1}  # layers of such a network
    assert _parts(_called("aten::zero_", (90, 32)), *edges) == {1}  # steps of a propagation
    levels = (*edges[:2], _called("aten::index_put_", (90, 32), (), (8, 32), kinds=["float", "", "float"]))
    assert _parts(*levels) == {1}  # of a tree, each level of which reads what the one before has written
    filled = [kernel(2, operator=edges[0]), copy(1, "memset", 90 * 32 * 4), *_turns(1, *edges[1:])]
    assert set(parts_in_turn(step(*filled * 8)).tolist()) == {1}


def test_truth_values_and_what_a_product_writes_to_are_no_result_of_the_turn_before():
    """A mask of all others, for each of 8 things that are compared with all; a product that another operator calls
    writes its first tensor. Mutations: each is read as a number.
    """
    compared = _called("aten::eq", (8,), (8,), kinds=["longint", "longint"])
    others = _called("aten::bitwise_not", (8,), kinds=["bool"])
    nearest = (_called("aten::addmv_", (8,), (8, 32), (32,), outermost="aten::mv"), compared, others)
    assert _parts(*nearest, MULTIPLY) == {8}
    assert _parts(replace(nearest[0], outermost="aten::addmv_"), *nearest[1:], MULTIPLY) == {1}
    assert _parts(nearest[0], compared, _called("aten::bitwise_not", (8,), kinds=["longint"]), MULTIPLY) == {1}


def test_parts_of_the_host_are_of_one_tensor_that_was_parted_before():
    """A tile that the host sends and gets back has the size of the result: nothing else says that it is no result."""
    keeps = _called("aten::mm", (8, 32), (32, 32))
    around = [copy(3, "h2d", 8 * 32 * 4)]
    split, parts = _called("aten::split", (64, 32), calls=2), _called("aten::as_strided", outermost="aten::split",
                                                                      calls=16)
    named = [kernel(1, operator=split), kernel(1, operator=parts)]
    assert 8 in _parts(keeps, _called("aten::gelu", (8, 32)), between=lambda turn: around, before=named)
    other = [named[0], kernel(1, operator=replace(parts, calls=18))]
    for before in ([], other):
        assert 8 not in _parts(keeps, _called("aten::gelu", (8, 32)), between=lambda turn: around, before=before)
    assert 8 not in _parts(keeps, _called("aten::gelu", (8, 32)), before=named)


def test_a_loop_is_one_of_a_step_and_not_the_steps():
    turn = _turns(1, MULTIPLY, _called("aten::gelu", (8, 5)))
    assert not repeats(step(*turn * 8, steps=8))
    found = repeats(step(*turn * 20, steps=2))
    assert [loop.turns for loop in found] == [10] and found[0].rows == slice(0, 40)
    assert [loop.turns for loop in repeats(step(*turn * 7))] == [7]


def _attention(*middle):
    return (product(50, 1e9, operator="aten::addmm"), kernel(4, "copy"), product(20, 1e9, operator="aten::bmm"),
            *middle, kernel(30, "softmax"), product(20, 1e9, operator="aten::bmm"), kernel(6, "copy"),
            product(60, 1e9, operator="aten::addmm"))


def test_attention_goes_with_its_products_and_all_between_their_neighbours():
    work = step(kernel(5, "norm"), *_attention(kernel(9)), kernel(7))
    assert floor_us(work, "attention_fusion") == 5 + 50 + 60 + 7


def test_what_attention_makes_is_written():
    """Of a second product of 16 x 5000 x 100 floats 32 MB, at 1e13 a second 3.2 us, but no more than it takes."""
    for us, left in ((60, 3.2), (3, 3)):
        first, softmax = product(20, 1e9, operator="aten::bmm"), kernel(30, "softmax")
        second = kernel(us, "gemm", taking("aten::bmm", (16, 5000, 200), (16, 200, 100)), FP32)
        assert floor_us(step(first, softmax, second), "attention_fusion") == pytest.approx(left)


def test_a_softmax_between_other_products_is_no_attention():
    router = step(product(50, 1e9), kernel(3, "softmax"), product(20, 1e9, operator="aten::bmm"))
    assert "no attention" in why(router, "attention_fusion")


def test_a_compiler_leaves_products_at_their_roof_and_fused_attention():
    work = step(product(100, 1e10), kernel(30), kernel(40, "attention"), copy(5, "h2d", 9, True), copy(6, "d2d"))
    assert floor_us(work, "compile") == 10 + 40 + 5


def test_a_compiler_leaves_the_optimizer_and_a_kernel_for_each_product():
    """A product of no FLOPs in two kernels leaves one of 1 us at least."""
    parts = StepOperator("aten::mm", types=("bf16",), flops=0.0, kernels=2)
    update = kernel(30, operator=StepOperator("aten::mul_", phase="optimizer"))
    work = step(*(kernel(20, "gemm", parts, BF16) for _ in range(2)), update, kernel(9),
                limits=replace(LIMITS, shortest_ns=1000.0))
    assert floor_us(work, "compile") == 1 + 30


def _updates(name, count, phase="forward", **options):
    return [kernel(8, operator=_called(name, (100 + number,), phase=phase, **options)) for number in range(count)]


def test_a_list_that_is_updated_one_by_one_keeps_its_bytes():
    """40 MB at 10 TB/s, of which two thirds are sure, are 2.7 us of each. Other work and gradients stay."""
    means = [kernel(8, operator=replace(_called("aten::lerp_", (9,)), bytes=40e6)) for _ in range(8)]
    assert floor_us(step(product(100, 1e10), *means), "list_updates") == pytest.approx(100 + 8 * 8 / 3)
    assert "8 tensors" in why(step(product(100, 1e10), *means[1:]), "list_updates")


def test_lists_are_updates_that_follow_each_other():
    """With arithmetic between; not on the way back, not fewer, and not what other work parts."""
    def listed(*rows):
        return sorted(set(listed_updates(step(*rows)).tolist()))

    assert listed(kernel(9), *_updates("aten::mul_", 4), *_updates("aten::add_", 4)) == [0, 8]
    assert listed(*(row for pair in zip(_updates("aten::mul", 9), [copy(2, "d2d", 400)] * 9, strict=True)
                    for row in pair)) == [9]
    assert listed(*_updates("aten::mul", 16)) == [0] and listed(*_updates("aten::mul_", 7)) == [0]
    assert listed(*_updates("aten::mul_", 8, phase="backward")) == [0]
    assert listed(*_updates("aten::mul_", 8, outermost="aten::linear")) == [0]
    assert listed(*_updates("aten::mul_", 4), product(20, 1e9), *_updates("aten::mul_", 4)) == [0]


def test_a_loop_over_parameters_that_is_the_optimizer_is_no_list_of_means():
    loop, lists = _updates("aten::mul_", 8, phase="optimizer"), _updates("aten::_foreach_add_", 1, phase="optimizer")
    assert not listed_updates(step(*loop)).any() and listed_updates(step(*lists, *loop)).tolist() == [0] + [8] * 8
    assert listed_updates(step(*_updates("aten::_fused_adamw_", 1, phase="optimizer"), *loop))[1:].all()


def test_a_list_in_one_call_leaves_the_host_a_walk_over_it():
    """Of ten calls one, and a sixth of a call for each entry; of each kernel what is more than its fixed part."""
    work = step(*_updates("aten::mul_", 10), product(100, 1e10))
    changed = changed_step(work, StepTime(1e6, True), [MECHANISMS["list_updates"]])
    assert changed.device_ns == pytest.approx(1000 * (100 + 10 * 5 + 3)) and not stacked_turns(work)[0] > 1
    assert changed.calls_left == pytest.approx((1 + 10 / 6 + 1) / 11)


LOOKED_UP = "autograd::engine::evaluate_function: EmbeddingBackward0"


def _sorted_gradients(shape, name="aten::embedding_dense_backward", us=(100, 300), sorts="DeviceRadixSort"):
    """Gradients of looked-up rows: a sort and a sum, a fill of zeros, and another operator of the same node."""
    values = [list(shape)] if "embedding" in name else [[9, 9], [], list(shape)]
    called = StepOperator(name, LOOKED_UP, "backward", ("f32",), kernels=3,
                          arguments=OperatorArguments(values, ["float"] * len(values), [""] * len(values)))
    return [kernel(us[0], "sort", called, name=sorts), kernel(us[1], "embedding", called, name="compute_grad"),
            kernel(5, "fill", called, name="FillFunctor"),
            kernel(20, operator=StepOperator("aten::arange", LOOKED_UP, "backward"))]


def test_gradients_of_looked_up_rows_are_read_at_least():
    """20 million numbers are 80 MB, 8 us at 10 TB/s. A fill of zeros stays; what the node did for the sort is gone.
    """
    work = step(product(100, 1e10), *_sorted_gradients((200_000, 100)))
    assert floor_us(work, "unsorted_gradients") == pytest.approx(100 + 8 + 5)
    stored = step(*_sorted_gradients((200_000, 100), "aten::_index_put_impl_"))
    assert floor_us(stored, "unsorted_gradients") == pytest.approx(8 + 5)


def test_gradients_that_atomics_add_no_sooner_are_left():
    """At 1e11 a second 60 million take 600 us. What does not sort adds them up already."""
    assert "sorted" in why(step(*_sorted_gradients((600_000, 100))), "unsorted_gradients")
    assert "sorted" in why(step(*_sorted_gradients((2_000, 100), sorts="scatter")), "unsorted_gradients")


def test_gradients_that_are_not_sorted_take_fewer_launches():
    """20 million numbers at 1e11 a second are 200 us, and 3 us of a kernel. Of three kernels two are left."""
    work = step(product(100, 1e10), *_sorted_gradients((200_000, 100)))
    after = changed_step(work, StepTime(525e3, True), [MECHANISMS["unsorted_gradients"]])
    assert after.device_ns == pytest.approx(1000 * (100 + 203 + 5)) and after.only_less
    assert after.calls_left == pytest.approx((1 + 2 / 3 + 1) / 3, abs=0.2) and after.calls_left < 1


def _dense_gradients(rows, looked_up, update="aten::_foreach_add_"):
    """A table's gradient, its zeros, and an update of it beside one of as many other numbers. In bags or one by one."""
    def operator(name, shapes, values, phase):
        taken = OperatorArguments(shapes, ["float"] * len(shapes), values)
        return StepOperator(name, name, phase, ("f32",), arguments=taken)
    listed = OperatorArguments([[[rows, 8], [8, rows]], []], ["TensorList", "Scalar"], ["", "1"])
    return [kernel(40, "embedding", operator("aten::embedding_dense_backward", [[looked_up, 8], [looked_up], [], []],
                                             ["", "", str(rows), "-1"], "backward")),
            kernel(30, "fill", operator("aten::fill_", [[rows, 8], []], ["", "0"], "backward")),
            kernel(20, operator=StepOperator(update, update, "optimizer", arguments=listed))]


def test_nothing_of_the_gradients_of_a_large_table_is_sure_to_stay():
    """The other half of the update does. A table of which a quarter and more is looked up keeps its gradient."""
    work = step(product(100, 1e10), *_dense_gradients(1000, 250))
    assert floor_us(work, "sparse_gradients") == pytest.approx(100 + 10)
    assert "few rows" in why(step(product(100, 1e10), *_dense_gradients(1000, 251)), "sparse_gradients")
    bags = [[90, 8], [250], [250], [90], [0], []]
    bag = OperatorArguments(bags, ["float"] * 6, ["", "", "", "", "", "1000"])
    summed = kernel(50, operator=StepOperator("aten::_embedding_bag_dense_backward", "", "backward", arguments=bag))
    assert floor_us(step(product(100, 1e10), summed), "sparse_gradients") == 100


@pytest.mark.parametrize(("update", "device_us", "left"), [
    ("aten::_foreach_add_", 100 + 12.5, (3 + 1) / 4), ("aten::_foreach_sqrt", 100 + 40 + 12.5, (4 + 5) / 4)])
def test_a_sparse_update_is_of_the_rows_that_are_looked_up(update, device_us, left):
    """A quarter of half of 20 us. SGD adds gradients as they come, Adam sums them up first."""
    work = step(product(100, 1e10), *_dense_gradients(1000, 250, update))
    after = changed_step(work, StepTime(1e6, True), [MECHANISMS["sparse_gradients"]])
    assert after.device_ns == pytest.approx(1000 * device_us) and after.calls_left == pytest.approx(left)


def test_a_cache_of_fixed_size_takes_what_concatenates():
    """And the reads of single numbers; not where more is read in a step."""
    joins = kernel(8, "copy", StepOperator("aten::cat", "aten::cat"))
    work = step(kernel(30), joins, copy(2, "d2h", 8))
    assert floor_us(work, "fixed_cache_graph") == 30
    assert "concatenated" in why(step(kernel(30), copy(2, "d2h", 8)), "fixed_cache_graph")
    assert "single numbers" in why(step(kernel(30), joins, *[copy(2, "d2h", 16)] * 2), "fixed_cache_graph")
    back = kernel(8, "copy", StepOperator("aten::cat", "aten::cat", "backward"))
    assert "concatenated" in why(step(kernel(30), back), "fixed_cache_graph")


def test_a_narrower_type_with_a_graph_has_the_floor_of_the_type():
    work = step(product(100, 1e10, FP32), kernel(20))
    for both, narrow in (("narrow_graph", "narrower_types"), ("tf32_graph", "tf32")):
        assert floor_us(work, both) == floor_us(work, narrow) and floor_us(work, both) != floor_us(work, "graph")


def test_a_fused_optimizer_leaves_the_way_there_and_back():
    work = step(product(100, 1e10), kernel(30, operator=StepOperator("aten::mul_", phase="optimizer")))
    assert floor_us(work, "fused_optimizer") == 100


def test_a_fused_optimizer_passes_over_its_longest_list_once():
    """40 million elements of 6 bytes are 240 MB: 100 MB may be cached, the rest takes 70 us at 2 TB/s. No more than it
    took.
    """
    def updates(us, *shapes):
        taken = OperatorArguments([[list(shape) for shape in shapes], []], ["TensorList", "Scalar"], ["", "1"])
        called = StepOperator("aten::_foreach_add_", phase="optimizer", arguments=taken)
        return [kernel(us, operator=called), kernel(us, operator=called)]

    lists = [*updates(300, (4000, 5000), (20_000_000,)), *updates(50, (10,))]
    assert floor_us(step(product(100, 1e10), *lists), "fused_optimizer") == pytest.approx(170)
    assert floor_us(step(product(100, 1e10), *updates(20, (40_000_000,))), "fused_optimizer") == pytest.approx(140)


def test_a_fused_optimizer_leaves_the_hosts_other_calls():
    """A call in a loop takes 30 us along; one for a list 5 us more for each of three entries, where a longer one stays.
    How many entries a list has that was not recorded is not known.
    """
    def called(name, entries=0):
        taken = OperatorArguments([[[]] * entries, []], ["TensorList", "Scalar"], ["", "1"]) if entries else None
        return kernel(8, operator=StepOperator(name, phase="optimizer", arguments=taken))

    def most_us(*updates):
        found = floor(step(product(100, 1e10), *updates), [MECHANISMS["fused_optimizer"]])
        return None if found.most_ns is None else pytest.approx(found.most_ns / 1000, abs=0.001)

    assert most_us(called("aten::mul_")) == 8 + 30 and most_us(called("aten::_foreach_add_")) is None
    assert most_us(called("aten::_foreach_mul_", 4), called("aten::_foreach_add_", 3)) == 8 + 8 + 30 + 3 * 5


def test_channels_last_takes_conversions_and_holds_what_reads_images_against_its_roof():
    """A fourth of 4e10 FLOPs at 1e15 are 10 us, 50 MB of a norm at 10 TB/s 5 us; vectorised kernels and products of
    matrices stay."""
    norm = StepOperator("aten::native_batch_norm", types=("bf16",), bytes=50e6)
    work = step(product(100, 4e10, CONV, "aten::cudnn_convolution"), kernel(30, "transpose"), kernel(40, "norm", norm),
                kernel(8, name="void at::native::vectorized_elementwise_kernel<4, x>"), product(20, 1e9))
    assert floor_us(work, "channels_last") == 10 + 5 + 8 + 20
    assert "convolves" in why(step(kernel(30, "transpose")), "channels_last")


def test_conversions_between_types_stay_in_any_order_of_images():
    """Half of 100 MB at 10 TB/s are 5 us."""
    def left_us(*types):
        cast = StepOperator("aten::copy_", types=types, bytes=100e6)
        return floor_us(step(product(100, 4e10, CONV, "aten::cudnn_convolution"), kernel(30, "copy", cast)),
                        "channels_last")

    assert left_us("f32", "bf16") == 10 + 5 and left_us("f32") == 10


def test_pinned_copies_take_their_bytes_over_the_link():
    work = step(kernel(10), copy(200, "h2d", 500_000, False))
    assert floor_us(work, "pinned_copies") == 20
    assert targets(work, "pinned_copies") == {"memory copy h2d False": (200, 10)}
    assert "pageable" in why(step(kernel(10), copy(200, "h2d", 500_000, True)), "pinned_copies")
    assert "link" in why(step(copy(200, "h2d", 500_000, False), limits=DeviceLimits()), "pinned_copies")


def test_inputs_on_the_device_need_no_copy():
    assert floor_us(step(kernel(10), copy(200, "h2d", 9, True), copy(3, "d2h", 9, True)), "inputs_on_device") == 13


def test_a_larger_batch_leaves_arithmetic_and_bytes_of_each_sample():
    """10 us of FLOPs whatever weights are read; two thirds of 60 MB at 10 TB/s are 4 us; of 16 times the samples each
    has a part of the update, 30 us, and of a copy, 8 us. A conversion may be of weights, too: nothing of it is sure.
    """
    update = StepOperator("aten::mul_", phase="optimizer", bytes=9e9)
    work = step(product(100, 1e10, bytes=9e9), kernel(40, operator=StepOperator("aten::mul", bytes=60e6)),
                kernel(30, operator=update), copy(8, "h2d", 9, True), copy(3, "memset"),
                kernel(7, "copy", StepOperator("aten::copy_", bytes=60e6)))
    assert floor_us(work, "larger_batch") == 14 + 38 / 16
    assert floor(work, [larger_batch(4.0)]).floor_ns == pytest.approx(14_000 + 38_000 / 4)
    lists = kernel(32, operator=StepOperator("aten::_foreach_mul_", bytes=60e6))
    assert floor_us(step(product(100, 1e10), lists), "larger_batch") == 10 + 2


def test_a_larger_batch_has_as_many_calls_of_the_host():
    """Of 1000 us a step of twice the samples loses 100 us at most but for 2 x 10 us of FLOPs and a kernel of 1 us, the
    shortest, for each other one; half of the rest is left for each sample. Of a profiled step the kernels are left.
    """
    parts = StepOperator("aten::sum", kernels=2)
    work = step(product(60, 1e10), kernel(20, "reduction", parts), kernel(10, "reduction", parts), kernel(10, "copy"),
                limits=replace(LIMITS, shortest_ns=1000.0))
    found = floor(work, [larger_batch(2.0)])
    assert (found.samples, found.most_ns) == (2, pytest.approx(100_000 - 20_000 - 3 * 1000))
    assert kept_ns(StepTime(1_000_000, True), found) == pytest.approx((1_000_000 - found.most_ns) / 2)
    assert kept_ns(StepTime(1_000_000, False), found) == found.floor_ns
    assert ceiling_of(StepTime(1_000_000, False), found) == PROFILED


def test_more_samples_with_another_change_leave_the_part_that_each_leaves():
    """A narrower type halves an update of 32 us, and of 16 times the samples each has a 16th of that, beside 10 us of
    FLOPs.
    """
    update = StepOperator("aten::mul_", phase="optimizer", types=("f32",))
    work = step(product(100, 1e10, FP32), kernel(32, operator=update))
    assert floor_us(work, "larger_batch", "narrower_types") == 10 + 32 / 2 / 16


def test_without_checkpointing_nothing_is_computed_again():
    work = step(product(100, 1e10), product(90, 1e10, phase="recompute"))
    assert floor_us(work, "checkpointing_off") == 100


def test_logits_of_the_last_position_need_the_weights_once():
    """64 x 8192 weights of 2 bytes at 10 TB/s are 0.105 us; what works on the logits goes, too."""
    taken = OperatorArguments([[128, 64], [64, 8192]], ["c10::BFloat16", "c10::BFloat16"], ["", ""])
    after = OperatorArguments([[128, 8192], [], []], ["c10::BFloat16", "Scalar", "Scalar"], ["", "-1", "False"])
    head = kernel(80, "gemm", StepOperator("aten::mm", types=("bf16",), arguments=taken), BF16)
    work = step(product(50, 1e9), head, kernel(20, "softmax", StepOperator("aten::_softmax", arguments=after)))
    least_us = 50 + 64 * 8192 * 2 / 1e13 * 1e6
    assert floor_us(work, "last_logits") == floor_us(work, "less_work") == pytest.approx(least_us)
    assert "vocabulary" in why(step(product(50, 1e9)), "less_work")
    narrowed = OperatorArguments([[128, 8192], [8192, 64]], ["c10::BFloat16", "c10::BFloat16"], ["", ""])
    layer = step(head, product(20, 1e9), kernel(80, "gemm", StepOperator("aten::mm", arguments=narrowed), BF16))
    assert "vocabulary" in why(layer, "less_work")  # what a layer widens and narrows again
    trained = step(head, product(20, 1e9, phase="backward"))
    assert "loss takes the logits" in why(trained, "less_work")
    assert "one word after another" in why(step(product(50, 1e9), head, head), "less_work")


def test_a_loop_of_small_operators_is_held_against_its_arithmetic():
    """Eight products of 1e9 FLOPs at 1e15 are 8 us; copies that stack them go, and the seven others stay."""
    looped, few = [product(5, 1e9) for _ in range(8)], [product(5, 1e9, operator="aten::bmm") for _ in range(7)]
    assert floor_us(step(*looped, *few, kernel(9, "copy"), kernel(3)), "loop_to_batched_op") == 8 + 35 + 3
    assert "8 times" in why(step(*few), "loop_to_batched_op")


def test_numbers_that_the_host_reads_in_each_turn_go_with_the_loop():
    """A mask of each turn chooses rows, and the host reads how many; larger results and fewer numbers are copied still.
    """
    looped, read = [product(5, 1e9) for _ in range(8)], copy(2, "d2h", 8, pinned=True)
    assert floor_us(step(*looped, *[read] * 8), "loop_to_batched_op") == 8
    assert floor_us(step(*looped, *[read] * 7), "loop_to_batched_op") == 8 + 14
    assert floor_us(step(*looped, *[copy(2, "d2h", 4096, pinned=True)] * 8), "loop_to_batched_op") == 8 + 16


def test_a_loop_may_become_one_in_tf32():
    assert floor_us(step(*(product(50, 1e9, FP32) for _ in range(8))), "loop_to_batched_op") == 16


def test_a_loop_over_time_has_no_floor():
    cells = [product(5, 1e9, outermost="aten::lstm_cell") for _ in range(8)]
    assert "needs the one before" in why(step(*cells), "loop_to_batched_op")


def test_sorted_reads_keep_their_blocks():
    """160,000 blocks at .5 ns are 80 us."""
    gather = kernel(100, "embedding", name="void at::native::vectorized_gather_kernel<16, long>", blocks=160_000,
                    blocks_x=80_000)
    assert floor_us(step(gather, kernel(7)), "sorted_reads") == 87
    assert "bytes" in why(step(kernel(100, "embedding", blocks=9)), "sorted_reads")
    assert "by index" in why(step(kernel(7)), "sorted_reads")


def test_sorted_reads_write_what_they_gather_and_read_what_they_add():
    """16 million floats are 64 MB, at 1e13 a second of the cache 6.4 us. Of added values and their places the fewer
    bytes are sure: 2 million places of 8 bytes, 1.6 us. What is expected of either is not known.
    """
    def indexed(name, *more):
        taken = OperatorArguments([[1000, 8], [], [2_000_000], *more], ["float", "Scalar", "longint", "float"],
                                  ["", "0", "", ""])
        return step(kernel(100, "embedding", StepOperator(name, arguments=taken)), kernel(7))
    assert floor_us(indexed("aten::index_select"), "sorted_reads") == pytest.approx(6.4 + 7)
    work = indexed("aten::index_add_", [2_000_000, 8])
    assert floor_us(work, "sorted_reads") == pytest.approx(1.6 + 7)
    with pytest.raises(Absent, match="lines of memory"):
        MECHANISMS["sorted_reads"].respond(work, work.sure_ns)


def test_without_work_of_the_host_kernels_stay_and_copies_from_it_in_part():
    fed = step(kernel(10), copy(200, "h2d", 500_000, False))
    assert floor_us(fed, "host_work") == 10 + 10 / 8  # of what the host made wide each eighth byte may do
    assert not floor(fed, [MECHANISMS["host_work"]]).targets


def test_the_floors_of_a_session_are_those_of_each_change_alone():
    """They are made one after the other, and the least times of one are not those of the next."""
    work = step(product(400, 1e10, FP32), kernel(30, "elementwise"), kernel(20, "norm"), copy(200, "h2d", 5e5, False))
    floors = floors_of(work, StepTime(900_000, True))
    assert floors.floors == tuple(floor(work, [mechanism]) for mechanism in MECHANISMS.values())
    assert len({under.floor_ns for under in floors.floors}) > 4


def test_prefetched_inputs_are_copied_beside_the_kernels():
    """500 kB over the link take 10 us, 2 MB 40 us: the longer of that and of the rest counts."""
    few, many = (step(kernel(30), copy(200, "h2d", size, True), copy(3, "d2h", 9, True)) for size in (5e5, 2e6))
    assert floor_us(few, "prefetching") == 33 and floor_us(many, "prefetching") == 40
    assert targets(few, "prefetching") == {"memory copy h2d True": (200, 10)}
    assert floor_us(step(kernel(30), copy(200, "h2d", 9), limits=DeviceLimits()), "prefetching") == 30
    results = step(kernel(30), copy(200, "d2h", 9))
    assert "nothing is copied" in why(results, "prefetching")
    assert not floor(results, [MECHANISMS["prefetching"]]).shown  # where results alone are copied it is no advice


def test_one_graph_of_the_step_leaves_no_copy_between_host_and_device():
    """Two reads of a number each. Of 16 bytes the host may need to know what it launches next."""
    def reading(size, reads=2):
        return step(kernel(30), copy(9, "h2d", 500, True), *[copy(3, "d2h", size, True)] * reads)
    assert floor_us(reading(8), "whole_graph") == 30
    assert "single numbers" in why(reading(16), "whole_graph")
    assert "does not wait within" in why(reading(8, reads=1), "whole_graph")
    assert floor_us(replace(reading(8, reads=1), syncs=2), "whole_graph") == 30


def test_a_graph_of_the_whole_step_ends_at_the_one_read_of_results():
    """The copy of 9 us to the device is gone, that of 3 us of the results stays."""
    work = step(kernel(30), copy(9, "h2d", 500, False), copy(3, "d2h", 4096, True))
    assert floor_us(replace(work, syncs=2), "whole_graph") == 33
    assert "does not wait within" in why(replace(work, syncs=1), "whole_graph")


def accumulated(*turns, after=()):
    """Turns ahead and back, of a product of 10 us arithmetic each time, and an update. "sums" are of what two operators
    of a turn read, "adds" of a weight's gradient and the one that it has.
    """
    ahead, back = (product(40, 1e10, phase=phase) for phase in ("forward", "backward"))
    clips, seed, zeros = (kernel(5, operator=taking(name, shape, outermost=name, phase="no_grad")) for name, shape in (
        ("aten::mul", (10, 256)), ("aten::mul", ()), ("aten::zero_", (10, 256))))
    sums = kernel(5, operator=StepOperator("aten::add_", phase="backward"))
    last = kernel(5, operator=StepOperator("aten::add_", phase="optimizer"))
    pieces = {"ahead": ahead, "back": back, "clips": clips, "seed": seed, "zeros": zeros, "sums": sums,
              "adds": gradient_sum(5), "update": last}
    return step(*(pieces[name] for turn in turns for name in turn), *(pieces[name] for name in after), last,
                limits=replace(LIMITS, shortest_ns=800.0))


FIRST, NEXT = ("ahead", "back"), ("ahead", "back", "adds")


def test_micro_batches_in_one_batch_leave_arithmetic_and_the_update():
    """Four products of 10 us, what adds gradients up is gone, and 5 us of the update stay. What follows the last way
    back is no turn; where the weights change between them, there are none.
    """
    assert floor_us(accumulated(FIRST, NEXT), "joined_batches") == 45
    assert "more than once" in why(accumulated(FIRST), "joined_batches")
    assert "more than once" in why(accumulated(FIRST, ("ahead", *NEXT)), "joined_batches")
    assert "more than once" in why(accumulated((*FIRST, "update"), NEXT), "joined_batches")
    assert floor_us(accumulated(FIRST, NEXT, after=("ahead",)), "joined_batches") == 55


def test_turns_that_add_no_gradients_up_are_no_micro_batches():
    """They may be of two models of one kind, also where a tensor that two operators of each read has its gradients
    added.
    """
    assert "more than once" in why(accumulated(FIRST, FIRST), "joined_batches")
    assert "more than once" in why(accumulated(*[(*FIRST, "sums")] * 2), "joined_batches")


def test_a_frozen_part_ahead_of_each_micro_batch_works_on_no_gradients():
    """No gradient of it is recorded, as of what clips those of each sample; but they are added to those that are there.
    """
    work = accumulated(FIRST, *[("clips", *NEXT)] * 7)
    assert floor(work, [MECHANISMS["joined_batches"]]).floor_ns
    assert not MECHANISMS["loop_to_batched_op"].shown(work)


def test_gradients_of_each_sample_are_a_loop_and_no_micro_batches():
    """They are clipped one by one; what works on one number is no such work. Those that are set to zero before the next
    are added to nothing.
    """
    plain = accumulated(FIRST, *[("seed", *NEXT)] * 7)
    assert all(floor(plain, [MECHANISMS[name]]).floor_ns for name in ("joined_batches", "larger_batch"))
    loop = MECHANISMS["loop_to_batched_op"]
    for clipped in (accumulated(*[(*FIRST, "clips")] * 8), accumulated(*[(*NEXT, "clips", "zeros")] * 8)):
        assert "more than once" in why(clipped, "joined_batches") and "one by one" in why(clipped, "larger_batch")
        assert loop.shown(clipped)
    for other in (plain, accumulated(*[(*FIRST, "seed")] * 8)):
        assert not loop.shown(other)


def taking(name, *shapes, types=("float",) * 3, outermost="", phase="forward", kernels=1.0):
    """An operator that takes tensors of these shapes, and makes what they make."""
    return StepOperator(name, outermost, phase, ("f32",), kernels=kernels, arguments=OperatorArguments(
        [list(shape) for shape in shapes], list(types[:len(shapes)]), [""] * len(shapes)))


def multiplied(us, rows, depth, columns, flops=1e9, **more):
    """A product of so many rows with a matrix of depth x columns."""
    called = replace(taking("aten::mm", (rows, depth), (depth, columns), **more), flops=flops)
    return kernel(us, "gemm", called, FP32, types=("f32",))


def test_products_in_a_row_are_as_narrow_as_the_last_one_from_the_right():
    """(A B) c of 1000 x 500, 500 x 400 and 400 x 4. Of A B 4 of 400 columns stay, of 20 us at the roof; B c has 500
    rows in place of 1000, of 4 us at the roof. With a pass between them, or in training, the order stays.
    """
    wide, thin = multiplied(90, 1000, 500, 400), multiplied(10, 1000, 400, 4, 2e8)
    assert floor_us(step(wide, copy(1, "memset"), thin, kernel(7)), "product_order") == pytest.approx(0.2 + 2 + 1 + 7)
    for apart in (step(wide, kernel(1), thin), step(thin, wide),
                  step(wide, thin, kernel(1, operator=StepOperator("aten::mul", phase="backward")))):
        assert "narrower" in why(apart, "product_order")


def test_two_products_may_be_layers_of_one_input():
    """Of square matrices three in a row are a chain: two of 100 us with 1 / 100 of the columns, the last as it is."""
    square, thin = multiplied(100, 1000, 1000, 1000), multiplied(10, 1000, 1000, 10, 5e8)
    assert "narrower" in why(step(square, thin), "product_order")
    assert floor_us(step(square, square, thin), "product_order") == pytest.approx(0.2 + 0.2 + 10)


def test_copies_of_a_product_shrink_with_it():
    """A sparse product of two kernels with a copy between and one after it; a copy of another operator stays."""
    sparse = taking("aten::mm", (1000, 500), (500, 400), outermost="aten::_sparse_mm", kernels=2.0)
    inner = taking("aten::copy_", (500, 400), outermost="aten::_sparse_mm")
    parts = [kernel(40, "gemm", sparse), kernel(50, "copy", inner)] * 2
    after = MECHANISMS["product_order"]
    work = step(*parts, kernel(4, "copy", taking("aten::copy_", (9,))), multiplied(10, 1000, 400, 4))
    response = after.respond(work, work.sure_ns)
    assert response.device_ns.tolist() == pytest.approx([3000, 3000, 3000, 3000, 4000, 5000])


def converted(to="c10::BFloat16", phase="forward", of="float", weight=(64, 32)):
    """A weight is converted in 50 us and scaled in 40; another pass, 7 us, and the product, 20 us."""
    cast = taking("aten::copy_", weight, weight, types=(to, of), phase=phase)
    scale = taking("aten::mul", weight, (*weight[:-1], 1), phase=phase)
    return step(kernel(50, "copy", cast), kernel(40, operator=scale),
                multiplied(20, 8, 32, 64, phase=phase), kernel(7, operator=taking("aten::mul", (8, 64), phase=phase)))


def biased(*more, layers=2):
    """Each layer counts 64 positions in 1 us, takes each from each in 9, copies that in 5, scales it in 10 and repeats
    it in 20, and after `more` multiplies in 50.
    """
    made = [kernel(1, "fill", taking("aten::arange")), kernel(9, operator=taking("aten::sub", (1, 64), (64, 1))),
            copy(5, "d2d"), kernel(10, operator=taking("aten::mul", (16, 1, 1), (64, 64))),
            kernel(20, "copy", taking("aten::copy_", (2, 1, 16, 64, 64), (2, 1, 16, 64, 64), outermost="aten::repeat"))]
    made.insert(3, kernel(2, "fill", taking("aten::arange")))
    return step(*[*made, *more, product(50, 1e9)] * layers)


def test_tables_of_numbers_are_made_once():
    """What follows in a way that shapes do not show may be part of the table; inputs and random numbers are not. A row
    of numbers is no table.
    """
    assert floor_us(biased(), "made_again") == floor_us(biased(), "less_work") == 100
    assert "more than once" in why(biased(layers=1), "less_work")
    counted = [kernel(1, "fill", taking("aten::arange")), product(50, 1e9)]
    assert "more than once" in why(step(*counted * 3), "less_work")
    passed = kernel(7, operator=taking("aten::add", (2, 64, 64), (64, 64)))
    assert floor_us(biased(passed), "less_work") == 100
    after = MECHANISMS["made_again"]
    for end in (passed, kernel(7, operator=taking("aten::bernoulli_", (64, 64)))):
        work = biased(end)
        assert after.respond(work, work.sure_ns).device_ns.tolist() == [*[0] * 6, 7000, 50000] * 2


def compared(*read, made=((64, 1, 8), (100, 8)), name="aten::sub"):
    """Differences of all pairs of 64 and 100 rows of 8 columns in 40 us; 50 us multiply."""
    readers = [kernel(20, operator=taking(reader, (64, 100, 8))) for reader in read]
    return step(kernel(40, operator=taking(name, *made)), *readers, product(50, 1e9))


def test_all_pairs_of_rows_are_compared_by_a_product():
    """What else reads the tensor may need each column; of few rows it is no longer than they are."""
    assert floor_us(compared("aten::pow", "aten::sum"), "product_for_pairs") == 50
    assert floor_us(compared("aten::sum", name="aten::mul", made=((1, 100, 8), (64, 1, 8))), "less_work") == 50
    least = MECHANISMS["product_for_pairs"]
    work = compared("aten::pow", "aten::sum")
    assert least.respond(work, work.sure_ns).device_ns.tolist() == [5000, 2500, 2500, 50000]
    for other in (compared("aten::abs", "aten::sum"), compared("aten::pow"), compared("aten::sum", name="aten::add"),
                  compared("aten::sum", made=((64, 100, 8), (100, 8))),
                  compared("aten::sum", made=((64, 1, 8), (100, 1))),
                  step(kernel(40, operator=taking("aten::sub", (64, 1, 8), (9, 8))),
                       kernel(20, operator=taking("aten::sum", (64, 9, 8))))):
        assert "all pairs" in why(other, "product_for_pairs")


def test_of_a_sort_whose_rows_nobody_takes_whole_a_few_places_are_read():
    """What takes the sorted rows needs all; the next step makes rows of its own before it does."""
    def sorts(*after, columns=1024):
        rows = [multiplied(50, 8, 32, columns), kernel(9, operator=taking("aten::sqrt_", (8, columns))),
                kernel(40, operator=taking("aten::sort", (8, columns))),
                kernel(2, operator=taking("aten::sub", (8, 20)))]
        return step(*[*rows, *after] * 2)
    assert floor_us(sorts(), "less_work") == 2 * 61
    assert MECHANISMS["topk_for_sort"].respond(sorts(), sorts().sure_ns).device_ns.tolist() == [
        50000, 9000, 8000, 2000] * 2
    for other in (sorts(kernel(3, operator=taking("aten::gather", (8, 1024)))), sorts(columns=1000)):
        assert "sorted" in why(other, "topk_for_sort")


def test_rows_that_are_looked_at_one_by_one_are_no_needless_logits():
    picked = kernel(3, operator=taking("aten::argmax", (64, 9000)))
    last = kernel(3, operator=taking("aten::argmax", (1, 9000)))
    logits = multiplied(50, 64, 32, 9000)
    assert "each row" in why(step(logits, picked), "last_logits")
    assert floor(step(logits, last), [MECHANISMS["last_logits"]]).floor_ns < floor(step(logits), []).floor_ns


def frozen(*more, follows=None, phase="optimizer"):
    """A network multiplies in 30 us and adds in 9 without gradients; another multiplies in 50 and is updated in 4."""
    older = [multiplied(30, 8, 32, 64, phase="no_grad"),
             kernel(9, operator=taking("aten::add", (8, 64), (8, 64), phase="no_grad"))]
    copied = [kernel(2, operator=follows)] if follows else []
    return step(*older, multiplied(50, 8, 32, 64), *more, *copied,
                kernel(4, operator=taking("aten::_foreach_add_", (32, 64), phase=phase)))


def test_what_a_frozen_network_computes_is_kept():
    """Not where nothing is trained, where no network runs without gradients, or where its weights are written."""
    assert floor_us(frozen(), "frozen_network") == 54
    assert floor_us(frozen(kernel(7, "collective", taking("aten::all", (9,), phase="no_grad"))), "frozen_network") == 61
    after = MECHANISMS["frozen_network"]
    response = after.respond(frozen(), after.least_ns(frozen()))
    assert response.only_less and response.whole_calls and response.left.tolist() == [0, 0, 1, 1]
    assert "without gradients" in why(frozen(phase="no_grad"), "frozen_network")
    assert "without gradients" in why(step(multiplied(50, 8, 32, 64), kernel(4, operator=taking(
        "aten::_foreach_add_", (32, 64), phase="optimizer")), kernel(9, operator=taking(
            "aten::add", (8, 64), phase="no_grad"))), "frozen_network")
    for name, shape, outermost, is_frozen in (
            ("aten::copy_", (64, 32), "aten::copy_", False), ("aten::_foreach_lerp_", (32, 64), "", False),
            ("aten::copy_", (64, 32), "aten::linear", True), ("aten::copy_", (8, 64), "aten::copy_", True),
            ("aten::mul_", (32, 64), "", True)):
        follows = taking(name, shape, shape, outermost=outermost or name, phase="no_grad")
        work = frozen(follows=follows)
        assert (floor_us(work, "frozen_network") == 54) if is_frozen else ("change" in why(work, "frozen_network"))


def learnt(*back, updated=((10, 32), (10,)), trunk=None):
    """A trunk multiplies by weights and a head by others; a way back, and the update of some of them."""
    ahead = (trunk or multiplied(5, 8, 64, 32), multiplied(5, 8, 32, 10))
    return step(*ahead, *back, kernel(2, operator=taking("aten::_foreach_add_", *updated, phase="optimizer")))


def back(us, *shapes, name="aten::mm", values=None):
    operator = taking(name, *shapes, phase="backward")
    return kernel(us, "gemm", replace(operator, arguments=replace(operator.arguments, values=values))
                  if values else operator)


def test_gradients_that_no_optimizer_takes_are_not_made():
    """A head alone is updated: 7 + 3 us on the way back lead to gradients of the trunk's weights. Not where the trunk
    is updated, or a norm in front of it; where a gradient of no weight comes last; or where what is updated shows
    nowhere. Mutations: whatever comes last is not needed.
    """
    head, through, trunk = back(4, (10, 8), (8, 32)), back(7, (8, 10), (10, 32)), back(3, (64, 8), (8, 32))
    assert floor_us(learnt(head, through, trunk), "unneeded_gradients") == 5 + 5 + 4 + 7 + 2
    name, sums = "unneeded_gradients", back(1, (8, 32), name="aten::sum")
    after = MECHANISMS[name]
    work = learnt(through, head, trunk, sums)
    response = after.respond(work, after.least_ns(work))
    assert response.only_less and response.left.tolist() == [1, 1, 1, 1, 0, 0, 1]
    norm = back(1, (8, 64), (64,), name="aten::native_layer_norm_backward")
    for left in (learnt(head, through, trunk, updated=((10, 32), (32, 64))), learnt(head, through, sums),
                 learnt(head, trunk, norm, updated=((10, 32), (64,))), learnt(head, trunk, updated=((10, 32), (50, 4))),
                 learnt(head, trunk, updated=())):
        assert "of weights that stay" in why(left, name)
        assert "without gradients" in why(left, "frozen_network")


def test_a_trunk_that_is_not_updated_is_a_frozen_network_whose_results_can_be_kept():
    """What lies ahead of the head that learns goes, too."""
    head = multiplied(5, 8, 32, 10)
    trained = learnt(head, head, back(4, (10, 8), (8, 32)), back(3, (64, 8), (8, 32)))
    assert floor_us(trained, "frozen_network") == 3 * 5 + 4 + 2
    after = MECHANISMS["frozen_network"]
    assert after.respond(trained, after.least_ns(trained)).left.tolist() == [0, 1, 1, 1, 1, 0, 1]


def distilled(*back, updated=(), types=("TensorList",), more=()):
    """A teacher of one layer and a student of two; a way back, and the update of a list of unknown weights."""
    taught = [multiplied(5, 8, 32, 64), multiplied(5, 8, 32, 16), multiplied(5, 8, 16, 64), *more]
    return step(*taught, *back, kernel(2, operator=taking("aten::_foreach_add_", updated, types=types,
                                                          phase="optimizer")))


def on_the_way_back(us, node, *shapes, name="aten::mm", mask=""):
    operator = taking(name, *shapes, phase="backward", outermost=f"evaluate_function: {node}")
    return kernel(us, "gemm", replace(operator, arguments=replace(operator.arguments, values=[*[""] * 10, mask])))


def piled_up(*shape, name="aten::add_", us=1):
    return on_the_way_back(us, "torch::autograd::AccumulateGrad", shape, shape, name=name)


def test_gradients_that_are_added_to_those_of_earlier_steps_are_not_learnt():
    """Of a list that is updated no sizes are known. The student's gradients are taken over; the teacher's of 64 x 32,
    and of a norm as wide as the student's, pile up: 4 + 3 + 2 us, and the additions, and the 5 us of its layer ahead.
    Not where all pile up, or none, or where gradients are cleared by zeros, or may be of two ways back. A layer of the
    student that comes last is needed. An addition is of what the node right before it makes.
    """
    name, taken = "unneeded_gradients", piled_up(us=0, name="aten::detach")
    norm = [on_the_way_back(4, "NormBackward0", (8, 64), (64,), (0,), name="aten::native_layer_norm_backward"),
            piled_up(64)]
    student = [on_the_way_back(6, "MmBackward0", (64, 8), (8, 16)), on_the_way_back(6, "MmBackward0", (16, 8), (8, 32)),
               norm[0], taken]
    layer = on_the_way_back(3, "MmBackward0", (64, 8), (8, 32))
    cast = on_the_way_back(2, "ToCopyBackward0", (64, 32), (64, 32), name="aten::copy_")
    view = on_the_way_back(2, "ViewBackward0", (8, 32), (8, 32), name="aten::add")
    teacher = [*norm, layer, view, cast, piled_up(64, 32)]
    work = distilled(*student, *teacher)
    assert floor_us(work, name) == 3 * 5 + 6 + 6 + 4 + 2
    assert floor_us(work, "frozen_network") == 2 * 5 + 6 + 6 + 4 + 2
    zeroed = kernel(1, operator=taking("aten::_foreach_zero_", (), phase="no_grad"))
    between = multiplied(5, 8, 32, 64, phase="no_grad")
    for left in (distilled(*student[:-1], *teacher), distilled(*student, layer, cast),
                 distilled(*student, *teacher, more=[zeroed]), distilled(*student, between, *teacher),
                 distilled(*student, *teacher, types=("Tensor",))):
        assert "of weights that stay" in why(left, name)
    assert floor_us(distilled(*student, *teacher, student[1]), name) == 3 * 5 + 6 + 6 + 4 + 6 + 2
    assert "without gradients" in why(distilled(*student, *teacher, student[1]), "frozen_network")
    node = [on_the_way_back(7, "MmBackward0", (8, 64), (64, 32)), layer]
    assert floor_us(distilled(*student, *node, *node, cast, *teacher[-1:]), name) == 3 * 5 + 6 + 6 + 4 + 7 + 3 + 2
    other = on_the_way_back(9, "GeluBackward0", (8, 64), name="aten::gelu_backward")
    assert floor_us(distilled(*student, *node, other, *teacher[-1:]), name) == 3 * 5 + 6 + 6 + 4 + 7 + 3 + 2


def test_gradients_that_pile_up_on_the_way_to_what_is_learnt_are_not_made():
    """The student comes last. Of a teacher above it the 3 us of a layer's own gradient go, and the additions, half of a
    convolution, and all of one that hands nothing on. At best, all of the teacher's way back goes.
    """
    layer = [on_the_way_back(7, "MmBackward0", (8, 64), (64, 32)), on_the_way_back(3, "MmBackward0", (64, 8), (8, 32)),
             piled_up(64, 32)]
    first, second = ([on_the_way_back(us, "ConvolutionBackward0", (8, 16, 9, 9), (8, 3, 9, 9), (16, 3, 3, 3),
                                      name="aten::convolution_backward", mask=mask), piled_up(16, 3, 3, 3)]
                     for us, mask in ((6, "[True, True, False]"), (8, "[False, True, False]")))
    student = [on_the_way_back(4, "MmBackward0", (64, 8), (8, 16)), piled_up(us=0, name="aten::detach")]
    name = "unneeded_gradients"
    work = distilled(*layer, *first, *second, *student)
    assert floor_us(work, name) == 3 * 5 + 4 + 2
    after = MECHANISMS[name].respond(work, MECHANISMS[name].least_ns(work))
    assert after.device_ns.tolist() == [5000] * 3 + [7000, 0, 0, 3000, 0, 0, 0, 4000, 0, 2000]
    assert after.left.tolist() == [1, 1, 1, 1, 0, 0, 0.5, 0, 0, 0, 1, 1, 1] and after.whole_calls and after.only_less


def test_what_runs_without_gradients_and_again_with_them_is_computed_twice():
    """Two parts of 30 us each are read, the loss of both goes back to them in 1, and they are read again with
    gradients: no frozen network. Not where one of them is read once; where the loss takes such a product, too; or where
    an update comes first.
    """
    read, loss, way = multiplied(30, 8, 32, 64, phase="no_grad"), multiplied(2, 8, 64, 8), back(1, (8, 8), (8, 64))
    again = [multiplied(31, 8, 32, 64), back(5, (64, 8), (8, 32))]
    update = kernel(4, operator=taking("aten::_foreach_add_", (32, 64), phase="optimizer"))
    work = step(read, read, loss, way, *again, *again, update)
    assert floor_us(work, "checkpointing_off") == 2 + 1 + 2 * (31 + 5) + 4
    after = MECHANISMS["checkpointing_off"].respond(work, work.ns)
    assert after.left.tolist() == [0, 0, *[1] * 7]
    assert "without gradients" in why(work, "frozen_network")
    for other in (step(read, read, loss, way, *again, update), step(read, read, again[0], way, *again, *again, update),
                  step(read, read, loss, way, update, *again, *again, update)):
        assert "of this kind" in why(other, "checkpointing_off")
        assert floor_us(other, "frozen_network") == other.ns[2:].sum() / US


def test_a_convolution_says_whether_it_makes_the_gradient_of_its_weight():
    """The last axis of its mask is the bias's. One that only hands a gradient on, as to a picture, makes none."""
    def convolved(mask):
        sizes = ((8, 16, 9, 9), (8, 3, 9, 9), (16, 3, 3, 3))
        ahead = kernel(5, "conv", taking("aten::cudnn_convolution", *sizes[1:]))
        return learnt(back(4, (10, 8), (8, 32)), back(6, *sizes, name="aten::convolution_backward",
                                                      values=[*[""] * 10, mask]), trunk=ahead)

    assert floor_us(convolved("[True, True, False]"), "unneeded_gradients") == 5 * 2 + 4 + 2
    assert "of weights that stay" in why(convolved("[True, False, False]"), "unneeded_gradients")


def test_each_update_takes_the_gradients_before_it():
    """Two updates in turn, as of judge and maker: what the second takes is not needed for want of the first."""
    head, trunk = back(4, (10, 8), (8, 32)), back(3, (64, 8), (8, 32))
    first = [multiplied(5, 8, 64, 32), multiplied(5, 8, 32, 10), head, trunk]
    update = kernel(2, operator=taking("aten::_foreach_add_", (10, 32), (10,), phase="optimizer"))
    assert floor_us(step(*first, update, *first, update), "unneeded_gradients") == 2 * (5 + 5 + 4 + 2)
    assert floor_us(step(*first, update, *first[:2], trunk, update), "unneeded_gradients") == 2 * 5 * 2 + 4 + 3 + 2 * 2


def test_weights_are_converted_and_scaled_once():
    assert floor_us(converted(), "cast_once") == 27
    assert "converts" in why(converted(to="float"), "cast_once")
    assert "training" in why(converted(phase="backward"), "cast_once")
    assert floor_us(converted(phase="backward", of="signedchar"), "cast_once") == 27  # frozen: no gradient changes it
    assert floor_us(converted(of="signedchar", weight=(16, 4, 32)), "cast_once") == 27  # in groups of one scale each
    assert "converts" in why(converted(weight=(16, 4, 32)), "cast_once")
    cast = taking("aten::copy_", (32, 32), (32, 32), types=("c10::BFloat16", "float"))
    assert "converts" in why(step(kernel(50, "copy", cast), multiplied(20, 32, 32, 32)), "cast_once")  # maybe its input


def test_the_share_that_a_change_acts_on_is_of_all_its_kernels():
    """30 of 40 us, though 20 names are told. Mutation: `acts_on_ns` of the targets alone."""
    passes = [kernel(1, name=f"pass{number}") for number in range(30)]
    found = floors_of(step(*passes, product(10, 1e9)), StepTime(40_000, False))
    assert len(found.under("pointwise_fusion").targets) == 20
    assert found.acts_on_pct()["pointwise_fusion"] == pytest.approx(75)


def test_heads_of_queries_share_keys_where_they_are():
    """Two copies for 4 heads each; attention keeps 1 us of FLOPs. A tensor that no attention reads is copied still."""
    def copied(*shape):
        return kernel(60, "copy", taking("aten::copy_", shape, shape))
    attention = replace(taking("aten::attention", (2, 8, 1, 16), (2, 8, 99, 16)), types=("bf16",), flops=1e9)
    reads = kernel(40, "attention", attention, "flash_fwd_bf16")
    assert floor_us(step(copied(2, 2, 4, 99, 16), copied(2, 2, 4, 99, 16), reads), "shared_heads") == 1
    assert "no keys" in why(step(copied(2, 2, 4, 98, 16), reads), "shared_heads")
    assert "no keys" in why(step(copied(2, 8, 1, 99, 16), reads), "shared_heads")


def test_copies_to_a_narrow_type_go_with_wide_types():
    both = StepOperator("aten::copy_", types=("bf16", "f32"))
    assert floor_us(step(kernel(30, "copy", both), kernel(10)), "narrower_types") == 5


def test_a_step_with_its_kernels_one_behind_another_is_no_longer_than_itself():
    """Traced kernels took 103 us of 100. One behind another 2 are .2 us shorter each, of the step as well: 99.6 us are
    less than 102.6.
    """
    limits = replace(LIMITS, start_ns=200.0)
    under = floor(step(kernel(51), kernel(52), limits=limits), [MECHANISMS["graph"]])
    assert under.sooner_ns == pytest.approx(400)
    assert kept_ns(StepTime(100_000, True), under) == pytest.approx(99_600 * 99.6 / 102.6)


def test_an_optimizer_that_asks_for_numbers_on_the_host_loses_these_calls():
    """20 calls of .item() launched nothing: 10 us each. What they call is part of them."""
    loop = kernel(9, operator=StepOperator("aten::addcdiv_", phase="optimizer"))
    silent = [StepOperator(name, "aten::item", "optimizer", kernels=1 / 20) for name in ("aten::item", "aten::_local")]
    work = step(loop, kernel(50))
    most = floor(work, [MECHANISMS["fused_optimizer"]]).most_ns
    asking = replace(work, operators=[*work.operators, *silent])
    assert floor(asking, [MECHANISMS["fused_optimizer"]]).most_ns == most + 200_000


def test_communication_hides_behind_other_work_or_other_work_behind_it():
    """Of two collectives of one name the shorter says how long both take at least."""
    together = (kernel(40, "collective"), kernel(15, "collective"))
    assert floor_us(step(kernel(50), *together), "overlap_communication") == 50
    assert floor_us(step(kernel(5), *together), "overlap_communication") == 30
    assert "no collective" in why(step(kernel(50)), "overlap_communication")


def test_copies_and_collectives_run_beside_each_other_too():
    work = step(kernel(10), kernel(40, "collective"), copy(99, "h2d", 1_500_000, True))
    assert floor_us(work, "overlap_communication", "prefetching") == 40


def test_a_straggler_does_what_the_others_do():
    """By row of names: two kernels of 60 us in all take 40 in the other rank, which runs none of the next ones."""
    pieces = kernel(20), kernel(40), kernel(500, "sort"), kernel(30, "collective"), kernel(12, "collective")
    work = step(*pieces, others_ns=np.array([40_000.0, 0, 90_000]))
    assert floor_us(work, "straggler") == 40 + 24
    assert floor_us(step(*pieces, others_ns=np.array([90_000.0, 0, 9])), "straggler") == 60 + 24
    assert "wait for" in why(step(*pieces), "straggler")


def test_without_a_co_tenant_long_kernels_are_not_stopped():
    """2.4 ms are gone, whatever other changes leave; kernels shorter than a slice cannot have been stopped."""
    pieces = kernel(3000), kernel(5000, "gemm"), kernel(600, "sort"), kernel(4000, lane=1), kernel(9000, "collective")
    work = step(*pieces, preempted_ns=4_800_000, steps=2)
    assert floor_us(work, "co_tenant") == (3000 + 5000 + 600 + 9000) / 2 - 2400
    assert floor_us(work, "co_tenant", "pointwise_fusion") == (5000 + 600 + 9000) / 2 - 2400
    assert targets(work, "co_tenant").keys() == {"elementwise", "gemm"}
    assert "other steps" in why(step(*pieces), "co_tenant")


def test_at_the_highest_clock_no_kernel_gains_more_than_the_clock():
    work = step(kernel(100), copy(30, "d2h", 9, True), clock=0.8)
    assert floor_us(work, "throttling") == 80 + 30
    assert "no clocks" in why(step(kernel(100)), "throttling")
    assert "highest clock" in why(step(kernel(100), clock=1.0), "throttling")


def test_other_changes_act_on_what_the_circumstances_leave():
    """Half of what is left at the highest clock, and not the shorter of both."""
    wide = kernel(100, operator=StepOperator("aten::mul", types=("f32",)))
    assert floor_us(step(wide, clock=0.8), "throttling", "narrower_types") == 40


def test_other_algorithms_leave_convolutions_at_their_roof():
    """A fourth of 4e10 FLOPs at 1e15 are 10 us, with the conversions that the operator needs; all else stays."""
    operator = StepOperator("aten::cudnn_convolution", types=("bf16",), flops=4e10, kernels=2)
    work = step(kernel(60, "transpose", operator), kernel(90, "conv", operator, CONV, types=("bf16",)), kernel(7),
                product(20, 1e9))
    assert floor_us(work, "cudnn_benchmark") == 10 + 7 + 20
    assert "convolves" in why(step(product(20, 1e9)), "cudnn_benchmark")


# From tables
def test_work_is_read_from_tables_and_cut_at_the_window():
    """A kernel that begins before the window counts from its begin; ids name the operator; blocks are launched work
    over the block's size."""
    kernels = timed.kernels(
        timed.at(90, 110, family="gemm", kernel_name=BF16), timed.at(110, 120, grid_x=256, block_x=64, grid_y=4,
                                                                     block_y=2, grid_z=1, block_z=1),
        timed.at(300, 320)).select(KERNEL_COLUMNS)
    copied = timed.copies(timed.at(120, 125, bytes=640, pinned=False)).select(COPY_COLUMNS)
    listed = tables.OPERATORS.build(operator_id=[4, 5], operator=["aten::mm", None], calls=[2, None], kernels=[2, 1],
                                    shapes=["[[8,8],[8,8]]", None], dtypes=['["float","float"]', None],
                                    flops=[2000, None], device_ns=[0, 0]).select(OPERATOR_COLUMNS)
    work = step_work(kernels.to_batches(), copied, listed, np.array([4, NONE, 5]), (100, 200), 1, LIMITS)
    assert work.ns.tolist() == [10, 10, 5] and work.operator.tolist() == [0, -1, -1]
    assert work.blocks.tolist() == [0, 8, 0] and work.blocks_x.tolist() == [0, 4, 0]
    assert work.copied.tolist() == [0, 0, 640] and work.names[work.label[2]].pinned is False
    assert work.operators[0].flops == 1000 and work.operators[0].types == ("f32",)
    assert device_chain_ns(work) == pytest.approx(20 + 5)


def test_numbers_of_more_than_32_bits_are_kept_whole():
    """Mutation: columns of 32 bits whatever comes."""
    kernels = timed.kernels(timed.at(100, 110)).select(KERNEL_COLUMNS)
    copied = timed.copies(timed.at(120, 125, bytes=640), timed.at(130, 135, bytes=2**40)).select(COPY_COLUMNS)
    listed = tables.OPERATORS.build().select(OPERATOR_COLUMNS)
    work = step_work(kernels.to_batches(), copied, listed, np.array([NONE]), (100, 200), 1, LIMITS)
    assert work.copied.tolist() == [0, 640, 2**40] and work.operator.tolist() == [-1] * 3


def test_of_work_that_takes_longer_than_now_the_wait_for_a_late_rank_goes_too():
    """Of two kernels that take 30 us and would take 60 without the 12 us that they wait, 48 are left. Mutations: of the
    wait, what the kernels take now; the wait stays."""
    work = step(kernel(10), kernel(20), waited_us=12)
    assert work.lane_ns(2 * work.sure_ns, work.lane).tolist() == [48 * US]


def test_what_the_host_computes_itself_is_what_launches_nothing_and_takes_longer_than_a_call():
    """Two of three kernels are in the window: two thirds of 90 us each. Copies may wait for the device."""
    kernels = timed.kernels(*(timed.at(at, at + 5) for at in (100, 150, 300))).select(KERNEL_COLUMNS)
    listed = tables.OPERATORS.build(
        operator_id=range(7),
        operator=["aten::fill_", "aten::view", "aten::copy_", "aten::mm", "Mine", None, "aten::mm"],
        calls=[2, 9, 1, 1, 1, None, 1], kernels=[0, 0, 0, 1, 0, 2, 0],
        host_ns=[90_000, 90_000, 90_000, 90_000, 90_000, None, 90_000], device_ns=[0] * 7).select(OPERATOR_COLUMNS)
    copied = timed.copies().select(COPY_COLUMNS)
    work = step_work(kernels.to_batches(), copied, listed, np.array([3, NONE, NONE]), (100, 200), 1, LIMITS)
    assert (work.on_host_ns, work.host_products_ns) == (120_000, 60_000)
    assert type(work.on_host_ns) is type(work.host_products_ns) is float  # a document takes them


def test_every_mechanism_is_listed_by_its_name():
    assert all(mechanism.name == name and mechanism.formula for name, mechanism in MECHANISMS.items())
    with pytest.raises(Absent):
        MECHANISMS["fused_optimizer"].least_ns(step(kernel(1)))


def test_as_many_kernels_take_at_least_as_long_as_the_shortest_there_is():
    """Halves of 1, 10 and .6 us where no kernel is shorter than .8 us; a copy may be. Of fused ones one stays."""
    limits = replace(LIMITS, shortest_ns=800.0)
    work = step(kernel(1), kernel(10), kernel(0.6), copy(1, "d2d"), limits=limits)
    assert floor_us(work, "narrower_types") == pytest.approx(0.8 + 5 + 0.6 + 0.5)
    fused = step(kernel(1), kernel(10), limits=limits)
    assert floor_us(fused, "pointwise_fusion") == pytest.approx(0.8)
    assert floor_us(step(kernel(0.6), limits=limits), "pointwise_fusion") == 0.6
    assert floor(fused, [scaled({"elementwise": 0.0})]).floor_ns == 0  # what if they took no time


def test_kernels_behind_one_another_are_shorter_than_those_that_a_profiler_saw_begin_on_an_idle_device():
    """By .2 us each, down to the shortest of .8 us, where the host no longer comes late; a copy has no such start. A
    kernel that a change shortens by more is as short as that. A change that leaves the host late leaves their starts.
    """
    limits = replace(LIMITS, start_ns=200.0, shortest_ns=800.0)
    work = step(kernel(5), kernel(0.9), kernel(0.6), copy(3, "d2d"), limits=limits)
    assert floor_us(work, "graph") == 4.8 + 0.8 + 0.6 + 3
    assert targets(work, "graph") == {}
    assert floor_us(step(kernel(10, operator=StepOperator("aten::mul_", phase="optimizer")), kernel(4), limits=limits),
                    "fused_optimizer") == 3.8
    reads = kernel(10, "embedding", name="vectorized_gather_kernel<16, long>", blocks=20_000)
    assert floor_us(step(reads, kernel(5), limits=limits), "sorted_reads") == 10 + 5
    assert limits_of(H100).start_ns == 200 and limits_of(Identity("gfx942", 304, "", None)).start_ns is None


def test_a_product_of_rows_that_are_gathered_several_times_can_come_before():
    """Nothing of the product and the passes behind it is sure to stay, of the gather its 4000 blocks at .5 ns."""
    work = gathered(4000, 64)
    assert floor_us(work, "product_before_gather") == floor_us(work, "less_work") == 2 + 1 + 30
    assert set(targets(work, "less_work")) == {"vectorized_gather_kernel<16, long>", FP32, "elementwise"}


def test_pairs_of_very_many_operators_are_told_apart():
    """Two numbers of 50,000 operators are more than 32 bits as one, and a count of all pairs takes no memory."""
    work = gathered(4000, 64)
    others = [StepOperator("aten::relu")] * 50_000
    many = replace(work, operators=[*others, *work.operators],
                   operator=np.where(work.operator < 0, -1, work.operator + len(others)).astype(np.int32))
    assert floor_us(many, "product_before_gather") == floor_us(work, "product_before_gather")


@pytest.mark.parametrize("work", [
    gathered(1900, 64), gathered(4000, 65), gathered(4000, 64, gather="aten::mm"), gathered(4000, 64, phase="backward"),
    step(*[kernel(5)] * 2)])
def test_a_product_stays_behind_a_gather_that_repeats_few_rows_or_whose_rows_it_widens(work):
    assert "gather that repeats rows" in why(work, "product_before_gather")


def test_a_product_that_does_not_follow_its_gather_at_once_may_be_of_other_rows():
    work = gathered(4000, 64)
    apart = replace(work, operator=np.r_[work.operator[:1], -1, work.operator[2:]])
    apart = replace(apart, label=np.r_[work.label[:1], work.label[3], work.label[2:]])  # a pass between them, no fill
    assert "gather that repeats rows" in why(apart, "product_before_gather")
    assert "gather that repeats rows" in why(replace(work, lane=np.array([0, 0, 1, 1, 1, 1])), "product_before_gather")


def test_without_waits_for_copies_all_that_is_the_hosts_own_stays():
    """A step of 1000 us with 100 us of kernels and a copy that the host feeds for 300 us: 600 us are the host's, less
    50 us to wake up. A profiled step says nothing of the host.
    """
    work = step(kernel(100), copy(300, "h2d", 500_000, False))
    found = floor(work, [MECHANISMS["pinned_copies"]])
    assert found.floor_ns == 110_000 and found.waits_ns == 450_000
    assert kept_ns(StepTime(1_000_000, True), found) == 550_000
    assert kept_ns(StepTime(1_000_000, False), found) == 110_000
    assert ceiling(StepTime(1_000_000, True), found) == 1000 / 550
    assert kept_ns(StepTime(420_000, True), found) == 110_000


def test_waits_and_kernels_that_go_are_both_lost_and_calls_have_no_such_end():
    work = step(product(100, 1e9, FP32), copy(300, "h2d", 500_000, False))
    both = floor(work, [MECHANISMS["pinned_copies"], MECHANISMS["narrower_types"]])
    assert both.most_ns is None and both.waits_ns == pytest.approx(450_000 + (110_000 - both.floor_ns))
    assert floor(work, [MECHANISMS["pinned_copies"], MECHANISMS["graph"]]).waits_ns is None
    assert floor(work, [MECHANISMS["narrower_types"]]).waits_ns is None

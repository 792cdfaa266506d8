"""Expected gains of steps that are a few kernels long, by hand. LIMITS of tests/step_pieces.py has round figures."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from aaco.analytics.advice.achieved import REPLAY_GAP_NS, ChangedStep, changed_step, room_for_more
from aaco.analytics.advice.expected import Expected, RankedChange, expected, ranked
from aaco.analytics.advice.floor import LeastTimes, MechanismFloor, StepTime, floor
from aaco.analytics.advice.floors import floors_of
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.loops import rows_in_turn
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.joined_batches import joined_batches
from aaco.analytics.advice.mechanisms.results_on_device import computes_on_results
from aaco.analytics.advice.responses import fusible_runs, in_one_pass, unchanged
from aaco.analytics.advice.track_record import (
    DEVICE,
    HOST,
    OWN_WORKLOADS,
    HostHabits,
    RecordedChange,
    Residual,
    TrackRecord,
    learn,
    mechanism_name,
    prediction_interval,
)
from aaco.analytics.advice.work import StepOperator
from aaco.analytics.costs.torch.arguments import OperatorArguments
from aaco.core.readings import Absent
from aaco.steps import track_records
from tests.step_pieces import CONV, FP32, LIMITS, copy, gathered, gradient_sum, kernel, product, step

HABITS = HostHabits(call_ns=10_000, saved_share=0.5)
STEP_US = 1000


def changed(work, *names, step_us=STEP_US, samples=1.0):
    return changed_step(work, StepTime(1000 * step_us, True), [MECHANISMS[name] for name in names], samples)


GAP_US = REPLAY_GAP_NS / 1000


def device_us(work, *names, step_us=STEP_US, samples=1.0):
    return pytest.approx(changed(work, *names, step_us=step_us, samples=samples).device_ns / 1000)


def optimizer(us):
    return kernel(us, operator=StepOperator("aten::mul_", phase="optimizer"))


# The device's chain and the host's calls after a change
def test_a_graph_leaves_the_device_and_nothing_of_the_host():
    """Between two kernels of a graph the device waits as long as it usually does there."""
    after = changed(step(kernel(10), kernel(20)), "graph")
    assert (after.device_ns, after.replayed, after.host_ns) == (30_000 + 2 * REPLAY_GAP_NS, True, 1_000_000)
    assert HABITS.after_ns(after, 1_000_000) == after.device_ns


def test_a_step_waits_for_the_host_if_the_device_works_for_less_than_nine_tenths():
    work = step(kernel(89), kernel(0))
    assert changed(work, "graph", step_us=100).host_ns == 100_000
    assert changed(step(kernel(91)), "graph", step_us=100).host_ns is None


def test_of_a_host_that_waited_for_the_device_the_path_is_no_longer_than_its_calls():
    """The device works 80 of 100 us. Of 3 calls traced for 10 us each the host was busy for 30, and 20 it was idle for.
    Where the device works for less than half of a step, the host has other work.
    """
    calls = [kernel(us, operator=StepOperator("aten::mul", host_ns=10_000)) for us in (40, 30, 10)]
    assert changed(step(*calls), "graph", step_us=100).host_ns == 50_000
    assert changed(step(*calls), "remove_syncs", step_us=100).host_ns == 100_000
    assert changed(step(*calls), "graph", step_us=200).host_ns == 200_000
    fed = step(*calls[:2], copy(8, "h2d", 400_000, False))
    assert changed(fed, "graph", step_us=100).host_ns == 22_000 + 30_000 + 8000  # two calls, a launch; the copy itself
    assert changed(step(*calls, on_host_ns=7000), "graph", step_us=100).host_ns == 57_000  # and what the host computes


def test_a_host_that_waits_for_nothing_is_what_an_idle_device_waits_for():
    """80 of 100 us, three calls of 10 us. Copies to the device are no waits for it; reads and other waits are."""
    calls = [kernel(us, operator=StepOperator("aten::mul", host_ns=10_000)) for us in (40, 30)]
    fed, read = copy(10, "h2d", 400_000, False), copy(10, "d2h", 8, True)
    for work in (step(*calls, kernel(10), syncs=0), step(*calls, fed, syncs=1)):
        assert changed(work, "graph", step_us=100).host_ns == 100_000
    for work in (step(*calls, read, syncs=0), step(*calls, fed, syncs=2), step(*calls, kernel(10))):
        assert changed(work, "graph", step_us=100).host_ns < 70_000


def test_streams_that_fill_the_step_one_after_the_other_are_no_wait_for_the_host():
    work = step(kernel(50), kernel(45, lane=1))
    after = changed(work, "graph", step_us=100)
    assert after.host_ns is None and after.device_ns == pytest.approx(95_000 + REPLAY_GAP_NS * 95 / 50)


def test_the_hosts_path_follows_the_calls_that_are_left_and_the_waits_that_are_gone():
    """Half of the calls are gone, half of their time with them: 1000 - 200 us of waits, times .75, of two samples."""
    after = ChangedStep(1_000, 1_000_000, 100, calls_left=0.5, waits_ns=200_000, samples=2)
    assert HABITS.host_ns(after, 1_000_000) == 800_000 * 0.75 / 2
    assert HABITS.bound(after, 1_000_000) == HOST and HABITS.after_ns(after, 1_000_000) == 300_000


def test_a_hidden_host_takes_its_calls_and_never_more_than_the_step():
    hidden = ChangedStep(40_000, None, 20)
    assert HABITS.host_ns(hidden, 1_000_000) == 200_000 and HABITS.host_ns(hidden, 150_000) == 150_000
    assert HABITS.bound(ChangedStep(200_000, None, 20), 1_000_000) == DEVICE


def test_a_hidden_host_takes_as_long_as_it_launched_a_traced_step_where_that_is_known():
    """50 us traced, of which .8 is usual; the path of a host that is waited for is the step's own."""
    after = changed(step(product(950, 1e9), product(0, 1e9), launching_ns=50_000), "graph")
    assert after.launching_ns == 50_000
    habits, still = replace(HABITS, traced_share=0.8), replace(after, replayed=False, calls_left=1.0)
    assert habits.host_ns(still, 1_000_000) == 40_000 and HABITS.host_ns(still, 1_000_000) == 20_000
    assert habits.host_ns(replace(still, host_ns=1_000_000), 1_000_000) == 1_000_000


def test_a_call_that_was_traced_for_longer_than_its_launches_waited():
    """Two kernels of one call that took 900 us: 60 us at most. A short one counts as it is."""
    waits, short = (StepOperator("aten::mm", kernels=2, host_ns=900_000), StepOperator("aten::add", host_ns=20_000))
    assert step(kernel(5, operator=waits), kernel(5, operator=waits),
                kernel(5, operator=short)).traced_calls_ns == 80_000


def test_autocast_makes_narrow_weights_in_each_training_step():
    """Two more calls for a product ahead, of 4. One that is narrow, and a step without a way back, need none."""
    pieces = [product(40, 1e9, FP32, phase="forward"), product(40, 1e9, FP32, phase="backward"),
              product(40, 1e9, phase="forward"), optimizer(5)]
    assert changed(step(*pieces), "narrower_types").calls_left == 1.5
    assert changed(step(pieces[0], pieces[3]), "narrower_types").calls_left == 1
    cast = kernel(30, "copy", StepOperator("aten::copy_", types=("bf16", "f32")))
    after = changed(step(cast, pieces[0]), "narrower_types")
    assert after.calls_left == 0.5 and after.device_ns < 30_000


def test_autocast_computes_distances_wide():
    """What takes part of all pairs of a distance stays as long, on the way back, too; other passes get shorter."""
    back = product(40, 1e9, FP32, phase="backward")
    passes = [kernel(30, operator=StepOperator(
        name, outermost, phase, ("f32",), bytes=30e6, arguments=OperatorArguments([list(shape)], ["float"], [""])))
              for name, outermost, phase, shape in (
                  ("aten::mul", "aten::cosine_similarity", "forward", (64, 64, 32)),
                  ("aten::neg", "MulBackward0", "backward", (64, 64, 32)),
                  ("aten::neg", "NegBackward0", "backward", (64, 31)))]
    narrower, work = MECHANISMS["narrower_types"], step(*passes, back)
    pairs, gradients, others = narrower.respond(work, narrower.least_ns(work)).device_ns.tolist()[:3]
    assert pairs == gradients == 30_000 > others


def test_calls_that_are_gone_take_nothing_of_the_hosts_own_work_along():
    """Of a path of 1 ms 600 us are the host's own; of the other 400 half of the calls are gone, which save half."""
    after = ChangedStep(1_000, 1_000_000, 100, calls_left=0.5, paused_ns=600_000)
    assert HABITS.host_ns(after, 1_000_000) == 600_000 + 400_000 * 0.75
    assert HABITS.host_ns(replace(after, waits_ns=700_000), 1_000_000) == 300_000
    work = step(product(50, 1e10), optimizer(50), paused=0.5)
    assert changed(work, "fused_optimizer").paused_ns == 450_000 and changed(work, "graph").replayed


def test_the_hosts_own_work_that_leaves_the_step_is_no_part_of_its_path():
    """Half of the 900 us in which the device is idle."""
    after = changed(step(kernel(100), paused=0.5), "host_work")
    assert after.waits_ns == 450_000 and HABITS.after_ns(after, 1_000_000) == 550_000
    assert changed(step(kernel(100)), "host_work").waits_ns == 0
    both = changed(step(kernel(100), copy(400, "h2d", 500_000, False), paused=0.5), "host_work", "inputs_on_device")
    assert both.waits_ns == 400_000 + 0.5 * 890_000


def test_inputs_that_are_prefetched_or_on_the_device_take_the_hosts_work_on_them_along():
    """Half of the 590 us in which the device is idle, and the copy. Who read 16 bytes may work on them."""
    pieces = kernel(10), copy(400, "h2d", 500_000, True)
    for mechanism, calls in (("prefetching", 1), ("inputs_on_device", 0.5)):
        after = changed(step(*pieces, paused=0.5), mechanism)
        assert (after.device_ns, after.waits_ns, after.calls_left) == (10_000, 695_000, calls)
    reads = changed(step(*pieces, copy(10, "d2h", 16, True), paused=0.5), "prefetching")
    assert reads.waits_ns == 400_000 and not reads.handed
    assert changed(step(*pieces, copy(10, "d2h", 8, True), paused=0.5), "prefetching").handed


def test_four_processes_make_inputs_in_a_fourth_of_the_hosts_time_for_them():
    """295 us for a batch. Inputs that are there need nobody; who read 16 bytes keeps its work."""
    pieces = kernel(10), copy(400, "h2d", 500_000, True)
    after = changed(step(*pieces, paused=0.5), "prefetching")
    assert after.loading_ns == 295_000 / 4
    assert changed(step(*pieces, paused=0.5), "inputs_on_device").loading_ns == 0
    assert changed(step(*pieces, copy(10, "d2h", 16, True), paused=0.5), "prefetching").loading_ns == 0
    slow = replace(after, loading_ns=600_000.0)
    assert HABITS.after_ns(slow, 1_000_000) == 600_000 and HABITS.bound(slow, 1_000_000) == HOST
    assert HABITS.bound(replace(slow, device_ns=500_000), 1_000_000) == HOST


def test_one_graph_of_the_step_waits_for_the_device_alone():
    after = changed(step(kernel(30), copy(9, "h2d", 500, True), *[copy(3, "d2h", 8, True)] * 2), "whole_graph")
    assert after.device_ns == 30_000 + REPLAY_GAP_NS and after.replayed and HABITS.host_ns(after, 1_000_000) == 0


def test_a_graph_does_not_hasten_what_the_host_feeds_a_copy():
    """Of 40 us of a copy from pageable memory its bytes need 10. Pinned memory, or inputs that are there, do."""
    work = step(kernel(10), copy(40, "h2d", 500_000, False))
    assert device_us(work, "graph") == 10 + 40 + 2 * GAP_US
    assert device_us(work, "graph", "pinned_copies") == 10 + 10 + 2 * GAP_US
    assert device_us(work, "graph", "inputs_on_device") == 10 + GAP_US
    assert device_us(step(kernel(10), copy(40, "h2d", 500_000, True)), "graph") == 10 + 40 + 2 * GAP_US


def test_micro_batches_in_one_batch_are_called_once():
    """Of 40 us 3 are fixed; both products find room for as many blocks again. The update stays."""
    ahead, back = (product(40, 1e9, phase=phase) | {"blocks": 50} for phase in ("forward", "backward"))
    limits = replace(LIMITS, compute_units=100)
    work = step(ahead, back, ahead, back, gradient_sum(3), optimizer(5), limits=limits)
    after = changed(work, "joined_batches")
    assert after.device_ns == pytest.approx(4 * (3_000 / 2 + 37_000 / 2) + 3_000 / 2 + 5_000)
    assert after.calls_left == pytest.approx(3.5 / 6) and after.whole_calls and after.samples == 1


def test_fewer_micro_batches_are_called_as_often_as_are_left():
    """Eight of 40 us, of which 3 are fixed, two at once: half of the fixed parts go, and half of the calls."""
    turn = [*(product(40, 1e9, phase=phase) for phase in ("forward", "backward")), gradient_sum(3)]
    after = changed_step(step(*turn * 8, optimizer(5)), StepTime(1_000_000, True), [joined_batches(2)])
    assert after.device_ns == pytest.approx(16 * (3_000 / 2 + 37_000) + 8 * 3_000 / 2 + 5_000)
    assert after.calls_left == pytest.approx((12 + 1) / 25)


def test_habits_are_of_the_hosts_path_without_its_own_work():
    """600 of 1000 us are the host's own. Half of the calls gone saved 120 us of the other 400: .6 of their share."""
    after = replace(recorded(1, 880_000), changed=ChangedStep(1_000, 1_000_000, 50, 0.5, paused_ns=600_000))
    assert learn([after]).habits == HostHabits(8_000, pytest.approx(0.6))


def test_kernels_of_one_call_cost_the_host_one_call_until_all_are_gone():
    library = StepOperator("aten::cudnn_convolution", types=("bf16",), kernels=2, flops=1e6)
    both = step(kernel(5, "transpose", library), kernel(9, "conv", library, CONV), kernel(3, "copy"))
    after = changed(both, "channels_last")
    assert after.calls == 2 and after.calls_left == 0.5 and after.device_ns == 9_000
    filled = step(kernel(5, "transpose", library), copy(1, "memset"), kernel(9, "conv", library, CONV))
    assert changed(filled, "channels_last").calls_left == 0.5  # the fill between them goes, and its call alone


def test_without_waits_the_host_works_while_the_device_does():
    after = changed(step(kernel(300)), "remove_syncs")
    assert after.waits_ns == 300_000 and HABITS.after_ns(after, 1_000_000) == 700_000


def test_before_a_read_the_device_works_while_the_host_launches():
    """Launches of 10 us each: kernels of 2 us end before the next one, and their read takes 30 us to wake up. Of a
    kernel of 300 us 290 are left when its read is launched. Other waits can be for anything.
    """
    short, long, read = kernel(2), kernel(300), copy(1, "d2h", 8, False)
    work = replace(step(*[short] * 100, read, long, read), syncs=3)
    assert changed(work, "remove_syncs").waits_ns == pytest.approx(1e3 * (30 + 290 + 30), abs=1)
    assert changed(replace(work, syncs=4), "remove_syncs").waits_ns == pytest.approx(1e3 * (200 + 300), abs=1)
    assert changed(replace(step(short, read), syncs=1), "remove_syncs").waits_ns == pytest.approx(2e3, abs=1)


def test_a_host_that_waits_as_often_to_send_as_to_read_waits_there_instead():
    """Only what waking up takes is gained: 30 us for each read. Not with other waits, or fewer copies that wait."""
    read, sent = copy(1, "d2h", 4, pinned=True), copy(1, "h2d", 64, pinned=False)
    work = step(kernel(300), read, sent, kernel(300), read, sent)
    assert changed(replace(work, syncs=4), "remove_syncs").waits_ns == pytest.approx(2 * 30e3)
    for syncs in (3, 5):
        assert changed(replace(work, syncs=syncs), "remove_syncs").waits_ns > 500e3
    fewer = replace(step(kernel(300), read, kernel(300), read, sent), syncs=3)
    assert changed(fewer, "remove_syncs").waits_ns > 500e3


def test_pinned_copies_are_not_waited_for_as_long_as_they_were_traced():
    after = changed(step(kernel(10), copy(600, "h2d", 500_000, False)), "pinned_copies")
    assert after.waits_ns == 600_000 and after.device_ns == 20_000 and after.calls_left == 1


def test_inputs_on_the_device_need_neither_copy_nor_call():
    after = changed(step(kernel(10), copy(600, "h2d", 500_000, False)), "inputs_on_device")
    assert (after.waits_ns, after.device_ns, after.calls_left) == (600_000, 10_000, 0.5)


def test_a_fused_optimizer_saves_its_calls():
    """The longest of its passes over the parameters is left: 12 us of one operator in two calls."""
    passes = [kernel(us, operator=StepOperator(name, phase="optimizer")) for name, us in
              (("aten::mul_", 9), ("aten::addcdiv_", 7), ("aten::addcdiv_", 5))]
    after = changed(step(product(50, 1e10), *passes), "fused_optimizer")
    assert after.calls_left == 0.25 and after.device_ns == 62_000


def test_a_fused_optimizer_saves_the_device_alone_where_calls_took_lists():
    lists = kernel(10, operator=StepOperator("aten::_foreach_mul_", phase="optimizer"))
    after = changed(step(product(50, 1e10), lists, optimizer(6)), "fused_optimizer")
    assert after.calls_left == pytest.approx(2 / 3) and after.device_ns == 60_000


def test_what_follows_each_other_is_fused_into_one_pass_the_longest():
    work = step(kernel(10), kernel(30), product(50, 1e10), kernel(20), copy(25, "d2d"))
    assert device_us(work, "pointwise_fusion") == 30 + 50 + 25
    assert changed(work, "pointwise_fusion").calls_left == pytest.approx(3 / 5)


def test_a_compiler_gathers_in_the_pass_that_needs_the_rows():
    """Of a gather and the pass after it the longer is left; on the way back rows are added up."""
    gather, back = (kernel(20, "embedding", StepOperator("aten::index", phase=phase)) for phase in ("", "backward"))
    assert changed(step(gather, kernel(9)), "compile").device_ns == 20_000
    assert changed(step(back, kernel(9)), "compile").device_ns == 29_000


def test_a_compiler_does_not_fuse_the_optimizer():
    assert device_us(step(kernel(10), kernel(30), optimizer(5), optimizer(6)), "compile") == 30 + 5 + 6


def test_runs_by_brute_force():
    random = np.random.default_rng(1)
    for _ in range(200):
        lane, fusible = random.integers(0, 3, 12), random.random(12) < 0.6
        expected_runs = []
        for number in range(3):
            last = None
            for row in np.flatnonzero(lane == number).tolist():
                if not fusible[row]:
                    last = None
                elif last is None:
                    last = [row]
                    expected_runs.append(last)
                else:
                    last.append(row)
        rows, run = fusible_runs(replace(step(*[kernel(1)] * 12), lane=lane), fusible)
        assert [rows[run == number].tolist() for number in range(len(expected_runs))] == expected_runs
        assert len(rows) == fusible.sum()


def test_one_pass_by_brute_force():
    """Of each run the longest stays, the first of equals; of a run with norms these. Mutation: the first of each."""
    random = np.random.default_rng(2)
    for _ in range(60):
        rows = [kernel(int(random.integers(1, 4)), family=str(random.choice(["elementwise", "norm", "gemm"])))
                for _ in range(int(random.integers(1, 12)))]
        work = step(*rows)
        fusible = random.random(len(work.ns)) < 0.7
        left = in_one_pass(work, fusible).device_ns
        expected = own_time(work)
        runs, numbers = fusible_runs(work, fusible)
        for number in np.unique(numbers):
            run = runs[numbers == number]
            norms = run[work.of_families("norm", "softmax")[run]]
            kept = norms if len(norms) else run[[np.argmax(expected[run])]]
            gone = [row for row in run.tolist() if row not in kept.tolist()]
            assert left[kept].tolist() == own_time(work)[kept].tolist() and not left[gone].any()


def test_passes_of_one_step_are_not_fused_into_those_of_the_next():
    """Two steps of three passes leave two, wherever the first begins; a step of one pass in each stream stays."""
    passes = [kernel(us) for us in (9, 30, 9)]
    assert changed(step(*passes, *passes, steps=2), "pointwise_fusion").device_ns == 30_000
    assert changed(step(*passes[1:], *passes, *passes[:1], steps=2), "pointwise_fusion").device_ns == 30_000
    work = step(*[kernel(us) for us in (9, 30, 9, 7)], steps=2)
    lanes = replace(work, lane=np.array([0, 1, 0, 1]))
    assert in_one_pass(lanes, np.ones(4, bool)).left.tolist() == [1, 1, 1, 1]
    assert in_one_pass(work, np.ones(4, bool)).left.tolist() == [0, 1, 1, 0]


def test_products_in_a_narrower_type_keep_their_share_of_the_roof():
    """1e10 FLOPs at 5e13 are 200 us, half of what it takes; at 1e15 they are 10 us, and half of that roof is 20."""
    assert device_us(step(product(400, 1e10, FP32)), "narrower_types") == 20


def test_products_reach_no_more_than_such_products_do():
    """At 200 us the product is at its roof; in 16 bits .6 of it is 16.7 us."""
    assert device_us(step(product(200, 1e10, FP32)), "narrower_types") == 10 / 0.6


def test_of_memory_kernels_the_time_of_their_bytes_is_halved():
    """200 MB at 2 TB/s are 100 of 160 us; 20 MB are in the cache at 10 TB/s, 2 of 160 us."""
    far, near = (step(kernel(160, operator=StepOperator("aten::mul", types=("f32",), bytes=size)))
                 for size in (200e6, 20e6))
    assert device_us(far, "narrower_types") == 110 and device_us(near, "narrower_types") == 159
    assert device_us(step(kernel(160), limits=DeviceLimits({"matrix_bf16": 1e15})), "narrower_types") == 160


def test_what_goes_step_by_step_gains_the_time_of_its_arithmetic_alone():
    """At 5e13 the 1e10 FLOPs of a layer are 200 of 400 us, and 16.7 at .6 of the rate of 16 bits; 1e8 are 2 us of 400.
    Those of a factorisation are 200 us at the rate of float64; of float32 it stays.
    """
    for flops, left in ((1e10, 200 + 10 / 0.6), (1e8, 398 + 0.1 / 0.6)):
        layer = product(400, flops, FP32, operator="aten::_cudnn_rnn")
        assert device_us(step(layer), "narrower_types") == left
        system = product(400, flops, FP32, operator="aten::linalg_lu_factor_ex")
        assert device_us(step(system), "narrower_types") == 400
    limits = replace(LIMITS, rates=LIMITS.rates | {"vector_f64": 5e13})
    for name, left in (("aten::linalg_lu_factor_ex", 200 + 20 / 0.6), ("aten::mm", 40)):
        called = StepOperator(name, types=("f64",), flops=1e10)
        doubles = step(kernel(400, "gemm", called, types=("f64",)), limits=limits)
        assert device_us(doubles, "single_precision") == pytest.approx(left)


def test_products_of_tiny_matrices_gain_the_time_of_their_arithmetic_alone():
    """400,000 products of 2 x 3 by 3 x 3 are 14.4e6 FLOPs, .3 of 400 us; those of 2 x 8 by 8 x 3 are ten times as fast.
    """
    for depth, left in ((3, 400), (8, 40)):
        bmm = StepOperator("aten::bmm", types=("f32",), flops=2 * 400_000 * 6 * depth, arguments=OperatorArguments(
            [[400_000, 2, depth], [400_000, depth, 3]], ["float", "float"]))
        assert device_us(step(kernel(400, "gemm", bmm, FP32)), "tf32") == pytest.approx(left, abs=0.5)


def test_what_converts_the_operands_of_a_convolution_moves_half_of_the_bytes_and_takes_seven_tenths():
    """1e10 FLOPs are 10 us in 16 bits, 33.3 us at .3 of that rate, of which the product has its part of the time."""
    called = StepOperator("aten::cudnn_convolution", types=("f32",), flops=1e10, kernels=2)
    work = step(kernel(80, "transpose", called), kernel(400, "conv", called, FP32))
    assert changed(work, "narrower_types").device_ns == pytest.approx(1000 * (56 + 400 / 480 * 10 / 0.3))


def test_reads_by_index_take_as_long_in_a_narrower_type():
    gather = StepOperator("aten::gather", types=("f32",), bytes=200e6)
    assert device_us(step(kernel(160, "embedding", gather)), "narrower_types") == 160


def test_images_between_group_norms_are_converted_in_either_order():
    norm = StepOperator("aten::native_group_norm")
    conv = product(50, 1e10, CONV, "aten::cudnn_convolution")
    assert device_us(step(conv, kernel(9, "transpose"), kernel(5, "norm", norm)), "channels_last") == 64
    assert device_us(step(conv, kernel(9, "transpose"), kernel(5, "norm")), "channels_last") == 55


def test_values_that_have_another_place_are_copied_in_either_order_of_images():
    conv = product(50, 1e10, CONV, "aten::cudnn_convolution")
    for name, left in (("roll", 59), ("cat", 59), ("flip", 59), ("copy_", 50)):
        moved = kernel(9, "copy", StepOperator(f"aten::{name}"))
        assert device_us(step(conv, moved), "channels_last") == left


def test_norms_of_images_reach_their_share_of_the_memory():
    """600 MB: 100 MB may be cached, the rest takes 250 us at 2 TB/s, and 833 us at .3 of that."""
    norm = kernel(2000, "norm", StepOperator("aten::cudnn_batch_norm", bytes=600e6))
    conv = product(50, 1e10, CONV, "aten::cudnn_convolution")
    assert device_us(step(conv, norm), "channels_last", step_us=9000) == 50 + 250 / 0.3


def test_narrow_images_leave_what_either_of_both_leaves():
    """A convolution of 10 us at 16 bits, at .3 / 4 of its roof; no conversion; a norm that half of its bytes leaves."""
    pieces = product(400, 1e10, FP32, "aten::cudnn_convolution"), kernel(9, "transpose"), kernel(5)
    both = device_us(step(*pieces), "narrow_images")
    assert both == changed(step(*pieces), "narrower_types", "channels_last").device_ns / 1000
    assert both != device_us(step(*pieces), "narrower_types").expected


def test_attention_in_one_kernel_leaves_its_products_at_their_rate():
    """Two products of 6e9 FLOPs at 1e15 a second are 6 us each, and 10 at .6 of that; softmax and copies are gone."""
    written = step(product(50, 1e9, operator="aten::addmm"), kernel(4, "copy"), product(20, 6e9, operator="aten::bmm"),
                   kernel(30, "softmax"), product(20, 6e9, operator="aten::bmm"),
                   product(60, 1e9, operator="aten::addmm"))
    assert device_us(written, "attention_fusion") == 50 + 20 + 60


def _attention_with(size, bias=(6, 64, 64), types=("bf16",), phase="forward", first="aten::bmm"):
    """Attention of 6 heads of vectors of this size, 24 us."""
    def operator(name, *shapes):
        return StepOperator(name, phase=phase, types=types, arguments=OperatorArguments(
            [list(shape) for shape in shapes], ["float"] * len(shapes), [""] * len(shapes)))
    added = [(12, 64, 64)] if first == "aten::baddbmm" else []
    first = kernel(3, "gemm", operator(first, *added, (12, 64, size), (12, size, 64)))
    return [first, *[kernel(10, operator=operator("aten::add", (2, 6, 64, 64), bias))] * bool(bias),
            kernel(8, "softmax", operator("aten::_softmax", ())),
            kernel(3, "gemm", operator("aten::bmm", (12, 64, 64), (12, 64, size)))]


@pytest.mark.parametrize("kept", [_attention_with(30), _attention_with(30, (2, 6, 64, 64)),
                                  _attention_with(30, (2, 1, 1, 64)), _attention_with(30, (), ("f32",)),
                                  _attention_with(30, first="aten::baddbmm")])
def test_attention_that_no_kernel_fuses_stays_as_it_is_written(kept):
    """Vectors of 30 numbers fill no multiple of 16 bytes, and in 16 bits none is filled up if something is added."""
    assert device_us(step(*kept), "attention_fusion") == sum(piece["us"] for piece in kept)


@pytest.mark.parametrize("fused", [_attention_with(32), _attention_with(30, ()), _attention_with(30, (64, 64)),
                                   _attention_with(28, types=("f32",)), _attention_with(30, types=())])
def test_attention_in_one_kernel_takes_other_heads(fused):
    """A causal mask, one square for all heads, may be a flag."""
    assert device_us(step(*fused), "attention_fusion") == 6


def test_the_way_back_of_attention_goes_as_the_way_ahead():
    """It adds nothing to scores."""
    back = _attention_with(30, (), phase="backward")
    assert device_us(step(*_attention_with(30), *back), "attention_fusion") == 24 + 14
    assert device_us(step(*_attention_with(30, ()), *back), "attention_fusion") == 12


def test_a_loop_becomes_one_call_without_the_fixed_part_of_each():
    """Of eight kernels of 10 us 7 us each are work; 3 us are there once."""
    called = StepOperator("aten::mm", types=("bf16",), flops=1e6)
    work = step(*[kernel(10, "gemm", called) for _ in range(8)], kernel(40, "copy"), limits=step(kernel(1)).limits)
    after = changed(work, "loop_to_batched_op")
    assert after.device_ns == pytest.approx(1000 * (8 * 7 + 3)) and after.calls_left == pytest.approx(1 / 9)


def test_a_loop_that_scales_and_adds_is_a_scan_in_steps_of_doubled_length():
    """Of 8 turns of two kernels of 3.5 us each half a us of each is work, and 3 us are there once, in each of 3 passes.
    No pass takes longer than the turns one after another, of 4 us.
    """
    def scanned(us):
        turn = [kernel(us, operator=StepOperator(name, name, types=("f32",), flops=1e6, arguments=OperatorArguments(
            [[8, 32], [8, 32]], ["float"] * 2, [""] * 2))) for name in ("aten::mul", "aten::add")]
        stacks = kernel(5, "copy", StepOperator("aten::cat", "aten::stack"))
        return changed(step(*turn * 8, stacks), "loop_to_batched_op")

    assert scanned(3.5).device_ns == pytest.approx(1000 * 2 * 3 * (8 * 0.5 + 3))
    assert scanned(3.5).calls_left == pytest.approx(6 / 17) and scanned(4).device_ns == pytest.approx(1000 * 2 * 8 * 4)


def test_turns_of_a_loop_run_beside_each_other_where_their_kernels_leave_room():
    """Eight kernels of 10 blocks on 40 units: four at once, 3 us once and 7 us twice. A matrix is read once, in an
    eighth of the time; its 8e8 FLOPs at .6 of 5e13 need 26.7 us.
    """
    units = replace(LIMITS, compute_units=40)
    called = StepOperator("aten::mm", types=("bf16",), flops=1e6)
    work = step(*[kernel(10, "gemm", called, blocks=10) for _ in range(8)], limits=units)
    assert device_us(work, "loop_to_batched_op") == 8 * 7 / 4 + 3
    for flops, left in ((1e6, 100), (1e8, 8e8 / 0.6 / 5e13 * 1e6)):
        vector = StepOperator("aten::mv", types=("f32",), flops=flops)
        calls = step(*[kernel(100, "gemm", vector, "gemv2T_kernel<float>") for _ in range(8)],
                     limits=replace(LIMITS, rates={"vector_f32": 5e13}))
        assert device_us(calls, "loop_to_batched_op", step_us=9000) == max(left, 100)


def _turns_of(name, us, count=8, **more):
    called = StepOperator(name, **more)
    return [kernel(us, operator=called) for _ in range(count)]


def test_a_call_costs_the_host_what_it_was_traced_to():
    """Eight calls of 5 us become one beside one of 60 us: 65 of 100 us are left. Without times all calls are alike."""
    alone = StepOperator("aten::convolution_backward", host_ns=60_000)
    turns = _turns_of("aten::mul", 4, host_ns=5_000)
    assert changed(step(*turns, kernel(9, operator=alone)), "loop_to_batched_op").calls_left == pytest.approx(0.65)
    unknown = step(*_turns_of("aten::mul", 4), kernel(9, operator=StepOperator("aten::convolution_backward")))
    assert changed(unknown, "loop_to_batched_op").calls_left == pytest.approx(2 / 9)


def test_rows_that_are_read_one_by_one_become_one_pass():
    """Ten turns of two calls and a read: a tenth of the host's path, and of kernels and reads."""
    taken = OperatorArguments([[8, 64], [64, 32]], ["c10::BFloat16"] * 2, ["", ""])
    turn = (kernel(3, "gemm", StepOperator("aten::mm", types=("bf16",), flops=1e6, arguments=taken)),
            kernel(2, operator=StepOperator("aten::relu", arguments=OperatorArguments([[8, 32]], ["c10::BFloat16"],
                                                                                      [""]))), copy(1, "d2h", 2, True))
    after = changed(step(*turn * 10, kernel(9, operator=StepOperator("aten::erf"))), "loop_to_batched_op")
    assert after.whole_calls and after.device_ns == pytest.approx(15_000)
    assert after.calls_left == pytest.approx((3 + 1) / 31)


def test_experts_that_the_host_asks_one_by_one_become_one_pass():
    """Each takes its rows by a mask and writes them by it: no expert reads what another wrote. Two layers of them; what
    the last of each writes after its read stays a call. Mutations: a tensor that is written by a mask is read; a call
    is gone only when all of its kind are.
    """
    def called(name, *shapes, kinds=None):
        return StepOperator(name, types=("bf16",), flops=1e6, arguments=OperatorArguments(
            list(map(list, shapes)), kinds or ["c10::BFloat16"] * len(shapes), ["", "1", ""][:len(shapes)]))

    def asked(rows, *others):
        mask, kinds = called("aten::nonzero", (64,), kinds=["bool"]), ["c10::BFloat16", "", "c10::BFloat16"]
        return (*others, kernel(2, operator=called("aten::eq", (64,), (), kinds=["longint", "Scalar"])),
                kernel(1, "reduction", mask), copy(1, "d2h", 8, True), kernel(1, "reduction", mask),
                kernel(1, operator=called("aten::index", (64, 32), (), kinds=kinds[:2])),
                kernel(5, "gemm", called("aten::mm", (rows, 32), (32, 32))),
                kernel(1, operator=called("aten::index_put_", (64, 32), (), (rows, 32), kinds=kinds)))

    def layers(*others):
        layer = [piece for rows in (3, 4) * 5 for piece in asked(rows, *others)]
        return step(*[*layer, kernel(9, operator=called("aten::erf", (64, 16)))] * 2)

    def experts(*others):
        return changed(layers(*others), "loop_to_batched_op")

    after = experts()
    assert rows_in_turn(layers()).max() == 9  # from read to read
    assert after.whole_calls and after.calls_left < 0.25  # of 142 calls, 7 of each expert
    for whole in (called("aten::sum", (64, 32)), called("aten::mv", (64, 32), (32,))):
        assert not experts(kernel(1, "reduction", whole)).whole_calls


def test_parts_that_are_worked_on_one_by_one_become_one_call():
    """Ten turns of two calls, which nothing reads: a tenth of the host's path, and of kernels."""
    taken = OperatorArguments([[8, 64], [64, 5]], ["c10::BFloat16"] * 2, ["", ""])
    gelu = StepOperator("aten::gelu", arguments=OperatorArguments([[8, 5]], ["c10::BFloat16"], [""]))
    turn = (kernel(3, "gemm", StepOperator("aten::mm", types=("bf16",), flops=1e6, arguments=taken)),
            kernel(2, operator=gelu))
    after = changed(step(*turn * 10, kernel(9, operator=StepOperator("aten::erf"))), "loop_to_batched_op")
    assert after.whole_calls and after.device_ns == pytest.approx(14_000)
    assert after.calls_left == pytest.approx((2 + 1) / 21)


def test_only_copies_beside_the_turns_of_a_loop_stack_their_results():
    """Of eight turns of 3 us one is left, with the copy that another kernel parts from them."""
    work = step(kernel(5, "copy"), kernel(7, "fill"), *_turns_of("aten::mul", 3), kernel(6, "copy"), product(20, 1e6),
                kernel(9, "copy"))
    assert device_us(work, "loop_to_batched_op") == 3 + 20 + 9


def test_copies_between_the_turns_of_a_loop_are_part_of_them():
    """A result that is read in each turn is read once: 8 of 2 us become one of 2 us."""
    turns = [piece for turn in _turns_of("aten::norm", 3) for piece in (turn, copy(2, "d2h", 8, True))]
    after = changed(step(*turns[:-1], kernel(20, operator=StepOperator("aten::add"))), "loop_to_batched_op")
    assert after.device_ns == pytest.approx(1000 * (3 + 7 * 2 / 8 + 20))


def test_the_way_back_of_a_loop_has_as_many_turns():
    """Eight calls on the way back become one, of eight turns there; seven others and forty are another matter."""
    def called(name, count):
        return _turns_of(name, 3, count, phase="backward")

    turns = zip(called("aten::embedding_dense_backward", 8), [*called("aten::sum", 7), kernel(3)],
                *[iter(called("aten::div", 40))] * 5, strict=True)
    alternately = [piece for place, (table, total, *others) in enumerate(turns) for piece in (
        (table, *others, total) if place % 2 else (table, total, *others))]
    work = step(*_turns_of("aten::embedding", 3, phase="forward"), *alternately)
    assert device_us(work, "loop_to_batched_op") == 3 + 3 + 8 * 3 + 40 * 3
    updates = step(*_turns_of("aten::mul_", 3, phase="optimizer"), *alternately)
    assert device_us(updates, "loop_to_batched_op") == 3 + 8 * 3 + 8 * 3 + 40 * 3


def test_gradients_of_what_all_turns_read_are_added_from_the_second_turn_on():
    """Seven turns of three calls, and one of two before them, whose calls have other ones of their names elsewhere."""
    def back(name, *shape):
        taken = OperatorArguments([shape], ["float"], [""])
        return kernel(3, operator=StepOperator(name, phase="backward", arguments=taken))

    turn = (back("aten::mul", 8), back("aten::sum", 8), back("aten::add_", 8))
    others = [back("aten::mul", 9), back("aten::sum", 9), back("aten::neg", 8)]
    work = step(*_turns_of("aten::embedding", 3, phase="forward"), *others, *turn[:2], *turn * 7)
    assert device_us(work, "loop_to_batched_op") == 3 + 3 * 3 + 3 + 3 + 7 * 3 / 8
    work = step(*_turns_of("aten::embedding", 3, phase="forward"), *others, *turn[:2], *turn * 5)
    assert device_us(work, "loop_to_batched_op") == 3 + 3 * 3 + 17 * 3


def test_turns_that_are_gone_take_all_that_the_host_did_for_them():
    """Of eight calls in a row one is left, with an eighth of the host's path. Of recomputed operators nothing is, nor
    of what the host does to recompute, which is as long.
    """
    called = StepOperator("aten::mm", types=("bf16",), flops=1e6)
    after = changed(step(*[kernel(10, "gemm", called) for _ in range(8)]), "loop_to_batched_op")
    assert after.whole_calls and HABITS.host_ns(after, 1_000_000) == 125_000
    assert HABITS.host_ns(replace(after, waits_ns=400_000), 1_000_000) == 125_000  # with an eighth of its waits
    again = StepOperator("aten::mul", phase="recompute")
    kept = changed(step(*[kernel(10)] * 3, kernel(10, operator=again)), "checkpointing_off")
    assert HABITS.host_ns(kept, 1_000_000) == 500_000
    assert changed(step(kernel(10), *[kernel(10, operator=again)] * 3), "checkpointing_off").calls_left == 0
    alike = [kernel(10, "gemm", called) if place % 2 else kernel(10, "norm") for place in range(16)]
    assert not changed(step(*alike), "loop_to_batched_op").whole_calls


def test_norms_in_training_have_the_part_of_the_way_back_that_they_have_ahead():
    """16 of 32 us of passes ahead are a norm's, of which 10 stay; half of the 12 us that one pass back saves go."""
    def named(us, name, phase, family="elementwise"):
        return kernel(us, family, StepOperator(name, phase=phase))

    ahead = [named(10, "aten::rsqrt", "forward"), named(6, "aten::mul", "forward"),
             named(3, "aten::mm", "forward", "gemm"), named(16, "aten::add", "forward")]
    back = [named(3, "aten::mm", "backward", "gemm"), named(20, "aten::mul", "backward"),
            named(12, "aten::mul", "backward")]
    work = step(*ahead, *back, named(3, "aten::mm", "backward", "gemm"), named(9, "aten::mul_", "optimizer"))
    assert device_us(work, "norm_fusion") == 10 + 3 + 16 + 3 + 26 + 3 + 9
    assert changed(work, "norm_fusion").calls_left == pytest.approx((9 - 1 - 0.5) / 9)
    assert device_us(step(*ahead), "norm_fusion") == 10 + 3 + 16


def test_a_norm_of_few_rows_reads_them_with_as_many_blocks():
    """26 MB are read and written: 13 MB by two blocks at 6.5 GB/s take 1 ms, by 2,000 less than the pass."""
    def written_out(rows):
        root = StepOperator("aten::rsqrt", arguments=OperatorArguments([[rows, 1]], ["float"], [""]))
        return step(kernel(3, operator=root), kernel(10, operator=StepOperator("aten::mul", bytes=26e6)))
    assert device_us(written_out(2), "norm_fusion", step_us=9000) == 1000
    assert device_us(written_out(2000), "norm_fusion", step_us=9000) == 10


def test_batch_norm_by_stored_means_is_fused_as_any_pass():
    passes = step(kernel(20, "norm", name="cudnn::bn_fw_inf_1C11_kernel_NCHW"), kernel(30))
    assert device_us(passes, "compile") == 30
    assert device_us(step(kernel(30, "norm", name="cudnn::bn_fw_tr_1C11"), kernel(20, "norm")), "compile") == 50


def test_a_compiler_splits_sums_that_leave_compute_units_idle():
    """97 of 100 us on 4 of 32 units are an eighth as long; 4e8 bytes at 2 TB/s are 200 us. Other passes stay."""
    limits = replace(LIMITS, compute_units=32)
    def of(family, blocks, moved=None):
        return step(kernel(1000, family, StepOperator("aten::native_group_norm", bytes=moved), blocks=blocks),
                    limits=limits)
    assert device_us(of("norm", 4), "compile", step_us=9000) == 3 + 997 / 8
    assert device_us(of("reduction", 4, 4e8), "compile", step_us=9000) == 200
    for work in (of("norm", 32), of("norm", 0), of("softmax", 4)):
        assert device_us(work, "compile", step_us=9000) == 1000


def test_depthwise_convolutions_of_atens_own_become_the_librarys():
    """A filter of one channel is no matrix: 3e9 FLOPs at 5e13 a second are 60 us; of cuDNN's rate .3 that is 200 us."""
    own = StepOperator("aten::_conv_depthwise2d", types=("f32",), flops=3e9)
    for us, left in ((1000, 200), (150, 150)):
        work = step(kernel(us, "conv", own, "conv_depthwise2d_forward_kernel<5, float, int>"))
        assert device_us(work, "channels_last", step_us=9000) == left
        assert device_us(work, "compile", step_us=9000) == left


def test_layer_norms_take_as_long_in_either_order_of_images():
    """Their rows are one behind another, unlike those of other norms, of which a tenth of the bytes' time is left."""
    def normed(name):
        return step(product(100, 1e9, CONV, "aten::conv2d"),
                    kernel(300, "norm", StepOperator(name, types=("f32",), bytes=130_000_000)))
    assert device_us(normed("aten::native_layer_norm"), "channels_last", step_us=9000) == 400
    assert device_us(normed("aten::native_batch_norm"), "channels_last", step_us=9000) == 100 + 30e6 / 2e12 * 1e6 / .3


def test_a_compiler_keeps_images_in_one_order_where_something_convolves():
    """The copy into the other order is the longest pass, and none is left of it; one between types is a pass."""
    def copied(*types, convolves=True):
        order = kernel(90, "copy", StepOperator("aten::copy_", "aten::contiguous", types=types))
        return step(product(100, 1e9, *([CONV, "aten::conv2d"] if convolves else [])), order, kernel(40))
    assert device_us(copied("f32"), "compile", step_us=9000) == 140
    assert device_us(copied("f32", "bf16"), "compile", step_us=9000) == 190
    assert device_us(copied("f32", convolves=False), "compile", step_us=9000) == 190


def test_a_host_that_reads_on_the_way_launches_a_graph_after_each_read():
    """Two reads and an input: five calls of 10 us. Without the waits none are left."""
    copies = [copy(2, "h2d", 100), copy(2, "d2h", 8), copy(2, "d2h", 8)]
    after = changed(step(kernel(10), *copies), "graph")
    assert after.replays == 5 and HABITS.after_ns(after, 1_000_000) == 50_000
    assert changed(step(kernel(10), *copies), "graph", "remove_syncs").replays == 0


def test_a_larger_batch_shares_calls_updates_and_the_fixed_part_of_kernels():
    """Per sample of 4: 3 us / 4 + 97 us, and an update of 8 us / 4."""
    work = step(product(100, 1e9), optimizer(8))
    after = changed(work, "larger_batch", samples=4)
    assert after.device_ns == pytest.approx(1000 * (0.75 + 97 + 2))
    assert HABITS.host_ns(after, 1_000_000) == 250_000


def test_more_samples_run_beside_those_of_a_product_that_does_not_fill_the_device():
    """10 blocks on 40 compute units leave room for four times as many, 30 for a third more; 80 fill them."""
    units = replace(LIMITS, compute_units=40)
    for blocks, family, room in ((10, "gemm", 4), (30, "gemm", 4 / 3), (80, "gemm", 1), (0, "gemm", 1),
                                 (10, "norm", 1)):
        work = step(kernel(103, family, blocks=blocks), limits=units)
        assert room_for_more(work).tolist() == [room]
        batched = replace(MECHANISMS["graph"], respond=lambda work, least: unchanged(work))
        after = changed_step(work, StepTime(1_000_000, True), [batched], 8.0)
        assert after.device_ns == pytest.approx(1000 * (3 / 8 + 100 / room))


def test_a_batch_is_doubled_as_long_as_that_is_expected_to_pay():
    """Of 1000 us the device takes 103: 8 times as many are 100 us of device work and 125 of the host; 16 are no more
    than the device. A step that waits for the device gains nothing of more than twice the samples.
    """
    record = TrackRecord(HABITS, rows("graph", [0.0] * 19))
    waiting, busy = step(product(103, 1e9)), step(product(950, 1e9))
    assert floors_of(waiting, StepTime(1_000_000, True), record).expected["larger_batch"].samples == 8
    assert floors_of(busy, StepTime(1_000_000, True), record).expected["larger_batch"].samples == 2
    recorded = floors_of(waiting, StepTime(1_000_000, True), record, most_samples=4)
    assert recorded.expected["larger_batch"].samples == recorded.under("larger_batch").samples == 4
    assert "larger_batch" not in floors_of(waiting, StepTime(1_000_000, True)).saved_ns


def test_what_is_remembered_of_a_change_is_of_that_change_and_those_samples():
    work = step(kernel(100, "elementwise"), kernel(200, "elementwise"), product(103, 1e9))
    times = LeastTimes(work)
    for name, samples in (("graph", 1.0), ("pointwise_fusion", 1.0), ("pointwise_fusion", 2.0), ("graph", 2.0)):
        for step_us in (1000, 2000):
            remembered = changed_step(work, StepTime(1000 * step_us, True), [MECHANISMS[name]], samples, times)
            assert remembered == changed(work, name, step_us=step_us, samples=samples)


def test_a_graph_of_an_adam_in_a_loop_computes_its_bias_corrections_on_the_device():
    """Two parameters: 12 kernels of 2 us more for each. Another loop, and one kernel for all, need nothing more, nor
    does an Adam that computes them there already.
    """
    update, correction = (StepOperator(name, phase="optimizer") for name in ("aten::addcdiv_", "aten::reciprocal"))
    three, two = 55 + 3 * GAP_US, 55 + 2 * GAP_US
    assert device_us(step(kernel(50), kernel(2, operator=update), kernel(3, operator=update)), "graph") == three + 48
    assert device_us(step(kernel(50), optimizer(5)), "graph") == two
    assert device_us(step(kernel(50), kernel(5, operator=replace(update, phase="forward"))), "graph") == two
    assert device_us(step(kernel(50), kernel(2, operator=update), kernel(3, operator=correction)), "graph") == three


def test_before_a_gather_a_product_and_the_passes_over_its_result_alone_have_as_many_rows_as_the_table():
    """A fourth of the product's 50 us and of the 20 us of a pass; 7 us work on something else, too."""
    assert device_us(gathered(4000, 64), "less_work") == 9 + 1 + (50 + 20) / 4 + 7 + 30
    assert changed(gathered(4000, 64), "less_work").calls_left == 1


def test_a_mechanism_without_a_response_leaves_its_floor():
    work = step(kernel(50, "embedding", name="vectorized_gather_kernel<16, long>", blocks=20_000))
    assert device_us(work, "sorted_reads") == 10 and changed(work, "sorted_reads").calls_left == 1


def test_several_changes_together_leave_the_least_of_each():
    work = step(product(50, 1e10), kernel(30), kernel(20), copy(600, "h2d", 500_000, False))
    after = changed(work, "pointwise_fusion", "inputs_on_device")
    assert (after.device_ns, after.waits_ns, after.calls_left) == (80_000, 600_000, 0.5)


def test_where_a_change_has_nothing_to_do_nothing_is_expected():
    with pytest.raises(Absent, match="outside of TF32"):
        changed(step(product(40, 1e9)), "tf32")


# Residuals
def rows(mechanism, values, families=None, bound=DEVICE):
    return tuple(Residual(f"w{number % (families or len(values))}", f"b{number}", "c", mechanism, bound, value)
                 for number, value in enumerate(values))


def test_an_interval_of_many_residuals_is_of_order_statistics():
    """Of 39 the second and the one before the last: between them lies the next one in 36 of 40 cases."""
    assert prediction_interval([float(value) for value in range(1, 40)]) == (2, 38)
    assert prediction_interval([float(value) for value in range(1, 20)]) == (1, 19)


def test_an_interval_of_few_residuals_is_students():
    values = [0.1, -0.2, 0.3, 0.0]
    low, high = prediction_interval(values)
    half = stats.t.ppf(0.95, 3) * np.std(values, ddof=1) * math.sqrt(1.25)
    assert (low, high) == pytest.approx((0.05 - half, 0.05 + half))


@pytest.mark.parametrize("count", [5, 12, 19, 60])
def test_an_interval_holds_its_share_of_the_next(count):
    random, held = np.random.default_rng(count), 0
    for _ in range(3000):
        *seen, following = random.normal(size=count + 1).tolist()
        low, high = prediction_interval(seen)
        held += low <= following <= high
    assert abs(held / 3000 - 0.9) < NormalDist().inv_cdf(0.9999) * math.sqrt(0.09 / 3000) + 1 / (count + 1)


def test_a_mechanism_has_its_own_residuals_from_nine_workloads_on():
    own, few = rows("graph", [0.01] * OWN_WORKLOADS), rows("tf32", [0.5] * OWN_WORKLOADS, OWN_WORKLOADS - 1)
    record = TrackRecord(HABITS, own + few)
    spread = record.spread(["graph"], DEVICE)
    assert (spread.middle, len(spread.residuals), spread.workloads, spread.own) == (0.01, 9, 9, True)
    pooled = record.spread(["tf32"], DEVICE)
    assert (pooled.middle, len(pooled.residuals), pooled.workloads, pooled.own) == (0.5, 9, 8, False)
    assert record.spread(["compile"], DEVICE) == pooled
    assert len(record.spread(["graph"], HOST).residuals) == 18  # none like it: all


def test_products_in_tf32_and_in_16_bits_err_alike():
    record = TrackRecord(HABITS, rows("narrower_types", [0.1] * 6) + rows("tf32", [0.3] * 3, 9) + rows("graph", [0.9]))
    record = replace(record, residuals=tuple(replace(row, workload=f"w{number}")
                                             for number, row in enumerate(record.residuals)))
    spread = record.spread(["tf32"], DEVICE)
    assert spread == record.spread(["narrower_types"], DEVICE)
    assert (spread.middle, len(spread.residuals), spread.own) == (0.1, 9, True)


def test_what_has_no_residuals_left_to_share_takes_those_of_all():
    assert TrackRecord(HABITS, rows("graph", [0.2] * 9)).spread(["tf32"], DEVICE).own is False


def test_without_recorded_changes_nothing_is_expected():
    with pytest.raises(Absent, match="recorded"):
        TrackRecord(HABITS, rows("graph", [0.1])).spread(["tf32"], DEVICE)


def test_the_order_of_mechanisms_makes_no_difference():
    assert mechanism_name(["graph", "compile"]) == mechanism_name(["compile", "graph"]) == "compile + graph"


def recorded(number, after_ns, host_ns=1_000_000, left=1.0, device_ns=100_000.0, floor_ns=50_000, **more):
    return RecordedChange(f"w{number}", f"b{number}", "c", ("graph",), 1_000_000, after_ns, floor_ns,
                          ChangedStep(device_ns, host_ns, 50, left, **more))


def test_habits_are_medians_of_steps_that_wait_for_the_host():
    """Half of the calls gone saved .3, .2 and .4 of the step: .6, .4 and .8 of their share. 50 calls in 1 ms."""
    record = learn([recorded(1, 700_000, left=0.5), recorded(2, 800_000, left=0.5), recorded(3, 600_000, left=0.5),
                    recorded(4, 1, left=0.5, replayed=True), recorded(5, 1, left=0.5, waits_ns=9.0),
                    recorded(6, 1, host_ns=None, left=0.5), recorded(7, 1, left=0.96)])
    assert record.habits == HostHabits(20_000, pytest.approx(0.6))
    assert record.residuals[0].log_residual == pytest.approx(0) and record.residuals[0].bound == HOST
    assert record.residuals[1].log_residual == pytest.approx(math.log(0.8 / 0.7))


def test_results_on_the_device_leave_neither_their_copies_nor_the_hosts_operators_on_them():
    """500 us and 20 ms in two steps."""
    work = step(kernel(100, "gemm"), copy(500, "d2h", 10_000_000), steps=2, on_host_ns=20_000_000.0)
    after = changed(work, "results_on_device")
    assert (after.device_ns, after.waits_ns, after.calls_left) == (50_000, 10_250_000, 1.0)


def test_products_on_the_host_pass_over_no_bytes():
    """100 kB are too little for 2 ms of other work, and enough for 2 ms of products."""
    read = step(kernel(100, "gemm"), copy(5, "d2h", 100_000), on_host_ns=2_000_000.0)
    assert not computes_on_results(read)
    assert computes_on_results(replace(read, host_products_ns=1_500_000.0))


def test_a_prediction_is_never_below_the_floor():
    record = learn([recorded(1, 700_000, left=0.5), recorded(2, 60_000, replayed=True, device_ns=10_000)])
    assert record.residuals[1].log_residual == pytest.approx(math.log(60 / 50))


def test_the_time_to_launch_is_a_habit_of_steps_that_wait_for_the_host():
    """400 us without the host's own work, of a step that took 500 us to launch when it was traced."""
    timed = ChangedStep(1_000, 1_000_000, 50, 0.5, paused_ns=600_000, launching_ns=500_000)
    hidden = replace(recorded(2, 880_000), changed=replace(timed, host_ns=None, launching_ns=1_000))
    assert learn([replace(recorded(1, 880_000), changed=timed), hidden]).habits.traced_share == 0.8


def test_habits_need_a_step_that_waits_for_the_host():
    with pytest.raises(Absent, match="waits for the host"):
        learn([recorded(1, 700_000, host_ns=None)])


# The expected gain
def gain(record, floor_ns, device_ns, step_ns=1_000_000, unprofiled=True):
    return expected(StepTime(step_ns, unprofiled), MechanismFloor("graph", floor_ns, (), "why"),
                    ChangedStep(device_ns, None, 1, replayed=True), ["graph"], record)


def test_a_gain_is_the_prediction_with_the_median_residual_and_the_spread_of_all():
    """1 ms to 250 us; times e^-.1, and between e^-.3 and e^.1: of 39 changes all, as other families differ by more."""
    record = TrackRecord(HABITS, rows("graph", [-0.1] + [0.1] * 37 + [0.3]))
    assert gain(record, 100_000, 250_000) == Expected(
        pytest.approx(4 * math.exp(-0.1)), pytest.approx(4 * math.exp(-0.3)), pytest.approx(4 * math.exp(0.1)),
        39, 39, True, chance=1.0)


def test_the_hosts_own_work_that_stays_in_a_step_errs_by_nothing():
    """600 of 1000 us are its own; of the rest a fourth is saved, and that errs by e^-.1 and more. Nothing of it stays
    where it is handed over, where turns of a loop go, in a graph, and where the step waits for the device.
    """
    changed_ = ChangedStep(1_000, 1_000_000, 100, calls_left=0.5, paused_ns=600_000)
    record = TrackRecord(HABITS, rows("fused_optimizer", [-0.1] + [0.1] * 22 + [0.3], bound=HOST))
    found = expected(StepTime(1_000_000, True), MechanismFloor("fused_optimizer", 1_000, (), ""), changed_,
                     ["fused_optimizer"], record)
    for factor, residual in ((found.factor, 0.1), (found.low, 0.3), (found.high, -0.1)):
        assert factor == pytest.approx(1000 / (600 + 300 * math.exp(residual)))
    assert HABITS.kept_ns(replace(changed_, samples=2.0), 1_000_000) == 300_000
    for other in ({"handed": True}, {"whole_calls": True}, {"replayed": True}, {"device_ns": 2_000_000}):
        assert HABITS.kept_ns(replace(changed_, **other), 1_000_000) == 0


def test_what_the_host_computes_itself_stays_behind_a_graph():
    """For 60 of 100 us it computes on tensors of its own, in 2 steps; the device works 10. Where its work is handed
    over that goes, and it is no longer than the device is idle.
    """
    work = step(kernel(10), kernel(10), steps=2, on_host_ns=120_000.0)
    assert device_us(work, "graph") == 10 + 60 + GAP_US and changed(work, "graph").paused_ns == 60_000
    assert device_us(work, "graph", "host_work") == 10 + GAP_US
    assert device_us(work, "graph", step_us=50) == 50 + GAP_US


def test_many_short_operators_of_the_hosts_own_stay_behind_a_graph():
    """A fifth of a traced step is one of a step without a profiler; long operators are not stretched."""
    work = replace(step(kernel(10), on_host_ns=120_000.0), computing=0.2)
    assert device_us(work, "graph") == 10 + 200 + GAP_US and changed(work, "graph").paused_ns == 200_000
    assert device_us(replace(work, computing=0.1), "graph") == 10 + 120 + GAP_US


def test_long_operators_of_the_hosts_own_take_as_long_for_each_sample():
    """300 of 1000 us do; of the other 700 each of 4 samples has a fourth. They count as far as the host works on
    tensors of its own, and work that is handed over goes.
    """
    work = replace(step(kernel(10), on_host_ns=300_000.0), computing=0.4)
    after = changed(work, "larger_batch", samples=4.0)
    assert after.growing_ns == 300_000 and HABITS.host_ns(after, 1_000_000) == 300_000 + 700_000 / 4
    assert HABITS.kept_ns(after, 1_000_000) == 300_000 + 100_000 / 4
    assert HABITS.untouched_ns(after) == 300_000 + 700_000 / 4
    assert HABITS.kept_ns(replace(after, paused_ns=200_000), 1_000_000) == 200_000
    assert changed(replace(work, computing=0.1), "larger_batch", samples=4.0).growing_ns == 100_000
    assert changed(work, "larger_batch", samples=4.0, step_us=50).growing_ns == 20_000
    assert changed(work, "larger_batch", "host_work", samples=4.0).growing_ns == 0


def test_the_idle_time_of_a_step_that_waits_for_the_device_stays():
    """The device works 95 of 100 us. A graph takes the rest away, and so do waits that go."""
    work = step(kernel(95), syncs=1)
    for kind, device in (("host_work", 100), ("graph", 95 + GAP_US), ("remove_syncs", 95)):
        assert device_us(work, kind, step_us=100) == device
    assert changed(work, "host_work", step_us=200).device_ns == 95_000  # the host takes longer


def test_the_idle_time_of_a_step_stays_where_only_the_device_changes():
    """The device works 80 of 100 us, and reads a number: 20 us pass before its next work. A larger batch has them once
    for more samples, and calls that are gone take some along.
    """
    called = StepOperator("aten::mm", types=("f32",), flops=1e6, host_ns=10_000)
    work = step(kernel(80, "gemm", called, FP32, types=("f32",)), copy(0, "d2h", 8, True), syncs=1)
    left = changed(work, "tf32", step_us=100)
    assert left.host_ns is not None and left.device_ns == pytest.approx(20_000 + changed(work, "tf32").device_ns)
    assert device_us(work, "graph", step_us=100) == 80 + GAP_US  # the copy of a number took no time
    assert device_us(work, "remove_syncs", step_us=100) == 80


def test_the_idle_time_of_a_step_stays_where_few_calls_go():
    """The device works 80 of 100 us, 20 of them in four recomputed calls, which go: of 54, or of seven and a copy."""
    again = [kernel(5, operator=StepOperator("aten::mul", phase="recompute", host_ns=1000)) for _ in range(4)]
    for others, idle_us in ((50, 20), (3, 0)):
        kept = [kernel(60 / others, operator=StepOperator("aten::mul", host_ns=1000)) for _ in range(others)]
        work = step(*again, *kept, copy(0, "d2h", 8, True), syncs=1)
        assert device_us(work, "checkpointing_off", step_us=100) == 60 + idle_us


def test_no_larger_batch_is_advised_for_rows_that_a_step_takes_one_by_one():
    """Of seven rows and fewer it may be a part of the step, and so it may without a loop of as many turns."""
    taken = OperatorArguments([[8, 32], [32, 5]], ["float"] * 2, ["", ""])
    turn = [kernel(10, "gemm", StepOperator("aten::mm", "aten::mm", types=("f32",), flops=1e6, arguments=taken)),
            copy(1, "d2h", 4, True)]
    for turns, rows, gains in ((9, 0, True), (9, 9, False), (8, 8, False), (7, 7, True), (8, 12, True)):
        least = floor(replace(step(*turn * turns), single_rows=rows), [MECHANISMS["larger_batch"]])
        assert (least.floor_ns is not None) is gains and (gains or "rows of a batch one by one" in least.why_absent)


def test_a_host_that_waits_for_loaders_gets_no_batch_sooner():
    """A tenth of the time and more. Work that leaves the host leaves its loaders, too; more of them share it."""
    work = step(copy(10, "h2d", 1000, True), kernel(30), paused=0.5)
    waiting, ready = replace(work, fetching=0.1), replace(work, fetching=0.09)
    assert changed(waiting, "graph").loading_ns == 1_000_000 and changed(ready, "graph").loading_ns == 0
    assert changed(waiting, "host_work").loading_ns == 0
    assert 0 < changed(waiting, "prefetching").loading_ns < 1_000_000


def test_a_cache_of_fixed_size_is_launched_once_with_nothing_read():
    joins = kernel(8, "copy", StepOperator("aten::cat", "aten::cat"))
    after = changed(step(kernel(30), joins, copy(9, "d2h", 8, True)), "fixed_cache_graph")
    assert (after.device_ns, after.replayed, after.replays) == (38_000 + 2 * REPLAY_GAP_NS, True, 0)


def test_a_narrower_type_with_a_graph_leaves_the_device_as_the_type_does():
    work = step(product(100, 1e10, FP32), kernel(20))
    for both, narrow in (("narrow_graph", "narrower_types"), ("tf32_graph", "tf32")):
        after = changed(work, both)
        assert after.replayed and after.calls_left == 0
        narrowed = MECHANISMS[narrow].respond(work, MECHANISMS[narrow].least_ns(work)).device_ns
        assert after.device_ns == narrowed.sum() + 2 * REPLAY_GAP_NS


def _narrowed_us(name, *shapes, kernel_name=""):
    """What autocast leaves of a kernel of 90 us that passes over 90 MB, in a training step."""
    taken = OperatorArguments([list(shape) for shape in shapes], ["float"] * len(shapes), [""] * len(shapes))
    called = StepOperator(name, name, "forward", ("f32",), bytes=90e6, arguments=taken)
    back = kernel(1, operator=StepOperator("aten::relu", phase="backward"))
    work = step(kernel(90, operator=called, name=kernel_name), back, product(10, 1e9, FP32))
    return device_us(work, "narrower_types", step_us=101)


def test_wide_tensors_keep_what_they_take_part_in_wide_under_autocast():
    """A product of rows with one number each stays as it is; of tensors of one size it is in 16 bits."""
    alike, scaled = (_narrowed_us("aten::mul", (9, 9), shape) for shape in ((9, 9), (9, 1)))
    assert scaled.expected > alike.expected + 10
    assert _narrowed_us("aten::gelu", (9, 9), (9, 1)).expected < scaled.expected


def test_batch_norms_of_narrow_images_in_another_order_take_longer():
    """A fifth longer than in float32."""
    stays = _narrowed_us("aten::mul", (9, 9), (9, 1))
    norm = _narrowed_us("aten::cudnn_batch_norm", (9, 9), kernel_name="bn_fw_tr_1C11_singleread")
    assert norm.expected == pytest.approx(stays.expected + 0.2 * 90)


def test_no_more_is_expected_than_the_calls_that_are_gone_took():
    """Steps became twice as fast as predicted; a fifth of the host's calls leaves four fifths of its path. Where the
    device hides that path nothing says so.
    """
    record = TrackRecord(HABITS, rows("graph", [math.log(0.5)] * 40, bound=HOST) + rows(
        "graph", [math.log(0.5)] * 40, bound=DEVICE))
    step_, floor_ = StepTime(1_000_000, True), MechanismFloor("tf32", 1_000, (), "")
    waiting = ChangedStep(100_000, 1_000_000, 100, calls_left=0.8)
    found = expected(step_, floor_, waiting, ["tf32"], record)
    assert found.factor == pytest.approx(1 / 0.8) and found.low <= found.factor < found.high
    hidden = expected(step_, floor_, ChangedStep(800_000, None, 100, calls_left=0.8), ["tf32"], record)
    assert hidden.factor == pytest.approx(2 / 0.9)


def test_a_change_that_only_takes_work_away_makes_no_step_longer():
    """Others left steps up to e^1.3 times as long as predicted. Recomputed operators and weights' conversions go."""
    record = TrackRecord(HABITS, rows("graph", [0.1] * 23 + [1.3]))
    step_, floor_ = StepTime(1_000_000, True), MechanismFloor("checkpointing_off", 1_000, (), "")
    changed_ = ChangedStep(700_000, None, 10)
    mixed, less = (expected(step_, floor_, replace(changed_, only_less=sure), ["checkpointing_off"], record)
                   for sure in (False, True))
    assert mixed.factor == less.factor == pytest.approx(1 / 0.7 / math.exp(0.1)) and mixed.low < 0.6 < less.low == 1
    assert mixed.chance == 23 / 24 and less.chance == 1
    work = step(kernel(10), kernel(10, operator=StepOperator("aten::mul", phase="recompute")))
    assert changed(work, "checkpointing_off").only_less and not changed(work, "checkpointing_off", "graph").only_less
    longer = expected(step_, floor_, replace(changed_, device_ns=950_000, only_less=True), ["graph"], record)
    assert longer.factor == longer.low == 1
    copied = step(kernel(10), copy(400, "h2d", 500_000, True))
    assert changed(copied, "inputs_on_device").only_less and not changed(copied, "prefetching").only_less
    assert changed(gathered(4000, 64), "less_work").only_less


def test_tables_that_are_kept_take_the_hosts_calls_for_them_along():
    def taking(name, *shapes):
        kinds = ["float"] * len(shapes), [""] * len(shapes)
        return StepOperator(name, arguments=OperatorArguments([list(shape) for shape in shapes], *kinds))
    made = [kernel(1, "fill", taking("aten::arange")), kernel(9, operator=taking("aten::sub", (1, 64), (64, 1)))]
    after = changed(step(*[*made, product(50, 1e9)] * 2), "less_work")
    assert (after.device_ns, after.calls_left, after.whole_calls, after.only_less) == (100_000, 1 / 3, True, True)


def test_a_chance_is_the_share_of_recorded_changes_that_would_gain():
    """1.1 x is predicted; steps that took e^.2 times as long as predicted, 6 of 20, would gain nothing."""
    record = TrackRecord(HABITS, rows("graph", [0.0] * 14 + [0.2] * 6))
    assert gain(record, 100_000, 1_000_000 / 1.1).chance == 14 / 20
    known = Expected(1.1, 0.9, 1.3, 20, 9, True)
    assert [replace(known, chance=chance).rarely_gains for chance in (None, 0.0, 0.66, 0.67)] == [
        False, True, True, False]


def test_changes_without_a_record_of_their_own_share_that_of_others_like_them():
    """What waits for the same, and of as many kinds: several together err otherwise than one."""
    errors = {("norm_fusion", DEVICE): 0.1, ("norm_fusion", HOST): 0.5, ("graph + less_work", DEVICE): 0.9,
              ("graph + less_work", HOST): 1.3}
    record = TrackRecord(HABITS, tuple(row for (name, bound), error in errors.items()
                                       for row in rows(name, [error] * 3, 3, bound=bound)))
    for kinds in (["shared_heads"], ["tf32", "graph"]):
        for bound in (DEVICE, HOST):
            like = "norm_fusion" if len(kinds) == 1 else "graph + less_work"
            assert record.spread(kinds, bound).middle == errors[like, bound]


def test_a_gain_and_its_interval_end_at_the_ceiling():
    found = gain(TrackRecord(HABITS, rows("graph", [-0.5] * 23 + [0.3])), 200_000, 220_000)
    assert found.factor == found.high == 5 and found.low == pytest.approx(1000 / 220 * math.exp(-0.3))


def test_a_floor_of_no_length_is_no_ceiling():
    assert gain(TrackRecord(HABITS, rows("graph", [0.0] * 19)), 0.0, 1_000.0).factor == pytest.approx(1000)


def test_no_gain_is_expected_of_a_profiled_step_or_without_a_floor():
    record = TrackRecord(HABITS, rows("graph", [0.0] * 19))
    with pytest.raises(Absent, match="without a profiler"):
        gain(record, 100_000, 250_000, unprofiled=False)
    with pytest.raises(Absent, match="why"):
        gain(record, None, 250_000)


def test_a_step_that_waits_for_the_host_gains_nothing_of_a_narrower_type():
    """The device needs a third of the time, but the launches are as many."""
    work, unprofiled = step(product(300, 1e10, FP32)), StepTime(1_000_000, True)
    found = expected(unprofiled, floor(work, [MECHANISMS["narrower_types"]]), changed(work, "narrower_types"),
                     ["narrower_types"], TrackRecord(HABITS, rows("tf32", [0.0] * 19)))
    assert found.factor == 1


# Ranking
def test_a_step_that_was_only_profiled_has_gains_that_are_usual_and_expects_none():
    """1000 us with 100 of the device: its host usually takes 450 us without a profiler, and a graph leaves 100 of 550.
    Mutation: `USUAL_STRETCH = 1.0`.
    """
    record, work = TrackRecord(HABITS, rows("graph", [0.0] * 19)), step(product(100, 1e9))
    profiled, timed = (floors_of(work, StepTime(1_000_000, is_timed), record) for is_timed in (False, True))
    assert not profiled.expected and not timed.usual and not floors_of(work, StepTime(1_000_000, False)).usual
    assert profiled.usual["graph"] == pytest.approx(floors_of(work, StepTime(550_000, True), record)
                                                    .expected["graph"].factor)
    assert timed.expected["graph"].factor > 1.5 * profiled.usual["graph"] > 1.5


def test_what_is_usual_gives_a_place_where_nothing_is_expected():
    """Whatever its share and ceiling; 60 % of the time bound a gain to 2.5 x, which counts as its root, 1.58."""
    options = [replace(option("bounded", most=9.0, share_pct=90.0), usual=1.02), option("expected", 2.0, 9.0),
               replace(option("usual", share_pct=10.0), usual=3.0), option("share", share_pct=20.0)]
    options += [replace(option("no share", most=9.0), usual=1.5), option("ceiling", most=9.0),
                option("large share", share_pct=60.0)]
    assert [change.name for change in ranked(options)] == ["usual", "expected", "large share", "no share", "share",
                                                           "bounded", "ceiling"]
    options[-1] = option("large share", share_pct=55.0)  # 1.49
    assert [change.name for change in ranked(options)][2:4] == ["no share", "large share"]


def option(name, factor=None, most=None, effort=0, share_pct=None):
    likely = Expected(factor, factor, factor, 1, 1, True) if factor else None
    return RankedChange(name, most, likely, effort, share_pct)


def test_changes_are_ranked_by_expected_gain_then_ceiling_then_effort():
    options = [option("ceiling", most=9.0), option("second", 2.0, 30.0), option("hard", 3.0, effort=2),
               option("easy", 3.0, effort=1), option("nothing", 1.04, 50.0), option("unknown"),
               option("lower ceiling", most=8.0), option("no ceiling", most=1.0)]
    assert [change.name for change in ranked(options)] == ["easy", "hard", "second", "ceiling", "lower ceiling"]


def test_of_equal_expected_gains_the_higher_ceiling_comes_first():
    """Both end at the host's path; the one that leaves the device less to do may gain more."""
    options = [option("easy", 4.004, 7.0), option("hard", 4.0, 12.0, effort=1), option("more", 4.1, 5.0)]
    assert [change.name for change in ranked(options)] == ["more", "hard", "easy"]


def test_a_change_comes_before_one_that_it_surpasses():
    """Only where both are worth a try, and not where it gains a tenth less; what lies between stays where it is."""
    larger = replace(option("larger", 3.61, 9.0), surpasses="smaller")
    options = [option("first", 5.0), option("smaller", 4.0), option("other", 3.8), larger]
    assert [change.name for change in ranked(options)] == ["first", "larger", "smaller", "other"]
    alone = [options[0], options[2], larger]
    assert [change.name for change in ranked(alone)] == ["first", "other", "larger"]
    less = [*options[:3], replace(option("larger", 3.59, 9.0), surpasses="smaller")]
    assert [change.name for change in ranked(less)] == ["first", "smaller", "other", "larger"]


def test_without_an_expected_gain_the_share_and_the_ceiling_bound_a_change():
    """60 % of the time leaves 2.5 x (Amdahl), under a ceiling of 2.2 x; among them ranks what is expected."""
    options = [option("bounded", most=2.2, share_pct=60.0), option("share", share_pct=60.0),
               option("all", share_pct=100.0), option("expected", 2.3, 30.0), option("ceiling", most=9.0)]
    assert [change.name for change in ranked(options)] == ["all", "share", "expected", "bounded", "ceiling"]


def test_the_track_record_that_ships_is_read_once():
    record = track_records.shipped()
    assert record is track_records.shipped() and len(record.residuals) > 100
    assert 1_000 < record.habits.call_ns < 100_000 and 0 < record.habits.saved_share <= 1
    graphs = record.spread(["graph"], DEVICE)
    assert graphs.own and abs(graphs.middle) < 0.1
    assert {name for row in record.residuals for name in row.mechanism.split(" + ")} <= set(MECHANISMS)

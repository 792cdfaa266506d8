"""Steps of a serving engine: work belongs to the step that launched it, whenever it ran."""

import random

import numpy as np
import pytest

from aaco.analytics.serving.annotations import CUT
from aaco.analytics.serving.launch_order import COLUMNS
from aaco.analytics.serving.steps import ServingSteps
from aaco.core.tables import COPIES
from tests import timed

DECODE = "execute_{0}_context_0(sq0sk0sqsq0sqsk0)_generation_{0}(sq{0}sk90sqsq{0}sqsk90)"
PREFILL = "execute_7_context_1(sq7sk7sqsq49sqsk49)_generation_0(sq0sk0sqsq0sqsk0)"


def step(name, start, end, **more):
    return timed.at(start, end, name=name, domain="marker", **more)


def launch(at, correlation, name="cudaLaunchKernel", took=4, **more):
    return timed.at(at, at + took, name=name, correlation_id=correlation, **more)


def kernel(start, end, correlation, **more):
    return timed.at(start, end, correlation_id=correlation, **more)


def steps_of(calls, kernels, copies=(), cuts=()):
    """The steps that one pass finds, over slices cut at these times."""
    found = {"kernels": timed.kernels(*kernels), "copies": timed.copies(*copies) if copies else COPIES.build(),
             "api_calls": timed.calls(*calls)}
    steps = ServingSteps()
    for end, piece in timed.sliced(found, cuts):
        steps.feed(*(piece[name].select(list(COLUMNS[name])) for name in COLUMNS), until=end)
    steps.rest()
    return steps


@pytest.mark.parametrize("cuts", [(), (5,), (50,), (105,), range(0, 3000, 37)])
def test_kernels_that_start_after_the_annotation_are_of_the_step_that_launched_them(cuts):
    """Mutation: work placed by its own time."""
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1), launch(20, 2, "cudaGraphLaunch", took=30),
             step(DECODE.format(4), 100, 200), launch(110, 3, "cudaGraphLaunch", took=20)]
    kernels = [kernel(15, 20, 1), kernel(1000, 1010, 2), kernel(1010, 1040, 2), kernel(2000, 2010, 3)]
    first, second = steps_of(calls, kernels, cuts=cuts).table().to_pylist()
    assert (first["kernels"], first["kernel_ns"], first["graph_kernels"], first["graph_ns"]) == (3, 45, 2, 40)
    assert (first["device_start_ns"], first["device_end_ns"], first["busy_ns"]) == (15, 1040, 45)
    assert (first["graph_launches"], first["graph_launch_ns"], first["idle_before_ns"]) == (1, 30, None)
    assert (second["kernels"], second["idle_before_ns"], second["graph_launch_ns"]) == (1, 960, 20)


def test_a_range_inside_complements_the_step_around_it():
    """Mutation: the inner range begins a step of its own."""
    calls = [step(DECODE.format(11), 0, 100), step("step[DECODE bs=16]", 5, 95), launch(10, 1)]
    row, = steps_of(calls, [kernel(15, 20, 1)]).table().to_pylist()
    assert (row["phase"], row["generation_requests"], row["batch"], row["generation_sk"]) == ("decode", 11, 16, 90)
    assert (row["annotation"], row["engine"], row["kernels"]) == (DECODE.format(11), "sglang", 1)


def test_ranges_that_a_profiler_copies_onto_the_device_begin_no_step():
    """Mutation: ranges of any domain."""
    calls = [step(PREFILL, 0, 100), launch(10, 1), timed.at(150, 160, name=PREFILL, domain="gpu_marker")]
    row, = steps_of(calls, [kernel(15, 20, 1)]).table().to_pylist()
    assert (row["phase"], row["context_sqsq"], row["scheduled_tokens"]) == ("prefill", 49, 7)


def test_steps_of_two_threads_may_overlap_and_launches_go_by_their_thread():
    """Mutation: the latest step that is open, of any thread."""
    calls = [step(DECODE.format(4), 0, 100, thread_id=1), step(PREFILL, 50, 150, thread_id=2),
             launch(60, 1, thread_id=1), launch(70, 2, thread_id=2)]
    decode, prefill = steps_of(calls, [kernel(200, 210, 1), kernel(300, 330, 2)]).table().to_pylist()
    assert (decode["kernel_ns"], prefill["kernel_ns"]) == (10, 30)


def test_a_thread_without_steps_launches_for_the_one_step_that_is_open():
    """Between two open steps nothing decides. Mutation: the first of several open steps."""
    calls = [step(DECODE.format(4), 0, 100, thread_id=1), step(PREFILL, 50, 150, thread_id=2),
             launch(20, 1, thread_id=3), launch(70, 2, thread_id=3), launch(120, 3, thread_id=3)]
    steps = steps_of(calls, [kernel(200, 201, 1), kernel(300, 302, 2), kernel(400, 404, 3)])
    assert [row["kernel_ns"] for row in steps.table().to_pylist()] == [1, 4]
    kernels = steps.of_kernels
    assert (kernels.kernel_id.tolist(), kernels.step.tolist(), kernels.start.tolist()) == ([0, 2], [0, 1], [200, 400])


def test_unions_of_work_and_of_calls_against_counting_every_ns():
    """Mutation: sums in place of unions."""
    rng = random.Random(7)
    starts = [rng.randrange(0, 400) for _ in range(60)]
    kernels = [kernel(1000 + start, 1000 + start + rng.randrange(1, 30), at + 1)
               for at, start in enumerate(sorted(starts))]
    calls = [step(DECODE.format(4), 0, 1000), *(launch(2 + 10 * at, at + 1, took=rng.randrange(1, 25))
                                                 for at in range(60))]
    row, = steps_of(calls, kernels).table().to_pylist()
    busy, called = np.zeros(2000, bool), np.zeros(2000, bool)
    for span in kernels:
        busy[span["t_start_ns"]:span["t_end_ns"]] = True
    for call in calls[1:]:
        called[call["t_start_ns"]:call["t_end_ns"]] = True
    assert (row["busy_ns"], row["call_ns"]) == (int(busy.sum()), int(called.sum()))


def test_copies_and_waits_of_a_step():
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1), launch(20, 2, "cudaMemcpyAsync"),
             timed.at(40, 90, name="cudaStreamSynchronize")]
    row, = steps_of(calls, [kernel(15, 20, 1)], [timed.at(50, 70, correlation_id=2)]).table().to_pylist()
    assert (row["copies"], row["copy_ns"], row["busy_ns"], row["wait_ns"], row["call_ns"]) == (1, 20, 25, 50, 58)


def test_steps_of_two_engines_in_one_trace_stay_apart():
    """Each thread is of an engine of its own. Mutation: all threads are one."""
    calls = [step(DECODE.format(4), 0, 100, thread_id=1), step("step[DECODE bs=8]", 10, 110, thread_id=2),
             launch(20, 1, thread_id=1), launch(30, 2, thread_id=2), launch(105, 3, thread_id=2)]
    rows = steps_of(calls, [kernel(40, 50, 1), kernel(50, 70, 2), kernel(120, 125, 3)]).table().to_pylist()
    assert [(row["engine"], row["batch"], row["kernels"], row["kernel_ns"]) for row in rows] == [
        ("vllm", 4, 1, 10), ("sglang", 8, 2, 25)]


def test_idle_time_before_a_step_is_of_its_own_engine():
    """Two processes, each with a device of its own. Mutation: the engine of a capture."""
    other = {"process_id": 2, "thread_id": 2}
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1), step(PREFILL, 20, 120, **other), launch(30, 2, **other),
             step(DECODE.format(4), 200, 300), launch(210, 3)]
    kernels = [kernel(40, 50, 1), kernel(60, 190, 2, device_id=1), kernel(220, 230, 3)]
    steps = steps_of(calls, kernels)
    assert [row["idle_before_ns"] for row in steps.table().to_pylist()] == [None, None, 170]
    assert (steps.most_engines, steps.is_device_shared) == (2, False)


def test_where_engines_share_a_device_no_step_has_idle_time_before_it():
    """Mutation: a device of one engine."""
    other = {"process_id": 2, "thread_id": 2}
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1), step(DECODE.format(8), 20, 120, **other),
             launch(30, 2, **other), step(DECODE.format(4), 200, 300), launch(210, 3)]
    steps = steps_of(calls, [kernel(40, 50, 1), kernel(60, 190, 2), kernel(220, 230, 3)])
    assert [row["idle_before_ns"] for row in steps.table().to_pylist()] == [None, None, None]
    assert (steps.most_engines, steps.is_device_shared) == (2, True)


@pytest.mark.parametrize(("kernels", "cut"), [
    (["a1", "b1", "a2", "b2"], [False, False]), (["a1", "b1", "a2"], [False, True]),
    (["b1", "a2", "b2"], [True, False]), (["a1", "b1", "b2"], [False, False]), (["a1", "a2", "b2"], [False, False])])
def test_steps_that_the_trace_cuts_say_so(kernels, cut):
    """The last is how another begins, or the first how another ends. Mutation: fewer kernels are enough."""
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1, "cudaGraphLaunch"), step(DECODE.format(4), 100, 200),
             launch(110, 2, "cudaGraphLaunch")]
    ran = [kernel(20 + 10 * at, 30 + 10 * at, int(text[1]), kernel_name=text[0]) for at, text in enumerate(kernels)]
    rows = steps_of(calls, ran).table().to_pylist()
    assert [row["left_out"] for row in rows] == [CUT if is_cut else None for is_cut in cut]
    assert [row["warning"] for row in rows] == [row["left_out"] for row in rows]


def test_a_step_of_another_batch_is_not_how_one_is_cut():
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1, "cudaGraphLaunch"), step(DECODE.format(8), 100, 200),
             launch(110, 2, "cudaGraphLaunch")]
    rows = steps_of(calls, [kernel(20, 30, 1), kernel(30, 40, 1), kernel(120, 130, 2)]).table().to_pylist()
    assert [row["left_out"] for row in rows] == [None, None]


def test_a_step_cut_off_before_its_kernels_is_listed_and_has_no_time_of_a_device():
    """The trace ends inside the second step. Mutation: its device times are 0."""
    calls = [step(DECODE.format(4), 0, 100), launch(10, 1), step(DECODE.format(4), 100, 120), launch(110, 2)]
    whole, cut = steps_of(calls, [kernel(20, 50, 1)]).table().to_pylist()
    assert (whole["kernels"], cut["kernels"], cut["busy_ns"]) == (1, 0, 0)
    assert cut["left_out"] == CUT
    assert cut["device_start_ns"] is None and cut["device_end_ns"] is None and cut["idle_before_ns"] is None


def test_ranges_of_a_form_that_is_not_known_begin_no_step():
    assert steps_of([step("execute_8_context_0(sq0)_generation_8(sq8)", 0, 100), launch(10, 1)],
                    [kernel(20, 50, 1)]).table().num_rows == 0

"""Steps of an engine without annotations: by what its threads launch again and again, or none with the reason."""

import random

import numpy as np
import pytest

from aaco.analytics.serving.launch_order import COLUMNS, LaunchOrder, ThreadLaunches
from aaco.analytics.serving.repeated_steps import repeated_steps, why_no_engine
from aaco.core.readings import Absent
from tests import timed
from tests.serving_steps import ARGMAX, ATTENTION, EXPERTS, FULL, MLP, fused, step

DENSE = [name for name, _ in step([fused(ATTENTION, MLP)] * 6)]
MOE = [name for name, _ in step([fused(ATTENTION, EXPERTS)] * 6)]
PREPARED = "void at::native::elementwise_kernel<128, 4, at::native::arange_cuda_out>"
WAIT = ""


def launched(sequence, graphs=(), thread=1):
    """One call for each kernel and each WAIT, 10 ns apart; of graphs (begin, end of the sequence) one call for all."""
    name, call, graph, waits = [], [], [], []
    numbers = {text: number for number, text in enumerate(dict.fromkeys(filter(None, sequence)))}
    begin_of = {place: low for low, high in graphs for place in range(low, high)}
    for place, text in enumerate(sequence):
        if place not in begin_of or begin_of[place] == place:
            waits.append(text == WAIT)
        if text != WAIT:
            name.append(numbers[text])
            call.append(len(waits) - 1)
            graph.append(place in begin_of)
    start = 10 * np.arange(len(waits))
    return ThreadLaunches((0, 1, thread), start, start + 5, np.array(waits), np.array(name), np.array(call),
                          np.array(graph)), list(numbers)


def kernels_of(sequence, graphs=()):
    """How many kernels each step has that is found, and whether the trace cuts it."""
    thread, names = launched(sequence, graphs)
    steps = repeated_steps([thread], names)
    at = thread.start[thread.call]
    return [(int(((at >= step.start) & (at < step.end)).sum()), step.cut) for step in steps]


@pytest.mark.parametrize("kernels", [DENSE, MOE])
def test_a_wait_ends_a_step_and_one_behind_its_preparation_does_not(kernels):
    """Mutation: the last wait between two steps."""
    one = [PREPARED, WAIT, *kernels, WAIT]
    assert kernels_of(one[2:] + one * 3) == [(len(kernels), True)] + [(len(kernels) + 1, False)] * 3


@pytest.mark.parametrize("kernels", [DENSE, MOE])
def test_without_waits_what_samples_ends_a_step(kernels):
    """Experts are chosen by kernels that sort: they end no step. Mutation: any kernel that sorts."""
    assert kernels_of(kernels * 4) == [(len(kernels), False)] * 4


def test_a_wait_before_the_sampling_does_not_end_a_step():
    """Mutation: the first wait."""
    one = [*DENSE[:-1], WAIT, DENSE[-1], WAIT]
    assert kernels_of(one * 3) == [(len(DENSE), False)] * 3


def test_between_two_graphs_a_step_ends_and_between_the_graphs_of_layers_none():
    """Mutation: every launch of a graph begins a step."""
    silent = [name for name in DENSE if name != ARGMAX]
    size = len(silent)
    assert kernels_of(silent * 3, [(size * at, size * (at + 1)) for at in range(3)]) == [(size, False)] * 3
    piecewise = [(size * at + 2 + 11 * layer, size * at + 13 + 11 * layer) for at in range(3) for layer in range(6)]
    with pytest.raises(Absent):
        kernels_of(silent * 3, piecewise)


def test_a_step_that_the_trace_cuts_is_said_to_be_cut():
    """Mutation: only the number of layers tells."""
    one = [*DENSE, WAIT]
    assert kernels_of(one[30:] + one * 2 + one[:20]) == [
        (len(DENSE) - 30, True), (len(DENSE), False), (len(DENSE), False), (20, True)]
    assert kernels_of(one[1:] + one * 2 + one[:-2]) == [
        (len(DENSE) - 1, True), (len(DENSE), False), (len(DENSE), False), (len(DENSE) - 1, True)]


@pytest.mark.parametrize(("sequence", "why"), [
    ([*DENSE, WAIT], "do not repeat"),
    ([*DENSE[:35], WAIT, *DENSE[35:], WAIT], "of its own"),
    ([name for at in (1, 0, 1) for name in [*DENSE[:35], *DENSE[35:35 + 11 * at], *DENSE[35:], WAIT]], "do not repeat"),
])
def test_what_is_not_clear_is_absent_with_its_reason(sequence, why):
    """One step; one step with a wait in its middle; steps of several numbers of layers."""
    with pytest.raises(Absent, match=why):
        kernels_of(sequence)


def test_shuffled_kernels_have_no_steps():
    shuffled = DENSE * 4
    random.Random(3).shuffle(shuffled)
    with pytest.raises(Absent):
        kernels_of([text for at in range(4) for text in [*shuffled[at * len(DENSE):(at + 1) * len(DENSE)], WAIT]])


def test_a_phase_is_said_only_where_all_attention_is_of_one_query():
    """Mutation: the phase of any attention that is paged."""
    paged = "void paged_attention_ll4mi_QKV_mfma16_kernel<0>"
    one = [name.replace(FULL, paged) for name in DENSE if "combine" not in name]
    for kernels, phase in ((one, "decode"), (DENSE, None), ([*one[:-1], "_unknown_triton_kernel", one[-1]], None)):
        thread, names = launched([*kernels, WAIT] * 3)
        assert {step.phase for step in repeated_steps([thread], names)} == {phase}


@pytest.mark.parametrize("sequence", [[FULL, ARGMAX] * 4, [FULL, *MLP, ARGMAX]])
def test_attention_that_no_product_precedes_is_of_no_layer(sequence):
    """As where a cache is filled, or attention is measured alone. Mutation: its layers are looked for."""
    with pytest.raises(Absent, match="no matrix product precedes its attention"):
        kernels_of(sequence)


def test_one_thread_whose_steps_are_not_clear_leaves_no_steps_of_others():
    """Mutation: the steps of the threads that are clear."""
    clear, names = launched([*DENSE, WAIT] * 3)
    unclear, _ = launched([*DENSE, WAIT], thread=2)
    with pytest.raises(Absent, match="do not repeat"):
        repeated_steps([clear, unclear], names)


def test_training_and_programs_without_a_cache_are_of_no_engine():
    """Mutation: only the cache is asked for."""
    assert "cache" in why_no_engine(["void at::native::softmax", "nvjet_sm90_tst"])
    assert "trains" in why_no_engine([*DENSE, "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<64>"])
    assert why_no_engine(DENSE) == ""


@pytest.mark.parametrize("cuts", [(), (25,), range(0, 400, 7)])
def test_kernels_stand_in_the_order_of_their_launches(cuts):
    """Mutation: in the order of their start."""
    calls = [timed.at(at, at + 4, name=name, correlation_id=number, thread_id=7) for at, name, number in (
        (10, "cudaLaunchKernel", 1), (20, "cudaGraphLaunch", 2), (30, "cudaStreamSynchronize", None))]
    kernels = [timed.at(50, 60, correlation_id=2, kernel_name="b"), timed.at(70, 80, correlation_id=2, kernel_name="c"),
               timed.at(90, 99, correlation_id=1, kernel_name="a")]
    order = LaunchOrder(with_launches=False)
    found = {"kernels": timed.kernels(*kernels), "api_calls": timed.calls(*calls)}
    for end, piece in timed.sliced(found, cuts):
        order.feed(*(piece[name].select(list(COLUMNS[name])) for name in ("kernels", "api_calls")), until=end)
    order.rest()
    thread, = order.threads()
    assert [order.names[number] for number in thread.name.tolist()] == ["a", "b", "c"]
    assert (thread.call.tolist(), thread.waits.tolist(), thread.graph.tolist()) == (
        [0, 1, 1], [False, False, True], [False, True, True])

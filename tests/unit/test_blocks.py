"""Steady state of planted traces, and of real ones whose number of steps is recorded beside them."""

import json

import pytest

from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline import steady_state as steady
from aaco.analytics.timeline.steady_state import Marked, Sequences
from tests import kineto_rows, timed
from tests.timed import at

STEP = ["embed", *["gemm", "bias", "gelu", "gemm2", "norm"] * 4, "head", "sample"]


def of_tables(found, cuts=()):
    lanes, callers, linker = WorkReader(), Callers(), Linker()
    sequences, marked = Sequences(), Marked()
    for until, part in timed.sliced(found, cuts):
        work = lanes.work(part["kernels"], part["copies"])
        sequences.feed(work)
        marked.markers(part["api_calls"])
        linked = linker.feed(work, callers.calls(part["api_calls"]), None if until == 2**62 else until)
        if linked:
            marked.feed(linked)
    return steady.steady_state(sequences, marked, lanes.streams.known, lanes.names.known)


def laid_out(names, pause_before="embed", pause=40_000, slow=(), **more):
    """Kernels of 10 us, 1 us apart, a pause before each `embed`, a slower pause in the steps of `slow`."""
    rows, now, step = [], 0, -1
    for number, name in enumerate(names):
        if name == pause_before:
            step += 1
            now += pause + (400_000 if step in slow else 0)
        rows.append(at(now, now + 10_000, kernel_name=name, correlation_id=number + 1, **more))
        now += 11_000
    return rows


def trace(kernels, calls=(), copies=()):
    return {"kernels": timed.kernels(*kernels), "copies": timed.copies(*copies), "api_calls": timed.calls(*calls)}


def test_a_step_begins_where_the_stream_pauses():
    """Mutation: `_pause` -> 0."""
    found = of_tables(trace(laid_out(["load", "load2"] + STEP * 6)), cuts=(100_000, 900_000))
    (block,) = found.blocks
    assert (block.kernels, block.repeats, block.identical, block.first_kernel) == (len(STEP), 6, 6, "embed")
    assert (block.steady, block.warmup, block.examined, block.of) == (6, 0, 2 + 6 * len(STEP), 2 + 6 * len(STEP))
    period = len(STEP) * 11_000 + 40_000
    assert (block.duration.count, block.duration.median_ns, block.duration.cov_pct) == (5, period, 0)
    assert (block.t_start_ns, block.t_end_ns) == (2 * 11_000 + 40_000, 6 * period + 2 * 11_000 - 1_000)
    assert block.inner == (5, 4)


def test_slow_first_steps_are_warm_up():
    found = of_tables(trace(laid_out(STEP * 40, slow=range(6))))
    assert found.blocks[0].warmup == 5 and found.blocks[0].steady == 35


def test_a_device_without_repetition_says_so():
    found = of_tables(trace(laid_out([f"k{number}" for number in range(50)], device_id=3)))
    assert found.blocks == ()
    assert "no sequence of kernels repeats" in found.why_none["device 3"]


def test_the_busiest_stream_of_each_device_is_looked_at():
    other = laid_out(["x", "y"] * 8, stream_id=9)
    found = of_tables(trace(laid_out(STEP * 4) + other + laid_out(["a", "b"] * 5, device_id=1)))
    assert [(block.device_id, block.stream_id, block.kernels) for block in found.blocks] == [
        (0, 7, len(STEP)), (1, 7, 2)]


def steps_of(count=4, kernels=3):
    """A marker per step, each launching some kernels; the work itself runs later than its marker."""
    calls, rows = [], []
    for step in range(count):
        begin = 1_000_000 * step
        calls.append(at(begin, begin + 500_000, name=f"ProfilerStep#{step + 7}", domain="marker"))
        calls.append(at(begin + 1_000, begin + 400_000, name="iteration 3", domain="cpu_op"))
        for turn in range(kernels):
            number = 10 * step + turn + 1
            calls.append(at(begin + 10_000 * turn, begin + 10_000 * turn + 5_000, correlation_id=number))
            rows.append(at(begin + 600_000 + 20_000 * turn, begin + 615_000 + 20_000 * turn, correlation_id=number))
    return calls, rows


def test_work_belongs_to_the_step_that_launched_it():
    """Mutation: `linked.call.start[rows]` -> `work.start`."""
    calls, rows = steps_of()
    found = of_tables(trace([*rows, at(90_000_000, 90_000_001)], calls), cuts=(2_500_000,))
    (steps,) = found.steps
    assert (steps.family, steps.count, steps.kernels_median, steps.outside) == ("ProfilerStep#", 4, 3, 1)
    assert [(step.number, step.kernels, step.kernel_ns) for step in steps.steps] == [
        (number, 3, 45_000) for number in (7, 8, 9, 10)]
    assert (steps.steps[1].t_start_ns, steps.steps[1].device_start_ns, steps.steps[1].device_end_ns) == (
        1_000_000, 1_600_000, 1_655_000)
    assert (steps.host.count, steps.host.median_ns) == (4, 500_000)


def test_iterations_that_the_capture_gives_are_the_steps():
    rows = [at(100 * number, 100 * number + 10, iteration=number // 2) for number in range(8)]
    (steps,) = of_tables(trace(rows)).steps
    assert (steps.family, steps.count, steps.kernels_median, steps.host) == ("iterations of the capture", 4, 2, None)


@pytest.mark.parametrize(("name", "family"), [("iteration {}", "iteration"), ("Step:{}", "Step"), ("iter_{}", "iter"),
                                              ("ProfilerStep#{}", "ProfilerStep#")])
def test_other_markers_of_steps(name, family):
    """Mutation: the family of marked iterations named like that of given ones."""
    calls, rows = steps_of()
    renamed = [call | {"name": name.format(call["name"][13:])} if call.get("domain") == "marker" else call
               for call in calls if call.get("domain") != "cpu_op"]
    (steps,) = of_tables(trace(rows, renamed)).steps
    assert (steps.family, steps.count, steps.kernels_median) == (family, 4, 3)


@pytest.mark.parametrize("name", ["step", "step two", "a step 1", "footstep 1", "ProfilerStep#1 and more"])
def test_other_ranges_are_no_steps(name):
    calls, rows = steps_of(1)
    renamed = [call | {"name": name} if "domain" in call else call for call in calls]
    assert of_tables(trace(rows, renamed)).steps == ()


@pytest.mark.captures
@pytest.mark.parametrize("name", ["ab_bert4_b1_compiled_bf16", "ab_resnet50_b32_bf16_nchw", "resnet50_b256_bf16_nhwc",
                                  "host_contended_resnet50_b1", "llm_gpt2_b1_p128_decode8", "train_bert4_b32_bf16"])
def test_real_traces(name):
    """The manifest says how many steps were profiled, and of how many kernels; markers and sequence both find it."""
    manifest = json.loads(kineto_rows.path("h200/torch_scenarios/manifest.json").read_text())
    (truth,) = (one for one in manifest if one["name"] == name)
    found = of_tables(kineto_rows.read(f"h200/torch_scenarios/{name}.trace.json.gz"))
    (steps,), (block,) = found.steps, found.blocks
    assert (steps.count, steps.kernels_median, steps.outside) == (truth["prof_iters"], truth["kernels_per_iter"], 0)
    assert (block.repeats, block.kernels) == (truth["prof_iters"], truth["kernels_per_iter"])


@pytest.mark.captures
@pytest.mark.parametrize(("name", "layers"), [("mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 24),
                                              ("inference_vllm_decode_full_graph_execution", 12)])
def test_one_step_repeats_its_layers(name, layers):
    (block,) = of_tables(kineto_rows.read(f"kineto/{name}.json.gz")).blocks
    assert layers <= block.repeats <= 1.5 * layers

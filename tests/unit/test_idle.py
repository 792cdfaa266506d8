"""One small trace for each cause of a gap, and real traces whose causes are known."""

import numpy as np
import pytest

from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline.idle import Idling, conditions
from aaco.analytics.timeline.timeline import Timeline
from aaco.core import tables
from tests import kineto_rows, timed
from tests.timed import at

MS = 1_000_000


def idle(kernels=(), calls=(), copies=(), system_events=None, gpu_events=None):
    return of_tables({"kernels": timed.kernels(*kernels), "copies": timed.copies(*copies),
                      "api_calls": timed.calls(*calls)}, conditions(system_events, gpu_events))


def of_tables(found, known=None):
    lanes, callers, idling = WorkReader(), Callers(), Idling(known)
    linked = Linker().feed(lanes.work(found["kernels"], found["copies"]), callers.calls(found["api_calls"]), None)
    idling.feed(linked, [key[1] for key in lanes.devices.known], [key[2] for key in callers.threads.known])
    return idling.result(lanes.devices.known, lanes.streams.known, lanes.names.known)


def only(lane):
    """The one cause of a lane's gaps, with their time."""
    (found,) = ((name, part.ns) for name, part in lane.causes.items() if part.ns)
    return found


def causes(lane):
    """The time of each cause."""
    return {name: part.ns for name, part in lane.causes.items() if part.ns}


FIRST = at(0, 100_000)  # the kernel before the gap
NEXT = at(200_000, 300_000, correlation_id=2)  # the kernel after it: a gap of 100 us
PAUSED = at(600_000, 700_000, correlation_id=2)  # after a gap of 500 us, in which the host did something else
PAUSED_LAUNCH = at(590_000, 595_000, correlation_id=2)


def test_the_host_came_late():
    found = idle([FIRST, NEXT], [at(190_000, 195_000, correlation_id=2)])
    assert only(found.devices[0]) == ("host_wait", 100_000)
    assert only(found.streams[0]) == ("host_wait", 100_000)


def test_the_host_was_still_waiting_when_the_device_ran_dry():
    found = idle([FIRST, NEXT], [at(2_000, 105_000, name="cudaDeviceSynchronize"),
                                 at(106_000, 107_000, name="cudaStreamSynchronize"),
                                 at(190_000, 195_000, correlation_id=2)])
    assert only(found.devices[0]) == ("sync_wait", 100_000)


def test_a_short_wait_explains_no_more_than_its_length():
    """What follows is a pause. Mutation: `np.minimum(late_ns, blocked)` -> `late_ns`."""
    found = idle([FIRST, PAUSED], [at(95_000, 105_000, name="cudaDeviceSynchronize"), PAUSED_LAUNCH])
    assert causes(found.devices[0]) == {"sync_wait": 10_000, "host_wait": 490_000}
    assert found.devices[0].causes["host_wait"].count == found.devices[0].gaps == 1


def test_a_wait_that_began_after_the_device_ran_dry_takes_its_time_and_the_way_to_it():
    """Mutation: `synced_until > began` -> `(call.synced_from <= began) & (call.synced_until > began)`."""
    found = idle([FIRST, PAUSED], [at(0, 101_000), at(110_000, 112_000, name="cudaDeviceSynchronize"), PAUSED_LAUNCH])
    assert causes(found.devices[0]) == {"sync_wait": 11_000, "host_wait": 489_000}


def test_after_a_drain_the_whole_gap_is_the_waits_unless_the_host_pauses():
    """Mutation: `(late_ns - blocked < PAUSE_NS)` -> `(late_ns - blocked < 0)`."""
    found = idle([FIRST, NEXT], [at(95_000, 105_000, name="cudaDeviceSynchronize"),
                                 at(190_000, 195_000, correlation_id=2)])
    assert causes(found.devices[0]) == {"sync_wait": 100_000}


def test_the_gap_before_a_copy_that_is_waited_for_is_the_way_to_the_wait():
    """A kernel, a value copied and waited for, the next kernel. Without the wait the gap before the copy is launching.
    Mutation: `before_copy & gaps.late` -> `before_copy & ~gaps.late`."""
    read = [at(140_000, 145_000, name="cudaMemcpyAsync", correlation_id=3)]
    wait, launch = at(146_000, 155_000, name="cudaStreamSynchronize"), at(190_000, 195_000, correlation_id=2)
    copies = [at(150_000, 151_000, correlation_id=3)]
    found = idle([FIRST, NEXT], [*read, wait, launch], copies).devices[0]
    assert causes(found) == {"sync_wait": 99_000} and found.causes["sync_wait"].count == 2
    found = idle([FIRST, NEXT], [*read, launch], copies).devices[0]
    assert causes(found) == {"host_wait": 99_000}


def test_launched_work_that_does_not_begin_is_held_and_not_the_hosts():
    """Mutation: `self.ended - since >= START_NS` -> `self.ended - since < 0`."""
    late = idle([FIRST, at(900_000, 950_000, correlation_id=2)], [at(105_000, 110_000, correlation_id=2)]).devices[0]
    assert causes(late) == {"host_wait": 10_000, "unknown": 790_000}
    assert (late.unstarted_ns, late.unstarted) == (790_000, 1)
    early = idle([FIRST, at(900_000, 950_000, correlation_id=2)], [at(50_000, 55_000, correlation_id=2)]).devices[0]
    assert causes(early) == {"unknown": 800_000} and early.unstarted_ns == 800_000
    none = idle([FIRST, NEXT], [at(105_000, 110_000, correlation_id=2)]).devices[0]
    assert (none.unstarted_ns, none.unstarted) == (0, 0)


def test_a_pause_on_the_way_to_a_wait_is_not_the_wait_s():
    """Mutation in linking: `start - before < PAUSE_NS` -> `True`."""
    found = idle([FIRST, at(600_000, 700_000, correlation_id=2)], [
        at(0, 101_000), at(500_000, 502_000, name="cudaDeviceSynchronize"), at(590_000, 595_000, correlation_id=2)])
    assert causes(found.devices[0]) == {"sync_wait": 2_000, "host_wait": 498_000}
    assert found.devices[0].paused_ns == 498_000


def test_a_value_that_is_read_is_copied_on_the_way_to_the_wait_for_it():
    """Mutation in linking: `(previous < Does.COPY)` -> `(previous <= Does.COPY)`."""
    found = idle([FIRST, PAUSED], [at(0, 101_000), at(108_000, 111_000, name="cudaMemcpyAsync", correlation_id=3),
                                   at(112_000, 115_000, name="cudaStreamSynchronize"), PAUSED_LAUNCH])
    assert causes(found.devices[0]) == {"sync_wait": 14_000, "host_wait": 486_000}


def test_another_threads_wait_is_not_to_blame():
    found = idle([FIRST, NEXT], [at(50_000, 105_000, name="cudaDeviceSynchronize", thread_id=2),
                                 at(190_000, 195_000, correlation_id=2)])
    assert only(found.devices[0]) == ("host_wait", 100_000)


def test_the_host_was_in_a_copy_call():
    copy = at(50_000, 105_000, name="hipMemcpyWithStream", domain="hip", correlation_id=9)
    assert causes(idle([FIRST, PAUSED], [copy, PAUSED_LAUNCH]).devices[0]) == {"copy_wait": 55_000,
                                                                               "host_wait": 445_000}
    found = idle([FIRST, NEXT], [copy, at(190_000, 195_000, correlation_id=2)])
    assert causes(found.devices[0]) == {"copy_wait": 100_000}


def test_the_stream_waited_for_a_copy_on_another():
    found = idle([FIRST, NEXT], [at(50_000, 55_000, correlation_id=2)], [at(90_000, 198_000, stream_id=9)])
    stream = next(lane for lane in found.streams if lane.stream_id == 7)
    assert only(stream) == ("copy_wait", 100_000)
    assert only(found.devices[0]) == ("kernel_wait", 2_000)


def test_the_stream_waited_for_a_kernel_on_another_although_it_was_launched_late():
    """Mutation: `& ~waited` left out of what is late."""
    other = at(90_000, 198_000, stream_id=9)
    found = idle([FIRST, other, NEXT], [at(120_000, 125_000, correlation_id=2)])
    stream = next(lane for lane in found.streams if lane.stream_id == 7)
    assert only(stream) == ("kernel_wait", 100_000)


def test_back_to_back():
    found = idle([FIRST, at(103_000, 200_000, correlation_id=2)], [at(50_000, 55_000, correlation_id=2)])
    assert only(found.devices[0]) == ("kernel_wait", 3_000)


def test_launched_just_too_late():
    found = idle([FIRST, at(108_000, 200_000, correlation_id=2)], [at(91_000, 99_000, correlation_id=2)])
    assert only(found.devices[0]) == ("launch", 8_000)


def test_what_nothing_explains_is_unknown_and_says_why():
    found = idle([FIRST, NEXT], [at(50_000, 55_000, correlation_id=2)])
    assert only(found.devices[0]) == ("unknown", 100_000)
    assert {why: part.ns for why, part in found.devices[0].unknown.items() if part.ns} == {
        "launched in time; nothing recorded explains the wait": 100_000}


def test_without_its_launch_a_gap_is_unknown():
    found = idle([FIRST, NEXT])
    assert only(found.devices[0]) == ("unknown", 100_000)
    assert {why: part.ns for why, part in found.devices[0].unknown.items() if part.ns} == {
        "the launch of the next work is not in the capture": 100_000}


def test_the_thread_was_kept_off_its_cpu():
    events = tables.SYSTEM_EVENTS.build(t_ns=[80_000, 110_000, 150_000], dur_ns=[30_000, 50_000, 20_000],
                                        kind=["run_queue_wait", "run_queue_wait", "irq"], thread_id=[1, 1, 1],
                                        tier=["T3"] * 3)
    calls = [at(190_000, 195_000, correlation_id=2)]
    found = idle([FIRST, NEXT], calls, system_events=events).devices[0]
    assert causes(found) == {"noise": 70_000, "host_wait": 30_000}
    assert found.causes["noise"].count == 1
    sampled = events.set_column(events.schema.get_field_index("tier"), "tier", [["T1"] * 3])
    assert only(idle([FIRST, NEXT], calls, system_events=sampled).devices[0]) == ("host_wait", 100_000)


def test_the_clock_was_held_down():
    samples = tables.GPU_EVENTS.build(t_ns=[0, 150_000, 250_000], device_id=[0, 0, 0],
                                      throttle_reasons=[[], ["power"], []])
    calls = [at(50_000, 55_000, correlation_id=2)]
    assert only(idle([FIRST, NEXT], calls, gpu_events=samples).devices[0]) == ("throttled", 100_000)
    assert only(idle([FIRST, NEXT], calls, gpu_events=samples.slice(0, 1)).devices[0]) == ("unknown", 100_000)
    low = samples.set_column(samples.schema.get_field_index("throttle_reasons"), "throttle_reasons",
                             [[[], ["gpu_idle"], []]])  # mutation: any reason: a device is idle in every gap
    assert only(idle([FIRST, NEXT], calls, gpu_events=low).devices[0]) == ("unknown", 100_000)


def test_the_launch_latency_is_the_captures_own():
    """30 launches find the device idle and start 40 us after their call; a gap that ends 38 us after its call fits."""
    starts = [number * MS for number in range(1, 31)]
    kernels = [at(start, start + 10_000, correlation_id=start) for start in starts]
    calls = [at(start - 40_000, start - 30_000, correlation_id=start) for start in starts]
    kernels += [at(100 * MS, 101 * MS), at(101 * MS + 28_000, 102 * MS, correlation_id=7)]
    calls += [at(101 * MS - 10_000, 101 * MS - 1_000, correlation_id=7)]
    found = idle(kernels, calls)
    assert found.devices[0].causes["launch"].ns == 28_000
    assert 40_000 <= found.launch_latency_ns[0].ns <= 50_000
    assert found.launch_latency_ns[0].observed == 29  # the first has no gap before it


def test_the_longest_gaps_are_named():
    found = idle([FIRST, NEXT, at(302_000, 310_000, kernel_name="last")], [at(190_000, 195_000, correlation_id=2)])
    assert [(gap.t_start_ns, gap.ns, gap.cause, gap.before_kernel) for gap in found.longest] == [
        (100_000, 100_000, "host_wait", "k"), (300_000, 2_000, "kernel_wait", "last")]


TRACES = ("h200/torch_scenarios/{}.trace.json.gz", "kineto/{}.json.gz")


@pytest.mark.captures
@pytest.mark.parametrize(("name", "main", "least"), [
    (TRACES[0].format("launch_tiny_adds"), "host_wait", 0.9),
    (TRACES[0].format("cpubound_python_busy"), "host_wait", 0.9),
    (TRACES[0].format("resnet50_b256_bf16_nhwc"), "kernel_wait", 0.6),
    (TRACES[1].format("mi300_Qwen_Qwen1.5-0.5B-Chat__1016005"), "host_wait", 0.3),
    (TRACES[1].format("inference_vllm_decode_full_graph_execution"), "unknown", 0.5),
])
def test_real_traces(name, main, least):
    found = kineto_rows.read(name)
    result = of_tables(found)
    lanes, timeline = WorkReader(), Timeline()
    timeline.feed(lanes.work(found["kernels"], found["copies"]))
    (device,), (lane,) = timeline.devices(lanes.devices.known), result.devices
    assert lane.idle_ns == device.idle_ns == sum(part.ns for part in lane.causes.values())
    largest = max(lane.causes, key=lambda cause: lane.causes[cause].ns)
    assert (largest, np.floor(10 * lane.causes[largest].ns / lane.idle_ns) / 10 >= least) == (main, True)

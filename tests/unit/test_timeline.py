"""Cases of the timeline that have a name, and real traces against what is known of them."""

import numpy as np
import pytest

from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline.timeline import Timeline
from tests import kineto_rows, timed
from tests.timed import at

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def devices(kernels=(), copies=()):
    lanes, found = WorkReader(), Timeline()
    found.feed(lanes.work(timed.kernels(*kernels), timed.copies(*copies)))
    return found.devices(lanes.devices.known), lanes


def parts(device):
    return device.compute_ns, device.exposed_communication_ns, device.exposed_copy_ns, device.idle_ns


def test_nothing_gives_no_device():
    assert devices()[0] == ()


def test_one_kernel_is_all_busy():
    (device,), _ = devices([at(100, 250)])
    assert parts(device) == (150, 0, 0, 0)
    assert (device.t_start_ns, device.span_ns, device.busy_ns, device.kernels) == (100, 150, 150, 1)


def test_a_zero_length_kernel_counts_and_may_extend_the_span():
    (device,), lanes = devices([at(100, 250), at(300, 300)])
    assert parts(device) == (150, 0, 0, 50)
    assert (device.kernels, lanes.left_out) == (2, 0)


def test_a_kernel_that_ends_before_it_starts_is_left_out_and_counted():
    """Mutation: `end >= start` -> `end != start`."""
    (device,), lanes = devices([at(100, 250), at(400, 300)])
    assert parts(device) == (150, 0, 0, 0)
    assert (device.kernels, lanes.left_out) == (1, 1)


def test_impossible_times_are_left_out():
    (device,), lanes = devices([at(100, 250), at(200, 2**62), at(-2**62, 5)])
    assert (device.span_ns, lanes.left_out) == (150, 2)


def test_communication_counts_where_nothing_computes_and_a_copy_where_neither_does():
    (device,), _ = devices([at(0, 100), at(50, 200, kernel_name=NCCL, stream_id=9)], [at(150, 300), at(400, 500)])
    assert parts(device) == (100, 100, 200, 100)
    assert (device.communications, device.communication_ns, device.copies, device.copy_ns) == (1, 150, 2, 250)
    assert device.kernel_union_ns == 200


def test_a_kernel_of_the_collectives_table_communicates_whatever_its_name():
    lanes, found = WorkReader(np.array([1])), Timeline()
    found.feed(lanes.work(timed.kernels(at(0, 10), at(20, 40)), None))
    assert parts(found.devices(lanes.devices.known)[0]) == (10, 20, 0, 10)


def test_kernels_of_the_host_are_no_device():
    found, lanes = devices([at(0, 100, device_id=None)])
    assert (found, lanes.host_kernels) == ((), 1)


def test_devices_and_captures_are_kept_apart():
    found, _ = devices([at(0, 100), at(0, 100, device_id=1), at(50, 150, capture=1)])
    assert [(device.capture, device.device_id, device.span_ns) for device in found] == [
        (None, 0, 100), (None, 1, 100), (1, 0, 100)]


@pytest.mark.captures
@pytest.mark.parametrize(("name", "kernels", "kernel_ns", "busy_ns", "span_ns"), [
    ("mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 1516, 43_062_042, 43_062_802, 47_085_800),
    ("h100_Qwen_Qwen1.5-0.5B-Chat__1016005", 1465, 45_432_698, 45_647_300, 49_652_832),
])
def test_real_traces(name, kernels, kernel_ns, busy_ns, span_ns):
    """Counts and sums as Python's own integers give them over the file; shared/TRACES.md has them in us."""
    tables = kineto_rows.read(f"kineto/{name}.json.gz")
    lanes, found = WorkReader(), Timeline()
    found.feed(lanes.work(tables["kernels"], tables["copies"]))
    (device,) = found.devices(lanes.devices.known)
    assert (device.kernels, device.kernel_ns, device.busy_ns, device.span_ns) == (kernels, kernel_ns, busy_ns, span_ns)
    assert device.idle_ns == device.span_ns - device.busy_ns

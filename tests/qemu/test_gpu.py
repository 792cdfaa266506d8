"""The AMD driver without its hardware: real formats of its trace events, its topology, and fences that really fire."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.collectors.host import bpf_gpu
from aaco.collectors.host.kernel_device import KernelModuleConnection
from aaco.collectors.host.kernel_module import EVENT
from aaco.collectors.host.tracepoints import COMMON_BYTES, TracepointFormat, gpu_events
from aaco.collectors.inventory import machine
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.system import kfd
from tests.qemu.conftest import busybox

NODE = Path("/sys/class/kfd/kfd/topology/nodes/0/properties")
FENCES = 20


@pytest.fixture(scope="module", autouse=True)
def driver() -> Iterator[None]:
    busybox("modprobe", "amdgpu")
    busybox("insmod", os.environ["AACO_KMOD"], "fixture=1")
    yield
    busybox("rmmod", "aaco")


@pytest.fixture(scope="module")
def formats() -> dict[str, TracepointFormat]:
    return {event.name: event for event in gpu_events(Host())}


def test_every_format_of_the_driver_is_read(formats: dict[str, TracepointFormat]) -> None:
    """Mutation: a type of two words ("unsigned int") not taken for one, or a field of 8 bytes skipped."""
    groups = Counter(event.group for event in formats.values())
    assert groups["gpu_scheduler"] == 4
    assert groups["dma_fence"] == 7
    assert groups["amdgpu"] >= 12
    for event in formats.values():
        assert all(field.offset >= COMMON_BYTES for field in event.fields)
        assert len(event.fields) == event.text.count("\tfield:") - 4  # those that all events share


def test_a_job_names_its_fence_and_queue(formats: dict[str, TracepointFormat]) -> None:
    shapes = {field.name: field.shape for field in formats["drm_run_job"].fields}
    assert shapes == {"entity": "number", "fence": "number", "name": "dynamic", "id": "number", "job_count": "number",
                      "hw_job_count": "number"}
    submitted = {field.name for field in formats["amdgpu_cs_ioctl"].fields}
    assert {"sched_job_id", "timeline", "context", "seqno", "ring"} <= submitted


def test_fences_are_seen_with_their_driver_order_and_time(tmp_path: Path) -> None:
    """Attached to every event of the driver; what the module says of its fences is the truth.

    Mutation: copy->content read from the record's begin instead of behind the common fields.
    """
    tracer = bpf_gpu.GpuTracer(os.getpid(), raw=tmp_path / "raw")
    tracer.start()
    said = fired()
    table = tracer.stop()
    assert len(tracer.overhead["events"]) > 20
    assert tracer.overhead["lost"] == 0
    seen = bpf_gpu.fields(tmp_path / "raw")
    ours = {name: seen[name].filter(pc.equal(seen[name]["driver"], "aaco"))
            for name in ("dma_fence_init", "dma_fence_emit", "dma_fence_signaled", "dma_fence_destroy")}
    for events in ours.values():
        assert events["seqno"].to_pylist() == list(range(1, FENCES + 1))
        assert set(events["timeline"].to_pylist()) == {"aaco"}
    created, signaled = (said["t_ns"][said["type"] == kind] for kind in (0x200, 0x201))
    assert (ours["dma_fence_init"]["t_ns"].to_numpy() <= created).all()
    assert (created <= ours["dma_fence_signaled"]["t_ns"].to_numpy()).all()
    assert (ours["dma_fence_signaled"]["t_ns"].to_numpy() <= signaled).all()
    stretches = table.filter(pc.equal(table["kind"].cast(pa.string()), "gpu_fence"))
    assert len(stretches) == FENCES
    assert set(stretches["process_id"].to_pylist()) == {os.getpid()}


def fired() -> np.ndarray:
    """The module's own account of fences that it made and signaled."""
    connection = KernelModuleConnection()
    connection.start(os.getpid(), 0)
    connection.fence(FENCES)
    connection.stop()
    events = np.frombuffer(b"".join(iter(connection.read, b"")), EVENT)
    connection.close()
    return events


def test_the_drivers_topology() -> None:
    """It lists this machine's processor as its only node."""
    assert kfd.recognises(NODE)
    *tables, facts = kfd.parse(NODE)
    assert isinstance(facts, CaptureFacts)
    assert facts.records["node"] == 1
    assert facts.left_out[kfd.PROCESSORS].count == 1
    assert facts.problems == facts.devices == ()
    assert all(not len(table) for table in tables)
    with pytest.raises(Absent, match="no GPU this process may use"):
        machine.amd_gpus(Host())

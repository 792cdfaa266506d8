"""profiler.xplane: against JAX's own reader on a recording, and on profiles written byte by byte."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.core.untimed import BACKWARDS, NEVER_RAN, OUT_OF_RANGE
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.xla import xplane, xspace
from tests.fakes import xspace as fake
from tests.parsed import gather, rows

CAPTURES = Path(__file__).parents[1] / "captures"
STARTED = 1_771_595_639_214_724_894
STATS = ("correlation_id", "kernel_details", "memcpy_details", "hlo_op", "memory_size", "core_count", "device_vendor")
ID, DETAILS, COPY, OP, MEMORY, CORES, VENDOR = range(fake.FIRST_STAT, fake.FIRST_STAT + len(STATS))
NAMES = ("fusion.kd", "CopyDeviceToHost", "hipModuleLaunchKernel")
FUSION, COPIED, LAUNCH = range(fake.FIRST_EVENT, fake.FIRST_EVENT + len(NAMES))
SHAPE = " grid:16,2,1 block:64,4,1 private_mem:8 group_mem:2112 occ_pct:50"
WHEN = ("t_start_ns", "t_end_ns", "dur_ns")


def environment():
    return fake.plane("Task Environment", [], stats=("profile_start_time",),
                      said=(fake.stat(fake.FIRST_STAT, STARTED),))


def gpu(*lines, name="/device:GPU:3"):
    return fake.plane(name, lines, NAMES, STATS, (fake.stat(VENDOR, "AMD"), fake.stat(CORES, 304),
                                                  fake.stat(MEMORY, 206141652992)))


def kernel(offset=5_000, duration=2_000, details=SHAPE, link=9):
    said = (fake.stat(ID, link), fake.stat(DETAILS, details), fake.stat(OP, "dot.1"))
    return fake.event(FUSION, offset, duration, said)


def parsed(tmp_path, *planes):
    path = tmp_path / "p.xplane.pb"
    path.write_bytes(fake.space(*planes))
    assert registry.recognise(path) is xplane
    return gather(xplane.parse(path))


def test_the_recording_reads_as_jax_reads_it():
    """Every event: its name, its start and its duration, in ns. Mutation: leave out the timestamp of the line."""
    tables, facts = gather(xplane.parse(CAPTURES / "jax_cpu/profile.xplane.pb"))
    expected = json.loads(gzip.decompress((CAPTURES / "jax_cpu/events.json.gz").read_bytes()))
    found = rows(tables["api_calls"], "name", *WHEN)
    first = min(start for _, start, _, _ in found) - min(int(start) for *_, start, _ in expected)
    assert sorted((name, start - first, duration) for name, start, _, duration in found) == sorted(
        (name, int(start), int(duration)) for _, _, name, start, duration in expected)
    assert facts.records == {"call": len(expected)} and facts.clock == "realtime"
    assert {name for name, *_ in found} >= {"train", "PjitFunction(loss)"}


def test_a_recording_of_two_gpus_reads_as_jax_reads_it():
    """Every kernel with its device and stream, and every call. Mutation: device numbers by the order of planes."""
    tables, facts = gather(xplane.parse(CAPTURES / "jax_h100/profile.xplane.pb"))
    expected = json.loads(gzip.decompress((CAPTURES / "jax_h100/events.json.gz").read_bytes()))
    work = [(int(plane[-1]), int(line.split("#")[1].split("(")[0]), name, int(duration))
            for plane, line, name, _, duration in expected if plane.startswith("/device")]
    found = rows(tables["kernels"], "device_id", "stream_id", "kernel_name", "dur_ns")
    assert sorted(found) == sorted(work) and facts.kernels == Subtotal(len(work), sum(row[-1] for row in work))
    assert tables["api_calls"].num_rows == len(expected) - len(work)


def test_kernels_copies_and_calls(tmp_path):
    """Mutation: take the grid for work-items."""
    details = "kind:Unknown size:655360 dest:2 async:1"
    copy = fake.event(COPIED, 9_000, 1_000, (fake.stat(ID, 10), fake.stat(COPY, details)))
    call = fake.event(LAUNCH, 1_000, 500_000, (fake.stat(ID, 9),))
    tables, facts = parsed(
        tmp_path, fake.plane("/host:CPU", [fake.line("Host Threads/583", 10, [call], 583)], NAMES, STATS),
        gpu(fake.line("Stream #17(Kernel)", 20, [kernel(), copy])), environment())
    columns = ("kernel_name", "device_id", "stream_id", "correlation_id", *WHEN, "executed_node")
    assert rows(tables["kernels"], *columns) == [("fusion", 3, 17, 9, STARTED + 25, STARTED + 27, 2, "dot.1")]
    assert rows(tables["kernels"], "grid_x", "grid_y", "grid_z", "block_x", "block_y", "lds_bytes", "scratch_bytes",
                "occupancy_pct") == [(1024, 8, 1, 64, 4, 2112, 8, 50.0)]
    assert rows(tables["copies"], "kind", "bytes", "device_id", "stream_id", "correlation_id", *WHEN) == [
        ("d2h", 655360, 3, 17, 10, STARTED + 29, STARTED + 30, 1)]
    assert rows(tables["api_calls"], "name", "domain", "thread_id", "correlation_id", *WHEN) == [
        ("hipModuleLaunchKernel", "hip", 583, 9, STARTED + 11, STARTED + 511, 500)]
    assert facts.devices == (CapturedDevice(3, "AMD", None, 304, 206141652992),)
    assert facts.kernels == Subtotal(1, 2) and not facts.problems
    assert facts.records == {"kernel": 1, "copy": 1, "call": 1}


def test_registers_that_were_never_set_are_absent(tmp_path):
    """As XLA for ROCm 6 wrote them: what lay in memory."""
    details = "regs:2191500840 static_shared:32462 dynamic_shared:0 grid:2,1,1 block:3,1,1"
    good = "regs:32 static_shared:100 dynamic_shared:28 grid:2,1,1 block:3,1,1"
    tables, facts = parsed(tmp_path, gpu(fake.line("Stream #1", 0, [kernel(details=details), kernel(details=good)])))
    assert rows(tables["kernels"], "vgpr", "lds_bytes", "grid_x") == [(None, None, 6), (32, 128, 6)]
    assert facts.problems == ("1 kernel has registers and shared memory that were never set: read as absent",)


def test_fractions_of_a_ns_are_rounded_down_and_counted(tmp_path):
    tables, facts = parsed(tmp_path, gpu(fake.line("Stream #1", 0, [kernel(1_999, 2_002), kernel(5_000, 1_000)])))
    assert rows(tables["kernels"], *WHEN) == [(1, 4, 3), (5, 6, 1)]
    assert facts.problems == ("1 event begins or ends at a fraction of a ns: rounded down",)
    assert facts.clock == "unknown" and facts.kernels == Subtotal(2, 4)


def test_what_groups_the_events_of_streams_is_left_out(tmp_path):
    """Mutation: take every line of a device for a stream; its time is then counted twice."""
    lines = fake.line("XLA Modules", 0, [kernel()]), fake.line("Stream #1", 0, [kernel()])
    tables, facts = parsed(tmp_path, gpu(*lines),
                           gpu(fake.line("XLA Ops", 0, [kernel(), kernel()]), name="/device:TPU:0"))
    assert tables["kernels"].num_rows == 1
    assert facts.left_out == {f"event: {xplane.GROUPED}": Subtotal(1, 0), f"event: {xplane.NO_GPU}": Subtotal(2, 0)}
    assert facts.records["event"] == 3


def test_events_without_a_time_are_left_out(tmp_path):
    summed = fake.whole(1, FUSION) + fake.whole(5, 12) + fake.whole(3, 5)
    _, facts = parsed(tmp_path, gpu(fake.line("Stream #1", 0, [kernel(), summed, kernel(-9_000), kernel(0, 1 << 62),
                                                               kernel(duration=-1)])))
    assert facts.left_out == {f"kernel: {xplane.SUMMED}": Subtotal(1, 0), f"kernel: {OUT_OF_RANGE}": Subtotal(1, 0),
                              f"kernel: {NEVER_RAN}": Subtotal(1, 0), f"kernel: {BACKWARDS}": Subtotal(1, 0)}
    assert facts.records["kernel"] == 5 and facts.kernels.count == 5


@pytest.mark.parametrize("chunk", [1, 40, 300, 1 << 20])
def test_stretches_of_any_size_hold_the_same_events(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(xspace, "CHUNK_BYTES", chunk)
    tables, _ = parsed(tmp_path, gpu(fake.line("Stream #1", 0, [kernel(1000 * at, 1000) for at in range(50)])))
    assert tables["kernels"]["t_start_ns"].to_pylist() == list(range(50))


def test_a_line_may_say_its_time_behind_its_events(tmp_path):
    """The wire format allows any order of fields."""
    line = fake.part(4, kernel(1000, 1000)) + fake.whole(3, 70) + fake.part(4, kernel(2000, 1000)) + fake.part(
        2, "Stream #5")
    tables, _ = parsed(tmp_path, gpu(line))
    assert rows(tables["kernels"], "stream_id", "t_start_ns") == [(5, 71), (5, 72)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=30))
def test_any_times(tmp_path, times):
    tables, facts = parsed(tmp_path, gpu(*(fake.line(f"Stream #{at}", begin, [kernel(offset, duration)])
                                           for at, (begin, offset, duration) in enumerate(times))))
    expected = [(at, begin + offset // 1000, (offset + duration) // 1000 - offset // 1000)
                for at, (begin, offset, duration) in enumerate(times)]
    expected = [(at, start, took) for at, start, took in expected if start or took]  # else it was never timed
    assert (rows(tables["kernels"], "stream_id", "t_start_ns", "dur_ns") if expected else []) == expected
    assert facts.kernels == Subtotal(len(times), sum(duration for _, _, duration in expected))


def test_every_cut_and_many_flips_are_read_or_refused(tmp_path):
    path = tmp_path / "p.xplane.pb"
    content = fake.space(gpu(fake.line("Stream #1", 0, [kernel(), kernel()])), environment())
    for at in range(len(content)):
        path.write_bytes(content[:at])
        refused(path)
    for seed in range(400):
        chance, harmed = random.Random(seed), bytearray(content)
        for _ in range(chance.randrange(1, 5)):
            harmed[chance.randrange(len(harmed))] ^= 1 << chance.randrange(8)
        path.write_bytes(harmed)
        refused(path)
        xplane.recognises(path)


def refused(path):
    try:
        list(xplane.parse(path))
    except BadCapture as error:
        assert path.name in error.what and error.fix


def test_a_field_that_claims_more_than_there_is(tmp_path):
    path = tmp_path / "p.xplane.pb"
    path.write_bytes(b"\x0a" + fake.number(1 << 60) + b"x")
    with pytest.raises(BadCapture, match="truncated"):
        list(xplane.parse(path))
    assert not xplane.recognises(path)


def test_a_perfetto_trace_is_none_of_ours(captures):
    assert not any(xplane.recognises(path) for path in (captures / "rocprofv3-pftrace").iterdir())

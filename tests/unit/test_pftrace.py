"""profiler.pftrace on traces written with Perfetto's own classes, each with an answer planted in it."""

import gzip
import json
import zlib

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from aaco.core.errors import BadCapture
from aaco.profiler.formats.perfetto import perfetto_packets, pftrace
from tests.pieces import rows, together

BEGIN, END, INSTANT, COUNTER = (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT,
                                TrackEvent.TYPE_COUNTER)


class Made:
    """A trace in the making: process 33 with track 1, its thread 34 with track 2, and whatever a test adds."""

    def __init__(self):
        self.trace = Trace()
        self.packet(sequence_flags=1)
        self.track(1).process.pid = 33
        thread = self.track(2, parent=1).thread
        thread.pid, thread.tid = 33, 34

    def packet(self, **fields):
        return self.trace.packet.add(trusted_packet_sequence_id=1, **fields)

    def track(self, uuid, parent=0, name=""):
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, name
        return descriptor

    def event(self, kind, time, track=2, name="", category="", notes=None, **fields):
        event = self.packet(timestamp=time).track_event
        event.type, event.track_uuid, event.name = kind, track, name
        event.categories.extend([category] * bool(category))
        for field, value in fields.items():
            getattr(event, field).extend(value) if isinstance(value, list) else setattr(event, field, value)
        for key, value in (notes or {}).items():
            kinds = {int: "uint_value", float: "double_value", str: "string_value", bool: "bool_value"}
            setattr(event.debug_annotations.add(name=key), kinds[type(value)], value)

    def slice(self, start, end, track=2, name="f", category="", notes=None, **fields):
        self.event(BEGIN, start, track, name, category, notes, **fields)
        self.event(END, end, track)

    def kernel(self, start, end, track=3, more=None, **notes):
        self.slice(start, end, track, "k.kd", "kernel_dispatch", {
            "begin_ns": start, "end_ns": end, "delta_ns": max(end - start, 0), "agent": "Agent-4", "corr_id": 7,
            "queue": 1, "tid": 34, "workgroup_size": 64, "grid_size": 1024, "stream_ID": 2, **notes, **(more or {})})

    def parse(self, path):
        path.write_bytes(self.trace.SerializeToString())
        assert pftrace.recognises(path)
        return together(pftrace.parse(path))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.pftrace"


def test_a_kernel_a_copy_and_the_call_that_launched_them(path):
    made = Made()
    made.track(3, 1, 'STREAM [" 2 "] ')
    made.slice(10, 20, name="hipLaunchKernel", category="hip_api", notes={"tid": 34, "corr_id": 7, "kind": 5})
    made.kernel(30, 80)
    made.slice(90, 95, 3, "MEMORY_COPY_HOST_TO_DEVICE", "memory_copy", {
        "src_agent": "Agent-0", "dst_agent": "Agent-4", "copy_bytes": 4096, "corr_id": 8, "tid": 34, "stream_ID": 2})
    tables, facts = made.parse(path)
    assert rows(tables["kernels"]) == [{
        "kernel_id": 0, "kernel_name": "k", "device_id": 4, "queue_id": 1, "stream_id": 2, "process_id": 33,
        "thread_id": 34, "correlation_id": 7, "t_start_ns": 30, "t_end_ns": 80, "dur_ns": 50, "grid_x": 1024,
        "block_x": 64, "source": "pftrace", "timed": "execution"}]
    assert rows(tables["copies"]) == [{
        "copy_id": 0, "kind": "h2d", "bytes": 4096, "dst_device": 4, "device_id": 4, "stream_id": 2, "process_id": 33,
        "thread_id": 34, "correlation_id": 8, "t_start_ns": 90, "t_end_ns": 95, "dur_ns": 5, "source": "pftrace"}]
    assert rows(tables["api_calls"]) == [{
        "call_id": 0, "name": "hipLaunchKernel", "domain": "hip", "process_id": 33, "thread_id": 34,
        "correlation_id": 7, "t_start_ns": 10, "t_end_ns": 20, "dur_ns": 10}]
    assert facts.tool == "rocprofv3" and facts.kernels.count == 1 and facts.kernels.ns == 50 and not facts.problems


def test_overlapping_kernels_are_paired_in_the_order_of_the_file(path):
    """rocprofv3 writes begin and end of one kernel, then those of the next. Broken by: pairing by time."""
    made = Made()
    made.kernel(100, 200)
    made.kernel(150, 250)
    tables, facts = made.parse(path)
    assert [(row["t_start_ns"], row["t_end_ns"]) for row in rows(tables["kernels"])] == [(100, 200), (150, 250)]
    assert not facts.problems


def test_kernels_that_only_touch_may_have_been_moved(path):
    made = Made()
    made.kernel(100, 200)
    made.kernel(200, 250)
    assert "1 kernel begins in the very ns in which the one before" in made.parse(path)[1].problems[0]


def test_counters_are_what_the_tool_says_beside_its_own_properties(path):
    """Broken by: taking what `rocpd convert` writes, where every kernel bears the sums of the whole run."""
    made = Made()
    made.kernel(30, 80, more={"SQ_WAVES": 16.0, "TCC_HIT[0]": 7.5, "note": "text"})
    tables, _ = made.parse(path)
    assert [(row["kernel_id"], row["counter"], row["value"]) for row in rows(tables["counters"])] == [
        (0, "SQ_WAVES", 16.0), (0, "TCC_HIT[0]", 7.5)]
    made = Made()
    made.kernel(30, 80, more={"SQ_WAVES": 16.0}, grid_size="2048 (x=1024, y=2, z=1)",
                workgroup_size="64 (x=64, y=1, z=1)")
    tables, facts = made.parse(path)
    kernel, = rows(tables["kernels"])
    assert [kernel[name] for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")] == [
        1024, 2, 1, 64, 1, 1]
    assert "counters" not in tables and "1 counter of a whole run" in facts.problems[0]


def test_a_trace_of_any_tool(path):
    """Slices nest, instants have no length, annotations are arguments, flows link."""
    made = Made()
    made.event(BEGIN, 10, name="outer", category="app", notes={"size": 3, "ratio": 0.5, "on": True, "what": "x"},
               flow_ids=[5])
    made.event(BEGIN, 20, name="inner", flow_ids=[1 << 63])
    made.event(END, 30)
    made.event(END, 50)
    made.event(INSTANT, 60, name="now", terminating_flow_ids=[5])
    tables, facts = made.parse(path)
    assert [(row["name"], row.get("domain"), row["t_start_ns"], row["dur_ns"], row.get("correlation_id"))
            for row in rows(tables["api_calls"])] == [
        ("inner", None, 20, 10, -(1 << 63)), ("outer", "app", 10, 40, 5), ("now", None, 60, 0, 5)]
    assert [(row["call_id"], json.loads(row["arguments"])) for row in rows(tables["call_arguments"])] == [
        (1, {"size": 3, "ratio": 0.5, "on": True, "what": "x"})]
    assert facts.tool is None and facts.kernels is None


def test_counter_tracks_are_samples_in_their_unit(path):
    made = Made()
    made.track(4, 1, "ALLOCATE BYTES on Agent [4] (GPU)").counter.unit = 3
    made.trace.packet[-1].track_descriptor.counter.unit_multiplier = 1024
    steps = made.track(5, 1, "steps").counter
    steps.is_incremental, steps.unit_name = True, "1"
    made.event(COUNTER, 10, 4, counter_value=2)
    made.event(COUNTER, 20, 5, counter_value=3)
    made.event(COUNTER, 30, 5, double_counter_value=0.5)
    made.event(COUNTER, 40, 99, counter_value=1)
    tables, facts = made.parse(path)
    assert [(row["t_ns"], row["name"], row["value"], row["unit"], row.get("device_id")) for row in rows(
        tables["samples"])] == [(10, "ALLOCATE BYTES on Agent [4] (GPU)", 2048.0, "bytes", 4),
                                (20, "steps", 3.0, "1", None), (30, "steps", 3.5, "1", None)]
    assert facts.left_out["sample: of a track that the trace does not describe"].count == 1


def test_two_processes_do_not_share_correlation_ids(path):
    made = Made()
    made.track(11).process.pid = 44
    made.track(12, parent=11)
    made.slice(10, 20, name="hipLaunchKernel", category="hip_api", notes={"corr_id": 7})
    made.slice(11, 21, 12, name="hipLaunchKernel", category="hip_api", notes={"corr_id": 7})
    calls = rows(made.parse(path)[0]["api_calls"])
    assert [(row["process_id"], row["correlation_id"]) for row in calls] == [(33, 7), (44, 7 + (1 << 48))]


def test_interned_names_are_those_of_their_sequence_until_it_begins_anew(path):
    made = Made()
    for sequence, names in ((1, "ab"), (2, "cd"), (1, "ef")):
        data = made.trace.packet.add(trusted_packet_sequence_id=sequence, sequence_flags=1).interned_data
        data.event_names.add(iid=1, name=names[0])
        data.event_categories.add(iid=1, name=names[1])
        data.debug_annotation_names.add(iid=1, name="corr_id")
        for kind in (BEGIN, END):
            event = made.trace.packet.add(trusted_packet_sequence_id=sequence, timestamp=10).track_event
            event.type, event.track_uuid, event.name_iid = kind, 2, 1
            event.category_iids.append(1)
            event.debug_annotations.add(name_iid=1).int_value = 9
    made.event(BEGIN, 20, name_iid=77)
    made.event(END, 21)
    tables, facts = made.parse(path)
    assert [(row["name"], row.get("domain"), row.get("correlation_id")) for row in rows(tables["api_calls"])][:3] == [
        ("a", "b", 9), ("c", "d", 9), ("e", "f", 9)]
    assert "1 slice has a name that the trace does not tell" in facts.problems


def test_times_are_those_of_the_traces_clock(path):
    """REALTIME is 1000 ahead; the sequence's own clock 64 counts steps of 10 ns. Broken by: stamps as they are."""
    made = Made()
    snapshot = made.packet().clock_snapshot
    snapshot.primary_trace_clock = 3
    for clock, stamp in ((3, 500), (1, 1500)):
        snapshot.clocks.add(clock_id=clock, timestamp=stamp)
    snapshot.clocks.add(clock_id=64, timestamp=50, is_incremental=True, unit_multiplier_ns=10)
    made.slice(1600, 1700, name="real")
    for packet in made.trace.packet[-2:]:
        packet.timestamp_clock_id = 1
    made.slice(3, 4, name="steps")
    for packet in made.trace.packet[-2:]:
        packet.timestamp_clock_id = 64
    tables, facts = made.parse(path)
    assert [(row["name"], row["t_start_ns"], row["t_end_ns"]) for row in rows(tables["api_calls"])] == [
        ("real", 600, 700), ("steps", 530, 570)]
    assert facts.clock == "monotonic" and not facts.problems


def test_what_is_left_open_or_lost_is_said(path):
    made = Made()
    made.event(END, 5)
    made.event(BEGIN, 10, name="open")
    made.packet(previous_packet_dropped=1)
    made.packet().trace_stats.buffer_stats.add(chunks_discarded=3, trace_writer_packet_loss=2)
    tables, facts = made.parse(path)
    assert not tables
    assert {reason: part.count for reason, part in facts.left_out.items()} == {
        "call: it is never ended": 1, "end: it ends a slice that never began": 1}
    assert set(facts.problems) == {"1 packet is missing before others, as the trace itself says",
                                   "2 packets were lost by the tool that wrote the trace",
                                   "3 chunks of the trace were thrown away because its buffer was full"}


def test_a_trace_that_is_cut_says_so(path):
    """Broken by: parsing what is left of the last packet."""
    made = Made()
    made.slice(10, 20)
    made.slice(30, 40)
    content = made.trace.SerializeToString()
    path.write_bytes(content[:-3])
    tables, facts = together(pftrace.parse(path))
    assert tables["api_calls"].num_rows == 1
    assert facts.problems[0].startswith("truncated: the packet at byte ")
    assert facts.left_out["call: it is never ended"].count == 1


def test_zipped_and_compressed_traces_read_the_same(path):
    made = Made()
    made.slice(10, 20)
    plain = made.parse(path)
    content = path.read_bytes()
    path.write_bytes(gzip.compress(content))
    assert pftrace.recognises(path)
    zipped = together(pftrace.parse(path))
    path.write_bytes(Trace(packet=[{"compressed_packets": zlib.compress(content)}]).SerializeToString())
    packed = together(pftrace.parse(path))
    assert plain[0]["api_calls"] == zipped[0]["api_calls"] == packed[0]["api_calls"]
    assert plain[1] == zipped[1] == packed[1]


@pytest.mark.parametrize("content", [
    b"", b"\n", b"\n\n\n\n\n", b"\x0a\x02\xff\xff", b"\x0a\xff\xff\xff\xff\x7f", b"\x12\x02ab", b"{}",
    b"\n{\"traceEvents\": []}", b"\x0a\x05" + b"\x0a" * 5])
def test_anything_else_is_a_bad_capture_or_says_it_is_cut(path, content):
    path.write_bytes(content)
    assert not pftrace.recognises(path)
    with pytest.raises(BadCapture, match=r"t\.pftrace"):
        list(pftrace.parse(path))


def test_bombs_are_refused(path):
    packed = zlib.compress(bytes(perfetto_packets.LONGEST_PACKET_BYTES + 1))
    path.write_bytes(Trace(packet=[{"compressed_packets": packed}]).SerializeToString())
    with pytest.raises(BadCapture, match="unpack to more than"):
        list(pftrace.parse(path))
    inner = zlib.compress(Trace(packet=[{"compressed_packets": zlib.compress(b"")}]).SerializeToString())
    path.write_bytes(Trace(packet=[{"compressed_packets": inner}]).SerializeToString())
    with pytest.raises(BadCapture, match="inside compressed"):
        list(pftrace.parse(path))


def test_values_of_other_types_than_the_tool_writes_become_null(path):
    made = Made()
    made.kernel(30, 80, queue="one", tid=1.5, agent=4)
    kernel, = rows(made.parse(path)[0]["kernels"])
    assert "queue_id" not in kernel and "thread_id" not in kernel and kernel["device_id"] == 4


def test_pieces_stay_small(path, monkeypatch):
    monkeypatch.setattr(perfetto_packets, "CHUNK_BYTES", 2000)
    made = Made()
    for number in range(200):
        made.kernel(100 * number, 100 * number + 50)
    path.write_bytes(made.trace.SerializeToString())
    *pieces, facts = pftrace.parse(path)
    assert len(pieces) > 10 and max(piece.num_rows for piece in pieces) < 30
    assert facts.kernels.count == 200 and facts.kernels.ns == 10_000

"""profiler.pftrace on every recorded trace, against Perfetto's own classes and trace_processor: 0 ns of error."""

from collections import Counter

import pyarrow.compute as pc
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from aaco.profiler.formats import registry
from aaco.profiler.formats.perfetto import pftrace
from aaco.profiler.io.columns import bare
from tests import trace_processor
from tests.pieces import together

pytestmark = pytest.mark.captures


def traces(captures):
    found = sorted(captures.glob("rocprofv3-pftrace/*.pftrace"))
    assert len(found) == 3
    return found


def oracle(path):
    """Slices (category, name, annotations, begin, end) and counters (track, time, value), by Perfetto's own classes."""
    trace = Trace.FromString(path.read_bytes())
    names, open_, slices, counters, tracks = {}, {}, [], [], {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor)
        for table in ("event_names", "event_categories", "debug_annotation_names"):
            names |= {(table, entry.iid): entry.name for entry in getattr(packet.interned_data, table)}
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            notes = {names["debug_annotation_names", note.name_iid]: getattr(note, note.WhichOneof("value"))
                     for note in event.debug_annotations}
            category, = (names["event_categories", iid] for iid in event.category_iids)
            open_.setdefault(event.track_uuid, []).append((category, names["event_names", event.name_iid], notes,
                                                           packet.timestamp))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            slices.append((*open_[event.track_uuid].pop(), packet.timestamp))
        elif event.type == TrackEvent.TYPE_COUNTER:
            counters.append((tracks[event.track_uuid], packet.timestamp, event.counter_value))
    return slices, counters


def test_every_slice_and_counter_to_the_ns(captures):
    """Fails when a slice is dropped, or when annotations are read as another type than they have."""
    for path in traces(captures):
        slices, counters = oracle(path)
        assert registry.recognise(path) is pftrace
        tables, facts = together(pftrace.parse(path))
        kernels = [one for one in slices if one[0] == "kernel_dispatch"]
        assert facts.records == {name: count for name, count in (
            ("call", len(slices) - len(kernels)), ("kernel", len(kernels)), ("sample", len(counters))) if count}
        calls = tables["api_calls"]
        ours = ("domain", "name", "t_start_ns", "t_end_ns", "dur_ns", "thread_id", "correlation_id")
        assert Counter(zip(*(calls[name].to_pylist() for name in ours), strict=True)) == Counter(
            (category.removesuffix("_api"), name, begin, end, notes["delta_ns"], notes["tid"], notes["corr_id"])
            for category, name, notes, begin, end in slices if category != "kernel_dispatch")
        assert set(calls["process_id"].to_pylist()) == {int(path.name.split("_")[1])}
        if kernels:
            assert (facts.kernels.count, facts.kernels.ns) == (
                len(kernels), sum(end - begin for *_, begin, end in kernels))
        assert not facts.left_out and not facts.problems and facts.clock == "boottime"


def test_kernels_keep_what_the_tool_says_of_them(captures):
    slices, counters = oracle(traces(captures)[-1])
    tables, _ = together(pftrace.parse(traces(captures)[-1]))
    ours = ("kernel_name", "t_start_ns", "t_end_ns", "device_id", "queue_id", "stream_id", "thread_id",
            "correlation_id", "grid_x", "block_x", "vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes")
    assert list(zip(*(tables["kernels"][name].to_pylist() for name in ours), strict=True)) == [
        (bare(name), begin, end, int(notes["agent"].removeprefix("Agent-")), notes["queue"], notes["stream_ID"],
         notes["tid"], notes["corr_id"], notes["grid_size"], notes["workgroup_size"], notes["VGPR_Count"],
         notes["Accum_VGPR_Count"], notes["SGPR_Count"], notes["LDS_Block_Size"], notes["Scratch_Size"])
        for category, name, notes, begin, end in slices if category == "kernel_dispatch"]
    assert [(row["name"], row["t_ns"], row["value"], row["unit"]) for row in tables["samples"].to_pylist()] == [
        (track.name, time, value * track.counter.unit_multiplier, "bytes") for track, time, value in counters]
    linked = pc.is_in(tables["kernels"]["correlation_id"], tables["api_calls"]["correlation_id"].combine_chunks())
    assert pc.all(linked).as_py()


def test_trace_processor_finds_the_same_slices(captures):
    for path in traces(captures):
        tables, _ = together(pftrace.parse(path))
        rows, counts = trace_processor.query(
            path, "select coalesce(category, ''), count(*), sum(dur) from slice group by 1 order by 1",
            "select count(*) from counter")
        ours = Counter()
        for name, kind in (("api_calls", None), ("kernels", "kernel_dispatch")):
            for row in tables[name].to_pylist() if name in tables else []:
                category = kind or f"{row['domain']}_api"
                ours[category, "count"] += 1
                ours[category, "ns"] += row["dur_ns"]
        assert [tuple(row) for row in rows] == sorted(
            (category, ours[category, "count"], ours[category, "ns"]) for category in {key for key, _ in ours})
        assert counts[0][0] == (tables["samples"].num_rows if "samples" in tables else 0)

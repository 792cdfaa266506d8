"""Exports read back: by Perfetto's protobuf classes, by trace_processor, and by a plain JSON reader."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, COPIES, GPU_EVENTS, INFERENCE_ITERS, KERNELS, SAMPLES, SYSTEM_EVENTS
from aaco.profiler.formats import registry
from aaco.tracelake.perfetto_export.perfetto import write_chrome, write_protobuf
from aaco.tracelake.perfetto_export.timeline_tracks import device_titles, stable_id
from aaco.workflows.export_trace import zipped
from tests.trace_processor import query

HOSTILE = 'name "with" \\ quotes,\n new lines, \u202e and \x00'
T0 = 1_700_000_000_123_456_789  # epoch ns: beyond what a float holds


@pytest.fixture
def tables() -> dict[str, pa.Table]:
    """Everything an export can hold, with overlaps, equal times, empty slices, and names that break parsers."""
    return {
        "inference_iters": INFERENCE_ITERS.build(
            iteration=[0, 1], phase=["warmup", "measurement"], t_start_ns=[T0, T0 + 500], t_end_ns=[T0 + 500, T0 + 990],
            latency_ms=[5e-4, 49e-5], batch=[1, 1], process=[0, 0]),
        "api_calls": API_CALLS.build(
            call_id=[0, 1, 2, 3], name=["step", HOSTILE, "hipLaunchKernel", "hipLaunchKernel"],
            domain=["marker", "cpu_op", "hip", "hip"], process_id=[7] * 4, thread_id=[8] * 4,
            correlation_id=[None, None, 11, 12], t_start_ns=[T0, T0 + 10, T0 + 20, T0 + 30],
            t_end_ns=[T0 + 100, T0 + 50, T0 + 30, T0 + 40], parent_id=[None, 0, 1, 1], capture=[0] * 4),
        "kernels": KERNELS.build(
            kernel_id=[0, 1, 2], kernel_name=["gemm", HOSTILE, "gemm"], device_id=[0] * 3, queue_id=[3] * 3,
            correlation_id=[11, 12, None], t_start_ns=[T0 + 60, T0 + 70, T0 + 75], grid_x=[64, 128, None],
            t_end_ns=[T0 + 70, T0 + 80, T0 + 90], dur_ns=[10, 10, 15], capture=[0] * 3),
        "copies": COPIES.build(copy_id=[0], kind=["h2d"], bytes=[4096], device_id=[0], stream_id=[1],
                               t_start_ns=[T0 + 5], t_end_ns=[T0 + 5], dur_ns=[0], capture=[0]),
        "system_events": SYSTEM_EVENTS.build(
            t_ns=[T0 + 50, T0 + 60, T0 + 70, T0 + 55, T0 + 1], dur_ns=[20, None, None, 9, 80],
            kind=["run_queue_wait", "psi", "psi", "switch_involuntary", "marker"], tier=["T1"] * 3 + ["T3", "user"],
            process_id=[7] * 5, thread_id=[8, None, None, 8, 8], value=[None, 1.5, 2.5, None, 3.0],
            unit=[None, "%", "%", None, None], detail=[None, None, None, HOSTILE, "decode"]),
        "gpu_events": GPU_EVENTS.build(t_ns=[T0, T0 + 9], device_id=[0, 0], power_w=[250.5, 300.0],
                                       sclk_mhz=[2100.0, None]),
        "samples": SAMPLES.build(t_ns=[T0 + 3], name=["memory"], value=[7.0], unit=["bytes"], device_id=[0]),
    }


def slices_of(tables: dict[str, pa.Table]) -> list[tuple[str, int, int]]:
    """What must be read back: (name, start, duration) of every slice."""
    named = {"api_calls": "name", "kernels": "kernel_name", "copies": "kind"}
    found = [(row[column], row["t_start_ns"], row["t_end_ns"] - row["t_start_ns"])
             for name, column in named.items() for row in tables[name].to_pylist()]
    found += [(f"{row['phase']} {row['iteration']}", row["t_start_ns"], row["t_end_ns"] - row["t_start_ns"])
              for row in tables["inference_iters"].to_pylist()]
    found += [("decode" if row["kind"] == "marker" else row["kind"] + (f": {row['detail']}" if row["detail"] else ""),
               row["t_ns"] - row["dur_ns"] * (row["tier"] == "T1"), row["dur_ns"])
              for row in tables["system_events"].to_pylist() if row["dur_ns"] is not None]
    return sorted(found)


def exported(tables: dict[str, pa.Table]) -> bytes:
    file = io.BytesIO()
    told: list[int] = []
    assert write_protobuf(file, tables, told.append) == len(slices_of(tables)) + 6 == told[-1]
    return file.getvalue()


def read_back(data: bytes) -> tuple[list[tuple[str, int, int]], dict[int, list[float]], dict[int, set[str]]]:
    """Slices, counters and arrows by Perfetto's protobuf classes and a stack per track, as a viewer does it."""
    names: dict[int, str] = {}
    stacks: dict[int, list[tuple[str, int]]] = defaultdict(list)
    slices, counters, flows = [], defaultdict(list), defaultdict(set)
    packets = list(Trace.FromString(data).packet)
    for packet in packets:
        names.update({entry.iid: entry.name for entry in packet.interned_data.event_names})
    events = [packet for packet in packets if packet.HasField("track_event")]
    for packet in sorted(events, key=lambda one: one.timestamp):
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stacks[event.track_uuid].append((names[event.name_iid], packet.timestamp))
            for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                flows[flow].add(names[event.name_iid])
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, start = stacks[event.track_uuid].pop()
            slices.append((name, start, packet.timestamp - start))
        else:
            counters[event.track_uuid].append(event.double_counter_value)
    assert not any(stacks.values())
    return sorted(slices), counters, flows


def test_every_slice_is_read_back_exactly(tables):
    """Mutations: times through a float; no lanes for the kernels that overlap; ends after begins at equal times; a
    sampled sum and a single event both taken to begin, or to end, at t_ns."""
    slices, counters, _ = read_back(exported(tables))
    assert slices == slices_of(tables)
    assert sorted(map(sorted, counters.values())) == [[1.5, 2.5], [7.0], [250.5, 300.0], [2100.0]]


def test_arrows_go_from_operation_to_launch_to_kernel(tables):
    """Mutation: ids not mixed with the capture join what two captures number alike."""
    _, _, flows = read_back(exported(tables))
    assert sorted(map(sorted, flows.values())) == sorted(map(sorted, [
        {HOSTILE, "hipLaunchKernel", "gemm"}, {HOSTILE, "hipLaunchKernel"}]))


def test_two_captures_share_no_arrow(tables):
    both = {name: pa.concat_tables([table, _capture(table, 1)]) if "capture" in table.column_names else table
            for name, table in tables.items() if name in ("kernels", "api_calls")}
    _, _, flows = read_back(_protobuf(both))
    assert len(flows) == 4


def test_trace_processor_reads_the_same(tables, tmp_path: Path):
    path = tmp_path / "t.pftrace"
    path.write_bytes(exported(tables))
    rows, errors, values, flows, places = query(
        path, "select name, ts, dur from slice", "select name from stats where severity = 'error' and value > 0",
        "select value from counter order by value", "select count(*) from flow",
        "select distinct process.name, pid from process join process_track using (upid) where process.name != ''")
    assert len(rows) == len(slices_of(tables)) and not errors
    assert sorted(row[2] for row in rows) == sorted(duration for _, _, duration in slices_of(tables))
    assert {"gemm", "step", "hipLaunchKernel", "h2d"} <= {row[0] for row in rows}
    assert [row[0] for row in values] == [1.5, 2.5, 7.0, 250.5, 300.0, 2100.0] and flows == [[4]]
    assert places == [["Host process", 7]]


def test_chrome_json_is_read_back_exactly(tables):
    """Mutation: us with fewer than three decimals."""
    file = io.BytesIO()
    told: list[int] = []
    count = write_chrome(file, tables, told.append)
    assert told == sorted(told) and told[-1] == count
    events = json.loads(file.getvalue(), parse_float=Decimal)["traceEvents"]
    slices = sorted((event["name"], int(1000 * event["ts"]), int(1000 * event["dur"])) for event in events
                    if event["ph"] == "X")
    assert slices == slices_of(tables) and count == len(slices) + sum(event["ph"] == "C" for event in events)
    phases = sorted(event["ph"] for event in events if event["ph"] in "stf")
    assert phases == ["f", "f", "s", "s", "t", "t"]


def test_tracks_have_names_that_people_know(tables):
    """Mutation: devices are named by their number where the capture knows what they are."""
    captures = [{"index": 0, "rank": None, "devices": [{"id": 0, "name": "NVIDIA H200", "arch": "sm_90"}, {"id": 1}]},
                {"index": 1, "rank": 3, "devices": [{"id": 2, "name": "Ascend 910", "arch": None}]}]
    titles = device_titles(captures)
    assert titles == {"Device 0": "GPU 0: NVIDIA H200", "Device 2, rank 3": "Device 2, rank 3: Ascend 910"}
    expected = {"GPU 0: NVIDIA H200", "Kernels, queue 3", "Copies, stream 1", "Inferences", "Run 0", "Thread 8",
                "Power", "Core clock", "Operating system of thread 8", "Markers of thread 8", "memory", "psi"}
    files = io.BytesIO(), io.BytesIO()
    write_protobuf(files[0], tables, titles=titles)
    packets = Trace.FromString(files[0].getvalue()).packet
    declared = [packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")]
    assert expected <= {track.name for track in declared} and {track.process.process_name for track in declared
                                                               if track.HasField("process")} == {"Host process"}
    write_chrome(files[1], tables, titles=titles)
    named = {event["args"]["name"] for event in json.loads(files[1].getvalue())["traceEvents"] if event["ph"] == "M"}
    assert {"GPU 0: NVIDIA H200", "Kernels, queue 3", "Copies, stream 1", "Host process", "Thread 8"} <= named


def test_ids_of_tracks_do_not_change():
    """Pins of a viewer and links from elsewhere rest on them."""
    assert stable_id("track", "device 0", "4194304", "queue 1", "200007", "0") == 5031332249845717


@pytest.mark.parametrize("count", [0, 1, 200_001])
def test_any_number_of_events(count):
    """More than one piece at a time: places continue across pieces."""
    start = np.arange(count) * 10
    tables = {"kernels": KERNELS.build(kernel_id=start, kernel_name=["k"] * count, device_id=0 * start,
                                       t_start_ns=start, t_end_ns=start + 10)}
    data = _protobuf(tables)
    packets = Trace.FromString(data).packet
    assert sum(packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN for packet in packets) == count
    assert sum(packet.track_event.type == TrackEvent.TYPE_SLICE_END for packet in packets) == count


def _protobuf(tables: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    write_protobuf(file, tables)
    return file.getvalue()


def _capture(table: pa.Table, capture: int) -> pa.Table:
    position = table.schema.get_field_index("capture")
    return table.set_column(position, table.schema.field(position), pa.array([capture] * table.num_rows, pa.int64()))


@pytest.mark.parametrize("write", [write_protobuf, write_chrome])
def test_an_own_export_is_refused_by_its_session(tables, tmp_path, write):
    """New users imported it, and got host calls without a kernel. Mutation: any file is read."""
    path = tmp_path / "trace"
    with path.open("wb") as file:
        write(file, tables)
    assert registry.recognise(path).FORMAT in ("pftrace", "chrome")
    with path.open("wb") as file:
        write(file, tables, session="20261130_161532_814d79")
    with pytest.raises(BadCapture, match="less than its session 20261130_161532_814d79") as refused:
        registry.read(path)
    assert "aaco summary 20261130_161532_814d79" in refused.value.fix
    assert registry.read(path, registry.parsers()["pftrace"].FORMAT)  # what a user insists on


def test_a_trace_that_names_an_export_is_none(tmp_path):
    """Mutation: the mark is looked for in every place."""
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "aaco perfetto, of session a.", "ts": 1, "dur": 1}]}')
    assert registry.recognise(path).FORMAT == "chrome"


@pytest.mark.parametrize("write", [write_protobuf, write_chrome])
def test_a_name_in_gz_is_compressed_as_it_goes_and_the_viewer_opens_it(tables, tmp_path, write):
    """Mutation: written plain under that name, which the viewer refuses."""
    plain = io.BytesIO()
    write(plain, tables)
    for name in ("trace.gz", "trace"):
        with (tmp_path / name).open("wb") as file, zipped(file, tmp_path / name) as stream:
            write(stream, tables)
    content = (tmp_path / "trace.gz").read_bytes()
    assert content[:2] == b"\x1f\x8b" and gzip.decompress(content) == plain.getvalue()
    assert (tmp_path / "trace").read_bytes() == plain.getvalue()
    count = "select count(*) as n from slice"
    assert query(tmp_path / "trace.gz", count) == query(tmp_path / "trace", count) != [[[0]]]

"""profiler.kineto and profiler.chrome on traces of other years and other tools than those that were recorded."""

import gzip
import json

import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.errors import BadCapture
from aaco.profiler.formats import registry
from aaco.profiler.formats.pytorch import chrome, kineto
from tests import third_party
from tests.pieces import rows, together


def written(tmp_path, events, name="t.json", **fields):
    path = tmp_path / name
    path.write_text(json.dumps(fields | {"traceEvents": events}))
    return path


def event(category, name, start, took, process=1, thread=1, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start, "dur": took,
            "args": args}


def balanced(tables, facts):
    """Every record is a row or left out."""
    kept = sum(table.num_rows for name, table in tables.items() if name not in ("call_arguments", "collectives"))
    assert kept + sum(part.count for part in facts.left_out.values()) == sum(facts.records.values())


def test_pytorch_1_8_to_1_13(tmp_path):
    """Categories with capitals, ids in lower case, whole microseconds since 1970, arrows of other names, no epoch."""
    path = written(tmp_path, [
        event("Operator", "aten::add", 1621372487000000, 30, **{"External id": 7, "Input Dims": [[2, 3], []]}),
        event("Runtime", "cudaLaunchKernel", 1621372487000005, 12, cbid=211, correlation=71, **{"external id": 7}),
        event("Kernel", "add", 1621372487000021, 3, 0, "stream 7", device=0, context=1, stream=7, correlation=71,
              **{"external id": 7, "registers per thread": 16, "shared memory": 0, "grid": [4, 1, 1],
                 "block": [64, 2, 1], "est. achieved occupancy %": 31}),
        event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 1621372487000030, 2, 0, "stream 7", device=0, stream=7,
              correlation=72, bytes=64),
        event("Memset", "Memset (Device)", 1621372487000033, 1, 0, "stream 7", device=0, stream=7, bytes=64),
        {"ph": "s", "id": 71, "pid": 1, "tid": 1, "ts": 1621372487000005, "cat": "async", "name": "launch"},
        {"ph": "f", "id": 71, "pid": 0, "tid": "stream 7", "ts": 1621372487000021, "cat": "async_cpu_to_gpu",
         "name": "async_cpu_to_gpu", "bp": "e"}], schemaVersion=1, deviceProperties=[{"id": 0, "name": "V100"}])
    assert registry.recognise(path) is kineto
    tables, facts = together(kineto.parse(path))
    balanced(tables, facts)
    assert facts.clock == "realtime"
    assert (facts.kernels.count, facts.kernels.ns) == (1, 3000)
    (kernel,) = rows(tables["kernels"])
    assert kernel == {
        "kernel_id": 0, "kernel_name": "add", "device_id": 0, "stream_id": 7, "correlation_id": 71, "external_id": 7,
        "t_start_ns": 1621372487000021000, "t_end_ns": 1621372487000024000, "dur_ns": 3000, "grid_x": 256, "grid_y": 2,
        "grid_z": 1, "block_x": 64, "block_y": 2, "block_z": 1, "vgpr": 16, "lds_bytes": 0, "occupancy_pct": 31.0,
        "source": "kineto"}
    assert [(row["kind"], row.get("src_device"), row.get("dst_device"), row.get("pinned"))
            for row in rows(tables["copies"])] == [("d2h", 0, None, False), ("memset", None, 0, None)]
    assert [(row["domain"], row["external_id"]) for row in rows(tables["api_calls"])] == [
        ("cpu_op", 7), ("cuda_runtime", 7)]
    assert [json.loads(text)["Input Dims"] for text in tables["call_arguments"]["arguments"].to_pylist()] == [
        [[2, 3], []]]


def test_a_grid_of_work_items_is_not_multiplied_by_the_block(tmp_path):
    """Also where the launch stands in an earlier batch. Mutation: `_note_sizes` left out."""
    sizes = {"grid": [512, 4, 1], "block": [128, 2, 1]}
    filler = [event("cpu_op", "aten::empty", 10 + number, 1) for number in range(30_000)]
    path = written(tmp_path, [
        event("cuda_runtime", "hipExtModuleLaunchKernel", 1, 2, correlation=1, **sizes),
        event("cuda_runtime", "hipModuleLaunchKernel", 4, 2, correlation=2, **sizes), *filler,
        event("kernel", "a", 50_000, 3, 0, 0, device=0, stream=0, correlation=1, **sizes),
        event("kernel", "b", 50_010, 3, 0, 0, device=0, stream=0, correlation=2, **sizes),
        event("kernel", "c", 50_020, 3, 0, 0, device=0, stream=0, **sizes)])
    tables, _ = together(kineto.parse(path))
    found = [(row["grid_x"], row["grid_y"], row["grid_z"]) for row in rows(tables["kernels"])]
    assert found == [(512, 4, 1), (512 * 128, 8, 1), (512 * 128, 8, 1)]


@pytest.mark.captures
@pytest.mark.parametrize(("name", "in_items"), [("mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 169),
                                                ("mi300_facebook_timesformer-base-finetuned-k400__1016002", 138)])
def test_grids_of_a_real_trace_count_work_items(name, in_items):
    """Against a plain reader; a grid of work-items divides into whole blocks, one of workgroups need not."""
    path = third_party.captures() / "kineto" / f"{name}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    extended = {one["args"]["correlation"] for one in events if one.get("name") == "hipExtModuleLaunchKernel"}
    kernels = [one["args"] for one in events if one.get("cat") == "kernel"]
    expected = {one["correlation"]: tuple(size if one["correlation"] in extended else size * per for size, per in
                                          zip(one["grid"], one["block"], strict=True))
                for one in kernels if "grid" in one}
    tables, _ = together(kineto.parse(path))
    found = {row["correlation_id"]: (row["grid_x"], row["grid_y"], row["grid_z"]) for row in rows(tables["kernels"])
             if "grid_x" in row}
    assert found == expected
    items = [row for row in rows(tables["kernels"]) if row["correlation_id"] in extended]
    assert len(items) == in_items and all(row["grid_x"] % row["block_x"] == 0 for row in items)


def test_work_of_a_graph_and_copies_between_devices(tmp_path):
    path = written(tmp_path, [
        event("kernel", "k", 5, 1.5, 0, 7, device=0, stream=7, correlation=9, **{"graph id": 3, "graph node id": 4}),
        event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 8, 1, 0, 7, device=0, stream=7, correlation=10, bytes=5,
              fromDevice=0, inDevice=0, toDevice=1),
        event("gpu_user_annotation", "step", 4, 9, 0, 7), event("cuda_sync", "Stream Wait Event", 4, 1, 0, 7),
        event("hip_runtime", "hipGraphLaunch", 1, 2, correlation=9), event("cuda_runtime", "hsa_signal_wait", 3, 2)],
        deviceProperties=[], baseTimeNanoseconds=10**18)
    tables, facts = together(kineto.parse(path))
    balanced(tables, facts)
    kernel, copy = tables["kernels"].to_pylist()[0], tables["copies"].to_pylist()[0]
    assert (kernel["graph_id"], kernel["graph_node_id"], kernel["grid_x"]) == (3, 4, None)
    assert (kernel["t_start_ns"], kernel["t_end_ns"]) == (10**18 + 5000, 10**18 + 6500)
    assert (copy["kind"], copy["src_device"], copy["dst_device"]) == ("p2p", 0, 1)
    assert [(row["domain"], row["process_id"], row["device_id"], row["stream_id"])
            for row in tables["api_calls"].to_pylist()] == [
        ("gpu_marker", None, 0, 7), ("cuda_sync", None, 0, 7), ("hip", 1, None, None), ("hsa", 1, None, None)]


def test_a_collective_that_only_its_operation_tells(tmp_path):
    """As on ROCm. Fails when the kernel is looked for before its operation only."""
    comms = {"External id": 5, "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8,
             "Group size": 4, "dtype": "Float", "Process Group Name": "0", "Seq": 7}
    path = written(tmp_path, [
        event("kernel", "ncclDevKernel_Generic_1", 9, 1, 0, 7, device=0, stream=7, correlation=1, **{"External id": 5}),
        event("kernel", "ncclDevKernel_Generic_1", 9, 1, 0, 7, device=0, stream=7, correlation=2, **{"External id": 6}),
        event("kernel", "other", 9, 1, 0, 7, device=0, stream=7, correlation=3, **{"External id": 5}),
        event("cpu_op", "record_param_comms", 1, 2, **comms)], deviceProperties=[])
    tables, _ = together(kineto.parse(path))
    assert rows(tables["collectives"]) == [{
        "kernel_id": 0, "operation": "allreduce", "group": "0", "group_size": 4, "sequence": 7, "bytes_in": 32,
        "bytes_out": 32, "dtype": "Float"}]


@pytest.mark.parametrize("zipped", [False, True])
def test_an_epoch_behind_the_events_counts_too(tmp_path, zipped):
    """Fails when the epoch is looked for among the fields before the events only."""
    path = tmp_path / "t.json"
    text = json.dumps({"traceEvents": [event("kernel", "k", 5, 1, 0, 7, correlation=1)] * 3, "deviceProperties": [],
                       "baseTimeNanoseconds": 10**18}).encode()
    path.write_bytes(gzip.compress(text) if zipped else text)
    assert set(together(kineto.parse(path))[0]["kernels"]["t_start_ns"].to_pylist()) == {10**18 + 5000}


def test_several_processes_are_said(tmp_path):
    path = written(tmp_path, [event("cuda_runtime", "cudaLaunchKernel", 1, 1, process, correlation=1)
                              for process in (1, 2)], deviceProperties=[])
    assert any("2 processes" in problem for problem in together(kineto.parse(path))[1].problems)


@pytest.mark.parametrize("bad", [
    {"dur": -1}, {"dur": None}, {"ts": "soon"}, {"ts": 1e300}, {"dur": True}, {"dur": [1]}])
def test_a_kernel_without_a_time_is_left_out_and_counted(tmp_path, bad):
    """Mutation: durations of numpy in the account, with which no captures.json can be written."""
    path = written(tmp_path, [event("kernel", "k", 5, 2, 0, 7, correlation=1) | bad,
                              event("kernel", "k", 5, 2.001, 0, 7, correlation=2)], deviceProperties=[])
    tables, facts = together(kineto.parse(path))
    balanced(tables, facts)
    assert facts.kernels.count == 2
    assert tables["kernels"]["correlation_id"].to_pylist() == [2]
    (part,) = facts.left_out.values()
    assert facts.kernels.ns == 2001 + part.ns and type(part.ns) is int
    assert next(iter(facts.left_out)).startswith("kernel: ")


def test_an_event_at_the_epoch_of_the_file_was_never_timed(tmp_path):
    """Such an epoch lies months before the recording; a clock without one may begin with it."""
    events = [event("kernel", "k", 0, 3, 0, 7, correlation=1), event("kernel", "k", 5, 2, 0, 7, correlation=2)]
    for epoch, kept in ((0, [3000, 2000]), (1_733_000_000 * 10**9, [2000])):
        path = written(tmp_path, events, schemaVersion=1, deviceProperties=[], baseTimeNanoseconds=epoch)
        tables, facts = together(kineto.parse(path))
        assert tables["kernels"]["dur_ns"].to_pylist() == kept and facts.kernels.count == 2


def test_a_report_says_where_a_kernel_below_zero_went(tmp_path):
    """Mutation: coverage without what the parser left out shows two kernels in the file, one used, and no word more."""
    path = written(tmp_path, [event("kernel", "k", 5, -1, 0, 7, correlation=1),
                              event("kernel", "k", 5, 2, 0, 7, correlation=2)], schemaVersion=1, deviceProperties=[])
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    found = pipeline.import_captures([path], settings).explanation.coverage
    assert found is not None and found.dropped == {"kernel: it ends before it starts": (1, 0)}
    assert tuple(map(sum, zip(found.used, *found.dropped.values(), strict=True))) == found.in_file


@pytest.mark.parametrize("args", [
    {"device": "gpu"}, {"stream": 2**64}, {"grid": [1, 2]}, {"block": [2**40, 1, 1]}, {"correlation": 1.5},
    {"registers per thread": {}}, {"est. achieved occupancy %": "many"}, {"Collective name": 3}])
def test_arguments_of_other_types_lose_only_themselves(tmp_path, args):
    good = {"device": 1, "stream": 2, "correlation": 3, "grid": [2, 2, 2], "block": [4, 1, 1]}
    path = written(tmp_path, [event("kernel", "k", 5, 2, 0, 7, **good | args)], deviceProperties=[])
    tables, facts = together(kineto.parse(path))
    (row,) = tables["kernels"].to_pylist()
    assert row["block_x"] == (None if "block" in args else 4)
    assert row["correlation_id"] == (None if "correlation" in args else 3)
    assert facts.problems or "stream" in args


def test_arguments_that_are_none(tmp_path):
    path = written(tmp_path, [event("kernel", "k", 5, 2, 0, 7) | {"args": args} for args in (None, [], "x", 3)]
                   + [event("cpu_op", "a", 1, 1) | {"args": args} for args in (None, [], "x", 3)], deviceProperties=[])
    tables, _ = together(kineto.parse(path))
    assert tables["kernels"]["device_id"].to_pylist() == [0] * 4
    assert tables["api_calls"].num_rows == 4


def test_any_tools_trace_reads_as_calls(tmp_path):
    """Begins and ends, nested, of two threads, asynchronous, unbalanced; instants; counters; named threads."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps([
        {"ph": "B", "name": "outer", "cat": "a", "pid": "app", "tid": "main", "ts": 1.5, "args": {"x": 1}},
        {"ph": "B", "name": "other", "cat": "a", "pid": "app", "tid": "io", "ts": 1.75},
        {"ph": "B", "name": "inner", "cat": "b", "pid": "app", "tid": "main", "ts": 2},
        {"ph": "E", "pid": "app", "tid": "main", "ts": 3}, {"ph": "E", "pid": "app", "tid": "main", "ts": 4.001},
        {"ph": "E", "pid": "app", "tid": "none", "ts": 4}, {"ph": "b", "cat": "n", "id": "0x1", "name": "io", "pid": 1,
                                                            "ts": 1}, {"ph": "e", "cat": "n", "id": "0x1", "pid": 1,
                                                                       "ts": 9},
        {"ph": "i", "name": "mark", "pid": 1, "tid": 2, "ts": 7, "s": "g"},
        {"ph": "X", "name": "whole", "ts": 0, "dur": 1},
        {"ph": "C", "name": "memory", "pid": 1, "ts": 5, "args": {"used": 3, "free": 4.5, "what": "x"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "worker"}}, {"ph": "Z"}, {}]))
    assert registry.recognise(path) is chrome
    tables, facts = together(chrome.parse(path))
    calls = {row["name"]: row for row in tables["api_calls"].to_pylist()}
    assert {name: (row["t_start_ns"], row["dur_ns"]) for name, row in calls.items()} == {
        "outer": (1500, 2501), "inner": (2000, 1000), "io": (1000, 8000), "mark": (7000, 0), "whole": (0, 1000)}
    assert calls["outer"]["thread_id"] == calls["inner"]["thread_id"] < -1_000_000
    assert facts.metadata["named_ids"]["main"] == calls["outer"]["thread_id"]
    assert facts.metadata["threads"] == {"1/2": "worker"}
    assert [(row["name"], row["value"]) for row in tables["samples"].to_pylist()] == [
        ("memory used", 3.0), ("memory free", 4.5)]
    left = {reason: part.count for reason, part in facts.left_out.items()}
    assert left == {"E: its begin is the row of the range": 2, "E: the end of a range that never began": 1,
                    "e n: its begin is the row of the range": 1, "B a: a range that is never ended": 1,
                    "M: " + chrome.NAMES: 1, "Z: of a phase that no table holds": 1,
                    "none: of a phase that no table holds": 1}
    assert sum(facts.records.values()) == 14
    assert facts.kernels is None


def test_open_ranges_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome, "DEEPEST", 10)
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"ph": "B", "name": "n", "ts": 1}] * 50))
    _, facts = together(chrome.parse(path))
    assert {reason: part.count for reason, part in facts.left_out.items()} == {
        "B: nested over 10 deep": 40, "B: a range that is never ended": 10}


def test_kinds_are_bounded(tmp_path, monkeypatch):
    """A hostile file names a new category in every event."""
    monkeypatch.setattr(chrome, "MOST_KINDS", 5)
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"ph": "X", "cat": f"c{number}", "ts": 1} for number in range(50)]))
    _, facts = together(chrome.parse(path))
    assert len(facts.records) <= 6
    assert len(facts.left_out) <= 6


def test_a_trace_cut_in_an_event_names_the_byte(tmp_path):
    path = written(tmp_path, [event("kernel", "k", 5, 2, 0, 7)] * 3, deviceProperties=[])
    path.write_text(path.read_text()[:-40])
    with pytest.raises(BadCapture, match=r"byte \d+: the file is cut short"):
        list(kineto.parse(path))

"""profiler.rocprofv3_json on documents made here, against what was put in."""

import gzip
import json

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprofv3 import rocprofv3_json
from aaco.profiler.io import jsonstream
from tests.fakes.rocprofv3_json import counted, dispatch, event, example, process, write
from tests.pieces import rows, together


@pytest.fixture(params=[None, 0, 4], ids=["compact", "lines", "indented"])
def file(request, tmp_path):
    return write(tmp_path / "1_results.json", example(), indent=request.param)


def test_dispatches_traced_and_counted_are_kernels_once(file):
    """Fails when counted dispatches are kernels beside the trace's own record of them."""
    tables, facts = together(rocprofv3_json.parse(file))
    first, second = rows(tables["kernels"])
    assert first == {
        "kernel_id": 0, "kernel_name": "gemm", "device_id": 0, "queue_id": 2, "stream_id": 3, "process_id": 4242,
        "thread_id": 77, "correlation_id": 11, "t_start_ns": 1100, "t_end_ns": 1133, "dur_ns": 33, "grid_x": 640,
        "grid_y": 4, "grid_z": 1, "block_x": 64, "block_y": 2, "block_z": 1, "vgpr": 32, "agpr": 4, "sgpr": 96,
        "lds_bytes": 512, "scratch_bytes": 8, "dispatch_id": 1, "source": "rocprofv3_json", "timed": "execution"}
    assert (second["kernel_name"], second["device_id"], second["kernel_id"]) == ("fill()", 1, 1)
    assert facts.kernels == Subtotal(2, 34)
    assert facts.left_out["again: the same dispatch stands among the counters"] == Subtotal(1, 33)


def test_counters_are_summed_over_channels(file):
    tables, facts = together(rocprofv3_json.parse(file))
    assert rows(tables["counters"]) == [{"kernel_id": 0, "counter": "SQ_WAVES", "value": 7.0},
                                        {"kernel_id": 0, "counter": "L2_hit", "value": 0.5}]
    assert facts.records["counter"] == 4
    assert facts.left_out["counter: added to the kernel's other values of the same counter"] == Subtotal(1, 0)
    assert facts.left_out["counter: it has no value"] == Subtotal(1, 0)


def test_copies_and_allocations(file):
    tables, _ = together(rocprofv3_json.parse(file))
    assert [(row["kind"], row["bytes"], row["src_device"], row["dst_device"], row["device_id"], row["correlation_id"])
            for row in tables["copies"].to_pylist()] == [("h2d", 4096, None, 0, 0, 13), ("p2p", 64, 1, 0, 0, 14)]
    assert [(row["t_ns"], row["kind"], row["bytes"], row["address"], row["device_id"], row["dur_ns"])
            for row in tables["allocations"].to_pylist()] == [
        (1005, "allocate", 1 << 20, 4096, 0, 10), (1007, "scratch_allocate", 512, None, 1, 10)]


def test_calls_markers_and_arguments(file):
    tables, _ = together(rocprofv3_json.parse(file))
    calls = tables["api_calls"].to_pylist()
    assert [(row["name"], row["domain"], row["correlation_id"], row["external_id"], row["dur_ns"])
            for row in calls] == [
        ("hipLaunchKernel", "hip", 11, 9, 50), ("hipLaunchKernel", "hip", 12, None, 10),
        ("hsa_init", "hsa", 13, None, 5), ("step 1", "marker", 20, None, 500), ("ncclAllReduce", "rccl", 14, None, 300)]
    (told,) = tables["call_arguments"].to_pylist()
    assert told["call_id"] == calls[0]["call_id"]
    assert json.loads(told["arguments"]) == {"grid": "{1,2,3}", "n": "7"}


def test_samples_are_added_up(file):
    tables, facts = together(rocprofv3_json.parse(file))
    assert rows(tables["wave_instructions"]) == [
        {"code_object": 2, "vaddr": 0, "instruction": "s_nop 0", "category": "other", "samples": 1, "dispatch_id": 1,
         "correlation_id": 11, "issued": True, "issue_type": "no_inst", "active_waves": 8},
        {"code_object": 2, "vaddr": 64, "instruction": "v_add_f32 v0, v1, v2", "category": "valu",
         "source_line": "a.cpp:7", "samples": 2, "dispatch_id": 1, "correlation_id": 11, "issued": False,
         "stall_reason": "waitcnt", "active_waves": 8}]
    assert facts.records["sample"] == 3


def test_what_the_file_says_of_itself_and_what_is_not_read(file):
    assert registry.recognise(file) is rocprofv3_json
    _, facts = together(rocprofv3_json.parse(file))
    assert [(device.id, device.arch, device.compute_units) for device in facts.devices] == [
        (0, "gfx942", 304), (1, "gfx942", 304)]
    assert (facts.tool, facts.clock, facts.host, facts.problems) == ("rocprofv3", "boottime", "host-a", ())
    assert facts.metadata == {"processes": [{"pid": 4242, "command": "./run", "start": 1, "end": 9}]}
    assert facts.left_out["ompt: records of this array are not read"] == Subtotal(1, 0)


@pytest.mark.parametrize("chunk", [1 << 9, 1 << 12])
def test_wherever_the_reads_fall(tmp_path, monkeypatch, chunk):
    path = write(tmp_path / "x.json", example(), process(pid=3, kernel_dispatch=[
        dispatch(number, 1000 * number, 1000 * number + 7) for number in range(1, 200)]))
    whole, facts = together(rocprofv3_json.parse(path))
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(jsonstream, "BLOCK_BYTES", chunk)
    monkeypatch.setattr("aaco.profiler.io.jsonwalk.BLOCK_BYTES", chunk)
    again, same = together(rocprofv3_json.parse(path))
    assert facts == same
    assert {name: table.to_pylist() for name, table in whole.items()} == {
        name: table.to_pylist() for name, table in again.items()}
    assert facts.kernels == Subtotal(201, 34 + 199 * 7)


def test_processes_are_kept_apart(tmp_path):
    """Fails when ids of the second process are taken as they are: its kernels find the first one's calls."""
    path = write(tmp_path / "x.json", example(51), example(52, base=5000))
    tables, facts = together(rocprofv3_json.parse(path))
    kernels, calls = tables["kernels"].to_pylist(), tables["api_calls"].to_pylist()
    launched = {row["correlation_id"]: row["process_id"] for row in calls}
    assert len(launched) == 10
    assert [launched[row["correlation_id"]] for row in kernels] == [51, 51, 52, 52]
    assert len({row["kernel_id"] for row in kernels}) == 4
    assert {row["kernel_id"] for row in tables["counters"].to_pylist()} == {kernels[0]["kernel_id"],
                                                                            kernels[2]["kernel_id"]}
    assert facts.kernels == Subtotal(4, 68)


def test_a_single_process_without_a_list_and_zipped(tmp_path):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"rocprofiler-sdk-tool": example()}).encode()))
    assert registry.recognise(path) is rocprofv3_json
    tables, facts = together(rocprofv3_json.parse(path))
    assert (len(tables["kernels"]), facts.kernels) == (2, Subtotal(2, 34))


def test_names_that_stand_behind_the_records(tmp_path):
    """Fails when records are read before the names they need: every kernel is nameless."""
    plain = example()
    turned = {key: plain[key] for key in reversed(plain)}
    turned["callback_records"] = turned.pop("callback_records")  # behind the trace too: then it cannot be used
    tables, facts = together(rocprofv3_json.parse(write(tmp_path / "x.json", turned)))
    assert tables["kernels"]["kernel_name"].to_pylist() == ["gemm", "fill()"]
    assert facts.kernels == Subtotal(2, 34)
    assert facts.left_out["counter: it stands behind the trace, and rocprofv3 writes it before"] == Subtotal(4, 0)


def test_records_that_cannot_be_placed_or_whose_references_dangle(tmp_path):
    made = process(
        counter_collection=[counted(dispatch(8, 5, 4), [(31, 1)]), counted(dispatch(9, 5, 6), [(99, 1)])],
        kernel_dispatch=[dispatch(1, 0, 0), dispatch(2, 10, 11, kernel=77, agent=66), dispatch(3, None, 5),
                         dispatch(4, 1 << 70, 5), dispatch(5, 20, 21, correlation_id={"internal": 0})],
        hip_api=[event("HIP_RUNTIME_API_EXT", 99, 1, 2, 5), {"kind": 700, "start_timestamp": 3, "end_timestamp": 4}])
    tables, facts = together(rocprofv3_json.parse(write(tmp_path / "x.json", made)))
    assert facts.kernels == Subtotal(7, 3)
    assert facts.left_out == {
        "kernel: it ends before it starts": Subtotal(1, 0),
        "kernel: it was never timed: its start or end is 0": Subtotal(1, 0),
        "kernel: its start or end is missing or no integer": Subtotal(2, 0),
        "counter: its kernel was left out": Subtotal(1, 0),
        "counter: its counter is not in the file": Subtotal(1, 0)}
    assert facts.problems == (
        "1 kernel has no correlation id, so no call can be found for them",
        "1 kernel names a symbol that is not in the file", "1 kernel names an agent that is not in the file")
    assert [(row["name"], row["domain"]) for row in tables["api_calls"].to_pylist()] == [(None, "hip"), (None, "hip")]


def test_an_array_that_looks_like_work_of_a_device_is_named(tmp_path):
    """Mutation: passing over every array that has no reader."""
    made = process(kernel_dispatch=[dispatch(1, 5, 6)], kernel_dispatch_v2=[dispatch(2, 7, 9)])
    _, facts = together(rocprofv3_json.parse(write(tmp_path / "x.json", made)))
    assert facts.problems == (
        "1 record of 'kernel_dispatch_v2' looks like work of a device and is missing in its table",)


def test_cut_short_inside_an_array_it_says_so(tmp_path):
    path = write(tmp_path / "x.json", process(kernel_dispatch=[dispatch(n, 10 * n, 10 * n + 3) for n in range(1, 40)]))
    text = path.read_text()
    path.write_text(text[:text.index('"dispatch_id": 30')].rpartition(',\n{\n"size"')[0])
    tables, facts = together(rocprofv3_json.parse(path))
    assert len(tables["kernels"]) == facts.kernels.count == 29
    assert facts.problems[0].startswith("truncated: ")


@pytest.mark.parametrize("text", ["{}", '{"rocprofiler-sdk-tool": 5}', '{"rocprofiler-sdk-tool": [5]}', "[]", "",
                                  '{"rocprofiler-sdk-tool": [{"kernel_symbols": 4}]}',
                                  '{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [3]}}]}'])
def test_what_is_no_such_document(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadCapture, match=r"x\.json"):
        list(rocprofv3_json.parse(path))


def test_long_arguments_are_cut_and_the_cut_is_reported(tmp_path):
    call = event("HIP_RUNTIME_API_EXT", 0, 1, 2, 5, args=[{"name": "huge", "value": "x" * 10**5}])
    tables, facts = together(rocprofv3_json.parse(write(tmp_path / "x.json", process(hip_api=[call]))))
    assert len(json.loads(tables["call_arguments"]["arguments"][0].as_py())["huge"]) == 4096
    assert facts.problems == ("1 argument is longer than 4096 characters: cut",)

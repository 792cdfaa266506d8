"""profiler.kineto on every recorded trace, against json.loads and decimal arithmetic: nothing lost, 0 ns of error."""

import gzip
import json
from collections import Counter
from decimal import Decimal

import pyarrow.compute as pc
import pytest

from aaco.profiler.formats.pytorch import kineto
from tests.pieces import together

pytestmark = pytest.mark.captures
ROWS = ("kernels", "copies", "api_calls", "allocations")


def traces(captures):
    found = [*sorted(captures.glob("kineto/*.json.gz")), *sorted(captures.glob("h200/torch_scenarios/*.json.gz")),
             *sorted(captures.glob("legacy-rocprof/aiter/trace.json"))]
    assert len(found) == 37
    return found


def oracle(path):
    text = path.read_bytes()
    document = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text, parse_float=Decimal)
    return document, document["traceEvents"]


def ns(number):
    exact = Decimal(number) * 1000
    assert exact == int(exact)
    return int(exact)


def test_every_event_of_every_capture_is_a_row_or_left_out_with_its_reason(captures):
    """Fails when events of one category are dropped, or when time passes through a float."""
    for path in traces(captures):
        document, events = oracle(path)
        tables, facts = together(kineto.parse(path))
        base = document.get("baseTimeNanoseconds", 0)
        assert kineto.recognises(path)
        assert sum(facts.records.values()) == len(events)
        assert sum(tables[name].num_rows for name in ROWS if name in tables) + sum(
            part.count for part in facts.left_out.values()) == len(events), path.name
        kernels = [event for event in events if event.get("cat") == "kernel"]
        table = tables["kernels"]
        assert facts.kernels.count == table.num_rows == len(kernels)
        assert facts.kernels.ns == pc.sum(table["dur_ns"]).as_py() == sum(ns(event["dur"]) for event in kernels)
        assert Counter(zip(*(table[name].to_pylist() for name in (
            "t_start_ns", "t_end_ns", "kernel_name", "correlation_id", "device_id", "stream_id", "external_id")),
            strict=True)) == Counter(
            (base + ns(event["ts"]), base + ns(event["ts"]) + ns(event["dur"]), event["name"],
             event["args"]["correlation"], event["args"]["device"], event["args"]["stream"],
             event["args"].get("External id")) for event in kernels)
        assert facts.problems == ()
        assert facts.clock == "realtime"


def test_calls_keep_their_times_threads_ids_and_arguments(captures):
    for path in traces(captures):
        document, events = oracle(path)
        tables, _ = together(kineto.parse(path))
        base = document.get("baseTimeNanoseconds", 0)
        calls = tables["api_calls"]
        host = [event for event in events if event.get("cat") in (
            "cpu_op", "cuda_runtime", "cuda_driver", "python_function", "user_annotation", "overhead")]
        on_host = calls.filter(pc.is_null(calls["device_id"]))
        assert Counter(zip(*(on_host[name].to_pylist() for name in (
            "t_start_ns", "dur_ns", "name", "process_id", "thread_id", "correlation_id", "external_id")),
            strict=True)) == Counter(
            (base + ns(event["ts"]), ns(event["dur"]), event["name"], event["pid"], event["tid"],
             event.get("args", {}).get("correlation"), event.get("args", {}).get("External id")) for event in host)
        said = [event["args"] for event in host if event.get("args", {}).keys() - {
            "External id", "correlation", "cbid", "cid", "Record function id", "Ev Idx", "Python id",
            "Python parent id", "Python module id", "finished"}]
        given = tables["call_arguments"]["arguments"].to_pylist() if "call_arguments" in tables else []
        assert sorted(json.dumps(json.loads(text), sort_keys=True) for text in given) == sorted(
            json.dumps(args, sort_keys=True, default=float) for args in said)


def test_geometry_registers_and_collectives(captures):
    tables, facts = together(kineto.parse(captures / "kineto/b200_eager_trace.json.gz"))
    _, events = oracle(captures / "kineto/b200_eager_trace.json.gz")
    kernels = [event["args"] for event in events if event.get("cat") == "kernel"]
    table = tables["kernels"]
    assert table["grid_x"].to_pylist() == [args["grid"][0] * args["block"][0] for args in kernels]
    assert table["block_z"].to_pylist() == [args["block"][2] for args in kernels]
    assert table["vgpr"].to_pylist() == [args["registers per thread"] for args in kernels]
    assert table["lds_bytes"].to_pylist() == [args["shared memory"] for args in kernels]
    assert table["occupancy_pct"].to_pylist() == [args["est. achieved occupancy %"] for args in kernels]
    (collective,) = tables["collectives"].to_pylist()
    assert {key: value for key, value in collective.items() if key != "kernel_id"} == {
        "operation": "allgather", "group": "3", "group_size": 8, "sequence": None, "bytes_in": 50272,
        "bytes_out": 402176, "dtype": "BFloat16"}
    assert "AllGather" in table["kernel_name"][collective["kernel_id"]].as_py()
    assert (facts.rank, facts.world_size, len(facts.devices)) == (0, 8, 8)
    assert facts.devices[0].arch == "sm_100"
    assert facts.devices[0].compute_units == 148


def test_rocm_says_what_it_says_and_no_more(captures):
    tables, facts = together(kineto.parse(captures / "kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"))
    assert tables["kernels"]["vgpr"].null_count == tables["kernels"].num_rows
    assert "hip" in tables["api_calls"]["domain"].unique().to_pylist()
    assert facts.devices[0].arch is None
    assert facts.metadata["hip_runtime_version"] == 60443483
    assert facts.metadata["metadata"]["started_by"] == "moca"
    assert facts.tool_version == "2.7.0+gitf717b2a"
    copies = tables["copies"].to_pylist()
    assert [(copy["kind"], copy["bytes"], copy["src_device"], copy["dst_device"]) for copy in copies] == [
        ("d2d", 1, 2, 2)]
    assert {row["kind"] for row in tables["allocations"].to_pylist()} == {"allocate", "free"}


def test_pinned_and_pageable(captures):
    for name, pinned in (("pageable", False), ("pinned", True)):
        tables, _ = together(kineto.parse(captures / f"h200/torch_scenarios/transfer_h2d_{name}_100MB.trace.json.gz"))
        copies = [row for row in tables["copies"].to_pylist() if row["kind"] == "h2d"]
        assert {(row["pinned"], row["bytes"], row["dst_device"], row["src_device"]) for row in copies} == {
            (pinned, 96 * 2**20, 0, None)}

"""profiler.rocprof_json on pictures that no recorded capture has, each with an answer planted in it."""

import json

import pytest

from aaco.analytics.truth.record_accounting import AccountCheck
from aaco.core.errors import BadCapture
from aaco.core.records import as_dict
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.rocprof_legacy import rocprof_json
from tests.pieces import rows, together

ROWS = {0: "Markers and Ranges", 1: "COPY", 2: "CPU HIP API", 3: "CPU HSA API", 8: "GPU2", 520: "GPU Barriers2"}


def named():
    return [{}] + [{"args": {"name": name}, "ph": "M", "pid": row, "name": "process_name", "sort_index": row}
                   for row, name in ROWS.items()]


def ran(row, lane, start, end, name, **more):
    """An event as rocprof writes it: every value is text."""
    args = {"BeginNs": start, "EndNs": end, "pid": 33, "tid": 34, "Name": name, "DurationNs": end - start, **more}
    return {"ph": "X", "name": name, "pid": str(row), "tid": lane, "ts": str(start // 1000), "dur": "1",
            "args": {key: str(value) for key, value in args.items()}}


def activity(start, end, name="k.kd", lane=1):
    return ran(8, lane, start, end, name, **{"dev-id": 2, "queue-id": 0, "stream-id": 1})


def intercepted(start, end, name="k.kd"):
    return ran(8, 33, start, end, name, KernelName=name, grd=256, wgr=64, lds=512, scr=16, arch_vgpr=28, accum_vgpr=4,
               sgpr=32, **{"gpu-id": 2, "queue-id": 0})


def call(start, end, name="hipLaunchKernel", row=2, lane=34, args="( kernel(k))"):
    return ran(row, lane, start, end, name, args=args)


def arrow(number, call_us, row, lane, work_us, thread=34):
    return [{"ts": call_us, "ph": "s", "cat": "DataFlow", "id": number, "pid": 2, "tid": thread, "name": "dep"},
            {"ts": work_us, "ph": "t", "cat": "DataFlow", "id": number, "pid": row, "tid": lane, "name": "dep"}]


def parse(tmp_path, *events):
    path = tmp_path / "results.json"
    path.write_text('{ "traceEvents":[{}\n' + "".join(f",{json.dumps(event)}\n" for event in [*named()[1:], *events])
                    + '],\n"otherData": {}\n}')
    assert rocprof_json.recognises(path)
    return together(rocprof_json.parse(path))


def test_times_are_the_arguments_not_the_microseconds(tmp_path):
    tables, facts = parse(tmp_path, intercepted(1_234_567, 1_234_999))
    assert rows(tables["kernels"]) == [{
        "kernel_id": 0, "kernel_name": "k", "device_id": 2, "queue_id": 0, "process_id": 33, "thread_id": 34,
        "t_start_ns": 1_234_567, "t_end_ns": 1_234_999, "dur_ns": 432, "grid_x": 256, "block_x": 64,
        "vgpr": 28, "agpr": 4, "sgpr": 32, "lds_bytes": 512, "scratch_bytes": 16,
        "source": "rocprof_json", "timed": "execution"}]
    assert facts.kernels.ns == 432 and facts.clock == "unknown"


def test_a_call_and_its_work_bear_one_id(tmp_path):
    """Two threads call at the same time; only one of the copies is of one call alone. Broken by: leaving out the
    thread in `_lanes`."""
    tables, _ = parse(
        tmp_path, call(10_000, 40_000),
        call(12_000, 20_000, "hipMemcpyAsync", lane=35, args="( sizeBytes(64) kind(1))"),
        call(50_000, 60_000, "hipMemcpy", args="( sizeBytes(128) kind(1))"), activity(55_000, 56_000),
        ran(1, 1, 30_000, 31_000, "CopyHostToDevice"), ran(1, 1, 61_000, 62_000, "CopyHostToDevice"),
        ran(1, 1, 63_000, 64_000, "CopyHostToDevice"),
        *arrow(7, 25, 8, 1, 55), *arrow(3, 16, 1, 1, 30, thread=35), *arrow(4, 55, 1, 1, 61), *arrow(5, 55, 1, 1, 63))
    calls = {row["name"]: row["correlation_id"] for row in rows(tables["api_calls"])}
    assert calls == {"hipLaunchKernel": 7, "hipMemcpyAsync": 3, "hipMemcpy": 4}
    assert [row["correlation_id"] for row in rows(tables["kernels"])] == [7]
    assert [(row["correlation_id"], row.get("bytes")) for row in rows(tables["copies"])] == [
        (3, 64), (4, None), (4, None)]


def test_work_without_an_arrow_has_no_id(tmp_path):
    tables, facts = parse(tmp_path, call(10_000, 40_000), activity(55_000, 56_000), arrow(7, 25, 8, 1, 55)[1])
    assert tables["kernels"]["correlation_id"].null_count == 1
    assert facts.left_out["t: an arrow: it links a call and its work"].count == 1


def test_kernels_that_stand_twice_are_taken_once(tmp_path):
    """Broken by: taking both sets, which doubles kernel time."""
    tables, facts = parse(tmp_path, intercepted(1000, 2000), intercepted(3000, 4000), activity(1100, 1900))
    assert tables["kernels"]["t_start_ns"].to_pylist() == [1000, 3000]
    assert facts.kernels.count == 2 and facts.kernels.ns == 2000
    part = facts.left_out["again: the same execution stands in the file twice"]
    assert (part.count, part.ns) == (1, 800)
    account = AccountCheck(as_dict(facts))
    account.count, account.ns = 2, 2000
    assert account.account((0, 0)).dropped == (0, 0)


def test_barriers_markers_and_hsa(tmp_path):
    tables, facts = parse(tmp_path, ran(520, 1, 100, 107, "<barrier packet>"), ran(8, 1, 200, 209, "<barrier packet>"),
                          call(1, 2, "step", row=0), call(3, 4, "hsa_queue_create", row=3, args=""))
    assert [(row["name"], row["domain"]) for row in rows(tables["api_calls"])] == [
        ("step", "marker"), ("hsa_queue_create", "hsa")]
    part = facts.left_out["barrier: it orders the queue and is no kernel"]
    assert (part.count, part.ns) == (2, 16) and facts.kernels is None
    assert [json.loads(row["arguments"]) for row in rows(tables["call_arguments"])] == [{"args": "( kernel(k))"}]


def test_an_event_without_nanoseconds_is_left_out_and_so_is_one_that_cannot_be(tmp_path):
    lost = intercepted(1000, 2000)
    del lost["args"]["EndNs"]
    tables, facts = parse(tmp_path, lost, intercepted(900, 800), intercepted(0, 0), intercepted(900, 950))
    assert tables["kernels"]["dur_ns"].to_pylist() == [50] and facts.kernels == Subtotal(4, 50)
    assert {reason: part for reason, part in facts.left_out.items() if reason.startswith("kernel")} == {
        "kernel: its start or end is missing or no integer": Subtotal(1, 0),
        "kernel: it ends before it starts": Subtotal(1, 0),
        "kernel: it was never timed: its start or end is 0": Subtotal(1, 0)}


def test_a_row_that_is_named_too_late_names_no_event_before(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"traceEvents": [{}, intercepted(1000, 2000), *named()[1:], intercepted(3000, 4000)]}))
    tables, facts = together(rocprof_json.parse(path))
    assert tables["kernels"]["t_start_ns"].to_pylist() == [3000]
    assert facts.left_out["X: its row of the picture is of no known kind"].count == 1
    assert any("1 record of 'rows of no known kind' looks like work of a device" in text for text in facts.problems)


@pytest.mark.parametrize("kind", [intercepted, activity])
@pytest.mark.parametrize("phase", [None, "", "B", "i"])
def test_a_kernel_of_no_known_phase_is_named(tmp_path, kind, phase):
    """Found by benchmarks.hostile. Mutation: only complete events are looked at."""
    event = kind(1000, 2000)
    del event["ph"]
    tables, facts = parse(tmp_path, kind(3000, 4000), event | ({} if phase is None else {"ph": phase}))
    assert tables["kernels"]["t_start_ns"].to_pylist() == [3000]
    assert any("1 record of 'events of no known phase' looks like work of a device" in text for text in facts.problems)


def test_another_picture_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"traceEvents": [{}, {"ph": "X", "pid": 1, "name": "a", "ts": 1, "dur": 2}]}))
    assert not rocprof_json.recognises(path)
    with pytest.raises(BadCapture, match="as rocprof draws them"):
        list(rocprof_json.parse(path))

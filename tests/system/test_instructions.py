"""Thread traces and program-counter samples from the capture to the report, as a user sees them."""

from __future__ import annotations

import json

import pytest

from aaco.profiler.formats import registry
from tests.contract.formats_table import CAPTURES
from tests.fakes import thread_trace
from tests.fakes.thread_trace import KERNEL, ROCM6, ROCM7, ROCPROFV2
from tests.parsed import gather

GEMM = "att/gfx950_aiter_mxfp4_BM32-BN128_orig/ui_output_agent_34975_dispatch_20"
SAMPLED = "pcsampling_viewer"
OF_WAVES = ("att", "att_stats", "pc_sampling")


def inside(aaco, path):
    aaco.inside("import", path)
    (kernel,) = json.loads(aaco.inside("instructions", "--json").stdout)["kernels"]
    return kernel


@pytest.mark.parametrize(("generation", "stall"), [(ROCM7, 72), (ROCM6, 72), (ROCPROFV2, None)])
def test_cycles_of_three_generations(aaco, tmp_path, generation, stall):
    """Six instructions, three waves: 40 cycles each of which 4 stalled, 100 apart; the last is followed by none.

    Where the decoder says it itself (ROCm 7), 8 idle cycles each. Mutation: take_in before the look at what is listed.
    """
    kernel = inside(aaco, thread_trace.write(tmp_path / "trace", generation).parent)
    idle = 6 * 3 * 8 if generation == ROCM7 else 3 * 5 * 60
    assert kernel["kernel"] == KERNEL
    assert kernel["evidence"] == "thread_trace"
    assert kernel["whole"] == {"name": KERNEL, "hits": 18, "latency_cycles": 720, "stall_cycles": stall,
                               "idle_cycles": idle, "samples": 0}
    assert {part["name"]: part["hits"] for part in kernel["mix"]} == {
        "smem": 3, "waitcnt": 6, "vmem": 3, "valu": 3, "other": 3}
    assert kernel["lines"][0]["name"] == "k.hip:1"
    assert kernel["states"] == {"exec": 900, "wait": 600, "idle": 300}
    assert kernel["occupancy"]["waves"] == 3
    assert kernel["stall_share"] == (stall / (720 + idle) if stall else None)
    assert (kernel["why_no_stalls"] is None) == (stall is not None)


def test_stalls_of_some_waves_are_not_those_of_all(aaco, tmp_path):
    """The listing counts three waves of which one was kept: latencies of all, stalls unknown.

    Mutation: take_in without the comparison of executions.
    """
    folder = thread_trace.write(tmp_path / "trace", ROCM6).parent
    for wave in (1, 2):
        (folder / f"se2_sm1_sl3_wv{wave}.json").unlink()
    kernel = inside(aaco, folder)
    assert kernel["whole"]["latency_cycles"] == 720
    assert kernel["whole"]["stall_cycles"] is None
    assert kernel["why_no_stalls"].startswith("the listing sums 18 executions")
    assert kernel["loads"][0]["waits"] == 1


def test_waits_are_laid_to_the_loads_they_waited_for(aaco, tmp_path):
    """The wave's second instruction waits for its first, the fourth for its third: 140 cycles from issue to arrival.

    The second has another wait, for nothing: decoders may write one per counter.
    """
    kernel = inside(aaco, thread_trace.write(tmp_path / "trace", ROCM7).parent)
    loads = {each["category"]: each for each in kernel["loads"]}
    assert kernel["unmatched_waits"] == 0
    assert set(loads) == {"smem", "vmem"}
    for found in loads.values():
        assert (found["waits"], found["stalled_waits"], found["stall_cycles"]) == (3, 3, 12)
        assert found["mean_latency_cycles"] == found["p50_latency_cycles"] == 140
        assert found["p99_latency_cycles"] is None


def test_reports_say_it_and_sessions_without_say_why(aaco, tmp_path):
    thread_trace.write(tmp_path / "trace", ROCM7)
    assert "INSIDE KERNELS" in aaco.inside("import", tmp_path / "trace", "--full").stdout
    assert "## Inside kernels" in aaco.inside("report", "--format", "markdown").stdout
    aaco.inside("report", "--format", "html", "-o", tmp_path / "r.html")
    assert "Inside kernels" in (tmp_path / "r.html").read_text()
    for by in ("line", "instruction", "category"):
        assert f"samples  {by}" in aaco.inside("instructions", "--by", by).stdout
    (aaco.latest / "metrics/instructions.json").write_text('{"schema_version": 1, "kernels": [{"capture": "x"}]}')
    assert "instructions.json" in aaco.inside("report", expect=2).stderr


def test_a_session_without_is_refused(aaco, tmp_path):
    header = "Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev"
    (tmp_path / "s.csv").write_text(f"{header}\nk,2,20,10,100,9,11,1\n")
    aaco.inside("import", tmp_path / "s.csv")
    assert "rocprofv3 --att" in aaco.inside("instructions", expect=2).stderr


@pytest.mark.captures
def test_a_real_trace_adds_up(aaco, captures):
    """gfx950, MXFP4 GEMM: the parts are the whole, the waits' stalls are those of s_waitcnt, all links are resolved."""
    kernel = inside(aaco, captures / GEMM)
    whole = kernel["whole"]
    for name in ("hits", "latency_cycles", "stall_cycles", "idle_cycles"):
        assert sum(part[name] for part in kernel["mix"]) == whole[name]
    waiting = next(part for part in kernel["mix"] if part["name"] == "waitcnt")
    assert sum(loads["stall_cycles"] for loads in kernel["loads"]) == waiting["stall_cycles"] == 717_564
    assert sum(loads["waits"] for loads in kernel["loads"]) == waiting["hits"] == 4_656
    assert kernel["unmatched_waits"] == 0
    assert kernel["loads"][0]["category"] == "vmem"
    spans = 0
    for path in sorted((captures / GEMM).glob("se*_wv*.json")):
        executed = json.loads(path.read_text())["wave"]["instructions"]
        spans += executed[-1][0] + executed[-1][3] - executed[0][0]
    assert whole["latency_cycles"] + whole["idle_cycles"] == spans  # every cycle of every wave, once


@pytest.mark.captures
def test_a_real_sampling_adds_up(aaco, captures):
    kernel = inside(aaco, captures / SAMPLED)
    code = json.loads((captures / SAMPLED / "code.json").read_text())
    assert kernel["evidence"] == "samples"
    assert kernel["whole"]["samples"] == sum(part["samples"] for part in kernel["mix"]) > 0
    assert kernel["issued_samples"] + sum(kernel["stall_reasons"].values()) == kernel["whole"]["samples"]
    assert kernel["stall_share"] is None
    assert "count no cycles" in kernel["why_no_stalls"]
    assert code["code"]


@pytest.mark.captures
def test_no_run_time_comes_from_them(captures, tmp_path):
    """Neither readers nor a session of them give a kernel, a copy or a call with a duration.

    Mutation: a reader that makes a kernel of a wave's begin and end.
    """
    parsers = registry.parsers()
    seen = 0
    for name in OF_WAVES:
        for path in sorted(path for pattern in CAPTURES[name] for path in captures.glob(pattern)):
            tables, _ = gather(parsers[name].parse(path))
            seen += 1
            assert not {"kernels", "copies", "api_calls"} & tables.keys(), path
    assert seen >= 5


@pytest.mark.captures
def test_metrics_of_time_stay_absent_with_them_alone(aaco, captures):
    aaco.inside("import", captures / GEMM)
    found = json.loads(aaco.inside("report", "--format", "json").stdout)
    timed = [name for name, reading in found["readings"].items()
             if reading["unit"] in ("ns", "us", "ms", "s") and reading["value"] is not None]
    assert timed == []

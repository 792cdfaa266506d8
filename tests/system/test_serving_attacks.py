"""Traces of engines that must not be believed in all: each says what is absent, and why."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aaco.tracelake.queries import QueryableSession
from benchmarks.serving_cost import IDS
from tests.system.conftest import Aaco

RECORDED = Path(__file__).parents[1] / "captures/torch_serving_h100"
RANKS = Path(__file__).parents[1] / "captures/torch_serving_engine/two_ranks"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
Events = list[dict[str, Any]]


def read() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress((RECORDED / "decode_batch_8.trace.json.gz").read_bytes()))
    return content


def changed(folder: Path, change: Callable[[Events], Events]) -> Path:
    """Write the recording of three replayed decode steps with other events."""
    trace, path = read(), folder / "engine.json"
    path.write_text(json.dumps(trace | {"traceEvents": change(trace["traceEvents"])}))
    return path


def two_engines(device: int) -> Callable[[Events], Events]:
    """Another process does the same 300 us later, on this device."""
    def both(events: Events) -> Events:
        higher = 1 + max(event.get("args", {}).get(name, 0) for event in events for name in IDS)
        later = [event | {"ts": event["ts"] + 300} for event in events if "ts" in event and event["ph"] != "M"]
        for event in later:
            event["args"] = (arguments := event.get("args", {})) | {
                name: arguments[name] + higher for name in IDS if arguments.get(name)}
            if event.get("cat") in ON_DEVICE:
                event["pid"], event["tid"] = device, event["tid"] + 20
                event["args"] |= {"device": device, "stream": event["tid"]}
            elif isinstance(event.get("tid"), int):
                event["pid"], event["tid"] = event["pid"] + 1000, event["tid"] + 1000
            if "id" in event:
                event["id"] += higher
        return events + later

    return both


def speculative(events: Events) -> Events:
    """The engine checks four tokens of each request."""
    names = {"step[DECODE bs=8]": "step[TARGET_VERIFY bs=8]"}
    kept = [event for event in events if not event["name"].startswith("execute_")]
    return [event | {"name": names.get(event["name"], event["name"])} for event in kept]


def shuffled(events: Events) -> Events:
    """The kernels of each launch have each other's names."""
    rng, launched = random.Random(3), dict[int, Events]()
    for event in events:
        if event.get("cat") == "kernel":
            launched.setdefault(event["args"]["correlation"], []).append(event)
    for kernels in launched.values():
        names = [kernel["name"] for kernel in kernels]
        rng.shuffle(names)
        for kernel, name in zip(kernels, names, strict=True):
            kernel["name"] = name
    return events


def truncated(events: Events) -> Events:
    """The recording ends in the middle of the last step's kernels."""
    starts = sorted(event["ts"] for event in events if event.get("cat") == "kernel")
    end = starts[len(starts) * 5 // 6]
    return [event for event in events if event.get("ph") == "M" or event.get("ts", 0) + event.get("dur", 0) <= end]


def imported(aaco: Aaco, path: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the steps, and the report in one line."""
    aaco.inside("import", path, "--capture", RECORDED / "capture_traces", "--model-config", RECORDED / "config.json")
    steps = json.loads(aaco.inside("steps", "--json").stdout)["steps"]
    return steps, " ".join(aaco.inside("report").stdout.replace("║", "").split())


@pytest.mark.parametrize(("device", "idle"), [(0, [False] * 6), (1, [False, False, True, True, True, True])])
def test_two_engines_in_one_trace(aaco: Aaco, tmp_path: Path, device: int, idle: list[bool]):
    """Which of them the configuration describes is not known; on one device, neither since when it is idle.
    Mutation: idle time since the kernels of any engine."""
    steps, report = imported(aaco, changed(tmp_path, two_engines(device)))
    assert [row["idle_before_ns"] is not None for row in steps] == idle
    assert {row["moved_bytes"] for row in steps} == {None} and "2 engines are in one capture" in report
    assert ("several engines share a device" in report) == (device == 0)


def test_speculative_steps_have_no_time_per_token(aaco: Aaco, tmp_path: Path):
    """Shapes are those of one token a request: a graph of others has none. Mutation: the batch of any decode step."""
    steps, report = imported(aaco, changed(tmp_path, speculative))
    assert {(row["speculative"], row["phase"], row["scheduled_tokens"]) for row in steps} == {(1, "decode", None)}
    assert "how many were accepted is not recorded" in report
    summary = json.loads((aaco.latest / "metrics/serving.json").read_text())
    assert summary["with_shapes_ns"] < 0.05 * summary["traced_ns"] < 0.5 * summary["with_operator_ns"]


def test_shuffled_kernels_have_no_operators_and_no_layers(aaco: Aaco, tmp_path: Path):
    _, report = imported(aaco, changed(tmp_path, shuffled))
    assert "no layers: " in report
    rows = QueryableSession(aaco.latest).table("operators").to_pylist()
    replayed = [row for row in rows if row["kernels"] > 50]
    assert replayed and {row["operator"] for row in replayed} == {None} and all(
        "no capture in the trace" in row["why_unattributed"] for row in replayed)


def test_a_step_that_the_trace_cuts_is_in_no_median(aaco: Aaco, tmp_path: Path):
    steps, report = imported(aaco, changed(tmp_path, truncated))
    assert [row["left_out"] is not None for row in steps] == [False, False, True]
    assert "3 steps (1 left out: the trace begins or ends inside the step)" in report
    assert steps[2]["kernels"] < steps[1]["kernels"]


def test_of_one_rank_of_two_what_waits_for_the_other_is_not_judged(aaco: Aaco):
    """Its first step waited 22 ms for a rank that had not started. Mutation: that step is in the budget of its phase.
    """
    done = aaco.inside("import", RANKS / "decode_b16_rank0.trace.json.gz", "--model-config", RANKS / "config.json")
    assert "captures of 1 of 2 ranks are missing" in " ".join(done.stdout.split())
    steps = json.loads(aaco.inside("steps", "--json").stdout)
    assert [row["left_out"] for row in steps["steps"]] == ["waiting for a rank that had not started", None, None]
    assert {row["moved_bytes"] for row in steps["steps"]} == {None}
    assert steps["phases"][0]["budget"]["communication"] < 0.3 * sum(steps["phases"][0]["budget"].values())

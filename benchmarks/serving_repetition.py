"""Steps of an engine found by repetition, held against the annotations that were taken out of its trace.

A step is right if it has exactly the kernels of an annotated one; one that the trace cuts is only counted. Traces that
are changed so that nothing tells (shuffled kernels, a single step), and those of other programs, must give none.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.tracelake.queries import QueryableSession
from benchmarks.serving_cost import ANNOTATIONS, IDS

Trace = dict[str, Any]
WINDOW = "serving_window"
RECORDED = ("decode_bs1_ctx1000_graph", "decode_bs8_ctx1000_graph", "decode_bs32_ctx1000_graph",
            "decode_bs1_ctx1000_eager", "decode_bs8_ctx1000_eager", "decode_bs32_ctx1000_eager", "mixed_16_and_512",
            "prefill_1x4096", "prefill_1x512", WINDOW)
ONE_STEP = ("inference_sglang_decode_sglang_Qwen3-8B_decode", "inference_vllm_decode_full_graph_execution",
            "b200_eager_trace")
NO_ENGINE = ("h100_*", "mi300_*", "mi210_*", "torch_compile_*", "perf_model_*")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")


class StepScore(Struct, frozen=True):
    """Steps that were annotated, those that were found and whole, and those of these that are right."""

    annotated: int
    found: int
    right: int

    @property
    def text(self) -> str:
        """Return precision and recall."""
        precision = f"{self.right} of {self.found} right" if self.found else "abstains"
        return f"{precision}, {self.right} of {self.annotated} found"


def read(path: Path) -> Trace:
    """Return a trace of the PyTorch profiler."""
    content: Trace = json.loads(gzip.decompress(path.read_bytes()))
    return content


def write(path: Path, trace: Trace, events: list[dict[str, Any]]) -> Path:
    """Write these events without annotations, their ids without gaps: a trace that lacks some would be one with losses.
    """
    kept = [event for event in events if event.get("cat") not in ANNOTATIONS]
    for name in IDS:
        used = sorted({event["args"][name] for event in kept if event.get("args", {}).get(name)})
        number = {old: new for new, old in enumerate(used, start=1)}
        kept = [event | {"args": event["args"] | {name: number[event["args"][name]]}}
                if event.get("args", {}).get(name) else event for event in kept]
    path.write_bytes(gzip.compress(json.dumps(trace | {"traceEvents": kept}).encode(), compresslevel=1))
    return path


def without_waits(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events without calls that wait: as where another thread waits."""
    return [event for event in events if "Synchronize" not in event["name"]]


def first_step(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events up to the end of the first annotated step."""
    end = min(event["ts"] + event["dur"] for event in events
              if event.get("cat") == "user_annotation" and event["name"].startswith("execute_"))
    launched = {event["args"]["correlation"] for event in events
                if event.get("cat") in RUNTIME and event["ts"] < end}
    return [event for event in events if event.get("ph") == "M" or (
        event["args"]["correlation"] in launched if event.get("cat") in WORK else event.get("ts", 0) < end)]


def shuffled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with the names of kernels in a random order."""
    names = [event["name"] for event in events if event.get("cat") == "kernel"]
    random.Random(1).shuffle(names)
    return [event | {"name": names.pop()} if event.get("cat") == "kernel" else event for event in events]


def moved(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with the kernels launched by each other's calls."""
    ids = [event["args"]["correlation"] for event in events if event.get("cat") == "kernel"]
    random.Random(2).shuffle(ids)
    return [event | {"args": event["args"] | {"correlation": ids.pop()}} if event.get("cat") == "kernel" else event
            for event in events]


CHANGED: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "no waits": without_waits, "one step": first_step, "shuffled kernels": shuffled, "shuffled launches": moved}
MUST_ABSTAIN = ("one step", "shuffled kernels", "shuffled launches")


def steps_of(session: QueryableSession) -> dict[int, frozenset[tuple[int, str]]]:
    """Return the kernels of each whole step of a session, by start and name."""
    names = {row["kernel_id"]: row["kernel_name"] for row in session.kernels().select(
        ["kernel_id", "kernel_name"]).to_pylist()}
    whole = {row["step"] for row in session.table("serving_steps").to_pylist() if not row["warning"]}
    steps: dict[int, set[tuple[int, str]]] = {step: set() for step in whole}
    for row in session.table("serving_kernels").to_pylist():
        if row["step"] in whole:
            steps[row["step"]].add((row["t_start_ns"], names[row["kernel_id"]]))
    return {step: frozenset(kernels) for step, kernels in steps.items()}


def scored(annotated: QueryableSession, stripped: QueryableSession) -> StepScore:
    """Return how the steps of a trace without annotations agree with those of the trace with them."""
    truth, found = set(steps_of(annotated).values()), steps_of(stripped)
    return StepScore(len(truth), len(found), sum(kernels in truth for kernels in found.values()))


def scores(captures: Path, folder: Path, imported: Callable[[Path, list[Path]], QueryableSession]
           ) -> Iterator[tuple[str, StepScore, bool]]:
    """Yield what was tried, how the steps agree, and whether there must be none."""
    for name in RECORDED:
        path = captures / "serving" / f"{name}.trace.json.gz"
        trace, annotated = read(path), imported(folder, [path])
        changes = CHANGED if name in (WINDOW, "decode_bs8_ctx1000_graph") else {}
        for change, apply in ({"": list} | changes).items():
            stripped = imported(folder, [write(folder / f"{name}.json.gz", trace, apply(trace["traceEvents"]))])
            yield f"{name}{', ' * bool(change)}{change}", scored(annotated, stripped), change in MUST_ABSTAIN
    for name in ONE_STEP:
        trace = read(captures / "kineto" / f"{name}.json.gz")
        stripped = imported(folder, [write(folder / "one.json.gz", trace, trace["traceEvents"])])
        yield name[:40], StepScore(1, len(steps_of(stripped)), 0), True
    for path in sorted(path for pattern in NO_ENGINE for path in (captures / "kineto").glob(f"{pattern}.json.gz")):
        yield path.name[:40], StepScore(0, len(steps_of(imported(folder, [path]))), 0), True


def bars(captures: Path, folder: Path, imported: Callable[[Path, list[Path]], QueryableSession]
         ) -> Iterator[tuple[str, str, str, bool]]:
    """Yield claim, measured, bar, and whether it is met, for each trace and for all together."""
    listed = list(scores(captures, folder, imported))
    for name, score, none in listed:
        bar = "none" if none else "right or none"
        yield f"by repetition, {name}", score.text, bar, score.found == (0 if none else score.right)
    tried = [score for _, score, none in listed if not none]
    total = StepScore(*(sum(getattr(score, column) for score in tried) for column in ("annotated", "found", "right")))
    wrong = sum(score.found - score.right for _, score, _ in listed)
    yield "by repetition, all: steps", f"{total.text}; {wrong} wrong", "0 wrong", wrong == 0

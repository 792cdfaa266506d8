"""What is judged of a trace, and who is late: two-rank recordings with a planted straggler, and a second of start-up in
front of steps of a known class."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from aaco import pipeline
from aaco.analytics.bottleneck.ranks import Windows
from aaco.analytics.diagnosis import UNKNOWN
from aaco.core.config import resolve
from aaco.core.documents import decode
from aaco.core.session import Session
from aaco.report.sections import windows as text
from aaco.tracelake import layout
from benchmarks.claims import Claim

OURS = Path(__file__).parents[2] / "tests/captures"
SPUN_NS = 5_060_000  # by the spin kernel of busy1, each step (PROVENANCE.md of data/h100x2)
SLEPT_NS = 20_000_000  # by the host of sleep1
BEFORE_US = 1_000_000  # of start-up that is put in front of a trace
STEPS = ("launch_tiny_mlp", "compute_gemm_fp32_4096", "memory_softmax")


def claims(captures: Path) -> list[Claim]:
    """Every claim about windows, ranks and stragglers."""
    return [*_ranks(captures / "h100x2"), *_start_up(), *_whole_programs()]


def _whole_programs() -> Iterator[Claim]:
    """Programs recorded from their first allocation on: the class is that of their steps, which no mark names."""
    home = OURS / "whole_programs"
    for program in json.loads((home / "manifest.json").read_text())["programs"]:
        if not program["shared"]:
            label = _class([home / f"{program['name']}.trace.json.gz"])
            yield Claim(f"{program['name']}: class, with {program['start_up_ms']:.0f} ms of start-up before "
                        f"{program['steps']} steps", program["label"], label, label == program["label"])


def _ranks(folder: Path) -> Iterator[Claim]:
    """Two H100 of one host: who is named, what the other waited, and why; against the times in the files themselves."""
    for case, cause in (("sleep1", "pause"), ("busy1", "memory_latency")):
        windows = _windows(sorted((folder / case).glob("*.json.gz")))
        waits = windows.stragglers
        named = waits is not None and waits.late is not None and waits.ranks[waits.late].rank == 1
        shown = next(text.straggler(windows)).text
        last, waited = _waited(folder / case)
        exact = f"is last in {last} of 36 all-reduces; the other waited {waited:,} ns" in shown
        yield Claim(f"{case}: the straggler, how often it is last and what the other waited, in text",
                    "rank 1, exact", shown.split(". Cause")[0], named and exact)
        yield Claim(f"{case}: its cause", cause, shown.split("Cause: ")[-1],
                    windows.cause is not None and windows.cause.part == cause and _planted(windows, case))
        yield Claim(f"{case}: each rank's parts sum to its window", "exact, ns", _sums(windows), _exact(windows))
    for case in ("even", "sizes"):
        windows = _windows(sorted((folder / case).glob("*.json.gz")))
        waits = windows.stragglers
        yield Claim(f"{case}, nothing planted: stragglers", "none", waits.why_none if waits else "no collectives",
                    waits is not None and waits.late is None)


def _planted(windows: Windows, case: str) -> bool:
    """Return whether the cause holds what was planted: the spin kernel's time to 1 %, at least the sleeps."""
    steps, cause = windows.window_of(windows.ranks[windows.slowest]).steps, windows.cause
    if cause is None:
        return False
    if case == "sleep1":  # the window begins behind the sleep of its first step
        return SLEPT_NS * (steps - 1) <= cause.own_ns
    return cause.kernel is not None and abs(cause.kernel.ns / (SPUN_NS * steps) - 1) <= 0.01


def _waited(folder: Path) -> tuple[int, int]:
    """Return in how many all-reduces rank 1 starts last, and what rank 0 waited in those, read from the two files."""
    starts = [sorted(round(1000 * event["ts"]) for event in _events(path) if event.get("cat") == "kernel"
                     and "AllReduce" in event["name"]) for path in sorted(folder.glob("*.json.gz"))]
    behind = [late - early for early, late in zip(*starts, strict=True)]
    return sum(ns > 0 for ns in behind), sum(ns for ns in behind if ns > 0)


def _events(path: Path) -> list[dict[str, Any]]:
    """Return the timed events of a Kineto file; times in us as decimals, so that no ns is lost."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return [event for event in document["traceEvents"] if "ts" in event]


def _start_up() -> Iterator[Claim]:
    """The class of a trace of steps with and without a second of start-up in front: the same."""
    for name in STEPS:
        path = OURS / "torch_scenarios" / f"{name}.trace.json.gz"
        with tempfile.TemporaryDirectory() as folder:
            longer = _with_start_up(path, Path(folder) / "whole.json.gz")
            plain, whole = _class([path]), _class([longer])
            windows = _windows([longer])
        (window,) = windows.captures
        outside = sum(span.ns for span in window.outside)
        yield Claim(f"{name}, a second of start-up in front: class", plain, f"{whole}; {text.window(window)}",
                    plain == whole != UNKNOWN and outside >= 1000 * BEFORE_US
                    and outside + window.window_ns == window.trace_ns)


def _with_start_up(path: Path, longer: Path) -> Path:
    """Write the trace with one kernel and its launch a second before its first event."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document["traceEvents"]
    first = min(event["ts"] for event in events if event.get("ph") == "X")
    kernel = next(event for event in events if event.get("cat") == "kernel")
    call = next(event for event in events if event.get("cat") == "cuda_runtime")
    ran = kernel | {"name": "init_weights", "ts": first - BEFORE_US, "dur": 5.0,
                    "args": kernel["args"] | {"correlation": 987_654_321}}
    launched = call | {"name": "cudaLaunchKernel", "ts": first - BEFORE_US - 10, "dur": 4.0,
                       "args": call["args"] | {"correlation": 987_654_321}}
    document["traceEvents"] = [*events, launched, ran]
    longer.write_bytes(gzip.compress(json.dumps(document).encode()))
    return longer


def _import(paths: list[Path], folder: str) -> Session:
    """Return the session that the product makes of these captures."""
    settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
    return Session.open(pipeline.import_captures(paths, settings).explanation.folder)


def _windows(paths: list[Path]) -> Windows:
    with tempfile.TemporaryDirectory() as folder:
        return decode(_import(paths, folder).read_json(layout.finding("windows")), Windows)


def _class(paths: list[Path]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return str(_import(paths, folder).read_json(layout.BOTTLENECK)["bottleneck_class"])


def _sums(windows: Windows) -> str:
    return "; ".join(f"{sum(parts.values()):,} ns" for parts in windows.budgets_ns)


def _exact(windows: Windows) -> bool:
    return all(sum(parts.values()) == rank.time.span_ns
               for parts, rank in zip(windows.budgets_ns, windows.ranks, strict=True))

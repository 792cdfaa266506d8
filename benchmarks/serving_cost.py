"""What steps, layers and operators of a serving trace cost, against the same kernels without annotations.

    AACO_CAPTURES=DIR python -m benchmarks.serving_cost [--kernels 2000000] [--turns 3] [--json FILE]

A recording of three replayed decode steps is repeated with later times and other ids: as it is, without the engine's
annotations, and with a profiler's step markers in their place. All are imported in turns, each in a process of its own,
with the capture of the graph. The bar is 1.15 times the CPU time of the import without annotations; steps also bring
advice with ceilings, which the third trace has too. A table and JSON are printed; the exit code is 1 where the bar is
missed. The imports without annotations also do without the search for steps that repeat: it would hide what steps cost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

RECORDING, CAPTURE = "decode_bs8_ctx1000_graph", "capture_8_DECODE"
BAR = 1.15
IDS = ("correlation", "External id")
ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
KINDS = ("annotated", "plain", "marked")
# Imports as `aaco import` does, of steps only those that are annotated.
WITHOUT_REPETITION = """
from aaco import cli
from aaco.core.readings import Absent
from aaco.steps.findings import serving_steps

def none(session):
    raise Absent("left out")

serving_steps.by_repetition = none
cli.main()
"""


def write(path: Path, recording: Mapping[str, Any], kernels: int, kind: str) -> int:
    """Write a trace of at least so many kernels, and return how many it has."""
    events = _renumbered([event for event in map(partial(_as, kind), recording["traceEvents"]) if event is not None])
    timed = [event for event in events if "ts" in event]
    ran = sum(event.get("cat") == "kernel" for event in events)
    first = min(event["ts"] for event in timed if event.get("ph") == "X")
    period = max(event["ts"] + event.get("dur", 0) for event in timed) - first + 500.0
    step = 1 + max(event.get("args", {}).get(name, 0) for event in events for name in IDS)
    header = {name: content for name, content in recording.items() if name != "traceEvents"}
    turns = -(-kernels // ran)
    with path.open("wb") as file:
        file.write(msgspec.json.encode(header)[:-1] + b', "traceEvents": [')
        for turn in range(turns):
            later = msgspec.json.encode([*_repeated(events, turn * period, turn * step, turn == 0)])
            file.write((b"," if turn else b"") + later[1:-1])
        file.write(b"]}")
    return turns * ran


def _as(kind: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event as a kind of trace has it; None if it does not."""
    if kind == "annotated" or event.get("cat") not in ANNOTATIONS:
        return event
    is_step = kind == "marked" and event["cat"] == "user_annotation" and event["name"].startswith("execute_")
    return event | {"name": "ProfilerStep#"} if is_step else None


def _renumbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events with ids without gaps: a trace that lacks the numbers of annotations would be one with losses.
    """
    dense = {name: {old: new for new, old in enumerate(sorted({0, *(event["args"][name] for event in events
                                                                    if event.get("args", {}).get(name))}))}
             for name in IDS}
    return [event | {"args": arguments | {name: dense[name][arguments[name]] for name in IDS if arguments.get(name)}}
            if (arguments := event.get("args")) else event for event in events]


def _repeated(events: list[dict[str, Any]], later_us: float, higher: int, first: bool) -> Iterator[dict[str, Any]]:
    """Yield the events some time later, with ids of their own; metadata only the first time."""
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            if first:
                yield event
            continue
        moved = event | {"ts": round(event["ts"] + later_us, 3)}
        if event["name"] == "ProfilerStep#":
            moved["name"] += str(round(moved["ts"]))
        if "id" in event:
            moved["id"] = event["id"] + higher
        if arguments := event.get("args"):
            moved["args"] = arguments | {name: arguments[name] + higher for name in IDS if arguments.get(name)}
        yield moved


def cpu_s(trace: Path, capture: Path, folder: Path) -> float:
    """Return the CPU seconds that importing a trace takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", WITHOUT_REPETITION, "import", str(trace), "--capture", str(capture),
                    "--quiet", "--sessions-dir", str(folder)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_cost", description=__doc__)
    parser.add_argument("--kernels", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3, help="imports of each trace")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    recordings = Path(os.environ["AACO_CAPTURES"]) / "serving"
    recording = json.loads(gzip.decompress((recordings / f"{RECORDING}.trace.json.gz").read_bytes()))
    capture = recordings / f"{CAPTURE}.trace.json.gz"
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        traces = {kind: Path(folder) / f"{kind}.json" for kind in KINDS}
        count = max(write(path, recording, asked.kernels, kind) for kind, path in traces.items())
        for turn in range(asked.turns):
            for kind in KINDS[::-1] if turn % 2 else KINDS:
                sessions = Path(folder) / f"sessions-{turn}-{kind}"
                taken[kind].append(cpu_s(traces[kind], capture, sessions))
                shutil.rmtree(sessions)
    spent = {kind: median(times) for kind, times in taken.items()}
    ratio = spent["annotated"] / spent["plain"]
    record = {"kernels": count, "cpu_s": taken, "ratio": round(ratio, 3), "bar": BAR, "met": ratio <= BAR,
              "ratio_to_marked": round(spent["annotated"] / spent["marked"], 3)}
    print(f"{count:,} kernels: {spent['annotated']:.1f} s of CPU with annotations, {spent['plain']:.1f} s without "
          f"({ratio:.3f} x, bar {BAR}), {spent['marked']:.1f} s with a profiler's markers "
          f"({record['ratio_to_marked']} x)")
    print(json.dumps(record))
    if asked.json:
        asked.json.write_text(json.dumps(record) + "\n")
    return 0 if record["met"] else 1


if __name__ == "__main__":
    sys.exit(main())

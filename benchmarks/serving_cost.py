"""What finding steps, layers and operators of a serving trace costs, against the same kernels without annotations.

    AACO_CAPTURES=DIR python -m benchmarks.serving_cost [--kernels 2000000] [--json FILE]

A recording of three replayed decode steps is repeated with later times and other ids, once as it is and once without
the engine's annotations; both are imported in turns, each in a process of its own, with the capture of the graph. The
bar is 1.15 times the CPU time. A table and JSON are printed; the exit code is 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

RECORDING, CAPTURE = "decode_bs8_ctx1000_graph", "capture_8_DECODE"
BAR = 1.15
TURNS = 3
IDS = ("correlation", "External id")
ANNOTATIONS = ("user_annotation", "gpu_user_annotation")


def write(path: Path, recording: Mapping[str, Any], kernels: int, annotated: bool) -> int:
    """Write a trace of at least so many kernels, and return how many it has."""
    events = [event for event in recording["traceEvents"] if annotated or event.get("cat") not in ANNOTATIONS]
    timed = [event for event in events if "ts" in event]
    ran = sum(event.get("cat") == "kernel" for event in events)
    first = min(event["ts"] for event in timed if event.get("ph") == "X")
    period = max(event["ts"] + event.get("dur", 0) for event in timed) - first + 500.0
    step = 1 + max(event.get("args", {}).get(name, 0) for event in events for name in IDS)
    header = {name: content for name, content in recording.items() if name != "traceEvents"}
    turns = -(-kernels // ran)
    with path.open("w") as file:
        file.write(json.dumps(header)[:-1] + ', "traceEvents": [')
        for turn in range(turns):
            later = ",".join(json.dumps(event) for event in _repeated(events, turn * period, turn * step, turn == 0))
            file.write(("," if turn else "") + later)
        file.write("]}")
    return turns * ran


def _repeated(events: list[dict[str, Any]], later_us: float, higher: int, first: bool) -> Iterator[dict[str, Any]]:
    """Yield the events some time later, with ids of their own; metadata only the first time."""
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            if first:
                yield event
            continue
        moved = event | {"ts": round(event["ts"] + later_us, 3)}
        if "id" in event:
            moved["id"] = event["id"] + higher
        if arguments := event.get("args"):
            moved["args"] = arguments | {name: arguments[name] + higher for name in IDS if arguments.get(name)}
        yield moved


def cpu_s(trace: Path, capture: Path, folder: Path) -> float:
    """Return the CPU seconds that importing a trace takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "aaco", "import", str(trace), "--capture", str(capture), "--quiet",
                    "--sessions-dir", str(folder)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_cost", description=__doc__)
    parser.add_argument("--kernels", type=int, default=2_000_000)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    recordings = Path(os.environ["AACO_CAPTURES"]) / "serving"
    recording = json.loads(gzip.decompress((recordings / f"{RECORDING}.trace.json.gz").read_bytes()))
    capture = recordings / f"{CAPTURE}.trace.json.gz"
    taken: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        traces = {annotated: Path(folder) / f"{'annotated' if annotated else 'plain'}.json" for annotated in taken}
        count = max(write(path, recording, asked.kernels, annotated) for annotated, path in traces.items())
        for turn in range(TURNS):
            for annotated in sorted(taken, reverse=bool(turn % 2)):
                sessions = Path(folder) / f"sessions-{turn}-{annotated}"
                taken[annotated].append(cpu_s(traces[annotated], capture, sessions))
                subprocess.run(["rm", "-r", str(sessions)], check=True)
    ratio = median(taken[True]) / median(taken[False])
    record = {"kernels": count, "annotated_cpu_s": taken[True], "plain_cpu_s": taken[False], "ratio": round(ratio, 3),
              "bar": BAR, "met": ratio <= BAR}
    with_them, without = median(taken[True]), median(taken[False])
    print(f"{count:,} kernels: {with_them:.1f} s of CPU with annotations, {without:.1f} s without: {ratio:.3f} x "
          f"(bar {BAR})")
    print(json.dumps(record, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if record["met"] else 1


if __name__ == "__main__":
    sys.exit(main())

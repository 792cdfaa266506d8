"""Whether host or device limits a step, from the trace alone, against the time of the same step without the profiler.

The truth is arithmetic: how long the device is busy in a step of the trace (by Python's own sums over the file), over
the step's time in a process that never used the profiler. A device that is busy for 85 % of it limits the step; below
70 % the host does; between them no label is claimed. The recordings are pairs of steps before and
after one change (`pairs` of the captures), none of which a threshold was fitted to but `launch_stretch`.
`python -m benchmarks.diagnosis --only host_or_device`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from scipy.stats import binomtest

from aaco import pipeline
from aaco.analytics.diagnosis import UNKNOWN, diagnose
from aaco.core.config import resolve
from benchmarks.claims import Claim

DEVICE_RATIO, HOST_RATIO = 0.85, 0.7
OF_HOST = ("launch_bound", "cpu_bound", "sync_bound")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
SURE = 0.8


class Step(Struct, frozen=True):
    """A recorded step: the share of the unprofiled step in which its device is busy, and what the trace alone says."""

    name: str
    busy_ratio: float
    label: str
    confidence: float | None

    @property
    def truth(self) -> str:
        """What limits it; empty between the lines."""
        return "device" if self.busy_ratio >= DEVICE_RATIO else "host" if self.busy_ratio < HOST_RATIO else ""

    @property
    def right(self) -> bool:
        """Whether the class is one of the side that limits the step."""
        return (self.truth == "host") == (self.label in OF_HOST)


def claims(captures: Path) -> list[Claim]:
    """How often the side is named, and how often it is right."""
    labelled = [step for step in _steps(captures / "pairs") if step.truth]
    if not labelled:
        return []
    decided = [step for step in labelled if step.label != UNKNOWN]
    wrong = [step for step in decided if not step.right]
    sure = [step.name for step in wrong if (step.confidence or 0.0) >= SURE]
    return [_share("host or device, trace alone: decided", ">= 80 %", len(decided), len(labelled), 0.8),
            _share("host or device, trace alone: right where it names one", ">= 95 %", len(decided) - len(wrong),
                   len(decided), 0.95),
            Claim(f"host or device, trace alone: wrong at confidence >= {SURE:g}", "<= 1",
                  f"{len(sure)} {', '.join(sure)}".strip(), len(sure) <= 1)]


def _share(what: str, bar: str, count: int, of: int, least: float) -> Claim:
    """A share with its exact binomial interval (Clopper and Pearson 1934)."""
    interval = binomtest(count, of).proportion_ci(0.95, "exact")
    return Claim(what, bar, f"{count} of {of} = {100 * count / of:.1f} % [{100 * interval.low:.0f}, "
                 f"{100 * interval.high:.0f}]", count / of >= least)


def _steps(home: Path) -> Iterator[Step]:
    if not home.is_dir():
        return
    with TemporaryDirectory(prefix="aaco-steps-") as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
        for pair in json.loads((home / "pairs.json").read_text())["pairs"]:
            for side in ("before", "after"):
                trace = home / pair["pair"] / f"{side}.trace.json.gz"
                if not trace.exists():
                    continue
                busy_ms = _busy_us(json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]) / 1000
                verdict = diagnose(pipeline.import_captures([trace], settings).metrics)
                yield Step(f"{pair['pair']}/{side}", busy_ms / pair[side]["trace"]["steps"] / pair[side]["step_ms"],
                           verdict.label, verdict.confidence)


def _busy_us(events: Sequence[dict[str, Any]]) -> float:
    """Return the time in which the device does anything, us."""
    busy, until = 0.0, float("-inf")
    for start, length in sorted((float(event["ts"]), float(event["dur"])) for event in events
                                if event.get("ph") == "X" and event.get("cat") in WORK):
        busy += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return busy

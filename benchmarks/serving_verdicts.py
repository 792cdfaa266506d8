"""Class and first advice of every serving capture, against what is known of it without the product.

A part of `python -m benchmarks.serving`. The truth is the file's own text, the device's busy time by its events, the
times of steps without a profiler, and the work that the engine states.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco import pipeline
from aaco.core.config import resolve
from benchmarks.diagnosis.advice import CHECKS, RawCapture
from benchmarks.intervals import exact_share

FILES = ("serving/*.trace.json.gz", "kineto/inference_*.json.gz")
OWN = (Path(__file__).parents[1] / "tests" / "captures", "torch_serving_*/**/*.trace.json.gz")
DEVICE, HOST = {"compute_bound", "memory_bound", "memory_latency_bound"}, {"launch_bound", "cpu_bound", "sync_bound"}
LEAST_BUSY, MOST_BUSY = 0.5, 0.8  # of the time: with less no device limits the step, with more no host does
H100_FLOPS_PER_BYTE = 989e12 / 3.35e12  # bf16, data sheet: with fewer arithmetic cannot limit
NEARLY = 2.0  # times; nearer to the ridge either may be
ELEMENTWISE = re.compile(r"elementwise|triton_poi|CatArray|copy_|fill|memset|add_norm|cast|Memset|Memcpy DtoD", re.I)
FUSES = re.compile(r"torch\.compile\(model\)|fuse", re.I)
LEAST_SHARE = 0.05  # of the device's time, which fusing elementwise kernels could save
LAUNCHED = re.compile(r"(?:cuda|hip|cu)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")
STEP = re.compile(r"(prefill|decode|mixed)_(?:bs(\d+)|1x(\d+)|\d+_and_(\d+))(?:_ctx(\d+))?_?(graph|eager)?")


class ServingTruth(Struct, frozen=True, dict=True):
    """What is known of a capture. clean_ms: of a step without a profiler; flops_per_byte: of its work; None where
    nobody measured it."""

    raw: RawCapture
    clean_ms: float | None = None
    flops_per_byte: float | None = None

    @cached_property
    def is_capture(self) -> bool:
        """Whether a graph is captured and hardly anything ran."""
        return self.raw.has("StreamBeginCapture") and 4 * len(self.work) < self.raw.count(LAUNCHED)

    @cached_property
    def work(self) -> list[tuple[float, float, str]]:
        """Start, end and name of what ran on the device, in start order."""
        kinds = ("kernel", "gpu_memcpy", "gpu_memset")
        return sorted((float(event["ts"]), float(event["ts"]) + float(event["dur"]), str(event["name"]))
                      for event in self.raw.events if event.get("cat") in kinds)

    @cached_property
    def busy_us(self) -> float:
        """How long the device was busy."""
        reach, busy = 0.0, 0.0
        for start, end, _ in self.work:
            busy += max(0.0, end - max(start, reach))
            reach = max(reach, end)
        return busy

    @property
    def busy(self) -> float:
        """The share of the time in which the device is busy; of the profiled time where no other is known."""
        if self.clean_ms:
            return min(1.0, self.busy_us / 1e3 / self.steps / self.clean_ms)
        return self.busy_us / (max(end for _, end, _ in self.work) - self.work[0][0]) if self.work else 0.0

    @property
    def steps(self) -> int:
        """How many steps were annotated."""
        return max(1, sum(bool(re.match("execute_", str(event["name"]))) and event.get("cat") == "user_annotation"
                          for event in self.raw.events))

    @property
    def elementwise(self) -> float:
        """The share of the device's time, collectives left out for they wait, in kernels with elementwise names."""
        work = [(end - start, name) for start, end, name in self.work if "nccl" not in name.lower()]
        total = sum(us for us, _ in work)
        return sum(us for us, name in work if ELEMENTWISE.search(name)) / total if total else 0.0


def wrong_class(truth: ServingTruth, label: str) -> str:
    """Return why a class contradicts the truth; empty if it does not."""
    if truth.is_capture:
        return "a capture of graphs ran no work"
    if label in DEVICE and truth.busy < LEAST_BUSY:
        return f"the device is busy for {100 * truth.busy:.0f} % of the time"
    if label in HOST and truth.busy > MOST_BUSY:
        return f"the device is busy for {100 * truth.busy:.0f} % of the time"
    ratio = truth.flops_per_byte / H100_FLOPS_PER_BYTE if truth.flops_per_byte else 1.0
    if (label == "compute_bound" and ratio < 1 / NEARLY) or (label == "memory_bound" and ratio > NEARLY):
        return f"the step has {truth.flops_per_byte:.0f} FLOPs a byte"
    return "" if label in DEVICE | HOST | {"balanced"} else "nothing in a serving step is of this class"


def wrong_advice(truth: ServingTruth, text: str) -> str:
    """Return why a piece of advice contradicts the truth; empty if it does not."""
    if truth.is_capture:
        return "a capture of graphs is no workload"
    if FUSES.search(text) and truth.elementwise < LEAST_SHARE:
        return f"elementwise kernels take {100 * truth.elementwise:.1f} %"
    return next((why for why, words, shows in CHECKS if re.search(words, text) and shows(truth.raw)), "")


def truth_of(path: Path, clean: Mapping[str, Any]) -> ServingTruth:
    """Return what is known of a capture. clean: times of steps without a profiler, with their work."""
    name, raw = path.name.removesuffix(".trace.json.gz"), RawCapture(path)
    match = STEP.match(name) if path.parent.name == "serving" else None
    if match is None:
        return ServingTruth(raw)
    kind, batch, prompt, mixed, context, mode = match.groups()
    if kind == "decode":
        near = _nearest(clean["decode"], "context", context, batch=int(batch), mode=mode)
        work = _nearest(clean["decode"], "context", context, batch=int(batch), mode="graph")["work"]
    else:  # requests that decode beside a prompt add little to a step of as many launches
        near = _nearest(clean["prefill"], "prompt", prompt or mixed)
        work = near["work"]
    return ServingTruth(raw, near["engine_step"]["median_ms"], work["flops"] / work["bytes"])


def _nearest(rows: Sequence[Mapping[str, Any]], by: str, at: str, **alike: object) -> Mapping[str, Any]:
    """Return the row that is nearest by a column, of those that are alike in others."""
    fitting = [row for row in rows if all(row[name] == value for name, value in alike.items())]
    return min(fitting, key=lambda row: abs(row[by] - int(at)))


def judged(captures: Path) -> Iterator[tuple[Path, dict[str, Any], ServingTruth]]:
    """Yield each serving capture with what the product says of it, and the truth."""
    clean = json.loads((captures / "serving" / "times_clean.json").read_text())["step_times"]
    paths = [path for pattern in FILES for path in sorted(captures.glob(pattern))] + sorted(OWN[0].glob(OWN[1]))
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
        for path in paths:
            said = pipeline.import_captures([path], settings).explanation.diagnosis.document()
            yield path, said, truth_of(path, clean)


def verdicts(captures: Path, folder: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Yield claim, figure, bar and whether it is met: of classes and of first advice."""
    classes, advice, failed = 0, 0, {"class": list[str](), "advice": list[str]()}
    for path, said, truth in judged(captures):
        label, first = said["bottleneck_class"], next(iter(said["optimization_priority"]), None)
        if label != "unknown":
            classes += 1
            if why := wrong_class(truth, label):
                failed["class"].append(f"{path.name}: {label}: {why}")
        if first:
            advice += 1
            if why := wrong_advice(truth, f"{first['title']}: {first.get('try') or ''}"):
                failed["advice"].append(f"{path.name}: {first['title']}: {why}")
    for of, count in (("class", classes), ("advice", advice)):
        wrong, most = failed[of], exact_share(len(failed[of]), count)[1]
        yield (f"serving captures: wrong {'classes' if of == 'class' else 'first pieces of advice'}",
               f"{len(wrong)} of {count}, <= {100 * most:.0f} %", "0", not wrong)
        print(*(f"        {line}" for line in wrong), sep="\n", end="\n" * bool(wrong))

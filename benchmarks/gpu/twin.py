"""The digital twin on a real GPU: batches that it was not shown, recorded in turns, and a sweep of the product's own.

Medians of fresh processes differ by 20 % where the host is noisy, so what is judged was measured in turns within one
process (benchmarks.twin._record), as on CPUs, and is kept as benchmarks/results/twin-gpu-*.json. The product's own
sweep, a process for each batch, shows what such a host makes of it. ONNX Runtime on CUDA; without onnxruntime-gpu it
says so.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from aaco.analytics.what_if.interval import LEVEL
from aaco.analytics.what_if.model import BatchChoice, WhatIfModel
from aaco.collectors.inventory import machine
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing
from aaco.core.session import find
from aaco.core.show import SILENT
from aaco.steps import calibrate
from aaco.workflows import what_if
from aaco.workflows.sweep import sweep_batches
from benchmarks.claims import RESULTS, Claim
from benchmarks.gpu import _device
from benchmarks.twin import _record, sweeps

PROVIDER = "CUDAExecutionProvider"
MODELS = ("resnet50", "mobilenet", "bert-base")
SHOWN, UNSEEN = (1, 2, 4, 8, 16, 32), (3, 6, 12, 24)
ROUNDS = 12
# Medians of processes differ by 20 % on a busy host, and by more where some of its cores are shared.
SWEPT, PROCESSES, ITERATIONS = "resnet50", 2, 30
BAR = 0.10
Case = tuple[float, bool]  # predicted / measured - 1, and whether the interval holds what was measured


def claims(captures: Path) -> Iterator[Claim]:
    """Measures for about two minutes; ceilings are those of the part `calibration`, where it ran before."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _device.settings(sessions_dir=Path(folder))
        found = calibrate.of_run(machine.identify(), None, calibrate.DeviceAddress("NVIDIA"), settings, SILENT)
        if found is None or found.device is None:
            raise Missing("what this device can do could not be measured", "aaco calibrate --device gpu")
        ceilings = {item.name: item.value for item in found.ceilings if item.device}
        recorded = _record.record(MODELS, ROUNDS, ceilings, found.device.name, PROVIDER, SHOWN, UNSEEN)
        when = recorded["recorded_utc"].replace(":", "").replace("+0000", "Z")
        (RESULTS / f"twin-gpu-{when}.json").write_text(json.dumps(recorded) + "\n")
        yield from sweeps.judged(recorded)
        yield from swept_and_held_out("cuda", SWEPT, SHOWN, settings)


def swept_and_held_out(backend: str, model: str, batches: Sequence[int], settings: Settings,
                       ran_on: str | None = None) -> Iterator[Claim]:
    """Each batch of a sweep made now, from the others; a model that cannot run is told."""
    what = f"aaco sweep {model}: each batch of {', '.join(map(str, batches))} from the others"
    try:
        found = list(held_out(swept(backend, model, batches, settings, ran_on)))
    except AacoError as reason:
        yield Claim(what, "", f"not tried: {reason.what[:60]}", None)
        return
    error = median(abs(error) for error, _ in found)
    yield Claim(what, f"median <= {100 * BAR:g} %",
                f"{100 * error:.1f} %: {', '.join(f'{100 * error:+.1f}' for error, _ in found)}; {100 * LEVEL:g} % "
                f"intervals hold {sum(inside for _, inside in found)} of {len(found)}", error <= BAR)


def swept(backend: str, model: str, batches: Sequence[int], settings: Settings,
          ran_on: str | None = None) -> WhatIfModel:
    """The twin of a sweep made now. Raises AacoError."""
    curve = sweep_batches(settings, model, batches, backend=backend, processes=PROCESSES, iterations=ITERATIONS,
                           telemetry=False).curve
    root = settings.config.storage.sessions_dir
    return what_if.observe([find(point.session_id, root) for point in curve.points], settings, ran_on).twin


def held_out(made: WhatIfModel) -> Iterator[Case]:
    """Every measured batch, as the twin without it says."""
    for one in made.measured:
        latency = made.without(one.batch).at(BatchChoice(one.batch)).latency_ms
        low, high = latency.low or math.nan, latency.high or math.nan
        yield latency.value / one.latency_ms - 1, low <= one.latency_ms <= high

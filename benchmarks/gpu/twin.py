"""The digital twin on a real GPU: each batch of a sweep, predicted from the others.

ONNX Runtime on CUDA, the product's own sweep and its own calibration; without onnxruntime-gpu it says so.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from aaco import pipeline, whatif
from aaco.analytics.twin.interval import LEVEL
from aaco.analytics.twin.model import Choice, Twin
from aaco.core.config import Settings
from aaco.core.errors import AacoError
from aaco.core.session import find
from aaco.core.statistics import wilson
from benchmarks.claims import Claim
from benchmarks.gpu import _device

MODELS = ("resnet50", "mobilenet", "bert-base")
BATCHES = (1, 2, 4, 8, 16, 32)
ITERATIONS = 60
BAR = 0.10
Case = tuple[float, bool]  # predicted / measured - 1, and whether the interval holds what was measured


def claims(captures: Path) -> Iterator[Claim]:
    """Measures for about two minutes; ceilings are those of the part `calibration`, where it ran before."""
    with tempfile.TemporaryDirectory() as folder:
        yield from judged("cuda", MODELS, BATCHES, _device.settings(sessions_dir=Path(folder)))


def judged(backend: str, models: Sequence[str], batches: Sequence[int], settings: Settings,
           ran_on: str | None = None) -> Iterator[Claim]:
    """The claims over sweeps of the models, made now; models that cannot run are told."""
    every = list[Case]()
    for model in models:
        try:
            made = swept(backend, model, batches, settings, ran_on)
        except AacoError as reason:
            yield Claim(f"twin of {model}", "", f"not tried: {reason.what[:60]}", None)
            continue
        found = list(held_out(made))
        every += found
        yield Claim(f"{model}: each batch of {', '.join(map(str, batches))} from the others", "",
                    ", ".join(f"{100 * error:+.1f} %" for error, _ in found), None)
    if every:
        errors, held = sorted(abs(error) for error, _ in every), sum(inside for _, inside in every)
        low, high = wilson(held, len(every))
        yield Claim("latency at batches that were left out: median error", f"<= {100 * BAR:g} %",
                    f"{100 * median(errors):.1f} %, worst {100 * errors[-1]:.1f} % of {len(errors)}",
                    median(errors) <= BAR)
        yield Claim(f"{100 * LEVEL:g} % intervals hold the batch that was left out", ">= 90 %",
                    f"{100 * held / len(every):.1f} % [{100 * low:.1f}, {100 * high:.1f}]", held >= LEVEL * len(every))


def swept(backend: str, model: str, batches: Sequence[int], settings: Settings, ran_on: str | None = None) -> Twin:
    """The twin of a sweep made now. Raises AacoError."""
    curve = pipeline.sweep(settings, model, batches, backend=backend, iterations=ITERATIONS, telemetry=False).curve
    root = settings.config.storage.sessions_dir
    return whatif.observe([find(point.session_id, root) for point in curve.points], settings, ran_on).twin


def held_out(made: Twin) -> Iterator[Case]:
    """Every measured batch, as the twin without it says."""
    for one in made.measured:
        latency = made.without(one.batch).at(Choice(one.batch)).latency_ms
        low, high = latency.low or math.nan, latency.high or math.nan
        yield latency.value / one.latency_ms - 1, low <= one.latency_ms <= high

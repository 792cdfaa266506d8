"""Sweeps: one ordinary session per batch, or per size of a dynamic dimension, in random order."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from aaco import pipeline
from aaco.analytics.what_if.sizes import SizeCurve, SizePoint, size_curve
from aaco.analytics.what_if.sweep import BatchCurve, BatchPoint, curve
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing, StorageError, UsageError
from aaco.core.inputs import peak_rss_bytes
from aaco.core.plan import Plan
from aaco.core.show import SILENT, Show
from aaco.core.tables import SYSTEM_EVENTS
from aaco.pipeline import Run
from aaco.steps import run as record


class Sweep(NamedTuple):
    """A finished sweep: its curve, the batches in the order they were measured, that order's seed, and the backend.

    failed: batches with a failed run, and how; the curve is of the others.
    """

    curve: BatchCurve
    order: tuple[int, ...]
    order_seed: int
    backend: str
    failed: Mapping[int, AacoError] = MappingProxyType({})


class SizeSweep(NamedTuple):
    """A finished sweep over a dimension, as `Sweep`: its curve, the sizes in the order they were measured."""

    curve: SizeCurve
    batch: int
    order: tuple[int, ...]
    order_seed: int
    backend: str
    failed: Mapping[int, AacoError] = MappingProxyType({})


def sweep_batches(settings: Settings, model: str, batches: Sequence[int], show: Show = SILENT,
                  order_seed: int | None = None, **given: Any) -> Sweep:
    """One ordinary session per batch, without the profiled pass; `given` is what `plan` takes. Raises AacoError.

    The order is shuffled, so that a machine that warms up or slows down does not look like an effect of the batch.
    Every batch is prepared once before the first runs: one that the model does not take is refused at once. If one
    fails later, such as for memory, it is left out of the curve; if all fail, the first failure is raised.
    """
    if not batches:
        raise UsageError("no batch to sweep", "batches=[1, 2, 4, 8]")
    first = pipeline.plan(settings, model, show, **given | {"profile": False, "tag": "sweep"})
    plans = [(batch, first.model_copy(update={"batch": batch})) for batch in sorted(set(batches))]
    points, why_no_vram, why_no_rss = list[BatchPoint](), "no batch was measured", "no batch was measured"
    seed = _shuffle(plans, "batch", settings, order_seed)
    failed: dict[int, AacoError] = {}
    for _, point, finished in _swept(plans, "batch", settings, show, failed):
        points.append(point)
        why_no_vram = finished.metrics["peak_vram_bytes"].why_absent
        why_no_rss = finished.explanation.absent.get(SYSTEM_EVENTS.file, "the telemetry says nothing of it")
    return Sweep(curve(points, why_no_vram, why_no_rss), tuple(batch for batch, _ in plans), seed, first.backend,
                 failed)


def sweep_sizes(settings: Settings, model: str, name: str, sizes: Sequence[int], show: Show = SILENT,
                order_seed: int | None = None, **given: Any) -> SizeSweep:
    """As `sweep_batches`, over the sizes of a dynamic dimension of the inputs, at one batch. Raises AacoError.

    name: as `dimensions.resized` takes it. The sessions' tag is "sweep-sizes": they are not of one set of shapes.
    """
    if not sizes:
        raise UsageError("no size to sweep", "sizes=[32, 64, 128]")
    distinct = sorted(set(sizes))
    first = pipeline.plan(settings, model, show, **given | {"profile": False, "tag": "sweep-sizes"})
    plans = list(zip(distinct, record.resized(first, settings, name, distinct), strict=True))
    batch = plans[0][1].batch or 1
    seed = _shuffle(plans, name, settings, order_seed)
    failed: dict[int, AacoError] = {}
    points = [SizePoint(size, point) for size, point, _ in _swept(plans, name, settings, show, failed)]
    return SizeSweep(size_curve(points), batch, tuple(size for size, _ in plans), seed, first.backend, failed)


def _shuffle(plans: list[tuple[int, Plan]], name: str, settings: Settings, order_seed: int | None) -> int:
    """Prepare every plan of a sweep, then put them into a random order; the seed of that order."""
    for size, plan in plans:
        with _at_size(name, size):
            record.prepare(plan, settings)
    seed = secrets.randbelow(2**32) if order_seed is None else order_seed
    random.Random(seed).shuffle(plans)
    return seed


def _swept(plans: Sequence[tuple[int, Plan]], name: str, settings: Settings, show: Show,
           failed: dict[int, AacoError]) -> Iterator[tuple[int, BatchPoint, Run]]:
    """The finished runs of a sweep in their order, each with its place on the curve of batches; into `failed` goes how
    others failed. Raises Missing and StorageError, which every size would meet, and the failure where every one failed.
    """
    for at, (size, plan) in enumerate(plans):
        show.step(f"{name} {size} ({at + 1} of {len(plans)})")
        try:
            with _at_size(name, size):
                finished = pipeline.run(plan, settings, show)
                point = _point(plan.batch or 1, finished)
        except (Missing, StorageError):
            raise
        except AacoError as error:
            failed[size] = error
            show.step(f"left out: {error.what}")
            continue
        yield size, point, finished
    if len(failed) == len(plans):
        raise next(iter(failed.values()))


def _point(batch: int, finished: Run) -> BatchPoint:
    latency, throughput = finished.metrics["latency_p50_ms"], finished.metrics["throughput_per_s"]
    used = finished.metrics["peak_vram_bytes"].value
    if latency.value is None or throughput.value is None:
        raise UsageError(latency.why_absent or throughput.why_absent, "--iterations 20, or a longer --budget")
    return BatchPoint(batch, latency.value, latency.low, latency.high, throughput.value, finished.session.id,
                      None if used is None else int(used), finished.metrics["peak_vram_pct"].value,
                      peak_rss_bytes(finished.explanation.tables.get("system_events")))


@contextmanager
def _at_size(name: str, size: int) -> Iterator[None]:
    """Names the batch, or the size of a dimension, of a sweep in what goes wrong with it."""
    try:
        yield
    except AacoError as error:
        where = f"{name} {size}: "
        raise type(error)(where + error.what.removeprefix(where), error.fix) from error

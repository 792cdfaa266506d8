"""The whole run on one screen: `observe` records a plan, `explain` turns the record into answers, `run` does both."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from aaco import compare, derive, record
from aaco.analytics.explanation import Explanation
from aaco.analytics.sweep import Curve, Point, curve
from aaco.compare import Request
from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError, UsageError
from aaco.core.plan import Plan
from aaco.core.readings import Reading
from aaco.core.session import Session, Status
from aaco.governance.verdict import RegressionVerdict
from aaco.record import SILENT, Show
from aaco.report import bundle
from aaco.tracelake import layout, manifest


class Run(NamedTuple):
    """A finished run: its session, and everything explained."""

    session: Session
    explanation: Explanation

    @property
    def metrics(self) -> Mapping[str, Reading]:
        """Every metric's reading, measured or absent with its reason."""
        return self.explanation.readings


class Sweep(NamedTuple):
    """A finished sweep: its curve, the batches in the order they were measured, and the seed of that order."""

    curve: Curve
    order: tuple[int, ...]
    order_seed: int


def plan(settings: Settings, model: str, **given: Any) -> Plan:
    """A plan for a model: what is given, else the settings, else the model's registry entry. Raises UsageError."""
    return record.complete_plan(settings, model, given)


def observe(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> Session:
    """Run the plan and keep all its evidence and tables. Raises AacoError."""
    return run(plan, settings, show).session


def explain(session: Session, settings: Settings | None = None) -> Explanation:
    """Evidence -> tables -> readings -> diagnosis. Only reads, and works on incomplete sessions. Raises AacoError."""
    return derive.explanation(session, (settings or resolve()).config.analysis)


def run(plan: Plan, settings: Settings | None = None, show: Show = SILENT, session: Session | None = None) -> Run:
    """Record the plan, explain it, and seal the bundle with answers and report inside. Raises AacoError.

    session: an empty session to record into; by default a new one. A run that fails leaves its bundle marked failed,
    with whatever evidence it had; a killed one is incomplete.
    """
    settings = settings or resolve()
    prepared = record.prepare(plan, settings, show)
    session = record.begin(prepared, settings, session)
    with _outcome(session):
        record.record(session, prepared, settings, show)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete"))


def sweep(settings: Settings, model: str, batches: Sequence[int], show: Show = SILENT, order_seed: int | None = None,
          **given: Any) -> Sweep:
    """One ordinary session per batch, without the profiled pass; `given` is what `plan` takes. Raises AacoError.

    The order is shuffled, so that a machine that warms up or slows down does not look like an effect of the batch.
    Every batch is prepared once before the first runs: one that the model does not take is refused at once.
    """
    if not batches:
        raise UsageError("no batch to sweep", "batches=[1, 2, 4, 8]")
    seed = secrets.randbelow(2**32) if order_seed is None else order_seed
    plans = [plan(settings, model, **given | {"batch": batch, "profile": False, "tag": "sweep"})
             for batch in sorted(set(batches))]
    for each in plans:
        with _of_batch(each.batch):
            record.prepare(each, settings)
    random.Random(seed).shuffle(plans)
    points, why_no_vram = list[Point](), "no batch was measured"
    for each in plans:
        show.step(f"batch {each.batch} ({len(points) + 1} of {len(plans)})")
        with _of_batch(each.batch):
            found = run(each, settings, show)
            points.append(_point(each.batch, found))
        why_no_vram = found.explanation.absent.get(layout.GPU_EVENTS, "no reading takes VRAM from GPU telemetry")
    return Sweep(curve(points, why_no_vram), tuple(each.batch for each in plans), seed)


def seal(session: Session, settings: Settings, status: Status | None = None) -> Explanation:
    """Derive every table, answer and report of a recorded session anew, and write the manifest over all of it.

    status: what the answers call the session; a run seals before it is marked, so that a kill in here leaves the mark.
    """
    explanation = replace(derive.explanation(session, settings.config.analysis, anew=True),
                          status=status or session.status)
    derive.keep(session, explanation)
    bundle.write(session, explanation)
    manifest.write(session, explanation.absent)
    return explanation


def diff(baseline: str, session: Session, settings: Settings, request: Request) -> RegressionVerdict:
    """Judge a session against a baseline (a name, a file, or another session), and keep the verdict in the session."""
    storage = settings.config.storage
    manifest.refuse_damage(session)
    current = compare.side(explain(session, settings))
    reference = compare.reference_side(baseline, storage.baselines_dir, storage.sessions_dir,
                                       lambda other: explain(other, settings))
    verdict = compare.judge(reference, current, request)
    compare.keep(session, reference, verdict)
    seal(session, settings)
    return verdict


def _point(batch: int, found: Run) -> Point:
    latency, throughput = found.metrics["latency_p50_ms"], found.metrics["throughput_per_s"]
    if latency.value is None or throughput.value is None:
        raise UsageError(latency.why_absent or throughput.why_absent, "--iterations 20, or a longer --budget")
    return Point(batch, latency.value, latency.low, latency.high, throughput.value, found.session.id)


@contextmanager
def _of_batch(batch: int) -> Iterator[None]:
    """Names the batch of a sweep in what goes wrong with it."""
    try:
        yield
    except AacoError as error:
        name = f"batch {batch}: "
        raise type(error)(name + error.what.removeprefix(name), error.fix) from error


@contextmanager
def _outcome(session: Session) -> Iterator[None]:
    """Marks how the run ended; a process that dies in here leaves the mark `running`, read later as incomplete."""
    try:
        yield
    except AacoError as error:
        session.finish("failed", error.what)
        raise
    except KeyboardInterrupt:
        session.finish("incomplete", "interrupted")
        raise
    session.finish("complete")

"""The whole run on one screen: `observe` records a plan, `explain` turns the record into answers, `run` does both.

What runs a model, explains its graph, compares or examines a trace (record, derive, compare, examinations) is imported
where it is called: whoever only reads a session has no use for ONNX, statistics and the analyses of traces.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from aaco import discovery, imported, importing
from aaco.analytics import health
from aaco.analytics.explanation import Explanation
from aaco.analytics.inputs import peak_rss_bytes
from aaco.analytics.sizes import SizeCurve, SizePoint, size_curve
from aaco.analytics.sweep import Curve, Point, curve
from aaco.core import files
from aaco.core.config import Analysis, Settings, resolve
from aaco.core.errors import AacoError, BadCapture, Missing, StorageError, UsageError
from aaco.core.plan import Plan
from aaco.core.readings import Absent, Reading
from aaco.core.session import Session, Status, find, sessions
from aaco.core.show import SILENT, Show
from aaco.core.tables import SYSTEM_EVENTS
from aaco.laboratory import levels
from aaco.report import bundle
from aaco.tracelake import baselines, documents, layout, manifest

if TYPE_CHECKING:
    from aaco.compare import Request
    from aaco.governance.compare import Side
    from aaco.governance.tracediff import TraceChange
    from aaco.governance.verdict import RegressionVerdict
    from aaco.tracelake.history import Key


class Run(NamedTuple):
    """A finished run: its session, and everything explained."""

    session: Session
    explanation: Explanation

    @property
    def metrics(self) -> Mapping[str, Reading]:
        """Every metric's reading, measured or absent with its reason."""
        return self.explanation.readings


class Sweep(NamedTuple):
    """A finished sweep: its curve, the batches in the order they were measured, that order's seed, and the backend.

    failed: batches whose run failed, and how; the curve is of the others.
    """

    curve: Curve
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


class SavedBaseline(NamedTuple):
    """A saved baseline, the sides in it, and why sessions of it could not be marked as needed."""

    saved: baselines.Saved
    sides: list[Side]
    unmarked: list[str]


def plan(settings: Settings, model: str, show: Show = SILENT, **given: Any) -> Plan:
    """A plan for a model: what is given, else the settings, else the model's registry entry. Raises AacoError."""
    from aaco import record

    return record.complete_plan(settings, model, given, show)


def observe(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> Session:
    """Run the plan and keep all its evidence and tables. Raises AacoError."""
    return run(plan, settings, show).session


def explain(session: Session, settings: Settings | None = None) -> Explanation:
    """Evidence -> tables -> readings -> diagnosis. Only reads, and works on incomplete sessions. Raises AacoError."""
    return _answers(session).explanation(session, (settings or resolve()).config.analysis)


def run(plan: Plan, settings: Settings | None = None, show: Show = SILENT, session: Session | None = None) -> Run:
    """Record the plan, explain it, and seal the bundle with answers and report inside. Raises AacoError.

    session: an empty session to record into; by default a new one. A run that fails leaves its bundle marked failed,
    with whatever evidence it had; a killed one is incomplete.
    """
    from aaco import record

    settings = settings or resolve()
    prepared = record.prepare(plan, settings, show)
    begun = record.begin(prepared, settings, session)
    session = begun.session
    with outcome(session):
        record.record(begun, prepared, settings, show, quiet(session, plan, settings))
        show.step("explaining")
        return Run(session, seal(session, settings, "complete", show))


def import_captures(paths: Sequence[Path], settings: Settings | None = None, name: str | None = None,
                    form: str | None = None, tag: str = "", keep: bool = False, show: Show = SILENT,
                    latency: str | None = None) -> Run:
    """Captures of other tools become one session, explained and sealed like any other. Raises AacoError.

    paths: files, and folders that are searched for captures. form: the format of every file, instead of recognising
    each. keep: copy the captures into the session without the credentials in them; they are only referenced otherwise.
    latency: how long a step takes without a profiler, ms, or a file of such times (profiler/latencies.py).
    A capture that cannot be read leaves no session at all.
    """
    settings = settings or resolve()
    root = settings.config.storage.sessions_dir
    given = importing.given_latency(latency) if latency is not None else None
    chosen = discovery.discover(paths, form)
    if keep:
        importing.refuse_binary(chosen)
    reading = importing.Reading(chosen, show)
    reading.begin()
    latest = importing.latest(root)
    session = importing.begin(chosen, root, name, tag)
    try:
        with outcome(session):
            importing.fill(session, reading, show, keep)
            if given:
                session.write_json(layout.GIVEN_LATENCY, given)
            show.step("explaining")
            return Run(session, seal(session, settings, "complete", show))
    except BadCapture:
        importing.discard(session, root, latest)
        raise


def sweep(settings: Settings, model: str, batches: Sequence[int], show: Show = SILENT, order_seed: int | None = None,
          **given: Any) -> Sweep:
    """One ordinary session per batch, without the profiled pass; `given` is what `plan` takes. Raises AacoError.

    The order is shuffled, so that a machine that warms up or slows down does not look like an effect of the batch.
    Every batch is prepared once before the first runs: one that the model does not take is refused at once. One whose
    run fails, as for want of memory, is left out of the curve; where every one does, the first failure is raised.
    """
    if not batches:
        raise UsageError("no batch to sweep", "batches=[1, 2, 4, 8]")
    first = plan(settings, model, show, **given | {"profile": False, "tag": "sweep"})
    plans = [(batch, first.model_copy(update={"batch": batch})) for batch in sorted(set(batches))]
    points, why_no_vram, why_no_rss = list[Point](), "no batch was measured", "no batch was measured"
    seed = _shuffle(plans, "batch", settings, order_seed)
    failed: dict[int, AacoError] = {}
    for _, point, found in _swept(plans, "batch", settings, show, failed):
        points.append(point)
        why_no_vram = found.metrics["peak_vram_bytes"].why_absent
        why_no_rss = found.explanation.absent.get(SYSTEM_EVENTS.file, "the telemetry says nothing of it")
    return Sweep(curve(points, why_no_vram, why_no_rss), tuple(batch for batch, _ in plans), seed, first.backend,
                 failed)


def sweep_sizes(settings: Settings, model: str, name: str, sizes: Sequence[int], show: Show = SILENT,
                order_seed: int | None = None, **given: Any) -> SizeSweep:
    """As `sweep`, over the sizes of a dynamic dimension of the inputs, at one batch. Raises AacoError.

    name: as `dimensions.resized` takes it. The sessions' tag is "sweep-sizes": they are not of one set of shapes.
    """
    if not sizes:
        raise UsageError("no size to sweep", "sizes=[32, 64, 128]")
    from aaco import record

    chosen = sorted(set(sizes))
    first = plan(settings, model, show, **given | {"profile": False, "tag": "sweep-sizes"})
    plans = list(zip(chosen, record.resized(first, settings, name, chosen), strict=True))
    batch = plans[0][1].batch or 1
    seed = _shuffle(plans, name, settings, order_seed)
    failed: dict[int, AacoError] = {}
    points = [SizePoint(size, point) for size, point, _ in _swept(plans, name, settings, show, failed)]
    return SizeSweep(size_curve(points), batch, tuple(size for size, _ in plans), seed, first.backend, failed)


def _shuffle(plans: list[tuple[int, Plan]], name: str, settings: Settings, order_seed: int | None) -> int:
    """Prepare every plan of a sweep, then put them into a random order; the seed of that order."""
    from aaco import record

    for size, each in plans:
        with _at_size(name, size):
            record.prepare(each, settings)
    seed = secrets.randbelow(2**32) if order_seed is None else order_seed
    random.Random(seed).shuffle(plans)
    return seed


def _swept(plans: Sequence[tuple[int, Plan]], name: str, settings: Settings, show: Show,
           failed: dict[int, AacoError]) -> Iterator[tuple[int, Point, Run]]:
    """The finished runs of a sweep in their order, each with its place on the curve of batches; into `failed` goes how
    others failed. Raises Missing and StorageError, which every size would meet, and the failure where every one failed.
    """
    for at, (size, each) in enumerate(plans):
        show.step(f"{name} {size} ({at + 1} of {len(plans)})")
        try:
            with _at_size(name, size):
                found = run(each, settings, show)
                point = _point(each.batch or 1, found)
        except (Missing, StorageError):
            raise
        except AacoError as error:
            failed[size] = error
            show.step(f"left out: {error.what}")
            continue
        yield size, point, found
    if len(failed) == len(plans):
        raise next(iter(failed.values()))


def seal(session: Session, settings: Settings, status: Status | None = None, show: Show = SILENT) -> Explanation:
    """Derive every table, answer and report of a recorded session anew, and write the manifest over all of it.

    status: what the answers call the session; a run seals before it is marked, so that a kill in here leaves the mark.
    """
    answers = _answers(session)
    explanation = _marked(_answered(session, settings.config.analysis, show), status or session.status)
    answers.keep(session, explanation)
    bundle.write(session, explanation)
    manifest.write(session, {**explanation.absent, **bundle.absent()})
    return explanation


def _answered(session: Session, settings: Analysis, show: Show) -> Explanation:
    """Everything there is to say about a session, anew; the work of devices is examined before."""
    if imported.is_imported(session):
        from aaco import examinations

        examinations.of_import(session, settings, show)
        return imported.explanation(session, settings, anew=True)
    from aaco import derive, ingest

    ingested = ingest.anew(session)
    derive.keep_tables(session, ingested)
    if ingested.on_device:
        from aaco import examinations

        examinations.of_run(session, settings, show)
    return derive.explanation(session, settings, ingested=ingested)


def _in_history(verdict: RegressionVerdict, store: Path, key: Key) -> RegressionVerdict:
    """The verdict with what its metric's history says of the last change of level."""
    from aaco import histories
    from aaco.governance.verdict import in_history

    try:
        return in_history(verdict, histories.last_change(store, key), "")
    except Absent as reason:
        return in_history(verdict, None, str(reason))


def _marked(explanation: Explanation, status: Status) -> Explanation:
    """The explanation of a session that is about to have this status."""
    return replace(explanation, status=status, record={**explanation.record, "status": status})


class Contrast(NamedTuple):
    """What changed between two imported traces, and the session that stands for the earlier one."""

    baseline: Session
    change: TraceChange


def contrast(baseline: str, session: Session, settings: Settings) -> Contrast:
    """What changed from one imported trace to another, kept in the later session. Raises AacoError."""
    other = find(baseline, settings.config.storage.sessions_dir)
    if not imported.is_imported(other):
        raise UsageError(f"session {other.id} was recorded here, {session.id} was imported: a run and a trace of "
                         "something else do not compare", "name two imported sessions, or two runs")
    manifest.refuse_damage(session, rewritten=("regress/", "report/"))
    from aaco import compare_traces

    change = compare_traces.difference(other, session)
    manifest.renew(session, compare_traces.keep(session, other, change))
    return Contrast(other, change)


def analyze(session: Session, settings: Settings, show: Show = SILENT) -> Explanation:
    """Derive everything anew from the raw evidence, for an import from the captures it references, and seal it.

    Raises AacoError.
    """
    if imported.is_imported(session):
        importing.again(session, show)
    show.step("explaining")
    return seal(session, settings, show=show)


def health_before(session: Session, settings: Settings) -> list[float]:
    """The compute health indices of the latest complete sessions before this one of its model and backend, as they
    were sealed, the oldest first; at most one less than a trend looks at."""
    mine, found = session.record, list[float]()
    for other in sessions(settings.config.storage.sessions_dir):
        if len(found) == health.MOST - 1:
            break
        with suppress(AacoError):  # a session that cannot be read has no part in a trend
            record = other.record
            alike = record.plan.get("model") == mine.plan.get("model") and record.backend_ran == mine.backend_ran
            if alike and other.id < session.id and record.status == "complete":
                value = documents.read(other, layout.DERIVED_METRICS).get("compute_health_index", {}).get("value")
                found += [] if value is None else [float(value)]
    return found[::-1]


def save_baseline(name: str, sessions: Sequence[Session], settings: Settings, replace: bool = False) -> SavedBaseline:
    """Keep the sessions' samples as a baseline. Raises UsageError when they cannot stand for their runs, or differ.

    Each session is marked first, so that no kill leaves a baseline whose sessions `aaco gc` does not know of.
    """
    from aaco import compare

    store = settings.config.storage.baselines_dir
    sides = [compare.side(explain(session, settings)) for session in sessions]
    unmarked = []
    for session in sessions:
        try:
            session.keep_for(baselines.locate(store, name))
        except StorageError as error:
            unmarked.append(f"{session.id} cannot be marked: {error.what}")
    return SavedBaseline(compare.save_baseline(store, name, sides, replace), sides, unmarked)


def remember(sessions: Sequence[Session], settings: Settings) -> list[int]:
    """Put the sessions' values into the history of measurements; how many of each were new. Raises AacoError."""
    from aaco import compare

    return [compare.remember(settings.config.storage.baselines_dir, compare.side(explain(session, settings)))
            for session in sessions]


def diff(baseline: str, session: Session, settings: Settings, request: Request) -> RegressionVerdict:
    """Judge a session against a baseline (a name, a file, or another session), and keep the verdict in the session.

    Only the verdict's files, the report and the manifest are written: evidence, tables and readings stay as sealed.
    """
    from aaco import compare

    storage = settings.config.storage
    manifest.refuse_damage(session, rewritten=("regress/", "report/"))
    explained = explain(session, settings)
    current = compare.side(explained)
    reference = compare.reference_side(baseline, storage.baselines_dir, storage.sessions_dir,
                                       lambda other: explain(other, settings))
    verdict = judge(reference, current, settings, request)
    kept = compare.keep(session, reference, verdict)
    kept += bundle.write(session, explained.judged(verdict.model_dump(mode="json"), kept))
    manifest.renew(session, kept)
    return verdict


def confirm(session: Session, verdict: RegressionVerdict, shown_by: Sequence[str], settings: Settings) -> None:
    """Note in the session's verdict, if it is still this one, which sessions of fresh processes show it, too."""
    if session.read_json(layout.VERDICT) != verdict.model_dump(mode="json"):
        return  # it was held against something else meanwhile
    manifest.refuse_damage(session, rewritten=("regress/", "report/"))
    document = verdict.model_copy(update={"confirmed_by": list(shown_by)}).model_dump(mode="json")
    session.write_json(layout.VERDICT, document)
    kept = [layout.VERDICT, *bundle.write(session, explain(session, settings).judged(document, [layout.VERDICT]))]
    manifest.renew(session, kept)


def judge(reference: Side, current: Side, settings: Settings, request: Request) -> RegressionVerdict:
    """The verdict on a side with all that the store knows of it; only reads. Raises AacoError."""
    from aaco import compare

    store = settings.config.storage.baselines_dir
    verdict = compare.judge(reference, current, request, compare.histories(store, reference, current))
    return _in_history(verdict, store, baselines.key(current.replicates[-1], verdict.metric))


def quiet(session: Session, plan: Plan, settings: Settings) -> Callable[[], AbstractContextManager[None]]:
    """The laboratory around the passes of a run, if the plan asks for one."""
    if not plan.lab:
        return nullcontext
    from aaco import capsule

    return partial(capsule.around, session, levels.level(plan.lab), plan.lab_cpus, settings)


def _answers(session: Session) -> ModuleType:
    """What answers for the session: by whether this tool recorded it or imported it."""
    if imported.is_imported(session):
        return imported
    from aaco import derive

    return derive


def _point(batch: int, found: Run) -> Point:
    latency, throughput = found.metrics["latency_p50_ms"], found.metrics["throughput_per_s"]
    used = found.metrics["peak_vram_bytes"].value
    if latency.value is None or throughput.value is None:
        raise UsageError(latency.why_absent or throughput.why_absent, "--iterations 20, or a longer --budget")
    return Point(batch, latency.value, latency.low, latency.high, throughput.value, found.session.id,
                 None if used is None else int(used), found.metrics["peak_vram_pct"].value,
                 peak_rss_bytes(found.explanation.tables.get("system_events")))


@contextmanager
def _at_size(name: str, size: int) -> Iterator[None]:
    """Names the batch, or the size of a dimension, of a sweep in what goes wrong with it."""
    try:
        yield
    except AacoError as error:
        where = f"{name} {size}: "
        raise type(error)(where + error.what.removeprefix(where), error.fix) from error


@contextmanager
def outcome(session: Session) -> Iterator[None]:
    """Marks how the run ended; a process that dies in here leaves the mark `running`, read later as incomplete.

    So does one that may not write any more: what stopped the run is raised then, not that it could not be noted.
    """
    try:
        with files.storage(session.folder):
            yield
    except AacoError as error:
        with suppress(AacoError):
            session.finish("failed", error.what)
        raise
    except KeyboardInterrupt:
        with suppress(AacoError):
            session.finish("incomplete", "interrupted")
        raise
    session.finish("complete")

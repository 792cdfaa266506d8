"""Two sides measured in turns and judged: `aaco compare`. Composes runner, laboratory, statistics and history.

The plan (seed, order, looks, prior) is settled and written down before anything is measured; then process after
process runs until the answer is there, and the verdict is made from the pairs that were kept, as `again` makes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import Struct

from aaco import __version__
from aaco.collectors.inventory import environment, machine
from aaco.core import clocks
from aaco.core.config import Settings
from aaco.core.errors import BadCapture, UsageError
from aaco.core.machine import Machine
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import PAIRS
from aaco.governance.interleaved import duet, duet_verdict
from aaco.governance.interleaved.duet_verdict import DEVICE, TIMES, Stopped, Terms, Traced
from aaco.governance.prior import Prior
from aaco.governance.verdict_document import RegressionVerdict
from aaco.runner import duet as runner
from aaco.runner import pairs
from aaco.runner.duet import CommandSide, ModelSide
from aaco.runner.pairs import DuetPlan, Kind
from aaco.steps import lab_session
from aaco.steps.seal import outcome
from aaco.tracelake import layout, manifest, store
from aaco.tracelake.document_schemas.evidence import DuetCost
from aaco.workflows.duet import device, kept, past, schedule, sides
from aaco.workflows.duet.costs import Meter
from aaco.workflows.duet.sides import DuetSide, PreparedSide

TAG = "compare"
NOT_ASKED = "it was not asked for: without a tracer each launch of a kernel costs what it does else"
NOT_OF_A_COMPARISON = f"a comparison in turns keeps pairs of times: {PAIRS.file}"

__all__ = ["Compared", "DuetRequest", "DuetSide", "compare"]


class DuetRequest(Struct, frozen=True):
    """How to measure and what to judge by. most: go on to as many processes while the answer is not there; None: stop
    after `processes`. seed: of the order; None: drawn. vary: whether every pair has inputs of its own, so that nothing
    is gained by remembering; limit_s: how long one of its processes may take; both only of models. device_time: whether
    a tracer records what the device does, which makes each launch of a kernel cost more; energy: whether to count it.
    """

    processes: int = 5
    most: int | None = None
    pairs: int = 100
    warmup: int = 10
    controls: bool = True
    tolerance_pct: float = 5.0
    level: float = 0.99
    precision_pct: float | None = None
    budget_s: float | None = None
    seed: int | None = None
    vary: bool = False
    device_time: bool = True
    energy: bool = False
    limit_s: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be."""
        if not 0.5 <= self.level < 1:
            raise UsageError(f"a level of {self.level:g}", "at least 0.5 and below 1: --level 0.99")
        if not duet.LEAST_MARGIN_PCT <= self.tolerance_pct < 1000:
            raise UsageError(f"a tolerance of {self.tolerance_pct:g} %", f"at least {duet.LEAST_MARGIN_PCT:g} %: the "
                             "order of creation alone makes as much of two equal sides")
        if self.processes < 2 or self.pairs < 1:
            raise UsageError(f"{self.processes} processes of {self.pairs} pairs", "at least 2 processes and 1 pair")
        if self.last < self.processes:
            raise UsageError(f"at most {self.most} processes, {self.processes} at first", "--most-processes 20")

    @property
    def last(self) -> int:
        """The number of processes after which there are no more."""
        return self.most or self.processes


class Compared(NamedTuple):
    """A finished comparison: its session, the verdict that is kept there, and what its processes cost; why_no_energy:
    why that has no energy, empty where it has.
    """

    session: Session
    verdict: RegressionVerdict
    costs: tuple[DuetCost, ...] = ()
    why_no_energy: str = ""

    def energy_of_controls(self) -> tuple[list[float], list[float]]:
        """Return the energy of each process with the baseline only, and with the current side only, J; those of which
        it is not known are left out.
        """
        return (self._energy("baseline control"), self._energy("current control"))

    def _energy(self, kind: Kind) -> list[float]:
        return [cost.energy_j for cost in self.costs if cost.kind == kind and cost.energy_j is not None]


class _Measured(NamedTuple):
    """The pairs, what the processes reported of each side, how the device was recorded, why there are no more."""

    table: pa.Table
    ran: Mapping[str, Mapping[str, str]]
    traced: Traced
    stopped_by: Stopped


def compare(baseline: DuetSide, current: DuetSide, request: DuetRequest, settings: Settings,
            given: Mapping[str, Any] | None = None,
            show: Show = SILENT) -> Compared:
    """Measure two sides in turns, judge them, keep all of it in a session of its own. Raises AacoError.

    given: fields of Plan for both sides (backend, batch, seed, shapes, lab; of commands timeout_s, ignore_failure).
    """
    given = given or {}
    both = (sides.prepare(baseline, settings, given, show), sides.prepare(current, settings, given, show))
    if type(both[0].runs) is not type(both[1].runs):
        raise UsageError("a model and a command do not compare", "name two models, or two commands")
    host, history = machine.identify(), settings.config.storage.baselines_dir
    terms = _terms(request, both, *past.prior(history, host.id, both), *past.prior(history, host.id, both, device=True))
    seed = secrets.randbelow(2**32) if request.seed is None else request.seed
    drawn = schedule.draw(seed, [look.processes for look in terms.looks], request.pairs, request.controls,
                          created=isinstance(both[0].runs, ModelSide))
    session = _begin(both, host, request, settings)
    with outcome(session):
        show.step("environment")
        session.write_json(layout.ENVIRONMENT, environment.capture(Path.cwd()) | {
            "machine": as_dict(host) | {"card": None}})
        document = kept.planned(terms, seed, drawn, both, kept.words(baseline, current, request, given, seed))
        session.write_json(layout.DUET, document)
        with closing(Meter(both, request.energy)) as meter, lab_session.around(session, both[0].plan, settings):
            measured = _measure(session, both, request, terms, drawn, meter, show)
        document |= kept.measured(measured.ran, measured.traced, measured.stopped_by,
                                  sides.differences(*both, measured.ran), meter)
        verdict = _conclude(session, document, measured.table, terms)
        past.keep(history, host.id, session.id, both, duet.units(measured.table, terms.only_quiet))
        if not measured.traced.why_absent:
            past.keep(history, host.id, session.id, both, duet.units(measured.table, times=TIMES[DEVICE]), device=True)
    return Compared(session, verdict, tuple(meter.costs), meter.why_not)


def _terms(request: DuetRequest, both: Sequence[PreparedSide], believed: Prior | None, why: str,
           device_prior: Prior | None, why_no_device_prior: str) -> Terms:
    alpha = 1 - request.level
    return Terms(request.tolerance_pct, alpha, duet.looks(request.processes, request.last, alpha),
                 "process" if isinstance(both[0].runs, ModelSide) else "block",
                 not all(side.on_host for side in both), believed, why, request.precision_pct,
                 device_prior, why_no_device_prior)


def _begin(both: Sequence[PreparedSide], host: Machine, request: DuetRequest, settings: Settings) -> Session:
    """A session's folder with the first facts of the comparison. Raises StorageError."""
    plan = both[0].identifies["plan"] | {"processes": request.processes, "iterations": request.pairs,
                                         "warmup": request.warmup, "profile": False}
    session = Session.create(settings.config.storage.sessions_dir, plan, TAG, __version__)
    session.amend(clocks=as_dict(clocks.snapshot()), machine_id=host.id, backend_asked=both[0].facts["provider"])
    return session


def _measure(session: Session, both: tuple[PreparedSide, PreparedSide], request: DuetRequest, terms: Terms,
             drawn: Sequence[Sequence[DuetPlan]], meter: Meter, show: Show) -> _Measured:
    """Process after process, until a look settles it, the budget is spent or there are no more."""
    began, traced = time.monotonic(), Traced(0, device.why_not(both) or ("" if request.device_time else NOT_ASKED))
    done: list[DuetPlan] = []
    ran: dict[str, dict[str, str]] = {side: {} for side in pairs.SIDES}
    for look in drawn:
        for planned in look:
            if request.budget_s is not None and time.monotonic() - began >= request.budget_s:
                return _Measured(_pairs(session, done), ran, traced, "budget")
            show.step(f"process {planned.process + 1} of at most {sum(map(len, drawn))}: {planned.kind}")
            with meter.process(planned):
                stopped, traced = _run(session, both, planned, request, traced, show)
            for number, facts in stopped.items():
                ran[pairs.SIDES[planned.sides[int(number)]]] |= {
                    name: str(value) for name, value in facts.items() if name != "load_ms"}
            done.append(planned)
        table = _pairs(session, done)
        comparison = duet_verdict.find(table, terms, traced.why_absent).headline.comparison
        if not comparison.veto and duet.settled(comparison, request.precision_pct):
            return _Measured(table, ran, traced, "settled" if duet.settled(comparison) else "precision")
    return _Measured(table, ran, traced, "processes")


def _run(session: Session, both: tuple[PreparedSide, PreparedSide], planned: DuetPlan, request: DuetRequest,
         traced: Traced,
         show: Show) -> tuple[dict[str, Any], Traced]:
    """One process of the plan: what it says of its sides, and how the device was recorded so far.

    After a failure it is not tried again: device time that misses some processes is not judged.
    """
    def progress(count: int) -> None:
        show.progress(count, request.pairs)

    first, second = both[0].runs, both[1].runs
    if isinstance(first, CommandSide) and isinstance(second, CommandSide):
        return runner.of_commands(session.folder, (first, second), planned, request.warmup, progress), traced
    assert isinstance(first, ModelSide) and isinstance(second, ModelSide)
    if traced.why_absent:
        return runner.of_models(session.folder, (first, second), planned, request.warmup, progress,
                                request.vary, request.limit_s), traced
    outcome_of_run, why = device.timed(session.folder, (first, second), planned, lambda sides: runner.of_models(
        session.folder, sides, planned, request.warmup, device.patient(progress), request.vary, request.limit_s))
    return outcome_of_run, Traced(traced.processes + 1, why)


def _pairs(session: Session, done: Sequence[DuetPlan]) -> pa.Table:
    """Return the pairs so far. Raise BadCapture if a process left fewer than planned."""
    table = pairs.parse(session.folder, done)
    if table.num_rows != sum(len(planned.first) for planned in done):
        raise BadCapture(f"{session.folder}: pairs are missing", "the disk may be full; measure again")
    return duet.marked(table)


def _conclude(session: Session, document: dict[str, Any], table: pa.Table, terms: Terms) -> RegressionVerdict:
    """Keep the pairs and what they say, and seal the bundle."""
    session.write_json(layout.DUET, document)
    store.write(session, PAIRS, table)
    verdict = kept.verdict(session.id, document, table, terms)
    session.write_json(layout.VERDICT, verdict.model_dump(mode="json"))
    session.amend(backend_ran=document["sides"][0]["provider"])
    manifest.write(session, dict.fromkeys(manifest.EXPECTED, NOT_OF_A_COMPARISON))
    return verdict

"""Advice put to the test: changes of a session of ONNX Runtime, tried until one is proved, or none is.

`optimize/search.py` says what comes next, this makes it happen, and each step is a line of the session's log before
the next begins. So a search that was killed goes on where it was.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from aaco import pipeline
from aaco.analytics.advice.trials import Trials
from aaco.collectors.inventory import machine
from aaco.core import files
from aaco.core.candidate import Candidate, Inapplicable
from aaco.core.config import Settings
from aaco.core.errors import AacoError, StorageError, UsageError
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import PAIRS
from aaco.governance import agreement
from aaco.governance.interleaved import duet
from aaco.governance.verdict import RegressionVerdict
from aaco.optimize import gates, input_sets, ledger, recorded_run, rewriting, search
from aaco.optimize.changes import candidates
from aaco.optimize.search import CheckStep, ConfirmStep, ScreenStep, Search, next_step
from aaco.optimize.situation import Situation, situation_of
from aaco.runner import ort
from aaco.runner.duet import ModelSide
from aaco.runner.ort import Workload
from aaco.steps.findings.trials import of_ledger
from aaco.tracelake import documents, layout, manifest, store
from aaco.tracelake.document_schemas.ledger import (
    FirstLook,
    GuardedMetric,
    OutputsChecked,
    SearchBegun,
    SearchDecided,
    SearchOrigin,
    SearchTerms,
    TurnsMeasured,
)
from aaco.tracelake.outputs import Output
from aaco.workflows import trials
from aaco.workflows.duet import compare, sides
from aaco.workflows.duet.compare import DuetRequest, DuetSide

PROCESS_S = 3.0  # how long a process of a comparison is to measure
FEWEST_PAIRS, MOST_PAIRS = 20, 200
START_S = 1.0  # what a process takes beside loading and measuring
WARMUP = 5
Catalogue = Callable[[Situation], tuple[list[Candidate], list[Inapplicable]]]
Computed = tuple[list[Output], int]  # outputs, and the peak memory of the process in bytes
OPTIMIZE = "optimize/"  # in the session's folder: the ledger, and every comparison as a session of its own
Work = CheckStep | ScreenStep | ConfirmStep
Result = OutputsChecked | FirstLook | TurnsMeasured


@dataclass(frozen=True)
class TryRequest:
    """What to try. advice: an action that the session advises, or a change by its name; None: the first that can be
    tried. everything: all that applies. seed: None: drawn."""

    advice: str | None = None
    everything: bool = False
    budget_s: float = 600.0
    seed: int | None = None
    accept_error: float = 0.0
    slo_ms: float | None = None


class Tried(NamedTuple):
    """A search that ended: the session it is of, and its lines."""

    session: Session
    lines: tuple[Any, ...]

    @property
    def trials(self) -> Trials:
        """Return what was tried and how it ended, as the session keeps it."""
        document = of_ledger(ledger.Read(self.lines, 0))
        assert document is not None
        return document


def try_advice(session: Session, request: TryRequest, settings: Settings, show: Show = SILENT,
               catalogue: Catalogue = candidates) -> Tried:
    """Search for a change that makes the session's workload faster, and prove it; or go on with a search that was cut
    off. catalogue: what is tried, and what cannot be.

    Raise UsageError for a session that is no run of ONNX Runtime, or advice that cannot be tried, AacoError if the
    session's own model does not run any more.
    """
    manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    facts = _situation(session, settings, request)
    applicable, inapplicable = catalogue(facts)
    tried = _chosen(applicable, inapplicable, request, session)
    trial = _Trial(session, facts, settings, show)
    lines = ledger.unfinished(ledger.read(trial.path).lines, trial.origin, tried)
    if lines:
        show.step(f"going on with search {lines[0].search}")
    else:
        lines = (trial.begin(request, tried, inapplicable),)
    begun = Search(lines).begun
    show.step(f"this takes about {begun.announced_s:.0f} s on an idle machine, at most {begun.terms.budget_s:.0f} s")
    while not isinstance(lines[-1], SearchDecided):
        lines = (*lines, trial.make(Search(lines)))
    pipeline.analyze(session, settings)  # its advice says how it fared
    return Tried(session, lines)


def read(session: Session) -> ledger.Read:
    """Return the lines of the session's log."""
    return ledger.read(session.folder / layout.LEDGER)


def kept(session: Session) -> tuple[SearchBegun, SearchDecided, Candidate]:
    """Return the last search of the session that kept a change: its first line, its decision, the change. Raise
    UsageError where none did.
    """
    for lines in reversed(list(ledger.searches(read(session).lines))):
        begun, last = lines[0], lines[-1]
        if isinstance(begun, SearchBegun) and isinstance(last, SearchDecided) and last.kept is not None:
            return begun, last, Search(lines).change(last.kept)
    raise UsageError(f"session {session.id} has no kept change", f"aaco try --all {session.id}")


class _Trial:
    """One search of one session: makes the steps, and writes each into the log."""

    def __init__(self, session: Session, facts: Situation, settings: Settings, show: Show) -> None:
        self.session, self.facts, self.settings, self.show = session, facts, settings, show
        self.path, self.untouched = session.folder / layout.LEDGER, dict[int, Computed]()
        self.given = recorded_run.plan_fields(session)
        self.origin = SearchOrigin(model_sha256=session.record.model_hash or "",
                                   config_hash=session.record.config_hash or "",
                                   machine=machine.identify().id, versions=recorded_run.versions())

    def begin(self, request: TryRequest, tried: list[Candidate], inapplicable: list[Inapplicable]) -> SearchBegun:
        """Settle what is tried and by which terms, and write it down."""
        terms = self._terms(request)
        announced_s = min(terms.budget_s, search.processes_at_most(len(tried), terms) * terms.process_s
                          + (len(tried) + 1) * input_sets.COUNT * (START_S + self._load_s))
        begun = SearchBegun(search=secrets.token_hex(4), origin=self.origin, terms=terms, announced_s=announced_s,
                            candidates=tried, inapplicable=inapplicable,
                            expected=trials.expected(self.settings, self.origin.machine, tried))
        self._keep(begun)
        return begun

    def make(self, state: Search) -> Any:
        """Make the next step of the search, and write it down."""
        began, step = time.monotonic(), next_step(state)
        line: Any = self._decided(state, step) if isinstance(step, SearchDecided) else step
        if isinstance(step, CheckStep | ScreenStep | ConfirmStep):
            line = self._run(state, step)
        line = line.model_copy(update={"took_s": time.monotonic() - began})
        self._keep(line)
        if isinstance(line, TurnsMeasured) and line.step == "confirmed":
            trials.keep(self.settings, state, line)
        return line

    def _run(self, state: Search, step: Work) -> Result:
        """Run what the step asks for. Raise AacoError if the untouched model does not run; what keeps the changed one
        from running is its outcome.
        """
        self._untouched(state.terms.limit_s)
        try:
            if isinstance(step, CheckStep):
                return self._check(state, step.change)
            return self._screen(state, step.change) if isinstance(step, ScreenStep) else self._measure(state, step)
        except StorageError:
            raise
        except AacoError as error:
            return _failed(state, step, f"does not run: {error.what}")

    def _keep(self, line: Any) -> None:
        ledger.append(self.path, line)
        sealed = manifest.read(self.session)["files"]  # each comparison is hashed once, when it is new
        manifest.renew(self.session, [name for name in manifest.content(self.session) if name.startswith(OPTIMIZE)
                                      and (name == layout.LEDGER or name not in sealed)])

    @property
    def _load_s(self) -> float:
        return recorded_run.load_s(self.session)

    def _terms(self, request: TryRequest) -> SearchTerms:
        latency_s = (self.facts.latency_ms or 1.0) / 1e3
        pairs = int(min(MOST_PAIRS, max(FEWEST_PAIRS, PROCESS_S / (2 * latency_s))))
        process_s = START_S + 2 * self._load_s + 2 * (pairs + WARMUP) * latency_s
        seed = secrets.randbelow(2**32) if request.seed is None else request.seed
        return SearchTerms(seed=seed, pairs=pairs, process_s=process_s, budget_s=request.budget_s,
                           accept_error=request.accept_error, slo_ms=request.slo_ms)

    def _side(self, change: Candidate | None = None) -> DuetSide:
        """Return a side as `aaco compare` takes it; None: the untouched baseline."""
        if change is None:
            return DuetSide(model=self.given["model"])
        model = str(self._model(change)) if change.rewrite else self.given["model"]
        return DuetSide(model=model, options=change.settings)

    def _model(self, change: Candidate) -> Path:
        """Return the model file as the change rewrites it; it is written once for each model. Raise AacoError."""
        target = rewritten_model(self.settings, self.origin.model_sha256, change)
        if not target.exists():
            with files.storage(target.parent):
                target.parent.mkdir(parents=True, exist_ok=True)
            rewriting.rewrite(change.rewrite, self.facts.model, target)
        return target

    def _prepared(self, change: Candidate | None) -> Workload:
        fields = {name: value for name, value in self.given.items() if name != "model"}
        runs = sides.prepare(self._side(change), self.settings, fields).runs
        assert isinstance(runs, ModelSide)
        return runs.workload

    def _untouched(self, limit_s: float) -> Mapping[int, Computed]:
        """Return what the untouched model computes, by set of inputs; sets that it refuses are left out, but for its
        own, of which it raises the AacoError.
        """
        if self.untouched:
            return self.untouched
        workload = self._prepared(None)
        for number in range(input_sets.COUNT):
            try:
                self.untouched[number] = _compute(workload, number, limit_s)
            except AacoError as error:
                if number == 0 or isinstance(error, StorageError):
                    raise
                self.show.step(f"inputs {number + 1} are left out: the untouched model does not run: {error.what}")
        return self.untouched

    def _check(self, state: Search, change: Candidate) -> OutputsChecked:
        self.show.step(f"{change.name}: does it compute the same?")
        before = self._untouched(state.terms.limit_s)
        if change.batch_factor > 1:
            return self._check_batch(state, change)
        workload = self._prepared(change)
        if change.rewrite and not (len(before) > 1 and input_sets.varied(workload.inputs)):
            return OutputsChecked(search=state.name, change=change.name, passed=False, why=input_sets.NOT_VARIED)
        after = [_compute(workload, number, state.terms.limit_s) for number in before]
        return self._compare(state, change, list(before.values()), after)

    def _compare(self, state: Search, change: Candidate, before: Sequence[Computed],
                 after: Sequence[Computed]) -> OutputsChecked:
        precisions = change.precisions
        agreements = [agreement.agree(expected, actual, precisions)
                      for (expected, _), (actual, _) in zip(before, after, strict=True)]
        error = gates.largest_error([input_sets.elements(expected, actual)
                                     for (expected, _), (actual, _) in zip(before, after, strict=True)])
        outcome = gates.same_outputs(agreements, change.lossy, state.terms.accept_error, error)
        guard = gates.memory([peak for _, peak in before], [peak for _, peak in after])
        passed, why = (False, f"{guard.metric} is worse: {guard.why}") if outcome.passed and guard.worse else (
            outcome.passed, outcome.why)
        return OutputsChecked(search=state.name, change=change.name, passed=passed, why=why,
                              error=error if error is not None and np.isfinite(error) else None,
                              peak_rss_bytes=[peak for _, peak in after])

    def _screen(self, state: Search, change: Candidate) -> FirstLook:
        self.show.step(f"{change.name}: a first look")
        request = DuetRequest(processes=state.terms.screen_processes, pairs=state.terms.pairs, warmup=WARMUP,
                              controls=False, seed=_seed(state, "screen", change), vary=True,
                              limit_s=state.terms.limit_s, budget_s=_left_s(state))
        session = self._turns(change, request).session
        ratios = [ratio - float(np.log(change.batch_factor)) for ratio in _log_ratios(session)]
        return FirstLook(search=state.name, change=change.name, session=_place(self.session, session),
                         log_ratios=ratios)

    def _measure(self, state: Search, step: ConfirmStep) -> TurnsMeasured:
        change = step.change
        name: Literal["again", "confirmed"] = "again" if step.again else "confirmed"
        self.show.step(f"{change.name}: {'once more against the baseline' if step.again else 'to be confirmed'}")
        request = DuetRequest(processes=step.processes, pairs=state.terms.pairs, warmup=WARMUP, level=step.level,
                              seed=_seed(state, name, change), vary=True, limit_s=state.terms.limit_s,
                              budget_s=_left_s(state))
        session, verdict = self._turns(change, request)
        gain = gates.gain(verdict, change.batch_factor)
        guards = list(self._guards(state, step, session, verdict))
        worse = next((guard for guard in guards if guard.worse), None)
        outcome = gates.fast_enough(gain, state.terms, verdict.why)
        passed, why = (False, f"{worse.metric} is worse: {worse.why}") if worse else (outcome.passed, outcome.why)
        return TurnsMeasured(search=state.name, step=name, change=change.name,
                             session=_place(self.session, session), gain_pct=gain.percent, low_pct=gain.low,
                             high_pct=gain.high, level=step.level, processes=step.processes, guards=guards,
                             passed=passed, why=why)

    def _guards(self, state: Search, step: ConfirmStep, session: Session,
                verdict: RegressionVerdict) -> Iterator[GuardedMetric]:
        factor = step.change.batch_factor
        yield gates.no_metric_worse(verdict) if factor == 1 else gates.within_slo(verdict, state.terms.slo_ms)
        pairs = store.read(session, PAIRS)
        yield gates.tail(pairs, step.level, factor)
        yield gates.some_inputs(pairs, step.level, factor)
        yield gates.memory([peak for _, peak in self.untouched.values()],
                           state.checked[step.change.name].peak_rss_bytes)

    def _turns(self, change: Candidate, request: DuetRequest) -> compare.Compared:
        fields = {name: value for name, value in self.given.items() if name != "model"}
        quiet = Show(step=lambda text: None, progress=self.show.progress)
        return compare.compare(self._side(), self._side(change), request, _inside(self.session, self.settings), fields,
                               quiet)

    def _decided(self, state: Search, decided: SearchDecided) -> SearchDecided:
        if decided.kept is None:
            return decided
        change = state.change(decided.kept)
        return decided.model_copy(update={"model": str(self._model(change)) if change.rewrite else None})

    def _check_batch(self, state: Search, change: Candidate) -> OutputsChecked:
        """Compare the outputs of one larger batch with those of the baseline on its parts."""
        larger, untouched, limit_s = self._prepared(change), self._prepared(None), state.terms.limit_s
        outputs = [ort.run_once(replace(untouched, inputs=part), limit_s)[0]
                   for part in input_sets.parts(larger.inputs, untouched.inputs, change.batch_factor)]
        actual, peak = ort.run_once(larger, limit_s)
        expected = [input_sets.joined(outputs_of_one) for outputs_of_one in zip(*outputs, strict=True)]
        line = self._compare(state, change, [(expected, peak)], [(actual, peak)])
        return line.model_copy(update={"peak_rss_bytes": []})  # more samples need more memory: it is not judged


def _compute(workload: Workload, number: int, limit_s: float) -> Computed:
    """Return what the workload computes of this set of inputs, in a fresh process. Raise AacoError."""
    return ort.run_once(replace(workload, inputs=input_sets.permuted(workload.inputs, number)), limit_s)


def _failed(state: Search, step: Work, why: str) -> Result:
    """Return the line of a step with a change that did not run."""
    if isinstance(step, CheckStep):
        return OutputsChecked(search=state.name, change=step.change.name, passed=False, why=why)
    if isinstance(step, ScreenStep):
        return FirstLook(search=state.name, change=step.change.name, session="", log_ratios=[], why=why)
    return TurnsMeasured(search=state.name, step="again" if step.again else "confirmed", change=step.change.name,
                         session="", gain_pct=None, low_pct=None, high_pct=None, level=step.level,
                         processes=step.processes, guards=[], passed=False, why=why)


def rewritten_model(settings: Settings, model_sha256: str, change: Candidate) -> Path:
    """Return where the model is kept as a change rewrites it."""
    return settings.config.storage.cache_dir.expanduser() / "tried" / f"{model_sha256[:16]}-{change.rewrite}.onnx"


def offered(session: Session, request: TryRequest, settings: Settings) -> tuple[list[Candidate], list[Inapplicable]]:
    """Return what can be tried on the session, and what cannot with its reason. Raise UsageError."""
    return candidates(_situation(session, settings, request))


def _inside(session: Session, settings: Settings) -> Settings:
    """Return the settings under which a comparison is kept inside the session that it is evidence for."""
    storage = settings.config.storage.model_copy(update={"sessions_dir": session.folder / OPTIMIZE})
    return replace(settings, config=settings.config.model_copy(update={"storage": storage}))


def _place(session: Session, comparison: Session) -> str:
    return comparison.folder.relative_to(session.folder).as_posix()


def _situation(session: Session, settings: Settings, request: TryRequest) -> Situation:
    return situation_of(pipeline.explain(session, settings), settings, request.slo_ms)


def _log_ratios(session: Session) -> list[float]:
    return [unit.log_ratio for unit in duet.units(store.read(session, PAIRS))]


def _left_s(state: Search) -> float:
    """Return what is left of the budget, s; a comparison begins no process after it."""
    return max(1.0, state.terms.budget_s - state.spent_s)


def _seed(state: Search, step: str, change: Candidate) -> int:
    """Return the seed of the order of a comparison: the same when a search is resumed."""
    return zlib.crc32(f"{state.terms.seed} {step} {change.name}".encode())


def _chosen(applicable: Sequence[Candidate], inapplicable: Sequence[Inapplicable], request: TryRequest,
            session: Session) -> list[Candidate]:
    """Return the changes to try. Raise UsageError where none is left."""
    if request.everything:
        return _require(applicable, session, inapplicable)
    names = [request.advice] if request.advice else advised(session)
    for name in names:
        tried = [change for change in applicable if name in (change.name, *change.advice)]
        if tried:
            return tried
    if request.advice:
        why = next((refused.why for refused in inapplicable if request.advice in (refused.name, *refused.advice)), "")
        raise UsageError(f"{request.advice} cannot be tried on session {session.id}"
                         + (f": {why}" if why else ": no change of ONNX Runtime's options does that"),
                         f"aaco try --list {session.id}  # what can be tried, and why the rest cannot")
    raise UsageError(f"nothing that session {session.id} advises can be tried by options of ONNX Runtime",
                     f"aaco try --all {session.id}")


def _require(applicable: Sequence[Candidate], session: Session,
             inapplicable: Sequence[Inapplicable]) -> list[Candidate]:
    if not applicable:
        raise UsageError(f"nothing can be tried on session {session.id}: {len(inapplicable)} changes do not apply",
                         f"aaco try --list {session.id}")
    return list(applicable)


def advised(session: Session) -> list[str]:
    """Return the names of the actions that the session advises, best first."""
    document = documents.read(session, layout.BOTTLENECK)
    return [str(action["action"]) for action in document.get("optimization_priority", ())]

"""The steps of a search on one session: each is made, and is a line of the session's log before the next begins.

`optimize/search.py` says what comes next; changes and the untouched session are computed and compared here.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.collectors.inventory import machine
from aaco.core import files
from aaco.core.candidate import Candidate, Inapplicable
from aaco.core.config import Settings
from aaco.core.errors import AacoError, StorageError
from aaco.core.session import Session
from aaco.core.show import Show
from aaco.core.tables import PAIRS
from aaco.governance import agreement
from aaco.governance.interleaved import duet
from aaco.optimize import gates, input_sets, ledger, outcomes, recorded_run, rewriting, search
from aaco.optimize.search import CheckStep, ConfirmStep, ScreenStep, Search, next_step
from aaco.optimize.situation import Situation
from aaco.runner import ort
from aaco.runner.duet import ModelSide
from aaco.runner.ort import Workload
from aaco.tracelake import layout, manifest, store
from aaco.tracelake.document_schemas.ledger import (
    ConfirmationPlanned,
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
from aaco.workflows.duet import compare, sides
from aaco.workflows.duet.compare import Compared, DuetRequest, DuetSide

PROCESS_S = 3.0  # how long a process of a comparison is to measure
FEWEST_PAIRS, MOST_PAIRS = 20, 200
START_S = 1.0  # what a process takes beside loading and measuring
WARMUP = 5
Computed = tuple[list[Output], int]  # outputs, and the peak memory of the process in bytes
OPTIMIZE = "optimize/"  # in the session's folder: the ledger, and every comparison as a session of its own
Work = CheckStep | ScreenStep | ConfirmStep
Result = OutputsChecked | FirstLook | TurnsMeasured


class TryRequest(Struct, frozen=True):
    """What to try. advice: an action that the session advises, or a change by its name; None: the first that can be
    tried. everything: all that applies. seed: None: drawn."""

    advice: str | None = None
    everything: bool = False
    budget_s: float = 600.0
    seed: int | None = None
    accept_error: float = 0.0
    slo_ms: float | None = None


class TrialSteps:
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
        announced_s = search.announced_s(len(tried), terms, input_sets.COUNT * (START_S + self._load_s))
        begun = SearchBegun(search=secrets.token_hex(4), origin=self.origin, terms=terms, announced_s=announced_s,
                            candidates=tried, inapplicable=inapplicable,
                            expected=outcomes.expected(self.settings, self.origin.machine, tried))
        self._keep(begun)
        return begun

    def make(self, state: Search) -> Any:
        """Make the next step of the search, and write it down."""
        began, step = time.monotonic(), next_step(state)
        line: Any = self._decided(state, step) if isinstance(step, SearchDecided) else step
        if isinstance(step, CheckStep | ScreenStep | ConfirmStep):
            line = self._run(state, step)
        elif isinstance(step, ConfirmationPlanned):
            self.show.step(f"each confirmation: {step.processes} processes and as many controls, about "
                           f"{state.comparison_s(2 * step.processes):.0f} s")
        line = line.model_copy(update={"took_s": time.monotonic() - began})
        self._keep(line)
        if isinstance(line, TurnsMeasured) and line.step == "confirmed":
            outcomes.keep(self.settings, state, line)
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

    @property
    def _options(self) -> dict[str, Any]:
        """Return the options of the session's run, which both sides of a comparison share."""
        return {name: setting for name, setting in self.given.items() if name != "model"}

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
        runs = sides.prepare(self._side(change), self.settings, self._options).runs
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
        if outcome.passed:
            outcome = gates.guarded(outcome, [gates.memory([peak for _, peak in before], [peak for _, peak in after])])
        return OutputsChecked(search=state.name, change=change.name, passed=outcome.passed, why=outcome.why,
                              error=error if error is not None and np.isfinite(error) else None,
                              peak_rss_bytes=[peak for _, peak in after])

    def _screen(self, state: Search, change: Candidate) -> FirstLook:
        self.show.step(f"{change.name}: a first look")
        request = DuetRequest(processes=state.terms.screen_processes, pairs=state.terms.pairs, warmup=WARMUP,
                              controls=False, seed=_seed(state, "screen", change), vary=True,
                              limit_s=state.terms.limit_s, budget_s=_left_s(state))
        compared = self._turns(change, request)
        ratios = [ratio - float(np.log(change.batch_factor)) for ratio in _log_ratios(compared.session)]
        return FirstLook(search=state.name, change=change.name, session=_place(self.session, compared.session),
                         log_ratios=ratios, processes_s=[cost.took_s for cost in compared.costs],
                         by_device=gates.fills_latency(compared.verdict))

    def _measure(self, state: Search, step: ConfirmStep) -> TurnsMeasured:
        change = step.change
        name: Literal["again", "confirmed"] = "again" if step.again else "confirmed"
        self.show.step(f"{change.name}: {'once more against the baseline' if step.again else 'to be confirmed'}")
        request = replace(confirmation(state, step.processes, step.level), seed=_seed(state, name, change),
                          limit_s=state.terms.limit_s, budget_s=_left_s(state))
        compared = self._turns(change, request)
        gain = gates.gain(compared.verdict, change.batch_factor)
        guards = list(self._guards(state, step, compared))
        outcome = gates.guarded(gates.fast_enough(gain, state.terms, compared.verdict.why), guards)
        return TurnsMeasured(search=state.name, step=name, change=change.name,
                             session=_place(self.session, compared.session), gain_pct=gain.percent, low_pct=gain.low,
                             high_pct=gain.high, level=step.level, processes=step.processes, guards=guards,
                             passed=outcome.passed, why=outcome.why,
                             processes_s=[cost.took_s for cost in compared.costs])

    def _guards(self, state: Search, step: ConfirmStep, compared: Compared) -> Iterator[GuardedMetric]:
        factor, verdict = step.change.batch_factor, compared.verdict
        yield gates.no_metric_worse(verdict) if factor == 1 else gates.within_slo(verdict, state.terms.slo_ms)
        pairs = store.read(compared.session, PAIRS)
        yield gates.tail(pairs, step.level, factor)
        yield gates.some_inputs(pairs, step.level, factor)
        yield gates.memory([peak for _, peak in self.untouched.values()],
                           state.checked[step.change.name].peak_rss_bytes)
        yield gates.energy(*compared.energy_of_controls(), factor, compared.why_no_energy)

    def _turns(self, change: Candidate, request: DuetRequest) -> Compared:
        quiet = Show(step=lambda text: None, progress=self.show.progress)
        return compare.compare(self._side(), self._side(change), request, _inside(self.session, self.settings),
                               self._options, quiet)

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


def confirmation(state: Search, processes: int, level: float) -> DuetRequest:
    """Return how a change of this search is confirmed, whenever that is: in the same way, so the answers compare.

    Where the device's time does not fill the latency no tracer records it: it would make the launches of one side cost
    more, and not those of a graph that the device launches by itself.
    """
    return DuetRequest(processes=processes, pairs=state.terms.pairs, warmup=WARMUP, level=level, vary=True,
                       device_time=state.by_device, energy=True)


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


def _inside(session: Session, settings: Settings) -> Settings:
    """Return the settings under which a comparison is kept inside the session that it is evidence for."""
    storage = settings.config.storage.model_copy(update={"sessions_dir": session.folder / OPTIMIZE})
    return replace(settings, config=settings.config.model_copy(update={"storage": storage}))


def _place(session: Session, comparison: Session) -> str:
    return comparison.folder.relative_to(session.folder).as_posix()


def _log_ratios(session: Session) -> list[float]:
    return [unit.log_ratio for unit in duet.units(store.read(session, PAIRS))]


def _left_s(state: Search) -> float:
    """Return what is left of the budget, s; a comparison begins no process after it."""
    return max(1.0, state.left_s)


def _seed(state: Search, step: str, change: Candidate) -> int:
    """Return the seed of the order of a comparison: the same when a search is resumed."""
    return zlib.crc32(f"{state.terms.seed} {step} {change.name}".encode())

"""A gate: every benchmark of a suite is measured, judged, and measured again before anything is called worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aaco import __version__, pipeline
from aaco.core import documents, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, NoBaseline
from aaco.core.plan import Command, Plan
from aaco.core.session import Session, find
from aaco.core.show import SILENT, Show
from aaco.core.words import plural
from aaco.governance import gate, sla
from aaco.governance.gate import Judged, Measured, Measurement, Report
from aaco.governance.suite import Benchmark, Suite
from aaco.governance.verdict_document import RegressionVerdict
from aaco.workflows import compare_runs, judge
from aaco.workflows.compare_runs import DiffRequest

AS_BEFORE = ("equivalent", "inconclusive", "unconfirmed", "no_baseline", "kept", "near", "skipped")


class Gate(Struct, frozen=True):
    """A suite with all that it names, ready to be run."""

    suite: Suite
    policies: dict[str, sla.Policy]  # by benchmark
    settings: Settings
    show: Show = SILENT

    def run(self) -> tuple[Report, list[Measured]]:
        """Measure and judge every benchmark, then the suspects once more. What fails is in the report, not raised."""
        first = [self._guarded(benchmark, self._first) for benchmark in self._told("measuring")]
        suspects = gate.suspects(self.suite, first)
        measured = [self._again(once) if once.benchmark.name in suspects else once for once in first]
        report = self._decided(measured)
        noted = [self._noted(*pair) for pair in zip(measured, report.benchmarks, strict=True)]
        return self._decided(noted), noted

    def _decided(self, measured: Sequence[Measured]) -> Report:
        return gate.decide(self.suite, measured, datetime.now(UTC).date(), __version__)

    def _noted(self, measured: Measured, judged: Judged) -> Measured:
        """The benchmark, once the verdict in its session names the sessions that confirm it."""
        verdict = measured.first.verdict if measured.first else None
        if measured.first is None or verdict is None:
            return measured
        try:
            for check in judged.checks:
                if check.confirmed_by and (check.kind, check.metric) == ("comparison", verdict.metric):
                    judge.confirm(self._session(measured.first.session_id), verdict, check.confirmed_by, self.settings)
        except AacoError as error:
            return replace(measured, error=error.what, error_code=error.exit_code)
        return measured

    def save(self, report: Report, measured: Sequence[Measured]) -> list[str]:
        """Add the sessions of every benchmark that is as it was to its baseline; what was saved and what not, in words.

        A session that was disturbed or measured badly would make every later verdict inconclusive. Raises AacoError.
        """
        lines = []
        for each, judged in zip(measured, report.benchmarks, strict=True):
            name = each.benchmark.baseline
            if not each.first or not name or judged.outcome not in AS_BEFORE:
                continue
            sessions = [self._session(measurement.session_id) for measurement in (each.first, *each.again)]
            good = [session for session in sessions if not self._spoilt(session)]
            if good:
                judge.save_baseline(name, good, self.settings)
            lines.append(f"{each.benchmark.name}: {len(good)} of {plural(len(sessions), 'session')} added to {name}"
                         + ("" if len(good) == len(sessions) else "; the others were disturbed or measured badly"))
        return lines

    @property
    def _counting(self) -> Show:
        """For one measurement: its numbers without its steps, which would hide which benchmark it is."""
        return Show(progress=self.show.progress)

    def _spoilt(self, session: Session) -> bool:
        side = compare_runs.side(pipeline.explain(session, self.settings))
        return bool(side.contaminated or side.badly_measured)

    def _told(self, doing: str) -> Iterator[Benchmark]:
        for number, benchmark in enumerate(self.suite.benchmarks, start=1):
            self.show.step(f"{doing} {benchmark.name} ({number} of {len(self.suite.benchmarks)})")
            yield benchmark

    def _guarded(self, benchmark: Benchmark, measure: Callable[[Benchmark], Measured]) -> Measured:
        try:
            return measure(benchmark)
        except AacoError as error:
            return Measured(benchmark, error=error.what, error_code=error.exit_code)

    def _first(self, benchmark: Benchmark) -> Measured:
        session = self._session(benchmark.session) if benchmark.session else self._measured(benchmark)
        measurement, no_baseline = self._judged(benchmark, session)
        return Measured(benchmark, measurement, no_baseline=no_baseline)

    def _again(self, suspect: Measured) -> Measured:
        """Return the suspect with its further measurements; if one fails, it stays unconfirmed, with the failure."""
        again: list[Measurement] = []
        try:
            for number in range(self.suite.reruns if suspect.benchmark.is_run else len(suspect.benchmark.confirm)):
                self.show.step(f"{suspect.benchmark.name} looks worse: fresh processes ({number + 1})")
                session = self._measured(suspect.benchmark) if suspect.benchmark.is_run else \
                    self._session(suspect.benchmark.confirm[number])
                again.append(self._judged(suspect.benchmark, session)[0])
            if suspect.benchmark.of_baseline:
                again[-1] = replace(again[-1],
                                    anew=self._anew(suspect.benchmark, suspect.benchmark.of_baseline, session))
        except AacoError as error:
            return replace(suspect, error=error.what, error_code=error.exit_code)
        return replace(suspect, again=again)

    def _anew(self, benchmark: Benchmark, of_baseline: Benchmark, session: Session) -> RegressionVerdict:
        """The session against the baseline's version, measured after it: what slowed down the machine slows that, too.
        """
        self.show.step(f"{benchmark.name} looks worse: measuring the baseline's version again")
        before = compare_runs.side(pipeline.explain(self._measured(of_baseline), self.settings))
        current = compare_runs.side(pipeline.explain(session, self.settings))
        return judge.judge(compare_runs.as_one_benchmark(before, current), current, self.settings,
                           self._request(benchmark))

    def _request(self, benchmark: Benchmark) -> DiffRequest:
        tolerance = benchmark.tolerance_pct or self.suite.tolerance_pct or self.settings.config.analysis.tolerance_pct
        return DiffRequest(tolerance, false_alarm_pct=self.suite.false_alarm_pct)

    def _judged(self, benchmark: Benchmark, session: Session) -> tuple[Measurement, str | None]:
        """What a session says, and why it could not be compared where there is no baseline."""
        objectives = self._objectives(benchmark, session)
        if benchmark.baseline is None:
            return Measurement(session.id, objectives=objectives), None
        try:
            verdict = judge.diff(benchmark.baseline, session, self.settings, self._request(benchmark))
        except NoBaseline as error:
            return Measurement(session.id, objectives=objectives), error.what
        return Measurement(session.id, verdict, objectives), None

    def _objectives(self, benchmark: Benchmark, session: Session) -> sla.Report | None:
        policy = self.policies.get(benchmark.name)
        return sla.check(policy, pipeline.explain(session, self.settings).readings, session.id) if policy else None

    def _session(self, reference: str) -> Session:
        return find(reference, self.settings.config.storage.sessions_dir)

    def _measured(self, benchmark: Benchmark) -> Session:
        plan_fields: dict[str, Any] = {"tag": f"ci {benchmark.name}", "telemetry": benchmark.telemetry}
        if benchmark.command:
            command = Command(argv=benchmark.command, timeout_s=benchmark.timeout_s)
            warmup = 1 if benchmark.warmup is None else benchmark.warmup
            return pipeline.observe(Plan.of_command(command, benchmark.processes, warmup, **plan_fields), self.settings,
                                    self._counting)
        plan = pipeline.plan(self.settings, benchmark.model or "", backend=benchmark.backend, batch=benchmark.batch,
                             processes=benchmark.processes, warmup=benchmark.warmup, iterations=benchmark.iterations,
                             custom_ops=benchmark.custom_ops, **plan_fields)
        return pipeline.observe(plan, self.settings, self._counting)


def load(path: Path, settings: Settings, show: Show = SILENT) -> Gate:
    """Return the gate of a suite's file; any wrong name is refused before anything is measured. Raise UsageError.
    """
    suite = documents.load_yaml(path, Suite, "suite")
    policies = {}
    for benchmark in suite.benchmarks:
        if name := benchmark.sla or suite.sla:
            policies[benchmark.name] = documents.load_yaml(path.parent / name, sla.Policy, "policy")
    return Gate(suite, policies, settings, show)


def append(path: Path, text: str) -> None:
    """Append to a file that others write too, such as a summary of several steps. Raise StorageError."""
    with files.storage(path), path.open("ab") as file:
        file.write(text.encode())

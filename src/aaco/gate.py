"""A gate: every benchmark of a suite is measured, judged, and measured again before anything is called worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aaco import __version__, compare, pipeline
from aaco.compare import Request
from aaco.core import documents, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, NoBaseline
from aaco.core.plan import Command, Plan
from aaco.core.session import Session, find
from aaco.core.show import SILENT, Show
from aaco.governance import gate, sla
from aaco.governance.gate import Judged, Measured, Measurement, Report
from aaco.governance.suite import Benchmark, Suite
from aaco.governance.verdict import RegressionVerdict

AS_BEFORE = ("equivalent", "inconclusive", "unconfirmed", "no_baseline", "kept", "near", "skipped")


@dataclass(frozen=True)
class Gate:
    """A suite with all that it names, ready to be run."""

    suite: Suite
    policies: dict[str, sla.Policy]  # by benchmark
    settings: Settings
    show: Show = SILENT

    def run(self) -> tuple[Report, list[Measured]]:
        """Measure and judge every benchmark, then the suspects once more. What fails is in the report, not raised."""
        first = [self._guarded(each, self._first) for each in self._told("measuring")]
        suspects = gate.suspects(self.suite, first)
        measured = [self._again(each) if each.benchmark.name in suspects else each for each in first]
        report = self._decided(measured)
        noted = [self._noted(each, judged) for each, judged in zip(measured, report.benchmarks, strict=True)]
        return self._decided(noted), noted

    def _decided(self, measured: Sequence[Measured]) -> Report:
        return gate.decide(self.suite, measured, datetime.now(UTC).date(), __version__)

    def _noted(self, each: Measured, judged: Judged) -> Measured:
        """The benchmark, once the verdict in its session names the sessions that confirm it."""
        verdict = each.first.verdict if each.first else None
        if each.first is None or verdict is None:
            return each
        try:
            for check in judged.checks:
                if check.confirmed_by and (check.kind, check.metric) == ("comparison", verdict.metric):
                    pipeline.confirm(self._session(each.first.session_id), verdict, check.confirmed_by, self.settings)
        except AacoError as error:
            return replace(each, error=error.what, error_code=error.exit_code)
        return each

    def save(self, report: Report, measured: Sequence[Measured]) -> list[str]:
        """Add the sessions of every benchmark that is as it was to its baseline; what was saved and what not, in words.

        A session that was disturbed or measured badly would make every later verdict inconclusive. Raises AacoError.
        """
        said = []
        for each, judged in zip(measured, report.benchmarks, strict=True):
            name = each.benchmark.baseline
            if not each.first or not name or judged.outcome not in AS_BEFORE:
                continue
            sessions = [self._session(one.session_id) for one in (each.first, *each.again)]
            good = [session for session in sessions if not self._spoilt(session)]
            if good:
                pipeline.save_baseline(name, good, self.settings)
            said.append(f"{each.benchmark.name}: {len(good)} of {len(sessions)} session(s) added to {name}"
                        + ("" if len(good) == len(sessions) else "; the others were disturbed or measured badly"))
        return said

    @property
    def _counting(self) -> Show:
        """For one measurement: its numbers without its steps, which would hide which benchmark it is."""
        return Show(progress=self.show.progress)

    def _spoilt(self, session: Session) -> bool:
        side = compare.side(pipeline.explain(session, self.settings))
        return bool(side.contaminated or side.badly_measured)

    def _told(self, doing: str) -> Iterator[Benchmark]:
        for number, each in enumerate(self.suite.benchmarks, start=1):
            self.show.step(f"{doing} {each.name} ({number} of {len(self.suite.benchmarks)})")
            yield each

    def _guarded(self, benchmark: Benchmark, measure: Callable[[Benchmark], Measured]) -> Measured:
        try:
            return measure(benchmark)
        except AacoError as error:
            return Measured(benchmark, error=error.what, error_code=error.exit_code)

    def _first(self, benchmark: Benchmark) -> Measured:
        session = self._session(benchmark.session) if benchmark.session else self._measured(benchmark)
        found, no_baseline = self._judged(benchmark, session)
        return Measured(benchmark, found, no_baseline=no_baseline)

    def _again(self, each: Measured) -> Measured:
        """The suspect with its further measurements; one that fails leaves it unconfirmed, with the failure told."""
        again: list[Measurement] = []
        try:
            for number in range(self.suite.reruns if each.benchmark.is_run else len(each.benchmark.confirm)):
                self.show.step(f"{each.benchmark.name} looks worse: fresh processes ({number + 1})")
                session = self._measured(each.benchmark) if each.benchmark.is_run else \
                    self._session(each.benchmark.confirm[number])
                again.append(self._judged(each.benchmark, session)[0])
            if each.benchmark.of_baseline:
                again[-1] = replace(again[-1], anew=self._anew(each.benchmark, each.benchmark.of_baseline, session))
        except AacoError as error:
            return replace(each, error=error.what, error_code=error.exit_code)
        return replace(each, again=again)

    def _anew(self, benchmark: Benchmark, of_baseline: Benchmark, session: Session) -> RegressionVerdict:
        """The session against the baseline's version, measured after it: what slowed down the machine slows that, too.
        """
        self.show.step(f"{benchmark.name} looks worse: the baseline's version, anew")
        before = compare.side(pipeline.explain(self._measured(of_baseline), self.settings))
        current = compare.side(pipeline.explain(session, self.settings))
        return pipeline.judge(compare.as_one_benchmark(before, current), current, self.settings,
                              self._request(benchmark))

    def _request(self, benchmark: Benchmark) -> Request:
        tolerance = benchmark.tolerance_pct or self.suite.tolerance_pct or self.settings.config.analysis.tolerance_pct
        return Request(tolerance, false_alarm_pct=self.suite.false_alarm_pct)

    def _judged(self, benchmark: Benchmark, session: Session) -> tuple[Measurement, str | None]:
        """What a session says, and why it could not be compared where there is no baseline."""
        objectives = self._objectives(benchmark, session)
        if benchmark.baseline is None:
            return Measurement(session.id, objectives=objectives), None
        try:
            verdict = pipeline.diff(benchmark.baseline, session, self.settings, self._request(benchmark))
        except NoBaseline as error:
            return Measurement(session.id, objectives=objectives), error.what
        return Measurement(session.id, verdict, objectives), None

    def _objectives(self, benchmark: Benchmark, session: Session) -> sla.Report | None:
        policy = self.policies.get(benchmark.name)
        return sla.check(policy, pipeline.explain(session, self.settings).readings, session.id) if policy else None

    def _session(self, reference: str) -> Session:
        return find(reference, self.settings.config.storage.sessions_dir)

    def _measured(self, benchmark: Benchmark) -> Session:
        given: dict[str, Any] = {"tag": f"ci {benchmark.name}", "telemetry": benchmark.telemetry}
        if benchmark.command:
            command = Command(argv=benchmark.command, timeout_s=benchmark.timeout_s)
            warmup = 1 if benchmark.warmup is None else benchmark.warmup
            return pipeline.observe(Plan.of_command(command, benchmark.processes, warmup, **given), self.settings,
                                    self._counting)
        plan = pipeline.plan(self.settings, benchmark.model or "", backend=benchmark.backend, batch=benchmark.batch,
                             processes=benchmark.processes, warmup=benchmark.warmup, iterations=benchmark.iterations,
                             **given)
        return pipeline.observe(plan, self.settings, self._counting)


def load(path: Path, settings: Settings, show: Show = SILENT) -> Gate:
    """The gate of a suite's file; whatever it names wrongly is refused before anything is measured. Raises UsageError.
    """
    suite = documents.load_yaml(path, Suite, "suite")
    policies = {}
    for each in suite.benchmarks:
        if name := each.sla or suite.sla:
            policies[each.name] = documents.load_yaml(path.parent / name, sla.Policy, "policy")
    return Gate(suite, policies, settings, show)


def append(path: Path, text: str) -> None:
    """Add to a file that belongs to somebody else, such as a summary of several steps. Raises StorageError."""
    with files.storage(path), path.open("ab") as file:
        file.write(text.encode())

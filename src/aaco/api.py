"""AACO from Python: `Observatory` profiles, analyzes, reports and compares.

Each method is one call of the pipeline; sessions, baselines and settings are found as the command line finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, cast

from aaco import pipeline
from aaco.analytics.advice.trials import Trials
from aaco.analytics.diagnosis import Diagnosis
from aaco.analytics.explanation import Explanation
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.analytics.truth.trust import Trust
from aaco.core import files, notebook
from aaco.core.config import Config, Settings, resolve, taken
from aaco.core.errors import UsageError
from aaco.core.presets import Layer
from aaco.core.readings import Reading
from aaco.core.session import LATEST, Session, find
from aaco.governance.tracediff import TraceChange
from aaco.governance.verdict_document import RegressionVerdict
from aaco.report.format import reading as reading_text
from aaco.report.renderers import output_formats, terminal
from aaco.report.renderers.output_formats import Form
from aaco.report.sections import tracediff, verdict
from aaco.tracelake.queries import QueryableSession
from aaco.workflows import compare_traces, judge
from aaco.workflows.compare_runs import DiffRequest

# The readings that a notebook shows of an analysis, where they have a value.
SHOWN = ("latency_p50_ms", "gpu_active_ratio", "launch_tax_pct")
Reference = Session | str | Path  # a session, its folder, its id or the beginning of one, a tag, or "latest"


@dataclass(frozen=True)
class Analysis:
    """A session explained: its readings, its bottleneck, and what its devices did."""

    session: QueryableSession
    explanation: Explanation = field(repr=False)

    @property
    def metrics(self) -> Mapping[str, Reading]:
        """Every metric's reading by name: a value with its unit and interval, or the reason there is none."""
        return self.explanation.readings

    @property
    def statistics(self) -> Mapping[str, Any]:
        """The measured latencies' statistics, in ms, each a mapping with `value`; empty where nothing was timed."""
        return cast(Mapping[str, Any], self.explanation.summary.get("measurement", {}))

    @property
    def bottleneck(self) -> Diagnosis:
        """The class of bottleneck with its evidence; `unknown`, and why, if there is no diagnosis."""
        return self.explanation.diagnosis

    @property
    def heu(self) -> Reading:
        """Hardware envelope utilization, a share of the roofs that were measured on this machine."""
        return self.metrics["hardware_envelope_utilization"]

    @property
    def trace(self) -> DeviceTrace | None:
        """What the devices did: busy and idle time, launches, queues, steps. None where no device was traced."""
        return self.explanation.trace

    @property
    def truth(self) -> Mapping[str, Any]:
        """What shows that the trace is false or has holes, as trace_check.json holds it; empty for a run."""
        return self.explanation.truth

    @property
    def trust(self) -> Trust:
        """Whether the recording can be trusted: `trusted`, the `line` that every screen says first, and `steps`."""
        return self.explanation.trust

    def classify_bottleneck(self) -> Diagnosis:
        """`bottleneck`, as a verb."""
        return self.bottleneck

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the class, whether to trust it, the first advice and the main figures."""
        diagnosis = self.bottleneck
        figures = [(name, reading_text(self.metrics[name])) for name in SHOWN if self.metrics[name].value is not None]
        advised = diagnosis.recommendations[0].action.title if diagnosis.recommendations else ""
        return notebook.table((("session", self.session.id), ("trace check", self.trust.line),
                               ("limit", diagnosis.label.replace("_", "-")), ("why", diagnosis.abstained_because),
                               *figures, ("try first", advised)))

    def summary(self) -> str:
        """The report as text, 80 columns wide."""
        return terminal.render(self.explanation)


@dataclass(frozen=True)
class Comparison:
    """One session against another. Runs have a `verdict`, which states its noise; imported traces, of which there is
    one a side, have a `change`, which is an exact account without a verdict."""

    baseline: str
    session: QueryableSession
    verdict: RegressionVerdict | None = field(default=None, repr=False)
    change: TraceChange | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what `aaco diff` prints."""
        return f"<pre>{escape(self.summary())}</pre>"

    @property
    def status(self) -> str:
        """The verdict's status; `not judged` for two traces."""
        return self.verdict.status if self.verdict else "not judged"

    @property
    def has_regression(self) -> bool | None:
        """Whether it became slower; None if that is unknown: inconclusive, or two traces."""
        return {"regressed": True, "improved": False, "equivalent": False}.get(self.status)

    def document(self) -> dict[str, Any]:
        """The content of regress/verdict.json for runs, of regress/diff.json for traces."""
        if self.verdict:
            return self.verdict.model_dump(mode="json")
        return self.change.document() if self.change else {}

    def summary(self) -> str:
        """What `aaco diff` prints."""
        if self.verdict:
            return verdict.render(self.document())
        return tracediff.render(self.document(), self.baseline, self.session.id)


class Observatory:
    """Measures, reads, explains and compares with one configuration.

    config: None takes the configuration file and the environment; sections such as {"storage": {"sessions_dir": ...}}
    override both; a path is the configuration file; a `Config` is taken as it is. Raises UsageError for a setting that
    is unknown or out of range.
    """

    def __init__(self, config: Config | Layer | str | Path | None = None) -> None:
        self.settings = _settings(config)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.settings.config

    def profile(self, model: str | Path, *, iterations: int | None = None,
                warmup: int | Literal["auto"] | None = None, **plan: Any) -> QueryableSession:
        """Run a model as `aaco run` does, and keep everything in a new session. Raises AacoError.

        model: a name from `aaco models`, or an .onnx file. plan: further fields of `aaco.Plan`, such as backend, batch,
        processes, telemetry, tag. What is not given comes from the configuration, then from the model's entry.
        """
        chosen = pipeline.plan(self.settings, str(model), iterations=iterations, warmup=warmup, **plan)
        return QueryableSession.open(pipeline.observe(chosen, self.settings).folder)

    def import_captures(self, *captures: str | Path, tag: str = "", format: str | None = None,
                        latency: float | str | Path | None = None) -> QueryableSession:
        """Read captures of other tools into one new session, as `aaco import` does. Raises AacoError.

        captures: files, and folders that are searched. format: that of every file, instead of recognising each.
        latency: how long a step takes without the profiler, ms, or a file of such times.
        """
        read = pipeline.import_captures([Path(each) for each in captures], self.settings, form=format, tag=tag,
                                        latency=None if latency is None else str(latency))
        return QueryableSession.open(read.session.folder)

    def open(self, session: Reference = LATEST) -> QueryableSession:
        """A session by its folder, id, beginning of an id, or tag; by default the latest. Raises UsageError."""
        return QueryableSession.open(find(_name(session), self.config.storage.sessions_dir).folder)

    def analyze(self, session: Reference = LATEST) -> Analysis:
        """Explain a session from its evidence. Only reads, and works on incomplete sessions. Raises AacoError."""
        found = self.open(session)
        return Analysis(found, pipeline.explain(found, self.settings))

    def report(self, session: Reference = LATEST, format: Form = "html", output: str | Path | None = None) -> Path:
        """Write a session's report, by default to ID.html (.json, .md, .pdf, .txt) in the current folder; where it is.

        Raises AacoError.
        """
        if format not in output_formats.SUFFIXES:
            raise UsageError(f"no report in the format {format!r}", f"formats: {', '.join(output_formats.SUFFIXES)}")
        found = self.analyze(session)
        path = Path(output) if output else Path(found.session.id + output_formats.SUFFIXES[format])
        content = output_formats.encoded(found.explanation, format)
        files.write_atomically(path, lambda file: file.write(content))
        return path

    def save_baseline(self, name: str, *sessions: Reference, replace: bool = False) -> Path:
        """Keep the samples of sessions, by default the latest, as a baseline; its file. More sessions make it sharper.

        Raises UsageError if a session failed and cannot be compared, or if they did not measure the same thing.
        """
        chosen = [self.open(each) for each in sessions or (LATEST,)]
        return judge.save_baseline(name, chosen, self.settings, replace).saved.path

    def compare(self, baseline: Reference, current: Reference = LATEST, *, tolerance_pct: float | None = None,
                force: bool = False) -> Comparison:
        """What changed since the baseline, as `aaco diff`; also kept in the session under regress/. Raises AacoError.

        baseline: a session, or the name or file of a saved baseline. tolerance_pct: the slowdown that is accepted, by
        default analysis.tolerance_pct. force: judge even what did not measure the same thing or was contaminated.
        """
        reference, session = _name(baseline), self.open(current)
        if session.record.is_import:
            other, change = compare_traces.contrast(reference, session, self.settings)
            return Comparison(other.id, session, change=change)
        analysis = self.config.analysis
        request = DiffRequest(analysis.tolerance_pct if tolerance_pct is None else tolerance_pct, force,
                              analysis.false_alarm_pct)
        judged = judge.diff(reference, session, self.settings, request)
        return Comparison(judged.baseline_name or reference, session, judged)

    def try_advice(self, session: Reference = LATEST, advice: str | None = None, *, everything: bool = False,
                   budget_s: float = 600.0, accept_error: float = 0.0, slo_ms: float | None = None,
                   seed: int | None = None) -> Trials:
        """Put advice to the test as `aaco try`, and keep every step in the session. Raises AacoError.

        advice: an action or a change by name; None: the first advice that can be tried. everything: all that applies.
        """
        from aaco.workflows import try_advice as workflow  # here, because whoever reads a trace needs no ONNX Runtime

        request = workflow.TryRequest(advice, everything, budget_s, seed, accept_error, slo_ms)
        return workflow.try_advice(self.open(session), request, self.settings).trials


def _name(reference: Reference) -> str:
    return str(reference.folder if isinstance(reference, Session) else reference)


def _settings(config: Config | Layer | str | Path | None) -> Settings:
    if isinstance(config, Config):
        return taken(config)
    if isinstance(config, str | Path):
        return resolve(Path(config))
    return resolve(overrides=config, overridden_by="Observatory")

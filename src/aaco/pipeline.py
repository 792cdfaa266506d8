"""The whole on one screen: `observe` records a plan, `explain` turns the record into answers, `run` does both.

What runs a model is imported where it is called: code that only reads a session does without ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aaco.analytics.explanation import Explanation
from aaco.core.config import Settings, resolve
from aaco.core.plan import Plan
from aaco.core.readings import Reading
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.profiler.io import jsonstream
from aaco.steps import explain as step
from aaco.steps import import_captures as importing
from aaco.steps import references, serving_inputs
from aaco.steps.seal import outcome, seal
from aaco.steps.serving_inputs import NO_INPUTS, ServingInputs


class Run(NamedTuple):
    """A finished run: its session, and everything explained."""

    session: Session
    explanation: Explanation

    @property
    def metrics(self) -> Mapping[str, Reading]:
        """Every metric's reading, measured or absent with its reason."""
        return self.explanation.readings


def plan(settings: Settings, model: str, show: Show = SILENT, **given: Any) -> Plan:
    """A plan for a model: what is given, else the settings, else the model's registry entry. Raises AacoError."""
    from aaco.steps import run as record

    return record.complete_plan(settings, model, given, show)


def observe(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> Session:
    """Run the plan and keep all its evidence and tables. Raises AacoError."""
    return run(plan, settings, show).session


def explain(session: Session, settings: Settings | None = None) -> Explanation:
    """Evidence -> tables -> readings -> diagnosis. Only reads, and works on incomplete sessions. Raises AacoError."""
    return step.explain(session, (settings or resolve()).config.analysis)


def run(plan: Plan, settings: Settings | None = None, show: Show = SILENT, session: Session | None = None) -> Run:
    """Record the plan, explain it, and seal the bundle with answers and report inside. Raises AacoError.

    session: an empty one to record into. A run that fails leaves its bundle marked failed; a killed one is incomplete.
    """
    from aaco.steps import run as record

    settings = settings or resolve()
    prepared = record.prepare(plan, settings, show)
    begun = record.begin(prepared, settings, session)
    session = begun.session
    with outcome(session):
        record.record(begun, prepared, settings, show)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete", show))


def import_captures(paths: Sequence[Path], settings: Settings | None = None, name: str | None = None,
                    form: str | None = None, tag: str = "", keep: bool = False, show: Show = SILENT,
                    latency: str | None = None, steps: int | None = None, skip_bad: bool = False,
                    device: str = "", serving: ServingInputs = NO_INPUTS) -> Run:
    """Captures of other tools become one session, explained and sealed like any other. Raises AacoError.

    paths, form, keep, device: of `open_captures`; latency, steps: of `given_latency`. skip_bad: leave out and count
    malformed events of JSON, in place of refusing the file. serving: reference traces and the model of an engine.
    An import that any exception stops leaves no session at all; one that is killed leaves an incomplete one.
    """
    settings = settings or resolve()
    step_latency, model = importing.given_latency(latency, steps), serving_inputs.read_model(serving)
    with jsonstream.skipping_bad(skip_bad):
        reading, root = importing.open_captures(paths, form, keep, show, device), settings.config.storage.sessions_dir
        with importing.new_session(reading.selection, root, name, tag) as session, outcome(session):
            references.add(session, reading, serving, show)
            serving_inputs.keep_model(session, model)
            importing.fill(session, reading, show, keep)
            importing.keep_request(session, skip_bad, device, step_latency)
            show.step("explaining")
            return Run(session, seal(session, settings, "complete", show))


def analyze(session: Session, settings: Settings, show: Show = SILENT) -> Explanation:
    """Recompute everything from the raw evidence, or from the captures of an import, and seal it. Raise AacoError."""
    if session.record.is_import:
        importing.again(session, show)
    show.step("explaining")
    return seal(session, settings, show=show)

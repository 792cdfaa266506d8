"""The trace that a server wrote during a load: a session of its own; its steps are put on the clock of the load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.diagnosis import UNKNOWN
from aaco.analytics.llm.load import WHOLE_TRACE, EndpointLoad, TracedClass
from aaco.analytics.serving.summary import Serving
from aaco.core.config import Settings
from aaco.core.documents import decode, encode
from aaco.core.errors import AacoError
from aaco.core.session import Session
from aaco.core.show import Show
from aaco.core.tables import ENGINE_STEPS, SERVING_STEPS
from aaco.llm import server_profile
from aaco.llm.parse import clock_looks
from aaco.pipeline import Run
from aaco.profiler.formats import registry
from aaco.tracelake import documents, layout, store

REALTIME = "realtime"
TIMES = ("t_start_ns", "t_end_ns", "device_start_ns", "device_end_ns")


def join(session: Session, folder: Path, before: server_profile.Written, settings: Settings, tag: str, show: Show,
         why_not: str = "") -> None:
    """Import what the server has written, and keep its steps with the load.

    why_not: why its profiler was not stopped. What hinders it is kept as the reason: the load is whole without it.
    Raise StorageError.
    """
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    try:
        if why_not:
            raise AacoError(why_not, "")
        show.step(f"reading the server's trace in {folder}")
        paths = _captures(server_profile.written_since(folder, before))
        run = pipeline.import_captures(paths, settings, name=load.model, tag=tag, show=show)
        traced = run.session
        load = replace(load, device_session=traced.id, device_classes=list(_classes(run)))
        why, steps = _on_clock_of(session, traced)
    except AacoError as error:
        why, steps = error.what, ENGINE_STEPS.build()
    store.write(session, ENGINE_STEPS, steps)
    session.write_json(layout.LOAD, encode(replace(load, why_no_steps=why)))


def _captures(paths: Sequence[Path]) -> Sequence[Path]:
    """Return the files that a parser recognises, as vLLM writes tables of text beside its traces; all if none is one,
    so that the import gives the reason. Raise BadCapture."""
    return [path for path in paths if registry.recognise(path)] or paths


def _classes(run: Run) -> Iterator[TracedClass]:
    """Yield what limits the steps of each phase of a trace, and all of it."""
    if serving := documents.decoded(run.session, Serving):
        for phase in serving.phases:
            yield TracedClass(phase.phase, phase.label, phase.confidence, phase.why)
    diagnosis = run.explanation.diagnosis
    label = None if diagnosis.label == UNKNOWN else diagnosis.label
    yield TracedClass(WHOLE_TRACE, label, diagnosis.confidence if label else None, diagnosis.abstained_because)


def _on_clock_of(session: Session, traced: Session) -> tuple[str, pa.Table]:
    """Return why a trace has no steps on the clock of a load, empty if it has; and the steps. Raise BadCapture."""
    if not store.holds(traced, SERVING_STEPS):
        return "the trace has no steps of a serving engine", ENGINE_STEPS.build()
    captures = documents.require(traced, layout.CAPTURES)["captures"]
    if {capture.get("clock") for capture in captures} != {REALTIME}:
        return "the trace does not say when it began: its times are on a clock of its own", ENGINE_STEPS.build()
    looks = clock_looks(session.folder / layout.READS)
    if looks.steps or not len(looks.at):
        return "the wall clock was set during the load: the trace's times cannot be placed", ENGINE_STEPS.build()
    steps, difference = store.read(traced, SERVING_STEPS), int(np.median(looks.difference))
    return "", ENGINE_STEPS.build(**{
        name: pc.add(steps[name], difference) if name in TIMES else steps[name] for name in ENGINE_STEPS.columns})

"""`aaco steps`: the steps of a serving engine, one by one or by phase and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aaco.core.session import Session

HEAD = (f"{'step':>6}  {'phase':<8}{'batch':>6}{'tokens':>8}{'KV':>10}{'kernels':>9}{'device':>11}{'busy':>11}"
        f"{'idle before':>13}{'host':>11}")


@manual.command()
@options.session_reference
@click.option("--top", type=options.COUNT, default=20, show_default=True, help="How many.")
@click.option("--phase", type=click.Choice(["prefill", "decode", "mixed"]), help="Only steps of this phase.")
@options.with_session
@options.as_json
def steps(session: Session, top: int, phase: str | None, as_json: bool) -> None:
    """List the steps of a serving engine in SESSION: phase, batch, tokens, and the device's work.

    A step is what vLLM, SGLang, TensorRT-LLM, TGI or ATOM annotate as one; without annotations what the host's launches
    repeat, and the first line says so. A kernel is of the step that launched it, whenever it ran. Times are those of
    the profiled run.
    """

    rows = _rows(session, phase)
    if not as_json and (source := _source(session)):
        say.line(source)
    distrust.warn(session)
    if as_json:
        say.document({"schema_version": 1, "session_id": session.id, "steps": rows.slice(0, top).to_pylist(),
                      "others": max(0, rows.num_rows - top), "phases": _phases(session, phase)})
        return
    say.lines(_lines(rows.slice(0, top).to_pylist()))
    for judged in _phases(session, phase):
        say.line(f"{judged['phase']}: {_class(judged)}")
    if rows.num_rows > top:
        say.aside(f"{rows.num_rows - top:,} more; --top shows more of them")


def _rows(session: Session, phase: str | None) -> pa.Table:
    """Return the steps, of one phase if it is given. Raise UsageError where there are none."""
    import pyarrow.compute as pc

    from aaco.core.errors import UsageError
    from aaco.core.tables import SERVING_STEPS
    from aaco.tracelake import store

    if not store.holds(session, SERVING_STEPS):
        raise UsageError(f"session {session.id} has no steps of a serving engine: {_why_none(session)}",
                         "record vLLM or SGLang with their annotations of steps (docs/guides/serving.md)")
    rows = store.read(session, SERVING_STEPS)
    return rows if phase is None else rows.filter(pc.equal(rows["phase"].cast("string"), phase))


def _why_none(session: Session) -> str:
    """Return why there are no steps, neither by annotations nor by repetition."""
    from aaco.analytics.serving.annotations import step_family
    from aaco.core.readings import Absent
    from aaco.core.tables import API_CALLS
    from aaco.report import format
    from aaco.steps.findings.serving_steps import by_repetition
    from aaco.tracelake import queries, store

    names = queries.names(session, API_CALLS, "name") if store.holds(session, API_CALLS) else []
    unread = next((f"of {format.clean(name)!r} the form is not known" for name in names if step_family(name)),
                  "no range of it has the form of one")
    try:
        by_repetition(session)
    except Absent as reason:
        return f"{unread}, and repetition shows none: {format.clean(str(reason))}"
    return f"{unread}; an import with this version lists those that repeat"


def _source(session: Session) -> str:
    """Return the line that says that steps are by repetition; empty where they are annotated."""
    from aaco.analytics.serving.summary import REPETITION, Serving
    from aaco.report.sections.findings.serving import BY_REPETITION
    from aaco.tracelake import documents

    serving = documents.decoded(session, Serving)
    return f"steps {BY_REPETITION}" if serving and serving.source == REPETITION else ""


def _phases(session: Session, phase: str | None) -> list[dict[str, Any]]:
    """Return what limits each phase, of one phase if it is given, as serving.json has it."""
    from aaco.tracelake import documents, layout

    document = documents.read(session, layout.finding("serving"))
    return [judged for judged in document.get("phases", ()) if phase in (None, judged["phase"])]


def _class(judged: dict[str, Any]) -> str:
    from aaco.analytics.serving.summary import PhaseClass
    from aaco.core.documents import decode
    from aaco.report.sections.findings.serving import judged as text

    return text(decode(judged, PhaseClass))


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield HEAD
    for row in rows:
        keys = [row[f"{kind}_sk"] for kind in ("context", "generation")]
        device = None if row["device_end_ns"] is None else row["device_end_ns"] - row["device_start_ns"]
        yield (f"{row['step']:>6}  {row['phase'] or 'n/a':<8}{_count(row['batch']):>6}"
               f"{_count(row['scheduled_tokens']):>8}{_count(None if None in keys else sum(keys)):>10}"
               f"{row['kernels']:>9,}{_time(device):>11}{_time(row['busy_ns']):>11}{_time(row['idle_before_ns']):>13}"
               f"{_time(row['t_end_ns'] - row['t_start_ns']):>11}")


def _count(number: int | None) -> str:
    return "n/a" if number is None else f"{number:,}"


def _time(duration_ns: int | None) -> str:
    from aaco.report.format import duration

    return "n/a" if duration_ns is None else duration(duration_ns)

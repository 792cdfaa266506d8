"""`aaco roofline`: what the kernels of a session did by their counters, and how near their device's ceilings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say

if TYPE_CHECKING:
    from aaco.core.session import Session

NO_COUNTERS = "no hardware counters were recorded of its kernels, and no operator's work is known"
STEP = ("aaco run --pmc compute,memory on a GPU, or import a capture with counters: rocprof-compute profile, rocprofv3 "
        "--pmc, or ncu --csv --page raw. Of a model that aaco ran, `aaco report` shows the roofline of executed nodes")


@manual.command()
@options.session_reference
@click.option("--top", type=options.COUNT, default=20, show_default=True, help="How many kernels, by name.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write the picture to this file.")
@options.with_session
@options.as_json
def roofline(session: Session, top: int, svg: Path | None, as_json: bool) -> None:
    """Place the kernels of SESSION (by default the latest) under their device's ceilings, by hardware counters.

    Operators of a framework's trace with shapes are placed by their modelled work.

    Counters give floating-point operations by type and bytes of every memory level. They are compared with theoretical
    and, if the capture holds them, measured ceilings. A kernel above a theoretical ceiling is reported as an error of
    its counters, its time or the ceiling.
    """

    distrust.warn(session)
    document = _document(session)
    if svg:
        _draw(document, session, svg)
    if as_json:
        say.document({"schema_version": 1, "session_id": session.id, "roofline": document or None,
                      "why_absent": None if document else NO_COUNTERS})
    elif document:
        _say(document, top)
    else:
        say.line(f"not measured: {NO_COUNTERS}")
        say.aside(STEP)


def _document(session: Session) -> dict[str, Any]:
    from aaco.tracelake import documents, layout

    return documents.read(session, layout.finding("roofline"))


def _draw(document: dict[str, Any], session: Session, path: Path) -> None:
    from aaco.core import files
    from aaco.core.errors import UsageError
    from aaco.report.sections.findings.roofline import draw

    drawing = draw(document)
    if drawing is None:
        raise UsageError(f"session {session.id} has no kernel to draw under a roof",
                         "aaco roofline SESSION  # says why kernels have no place")
    text = drawing.standalone().encode()
    files.write_atomically(path, lambda file: file.write(text))
    say.aside(f"written: {path}")


def _say(document: dict[str, Any], top: int) -> None:
    from aaco.report.sections.findings.roofline import lines

    say.lines(lines(document, top))

"""`aaco instructions`: inside kernels, from thread traces and samples of the program counter."""

from __future__ import annotations

import click

from aaco.cli import manual, options, say


@manual.command()
@options.session_reference
@click.option("--by", "parts", type=click.Choice(["line", "instruction", "category"]), default="line",
              show_default=True, help="What the hottest are listed by.")
@options.with_session
@options.as_json
def instructions(session: options.Session, parts: str, as_json: bool) -> None:
    """Where cycles went inside the traced or sampled kernels of SESSION (by default the latest).

    The mix of instructions, what loads cost by the waits that they caused, the hottest source lines, how full the
    compute units were. Cycles of a traced kernel rank its instructions; its run time is in another trace.
    """
    from aaco.core.errors import UsageError
    from aaco.report.sections.findings import instructions as report
    from aaco.tracelake import documents, layout

    document = documents.read(session, layout.finding("instructions"))
    if not document:
        raise UsageError(f"session {session.id} holds no thread trace and no samples of the program counter",
                         "rocprofv3 --att -d FOLDER -- PROGRAM, then aaco import FOLDER  # AMD devices only")
    say.answer(as_json, document, report.render, parts)

"""`aaco report`: one session, in the requested form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say

if TYPE_CHECKING:
    from aaco.analytics.explanation import Explanation
    from aaco.report.renderers.output_formats import Form


@manual.command()
@options.session_reference
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "html", "pdf"]),
              default="terminal", show_default=True, help="Form of the report; pdf needs the extra aaco[pdf].")
@click.option("--output", "-o", type=click.Path(path_type=Path),
              help="Write to this file; - is standard output. On a terminal html and pdf go to SESSION.html or .pdf.")
@options.with_session_and_settings
@options.as_json
def report(session: options.Session, form: Form, output: Path | None, settings: options.Settings,
           as_json: bool) -> None:
    """Show SESSION (a path, an id, the beginning of one, or `latest`)."""
    from aaco.core.errors import UsageError
    from aaco.core.files import write_atomically
    from aaco.steps import explain as step

    form, page = "json" if as_json else form, form in ("html", "pdf") and not as_json
    if page and output == Path("-") and sys.stdout.isatty():
        raise UsageError(f"{form} is not for a terminal", f"--output report.{form}")
    explanation = step.explain(session, settings.config.analysis)
    if form == "terminal" and output in (None, Path("-")):
        print_report(explanation, full=True)
        return
    from aaco.report.renderers import output_formats  # all forms, which a terminal does without

    if page and output is None and sys.stdout.isatty():
        output = Path(session.id + output_formats.SUFFIXES[form])
    if form != "pdf" and output in (None, Path("-")):
        say.text(output_formats.render(explanation, form, options.style(), say.report_columns()))
        return
    content = output_formats.encoded(explanation, form)
    if output and output != Path("-"):
        write_atomically(output, lambda file: file.write(content))
        say.aside(f"wrote {output}")
    else:
        say.content(content)


def print_report(explanation: Explanation, as_json: bool = False, full: bool = False) -> None:
    """Print the first screen of a session, or all of its report, or its JSON document."""
    if as_json:
        from aaco.report.renderers import json_report

        say.document(json_report.render(explanation))
        return
    if full:
        from aaco.report.renderers.terminal import render as text_of
    else:
        from aaco.report.renderers.opening import first as text_of
    columns = say.report_columns(say.REPORT_COLUMNS if full else say.NARROWEST)
    say.text(text_of(explanation, options.style(), columns, options.elsewhere()))

"""`aaco report`: one session, in the requested form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say

if TYPE_CHECKING:
    from aaco.report.renderers.output_formats import Form


@manual.command()
@options.session_reference()
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "html", "pdf"]),
              default="terminal", show_default=True, help="Form of the report; pdf needs pip install 'aaco[pdf]'.")
@click.option("--output", "-o", type=click.Path(path_type=Path),
              help="Write to this file instead of stdout; - is stdout.")
@options.config_file
@options.sessions_dir
@options.as_json
def report(session: str | None, named: str | None, form: Form, output: Path | None, config_file: Path | None,
           sessions_dir: Path | None, as_json: bool) -> None:
    """Show SESSION (a path, an id, the beginning of one, or `latest`)."""
    from aaco import pipeline
    from aaco.core.errors import UsageError
    from aaco.core.files import write_atomically
    from aaco.core.session import find
    from aaco.report.renderers import output_formats

    form, output = "json" if as_json else form, None if output == Path("-") else output
    if form == "pdf" and not output and sys.stdout.isatty():
        raise UsageError("a PDF is not for a terminal", "--output report.pdf")
    settings = options.settings(config_file, sessions_dir)
    asked_session = find(options.one_session(session, named), settings.config.storage.sessions_dir)
    explanation = pipeline.explain(asked_session, settings)
    if form != "pdf" and not output:
        say.text(output_formats.render(explanation, form, options.style()))
        return
    content = output_formats.encoded(explanation, form)
    if output:
        write_atomically(output, lambda file: file.write(content))
        say.aside(f"wrote {output}")
    else:
        say.content(content)

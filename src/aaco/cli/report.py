"""`aaco report`: one session, in the form asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say

if TYPE_CHECKING:
    from aaco.report.forms import Form


@manual.command()
@options.session_reference()
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "html"]), default="terminal",
              show_default=True, help="Form of the report.")
@click.option("--output", "-o", type=click.Path(path_type=Path),
              help="Write to this file instead of stdout; - is stdout.")
@options.config_file
@options.sessions_dir
@options.as_json
def report(session: str | None, named: str | None, form: Form, output: Path | None, config_file: Path | None,
           sessions_dir: Path | None, as_json: bool) -> None:
    """Show SESSION (a path, an id, the beginning of one, or `latest`)."""
    from aaco import pipeline
    from aaco.core.files import write_atomically
    from aaco.core.session import find
    from aaco.report import forms

    form, output = "json" if as_json else form, None if output == Path("-") else output
    settings = options.settings(config_file, sessions_dir)
    explanation = pipeline.explain(find(session or named or "latest", settings.config.storage.sessions_dir), settings)
    text = forms.render(explanation, form, "plain" if output else options.style())
    if output:
        write_atomically(output, lambda file: file.write(text.encode()))
        say.aside(f"wrote {output}")
    else:
        say.text(text)

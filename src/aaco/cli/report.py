"""`aaco report`: one session, in the form asked for."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aaco.cli import options


@click.command()
@options.session_reference()
@click.option("--format", "form", type=click.Choice(["terminal", "json", "markdown", "html"]), default="terminal",
              show_default=True, help="Form of the report.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write to this file instead of stdout.")
@options.config_file
@options.sessions_dir
def report(session: str | None, named: str | None, form: str, output: Path | None, config_file: Path | None,
           sessions_dir: Path | None) -> None:
    """Show SESSION (a path, an id, the beginning of one, or `latest`)."""
    from aaco import pipeline
    from aaco.core.files import write_atomically
    from aaco.core.session import find
    from aaco.report import document, html, markdown, terminal

    settings = options.settings(config_file, sessions_dir)
    explanation = pipeline.explain(find(session or named or "latest", settings.config.storage.sessions_dir), settings)
    if form == "json":
        text = json.dumps(document.render(explanation), indent=2, allow_nan=False) + "\n"
    elif form == "terminal":
        text = terminal.render(explanation, "plain" if output else options.style())
    else:
        text = {"markdown": markdown.render, "html": html.render}[form](explanation)
    if output:
        write_atomically(output, lambda file: file.write(text.encode()))
        click.echo(f"wrote {output}", err=True)
    else:
        click.echo(text, nl=False)

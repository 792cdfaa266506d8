"""The formats of a report: texts, and PDF."""

from __future__ import annotations

import json
from typing import Literal

from aaco.analytics.explanation import Explanation
from aaco.report.renderers import html, json_report, markdown, terminal, typesetting
from aaco.report.renderers.opening import WIDTH, Style

Text = Literal["terminal", "json", "markdown", "html"]
Form = Literal["terminal", "json", "markdown", "html", "pdf"]
SUFFIXES: dict[Form, str] = {"terminal": ".txt", "json": ".json", "markdown": ".md", "html": ".html", "pdf": ".pdf"}


def render(explanation: Explanation, form: Text, style: Style = "plain",
           columns: int = WIDTH) -> str:
    """Return the whole report in a text format. style, columns: only for the terminal."""
    if form == "json":
        return json.dumps(json_report.render(explanation), indent=2, allow_nan=False) + "\n"
    if form == "terminal":
        return terminal.render(explanation, style, columns)
    return {"markdown": markdown.render, "html": html.render}[form](explanation)


def encoded(explanation: Explanation, form: Form) -> bytes:
    """Return the whole report as the content of a file. Raise Missing for a PDF without the extra `pdf`."""
    return typesetting.render(explanation) if form == "pdf" else render(explanation, form).encode()

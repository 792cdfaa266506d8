"""The forms that a report has: texts, and one that is not."""

from __future__ import annotations

import json
from typing import Literal

from aaco.analytics.explanation import Explanation
from aaco.report import document, html, markdown, terminal, typesetting
from aaco.report.terminal import Style

Text = Literal["terminal", "json", "markdown", "html"]
Form = Literal["terminal", "json", "markdown", "html", "pdf"]
SUFFIXES: dict[Form, str] = {"terminal": ".txt", "json": ".json", "markdown": ".md", "html": ".html", "pdf": ".pdf"}


def render(explanation: Explanation, form: Text, style: Style = "plain") -> str:
    """The whole report in one form; `style` is for the terminal's."""
    if form == "json":
        return json.dumps(document.render(explanation), indent=2, allow_nan=False) + "\n"
    if form == "terminal":
        return terminal.render(explanation, style)
    return {"markdown": markdown.render, "html": html.render}[form](explanation)


def encoded(explanation: Explanation, form: Form) -> bytes:
    """The whole report as the content of a file. Raises Missing for a PDF without the extra `pdf`."""
    return typesetting.render(explanation) if form == "pdf" else render(explanation, form).encode()

"""The forms that a report has, each a text."""

from __future__ import annotations

import json
from typing import Literal

from aaco.analytics.explanation import Explanation
from aaco.report import document, html, markdown, terminal
from aaco.report.terminal import Style

Form = Literal["terminal", "json", "markdown", "html"]
SUFFIXES: dict[Form, str] = {"terminal": ".txt", "json": ".json", "markdown": ".md", "html": ".html"}


def render(explanation: Explanation, form: Form, style: Style = "plain") -> str:
    """The whole report in one form; `style` is for the terminal's."""
    if form == "json":
        return json.dumps(document.render(explanation), indent=2, allow_nan=False) + "\n"
    if form == "terminal":
        return terminal.render(explanation, style)
    return {"markdown": markdown.render, "html": html.render}[form](explanation)

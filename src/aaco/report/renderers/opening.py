"""The first screen of a session for a terminal, and the colours of any text for one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from io import StringIO
from typing import Literal

from aaco.analytics.explanation import Explanation
from aaco.report.renderers import first_lines
from aaco.report.sections import first_screen

Style = Literal["plain", "colour"]
WIDTH = 80


def first(explanation: Explanation, style: Style = "plain", columns: int = WIDTH, options: str = "") -> str:
    """Return the first screen, at most 25 lines; style "colour" adds only colours. options: as of first_screen."""
    return in_style(first_lines.lines(first_screen.first_screen(explanation, options), columns), style)


def in_style(lines: Iterable[str], style: Style) -> str:
    """Return the text of these lines, in the colours of a terminal or without."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return _coloured(text) if style == "colour" else text


def _coloured(text: str) -> str:
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    for pattern, style in _COLOURS.items():
        shown.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    console = Console(file=StringIO(), force_terminal=True, color_system="standard", width=WIDTH, legacy_windows=False)
    with console.capture() as captured:
        console.print(shown, soft_wrap=True, end="")
    return captured.get()


_COLOURS = {
    r"[╔╗╚╝╠╣═║├└│─░]": "dim",
    r"^║  [A-Z][A-Z ]+(?= )|^[A-Z][A-Z ]+$": "bold cyan",
    r"INCOMPLETE RUN|synthetic weights": "bold yellow",
    r"(?<=Classification:).*?(?=║)": "bold",
    r"^  for (?= )": "green",
    r"^  against (?= )": "red",
    r"^  unknown (?= )|n/a(?=[: ])": "yellow",
    r"█+": "cyan",
}

"""The report as GitHub Markdown, every text of the session escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.renderers import outline
from aaco.report.renderers.outline import Block, Code, Facts, Items, Table, Words
from aaco.report.sections import content

NAME = 120
_SPECIAL = re.compile(r"[\\`*_{}\[\]#~&<>|@]")
_OPENING = re.compile(r"^(\s*)(\d*)([-+=.)])(?=[\s=-]|$)")  # would begin a list, a rule or a heading
# A backslash before a pipe differs in meaning in and out of a table; a word joiner keeps @name from being a mention.
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "@": "@&#8288;"}


def render(explanation: Explanation) -> str:
    """Return the whole report, without empty sections."""
    model, backend = content.heading(explanation)
    top = [f"# {code(model)} on {code(backend)}", f"Session {code(explanation.session_id)}",
           *(f"> **{plain(text)}**" for text in content.banners(explanation))]
    for section in outline.sections(explanation):
        blocks = (_block(block).rstrip() for block in section.blocks)
        top.append("\n\n".join([f"## {section.title}", *filter(None, blocks)]))
    return "\n\n".join(top) + "\n"


def plain(text: str) -> str:
    """Return text that Markdown shows unchanged: it makes no markup, table cell or mention."""
    escaped = _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), format.clean(text))
    return _OPENING.sub(r"\1\2\\\3", escaped)


def code(text: str) -> str:
    """Return a name in code type, safe inside a table."""
    text = format.name(text, NAME)
    if "`" not in text and "|" not in text:
        return f"`{text}`"
    return f"<code>{re.sub(r'[^A-Za-z0-9 ]', lambda match: f'&#{ord(match[0])};', text)}</code>"


def table(header: Sequence[str], rows: Iterable[Iterable[str]], numeric: bool = False) -> str:
    """Return a table of Markdown cells; with `numeric`, all but the first column align right."""
    rule = ["---", *(("---:" if numeric else "---") for _ in header[1:])]
    lines = [header, rule, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _block(block: Block) -> str:
    if isinstance(block, Facts):
        return table(("", ""), ((plain(row.label), plain(row.text)) for row in block.rows))
    if isinstance(block, Items):
        return "".join(f"- {_line(item)}\n" for item in block.items)
    if isinstance(block, Table):
        title = f"{_line(block.title)}\n\n" if block.title else ""
        notes = "".join(f"\n{plain(note)}\n" for note in block.notes)
        return title + table(block.header, (map(_cell, row) for row in block.rows), block.numeric) + notes
    return _line(block.parts) if isinstance(block, Words) else ""


def _line(parts: Iterable[str]) -> str:
    return "".join(map(_cell, parts))


def _cell(text: str) -> str:
    return (code(text) if text else "") if isinstance(text, Code) else plain(text)

"""The first screen for a terminal: at most 25 lines at 80 columns for any session, more where there are fewer columns.

What limits it comes first. Only what takes that back precedes it: a change, the first note, an alarm, a disturbance.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from aaco.report import format
from aaco.report.sections.first_screen import OTHER, BarPart, FirstScreen

LINES = 25
BEFORE_ANSWER = 3  # lines before what limits the session, which an empty line precedes; an alarm may take more
COMMAND = 6  # lines of a command; one that needs more is left out, since a part of it is none
NOTES = 3  # of them are shown, if there is room
GLYPHS = "█▓▒░▚"  # of the parts of the bar, largest first
OTHERS = "╌"  # of what is not named


class Paragraph(Struct):
    """Lines of one text; room: how many of them are shown. gap: whether an empty line precedes them. label: the columns
    of its label, which may end like a sentence ("2. ").
    """

    lines: list[str]
    room: int
    gap: bool = False
    whole: bool = False  # whether it must not lose a line
    answer: bool = False  # whether it says what limits the session
    label: int = 0
    first: bool = False  # whether it is the advice that comes first, which says at its end what to try

    @property
    def spare(self) -> float:
        """How many lines it can do without, to compare it with others: the first advice loses its own late."""
        return 0 if self.whole or self.room < 2 else self.room - 1.5 * self.first

    def shown(self) -> list[str]:
        """Return the lines that have room; text that has none ends with its last whole sentence, or with "…"."""
        if self.room >= len(self.lines):
            return self.lines
        kept = self.lines[:self.room]
        sentence = kept[-1].rfind(". ", self.label) + 1
        return [*kept[:-1], kept[-1][:sentence] if sentence else kept[-1].rpartition(" ")[0] + " …"]


def lines(screen: FirstScreen, columns: int = 80) -> list[str]:
    """Return the lines of the screen, none wider than `columns`, with as many of its notes as there is room for."""
    most = LINES * _narrow(columns)
    for notes in range(min(NOTES, len(screen.notes)), -1, -1):
        paragraphs = [paragraph for paragraph in _paragraphs(screen, columns, notes) if paragraph.lines]
        before = list(takewhile(lambda paragraph: not paragraph.answer, paragraphs))
        if notes <= 1 or _length(paragraphs) <= most:
            break
    least = sum(paragraph.room if paragraph.whole else 1 for paragraph in before)
    while _length(before) > max(BEFORE_ANSWER * _narrow(columns), least):
        _shorten(before)
    while _length(paragraphs) > most:
        _shorten(paragraphs)
    return [line for paragraph in paragraphs for line in ([""] * paragraph.gap + paragraph.shown())]


def _shorten(paragraphs: Sequence[Paragraph]) -> None:
    """Take a line from the paragraph that can best do without one, the last of equals."""
    max(reversed(paragraphs), key=lambda paragraph: paragraph.spare).room -= 1


def whole(screen: FirstScreen, columns: int) -> list[str]:
    """Return the lines of the screen above the report, with all its notes and no text cut; none leads to the report."""
    screen = replace(screen, commands=screen.beyond_report)
    return [line for paragraph in _paragraphs(screen, columns, len(screen.notes)) if paragraph.lines
            for line in ([""] * paragraph.gap + paragraph.lines)]


def _length(paragraphs: Sequence[Paragraph]) -> int:
    return sum(paragraph.room + paragraph.gap for paragraph in paragraphs)


def _paragraphs(screen: FirstScreen, columns: int, notes: int) -> Iterator[Paragraph]:
    yield _text("", screen.what, columns, 2)
    yield _text("Change: ", screen.change, columns, 3)
    shown = [_text("Note: ", f"{note.rstrip('.')}.", columns, 2) for note in screen.notes[:notes]]
    left = len(screen.notes) - notes
    yield from shown[:1]
    yield replace(_text("", screen.trust * screen.alarmed, columns, 3), whole=True)
    yield _text("Disturbed: ", screen.disturbed, columns, 3)
    yield replace(_text("", screen.limit, columns, 3, gap=True), answer=True)
    yield _text("  ", screen.basis, columns, 3)
    yield _text("  ", screen.trust * (not screen.alarmed), columns, 3)
    yield _text("  ", screen.facts, columns, 2)
    yield from shown[1:]
    yield _text("      ", f"and {left} more: aaco report" if left else "", columns, 1)
    yield Paragraph(_bar(screen.parts, columns), 1, gap=True)
    legend = _legend(screen, columns)
    yield Paragraph(legend, len(legend), gap=not screen.parts, whole=True)
    for number, text in enumerate(screen.advice, 1):
        yield replace(_text(f"{number}. ", text, columns, 4, gap=number == 1), first=number == 1)
    label = "Next: "
    for what, command in screen.commands:
        aside = f"  # {what}"
        fits = format.cells(label + command + aside) <= columns
        typed = [label + command + aside] if fits else _typed(label, command, columns)
        if len(typed) <= COMMAND and command.isprintable():
            yield Paragraph(typed, len(typed), label == "Next: ", whole=True)
            label = "      "


def _narrow(columns: int) -> int:
    """Return how many lines there may be for one of 80 columns."""
    return -(-80 // min(columns, 80))


def _text(label: str, text: str, columns: int, most: int, gap: bool = False) -> Paragraph:
    wrapped, most = format.hung(label, text, columns) if text else [], most * _narrow(columns) + (columns < 80)
    return Paragraph(wrapped, min(most, len(wrapped)), gap, label=len(label))


def _typed(label: str, command: str, columns: int) -> list[str]:
    """Return a command that a shell can be given as it is, over several lines, too: no word that is quoted goes on in
    the next, and one that is longer than a line goes on at its start.
    """
    lines, indent, room = [label.rstrip()], " " * len(label), columns - len(" \\")
    for word in shlex.split(command):
        if format.cells(f"{lines[-1]} {shlex.quote(word)}") <= room:
            lines[-1] += f" {shlex.quote(word)}"
            continue
        first, *others = _quoted(word, room, room - len(indent))
        lines[-1] += " \\"
        lines += [f"{line}\\" for line in (indent + first, *others)]
        lines[-1] = lines[-1][:-1]
    return lines


def _quoted(word: str, room: int, of_first: int) -> list[str]:
    """Return the parts of a word, each quoted by itself, none wider than the room that it has."""
    parts = list[str]()
    while word or not parts:
        left = room if parts else of_first
        part = next((word[:length] for length in range(min(left, len(word)), 1, -1)
                     if format.cells(shlex.quote(word[:length])) <= left), word[:1])
        parts.append(shlex.quote(part))
        word = word[len(part):]
    return parts


def _bar(parts: Sequence[BarPart], columns: int) -> list[str]:
    """Return a bar with cells for each part; the largest remainders get what rounding leaves."""
    if not parts:
        return []
    total = sum(part.share for part in parts)
    exact = [columns * part.share / total for part in parts]
    cells = [int(width) for width in exact]
    for index in sorted(range(len(parts)), key=lambda index: cells[index] - exact[index])[:columns - sum(cells)]:
        cells[index] += 1
    return ["".join(glyph * count for glyph, count in zip(_glyphs(parts), cells, strict=True))]


def _glyphs(parts: Sequence[BarPart]) -> Iterator[str]:
    named = iter(GLYPHS)
    yield from (OTHERS if part.name == OTHER else next(named) for part in parts)


def _legend(screen: FirstScreen, columns: int) -> list[str]:
    """Return the parts with their shares, in whole words: a part is not broken over two lines."""
    if not screen.parts:
        return format.wrap(screen.whole, columns)
    named = [f"{glyph} {part.name} {format.percent(part.share)}" 
             for glyph, part in zip(_glyphs(screen.parts), screen.parts, strict=True)]
    lines = [""]
    for words in (*named, screen.whole):
        together = f"{lines[-1]}  {words}" if lines[-1] else words
        lines[-1:] = [together] if format.cells(together) <= columns else [lines[-1], words]
    return [piece for line in lines for piece in format.wrap(line, columns)]

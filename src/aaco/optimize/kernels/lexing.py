"""The tokens of C++ and CUDA text, by byte position: what a compiler's first phase sees, without a macro expanded.

It is independent of tree-sitter, and checks its view of a function. Source: ISO C++17 5.2 and 5.4; comments and lines
that are spliced by a backslash as in 5.2, raw strings as in 5.13.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

COMMENT, DIRECTIVE, STRING, WORD, NUMBER, MARK, SPLICE, BROKEN = (
    "comment", "directive", "string", "word", "number", "mark", "splice", "broken")
KINDS = {"raw": STRING, "quote": BROKEN, "unclosed": BROKEN, "raw_unclosed": BROKEN}
CLOSES = {b")": b"(", b"}": b"{", b"]": b"["}
BOM = b"\xef\xbb\xbf"

_REST = rb"(?:\\\r?\n|[^\n\\]|\\)"  # of a line, with the lines that a backslash joins to it
_TOKEN = re.compile(rb"""
    (?P<comment> //%(rest)s*+ | /\*(?s:.*?)\*/ )
  | (?P<unclosed> /\*(?s:.*) )
  | (?P<raw> (?:u8|[uUL])?R"(?P<mark_of_raw>[^\s()\\"]{0,16})\((?s:.*?)\)(?P=mark_of_raw)" )
  | (?P<raw_unclosed> (?:u8|[uUL])?R"[^\s()\\"]{0,16}\((?s:.*) )
  | (?P<string> (?:u8|[uUL])?"(?:[^"\\\n]|\\(?:\r\n|(?s:.)))*+" | (?:u8|[uUL])?'(?:[^'\\\n]|\\(?:\r\n|(?s:.)))*+' )
  | (?P<word> [A-Za-z_$\x80-\xff][\w$\x80-\xff]*+ )
  | (?P<number> \.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[\w.])*+ )
  | (?P<splice> \\\r?\n )
  | (?P<space> [ \t\r\n\f\v]++ )
  | (?P<quote> ["'] )
  | (?P<mark> <<<|>>>|<<=|>>=|\.\.\.|->\*|<=>|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%%&|^]=|\#\#
            | <%%|%%>|<:|:>|%%:|(?s:.) )
""" % {b"rest": _REST}, re.VERBOSE)
_DIRECTIVE = re.compile(rb"#(?:/\*(?s:.*?)(?:\*/|\Z)|//" + _REST + rb"*+|\"(?:[^\"\\\n]|\\.)*+\"|" + _REST + rb")*+")


class CodeToken(NamedTuple):
    """A token of the text: bytes begin to end."""

    kind: str
    begin: int
    end: int
    text: bytes


def tokens(text: bytes) -> Iterator[CodeToken]:
    """Yield the tokens of a text with comments and whole directives; white space is left out. Never raise.

    What is not C++ is of the kind `broken`: a comment or raw string without an end takes the rest of the text.
    """
    at, starts_line = len(BOM) if text.startswith(BOM) else 0, True
    while at < len(text):
        directive = _DIRECTIVE.match(text, at) if starts_line and text[at] == ord("#") else None
        match = directive or _TOKEN.match(text, at)
        assert match  # the last alternative takes any byte
        kind = DIRECTIVE if directive else match.lastgroup or ""
        content = match.group()
        if kind == "space":
            starts_line = starts_line or b"\n" in content
        else:
            kind = KINDS.get(kind, kind)
            content = content.removesuffix(b"\r")  # it ends the line with the newline that follows
            yield CodeToken(kind, at, at + len(content), content)
            starts_line = starts_line and kind == COMMENT
        at = match.end()


def code(read: Sequence[CodeToken]) -> list[CodeToken]:
    """Return the tokens that mean something: without comments."""
    return [token for token in read if token.kind != COMMENT]


def closings(read: Sequence[CodeToken]) -> dict[int, int]:
    """Return for the index of each opening bracket that of the one which closes it, of those that are closed."""
    opened: dict[bytes, list[int]] = {b"(": [], b"{": [], b"[": []}
    content = {}
    for at, token in enumerate(read):
        if token.kind == MARK:
            if token.text in opened:
                opened[token.text].append(at)
            elif (opening := CLOSES.get(token.text)) and opened[opening]:
                content[opened[opening].pop()] = at
    return content


def line_of(text: bytes, position: int) -> int:
    """Return the line number of a byte position, from 1."""
    return text.count(b"\n", 0, position) + 1


def printable(text: bytes) -> str:
    """Return the beginning of a text's first line, to be shown."""
    return "".join(filter(str.isprintable, text.partition(b"\n")[0].decode(errors="replace")))[:60]

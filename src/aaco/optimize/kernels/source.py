"""One kernel in a source file, by byte positions.

Two readers must agree where the kernel is: tree-sitter's C++ grammar, which knows statements, and our own tokens, which
know what a compiler joins, skips and quotes.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aaco.core.errors import UsageError
from aaco.optimize.kernels import grammar, lexing
from aaco.optimize.kernels.grammar import KERNEL
from aaco.optimize.kernels.lexing import DIRECTIVE, MARK, SPLICE, WORD, CodeToken, line_of
from aaco.optimize.kernels.variants import Refused

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MOST_BYTES, MOST_HEADERS = 8 << 20, 256  # bytes of a source file, files that it includes
MOST_ARGUMENTS = 4096  # tokens of a template's
BEFORE = (b";", b"}", b"{", b"%>", b"<%")  # what ends the declaration before
RESTRICT = b"__restrict__"  # with LAUNCH_BOUNDS, what an edit may be permitted to add to a signature
RESTRICTS = (RESTRICT, b"__restrict", b"restrict")
ASM = frozenset((b"asm", b"__asm", b"__asm__"))
_NO_NAME = grammar.WITH_ARGUMENTS | {b"noexcept", b"decltype", b"explicit"}
_DEFINE = re.compile(rb"#\s*define\s+([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\r\n\0]{1,400})"', re.MULTILINE)
_UNROLL = re.compile(rb"#\s*pragma\s+(?:(?:unroll|nounroll)\b|clang\s+loop\b)")
_BRACES = frozenset((b"{", b"}", b"<%", b"%>"))
_INVISIBLE = re.compile(rb"\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")  # marks that reorder or hide text
_DECLARES = ("array_declarator", "init_declarator", "pointer_declarator", "parameter_declaration",
             "optional_parameter_declaration", "for_range_loop")
_LOOPS = {"for_statement": "for", "while_statement": "while", "do_statement": "do", "for_range_loop": "for range"}


class KernelLoop(Struct, frozen=True):
    """A loop of a kernel. body: the byte range of its statement. pragma: the byte range of its unroll directive, or
    None.
    """

    kind: str  # for, while, do, for range
    begin: int
    end: int
    body: tuple[int, int]
    line: int
    pragma: tuple[int, int] | None


class KernelParameter(Struct, frozen=True):
    """A parameter of a kernel. kind: its type as tokens. stars: bytes after its last *, or None if no pointer."""

    name: bytes
    kind: tuple[bytes, ...]
    star: int | None

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer to something that is no pointer."""
        return self.kind.count(b"*") == 1


class KernelSource(Struct, frozen=True, eq=False, dict=True):
    """A kernel in a file. begin, end: of its definition, from its template head on; body: of its braces."""

    text: bytes
    name: bytes
    begin: int
    end: int
    body: tuple[int, int]
    read: tuple[CodeToken, ...]  # tokens from begin to end, comments left out
    signature: tuple[CodeToken, ...]
    macros: Mapping[bytes, bytes]  # of the file and its headers: name and replacement, with its arguments
    headers: Mapping[str, bytes]
    node: Node
    tree: Tree

    @property
    def newline(self) -> bytes:
        """How the file ends its lines."""
        return b"\r\n" if b"\r\n" in self.text else b"\n"

    @cached_property
    def body_tokens(self) -> tuple[CodeToken, ...]:
        """The tokens between its braces, braces left out."""
        return tuple(token for token in self.read if self.body[0] < token.begin < self.body[1] - 1)

    @cached_property
    def words(self) -> frozenset[bytes]:
        """The words in its body."""
        return frozenset(token.text for token in self.body_tokens if token.kind == WORD)

    @cached_property
    def loops(self) -> tuple[KernelLoop, ...]:
        """Its loops in the order of the text."""
        return tuple(_loops(self))

    @cached_property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """Its parameters in order."""
        return tuple(_parameters(self.signature))

    @cached_property
    def declared(self) -> Counter[bytes]:
        """How often each name is declared in it, as a parameter or variable."""
        named = (node.child_by_field_name("declarator") for node in self.nodes(*_DECLARES))
        several = (child for node in self.nodes("declaration") for child in node.children_by_field_name("declarator"))
        return Counter(self.text[node.start_byte:node.end_byte] for node in (*named, *several)
                       if node is not None and node.type == "identifier")

    def line(self, position: int) -> int:
        """Return the line number of a byte position, from 1."""
        return line_of(self.text, position)

    def tokens_in(self, begin: int, end: int) -> list[CodeToken]:
        """Return the tokens between two byte positions."""
        return [token for token in self.read if begin <= token.begin < end]

    def nodes(self, *kinds: str) -> Iterator[Node]:
        """Yield the syntax nodes of these kinds in the kernel, in the order of the text."""
        return grammar.nodes(self.node, frozenset(kinds))

    def replaced(self, *edits: tuple[int, int, bytes]) -> bytes:
        """Return the text with byte ranges replaced: (begin, end, new). They must not overlap."""
        text, last = [], 0
        for begin, end, new in sorted(edits):
            text += [self.text[last:begin], new]
            last = end
        return b"".join((*text, self.text[last:]))


def find_kernel(text: bytes, name: str, headers: Mapping[str, bytes] | None = None) -> KernelSource:
    """Return the kernel NAME of a source file. headers: included files by name, for their macros.

    Raise Refused with the line; Missing if tree-sitter is not installed.
    """
    _check_text(text)
    all_tokens = list(lexing.tokens(text))
    read = lexing.code(all_tokens)
    kernel_name = name.encode()
    heads = [head for head in _heads(read) if head.name == kernel_name]
    if not heads:
        raise _not_found(name, read, headers or {})
    if len(heads) > 1:
        lines = " and ".join(str(line_of(text, read[head.name_at].begin)) for head in heads[:3])
        raise Refused("several_definitions", f"{name} is defined in lines {lines}: which one is meant is not known")
    (head,) = heads
    inside = read[head.begin:head.end + 1]
    macros = _macros(read, headers or {})
    _check_macros(text, inside, kernel_name, macros)
    _check_tokens(text, inside, read[head.body].begin)
    tree, node, body = grammar.definition(text, all_tokens, read[head.begin].begin, read[head.body].begin)
    if body.end_byte != read[head.end].end:
        raise Refused("syntax", f"{name}: where it ends, in line {line_of(text, read[head.end].begin)} or "
                                f"{line_of(text, body.end_byte)}, is not clear")
    return KernelSource(text, kernel_name, read[head.begin].begin, read[head.end].end, (body.start_byte, body.end_byte),
                        tuple(inside), tuple(read[head.begin:head.body]), macros, headers or {}, node, tree)


def read_source(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return a source file, and the files that it and they include in quotes, by the names in the directives.

    Those that are not found are left out: the build may know their folders. Raise UsageError if the file itself
    cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name the file that defines the kernel") from error
    headers: dict[str, bytes] = {}
    waiting = [(path.parent, text)]
    while waiting and len(headers) < MOST_HEADERS:
        folder, includer = waiting.pop()
        for name in _INCLUDE.findall(includer[:MOST_BYTES]):
            header = folder / os.fsdecode(name)
            if os.fsdecode(name) not in headers and header.is_file() and header.stat().st_size <= MOST_BYTES:
                headers[os.fsdecode(name)] = header.read_bytes()
                waiting.append((header.parent, headers[os.fsdecode(name)]))
    return text, headers


def is_unroll(directive: bytes) -> bool:
    """Return whether a directive asks for a loop to be unrolled, or not."""
    return bool(_UNROLL.match(directive)) and b"\\" not in directive


class _Head(Struct, frozen=True):
    """Indices of tokens: the first, the name, the brace that opens the body and the one that closes it."""

    name: bytes
    begin: int
    name_at: int
    body: int
    end: int


def _check_text(text: bytes) -> None:
    if len(text) > MOST_BYTES:
        raise Refused("too_large", f"the source file has {len(text):,} bytes; up to {MOST_BYTES:,} are read")
    if b"\0" in text:
        raise Refused("not_text", f"line {line_of(text, text.index(0))} holds a byte of 0: the file is not text in "
                                  "UTF-8 or ASCII")


def _heads(read: Sequence[CodeToken]) -> Iterator[_Head]:
    """Yield the definitions of kernels."""
    closings, last = lexing.closings(read), -1
    for at, token in enumerate(read):
        if token.text != KERNEL or token.kind != WORD or at <= last:
            continue
        begin = at
        while begin - 1 > last and read[begin - 1].text not in BEFORE and read[begin - 1].kind != DIRECTIVE:
            begin -= 1
        name_at, last = _after_kernel_word(read, closings, at + 1)
        if name_at is not None and last < len(read) and read[last].text in (b"{", b"<%"):
            yield _Head(read[name_at].text, begin, name_at, last, closings.get(last, len(read) - 1))


def _after_kernel_word(read: Sequence[CodeToken], closings: Mapping[int, int], at: int) -> tuple[int | None, int]:
    """Return the index of the name, and of the token that ends the head: the brace that opens the body, if any."""
    name_at: int | None = None
    while at < len(read) and read[at].text not in (b"{", b"<%", b";", b"}", b"="):
        if read[at].text == b"(" and read[at].kind == MARK:
            before = _before_template_arguments(read, at - 1)
            if read[before].kind == WORD and read[before].text not in _NO_NAME:
                name_at = before
            at = closings.get(at, len(read))
        at += 1
    return name_at, at


def _before_template_arguments(read: Sequence[CodeToken], at: int) -> int:
    """Return the index of the word before template arguments that end at `at`; `at` itself if none end there."""
    depth = 0
    for index in range(at, max(0, at - MOST_ARGUMENTS), -1):
        depth += {b">": 1, b">>": 2, b">>>": 3, b"<": -1, b"<<": -2}.get(read[index].text, 0)
        if depth <= 0:
            return index - 1 if index != at else at
    return at


def _not_found(name: str, read: Sequence[CodeToken], headers: Mapping[str, bytes]) -> Refused:
    for header, text in headers.items():
        inside = lexing.code(list(lexing.tokens(text)))
        for head in _heads(inside):
            if head.name == name.encode():
                line = line_of(text, inside[head.name_at].begin)
                return Refused("in_include", f"{name} is defined in {header}, line {line}, which the file includes",
                               f"name that file: --source {header}")
    others = sorted({head.name.decode(errors="replace") for head in _heads(read)})
    return Refused("not_found", f"the file defines no kernel {name}"
                                + (f"; it defines {', '.join(others[:8])}" if others else ""),
                   "name one of its kernels" if others else "name the file that defines it")


def _macros(read: Sequence[CodeToken], headers: Mapping[str, bytes]) -> dict[bytes, bytes]:
    """Return the macros by name. Where one is defined several times, all its replacements in one text."""
    directives = [token.text for token in read if token.kind == DIRECTIVE]
    for text in headers.values():
        directives += [token.text for token in lexing.tokens(text) if token.kind == DIRECTIVE]
    replacements: dict[bytes, list[bytes]] = {}
    for directive in directives:
        if match := _DEFINE.match(re.sub(rb"\\\r?\n", b"", directive)):
            name, arguments, replacement = match.groups()
            meaning = lexing.code(list(lexing.tokens(replacement)))
            replacements.setdefault(name, []).append(b" ".join([arguments or b"", *(part.text for part in meaning)]))
    return {name: b" ".join(several) for name, several in replacements.items()}


def _check_macros(text: bytes, inside: Sequence[CodeToken], name: bytes, macros: Mapping[bytes, bytes]) -> None:
    """Raise Refused if a macro hides where the kernel ends, or what it is called."""
    braces, pastes = _that_reach(macros, _BRACES), _that_reach(macros, frozenset((b"##",)))
    for token in inside:
        if token.kind != WORD or token.text not in macros:
            continue
        where = f"line {line_of(text, token.begin)}: the macro {token.text.decode(errors='replace')}"
        if token.text == name or token.text in grammar.PLAIN | grammar.WITH_ARGUMENTS:
            raise Refused("macro_name", f"{where} is not what it looks like")
        if token.text in braces:
            raise Refused("macro_braces", f"{where} expands to braces: where the kernel's statements end is not known",
                          "write the macro out in this kernel")
        if token.text in pastes:
            raise Refused("macro_pastes", f"{where} makes names out of pieces: what it expands to is not known",
                          "write the macro out in this kernel")


def _that_reach(macros: Mapping[bytes, bytes], marks: frozenset[bytes]) -> frozenset[bytes]:
    """Return the macros that expand to one of the marks, by themselves or by other macros."""
    users: dict[bytes, list[bytes]] = {}
    for name, replacement in macros.items():
        for token in lexing.tokens(replacement):
            users.setdefault(token.text, []).append(name)
    reached: set[bytes] = set()
    waiting = list(marks)
    while waiting:
        more = set(users.get(waiting.pop(), ())) - reached
        reached |= more
        waiting += more
    return frozenset(reached)


def _check_tokens(text: bytes, inside: Sequence[CodeToken], body: int) -> None:
    """Raise Refused for what readers of a text and compilers see differently."""
    for token in inside:
        if reason := _misleading(token, body):
            raise Refused(reason[0], f"line {line_of(text, token.begin)}: {reason[1]}")
    span = text[inside[0].begin:inside[-1].end]
    if b"??/" in span or b"??<" in span or b"??>" in span:
        raise Refused("hidden", f"line {line_of(text, inside[0].begin)}: the kernel holds trigraphs")
    if match := _INVISIBLE.search(text, inside[0].begin, inside[-1].end):
        raise Refused("hidden", f"line {line_of(text, match.start())} holds a character that reorders or hides text")


def _misleading(token: CodeToken, body: int) -> tuple[str, str] | None:
    """Return why a token is refused: the reason and the sentence."""
    if token.kind == lexing.BROKEN:
        return "syntax", "a comment or string has no end"
    if token.kind == SPLICE:
        return "hidden", "it ends in a backslash outside of a directive"
    if token.text in (b"<%", b"%>", b"<:", b":>", b"%:"):
        return "hidden", f"{token.text.decode()} is another spelling of a bracket"
    if token.kind == DIRECTIVE and token.begin < body:
        return "directive_in_signature", "a directive stands in the signature"
    if token.text == KERNEL and token.begin > body:
        return "syntax", "another kernel begins before this one ends"
    return None


def _loops(kernel: KernelSource) -> Iterator[KernelLoop]:
    for node in kernel.nodes(*_LOOPS):
        body = node.child_by_field_name("body")
        if body is not None:
            yield KernelLoop(_LOOPS[node.type], node.start_byte, node.end_byte, (body.start_byte, body.end_byte),
                             node.start_point[0] + 1, _pragma_before(kernel, node.start_byte))


def _pragma_before(kernel: KernelSource, begin: int) -> tuple[int, int] | None:
    at = bisect_left(kernel.read, begin, key=lambda token: token.begin) - 1
    before = kernel.read[at]
    return (before.begin, before.end) if before.kind == DIRECTIVE and is_unroll(before.text) else None


def _parameters(signature: Sequence[CodeToken]) -> Iterator[KernelParameter]:
    """Yield the parameters of the last list of a signature that is not of an attribute."""
    opens = [at for at, token in enumerate(signature) if token.text == b"(" and at
             and signature[_before_template_arguments(signature, at - 1)].text not in _NO_NAME]
    depths = _depths(signature)
    at = next((index for index in reversed(opens) if not depths[index]), None)
    if at is None:
        return
    close = lexing.closings(signature).get(at)
    first, nesting = at + 1, 0
    for index in range(at + 1, (close or at) + 1):
        text = signature[index].text
        nesting += {b"<": 1, b"(": 1, b"[": 1, b">": -1, b">>": -2, b")": -1, b"]": -1}.get(text, 0)
        if index == close or (text == b"," and not nesting):
            part = signature[first:index]
            first = index + 1
            if part and [token.text for token in part] != [b"void"]:
                yield _parameter(part)


def _depths(read: Sequence[CodeToken]) -> list[int]:
    depth, depths = 0, []
    for token in read:
        depth -= token.text in (b")", b"]")
        depths.append(depth)
        depth += token.text in (b"(", b"[")
    return depths


def _parameter(part: Sequence[CodeToken]) -> KernelParameter:
    words = [token for token in part if token.kind == WORD]
    name = words[-1].text if words else b""
    stars = [token.end for token in part if token.text == b"*"]
    return KernelParameter(name, tuple(token.text for token in part if token is not (words[-1] if words else None)),
                     stars[-1] if stars else None)

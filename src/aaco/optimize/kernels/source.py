"""One kernel in a source file, by byte positions; and the proof that an edit changed nothing but that kernel's body.

Two readers must agree where the kernel is: tree-sitter's C++ grammar, which knows statements, and our own tokens, which
know what a compiler joins, skips and quotes. Words of CUDA and HIP that are not C++ are blanked for the grammar, byte
for byte, so that all positions hold.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aaco.core import extras
from aaco.core.errors import Missing, UsageError
from aaco.optimize.kernels import lexing
from aaco.optimize.kernels.lexing import DIRECTIVE, MARK, SPLICE, WORD, CodeToken, line_of
from aaco.optimize.kernels.variants import Refused

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MOST_BYTES, MOST_HEADERS = 8 << 20, 256  # bytes of a source file, files that it includes
MOST_ARGUMENTS = 4096  # tokens of a template's
PARSE_S, PIECE = 10.0, 1 << 16
BEFORE = (b";", b"}", b"{", b"%>", b"<%")  # what ends the declaration before
LAUNCH_BOUNDS, RESTRICT = b"__launch_bounds__", b"__restrict__"  # what an edit may be permitted to add to a signature
RESTRICTS = (RESTRICT, b"__restrict", b"restrict")
KERNEL = b"__global__"
ASM = frozenset((b"asm", b"__asm", b"__asm__"))
PRAGMAS = (b"_Pragma", b"__pragma")
# Blanked for the grammar: words of CUDA and HIP, and those which take arguments with them.
_PLAIN = frozenset((KERNEL, b"__device__", b"__host__", b"__forceinline__", b"__noinline__", b"__shared__",
                    b"__constant__", b"__managed__", b"__grid_constant__", b"__extension__"))
_WITH_ARGUMENTS = frozenset((LAUNCH_BOUNDS, b"__maxnreg__", b"__cluster_dims__", b"__block_size__", b"__align__",
                             b"__attribute__", b"__declspec", b"alignas", *PRAGMAS))
_NO_NAME = _WITH_ARGUMENTS | {b"noexcept", b"decltype", b"explicit"}
_DEFINE = re.compile(rb"#\s*define\s+([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\r\n\0]{1,400})"', re.MULTILINE)
_PRAGMA = re.compile(rb"#\s*pragma\b")
_UNROLL = re.compile(rb"#\s*pragma\s+(?:(?:unroll|nounroll)\b|clang\s+loop\b)")
_BRACES = frozenset((b"{", b"}", b"<%", b"%>"))
_INVISIBLE = re.compile(rb"\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")  # marks that reorder or hide text
_DECLARES = ("array_declarator", "init_declarator", "pointer_declarator", "parameter_declaration",
             "optional_parameter_declaration", "for_range_loop")
_LOOPS = {"for_statement": "for", "while_statement": "while", "do_statement": "do", "for_range_loop": "for range"}


@dataclass(frozen=True)
class KernelLoop:
    """A loop of a kernel. body: the byte range of its statement. pragma: the byte range of its unroll directive, or
    None. depth: loops around it.
    """

    kind: str  # for, while, do, for range
    begin: int
    end: int
    body: tuple[int, int]
    line: int
    depth: int
    pragma: tuple[int, int] | None


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel. kind: its type as tokens. stars: bytes after its last *, or None if no pointer."""

    name: bytes
    kind: tuple[bytes, ...]
    star: int | None

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer to something that is no pointer."""
        return self.kind.count(b"*") == 1


@dataclass(frozen=True, eq=False)
class KernelSource:
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
        return _nodes(self.node, frozenset(kinds))

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
    every = list(lexing.tokens(text))
    read = lexing.code(every)
    wanted = name.encode()
    heads = [head for head in _heads(read) if head.name == wanted]
    if not heads:
        raise _not_found(name, read, headers or {})
    if len(heads) > 1:
        lines = " and ".join(str(line_of(text, read[head.name_at].begin)) for head in heads[:3])
        raise Refused("several_definitions", f"{name} is defined in lines {lines}: which one is meant is not known")
    (head,) = heads
    inside = read[head.begin:head.end + 1]
    macros = _macros(read, headers or {})
    _check_macros(text, inside, wanted, macros)
    _check_tokens(text, inside, read[head.body].begin)
    tree, node, body = _node(text, every, read[head.begin].begin, read[head.body].begin)
    if body.end_byte != read[head.end].end:
        raise Refused("syntax", f"{name}: where it ends, in line {line_of(text, read[head.end].begin)} or "
                                f"{line_of(text, body.end_byte)}, is not clear")
    return KernelSource(text, wanted, read[head.begin].begin, read[head.end].end, (body.start_byte, body.end_byte),
                        tuple(inside), tuple(read[head.begin:head.body]), macros, headers or {}, node, tree)


def read_source(path: Path) -> tuple[bytes, dict[str, bytes]]:
    """Return a source file, and the files that it and they include in quotes, by the names in the directives.

    Those that are not found are left out: they may lie in folders of the build. Raise UsageError if the file itself
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


def check_edit(before: bytes, after: bytes, name: str, permitted: frozenset[bytes] = frozenset(),
               headers: Mapping[str, bytes] | None = None) -> KernelSource:
    """Return the edited kernel if nothing but its body changed. Raise Refused.

    permitted: what may be added to the signature, of LAUNCH_BOUNDS and RESTRICT.
    """
    return check_edited(find_kernel(before, name, headers), after, permitted)


def check_edited(old: KernelSource, after: bytes, permitted: frozenset[bytes] = frozenset()) -> KernelSource:
    """Return the kernel of an edited file if nothing but its body changed. Raise Refused.

    Bytes outside of the definition are compared, its signature token by token, and directives in its body, as they act
    on what follows the kernel.
    """
    before, name = old.text, old.name.decode()
    new = find_kernel(after, name, old.headers)
    if before[:old.begin] != after[:new.begin] or before[old.end:] != after[new.end:]:
        at = _first_difference(before[:old.begin], after[:new.begin], before[old.end:], after[new.end:], new.end)
        raise Refused("outside_kernel", f"line {line_of(after, at)} outside of {name} is changed")
    if _comparable(old.signature, permitted) != _comparable(new.signature, permitted):
        raise Refused("signature", f"line {line_of(after, new.begin)}: the signature of {name} is changed: "
                                   f"{_shown(old.signature, new.signature)}")
    kept, directives = _directives(old), _directives(new)
    if [text for _, text in kept] != [text for _, text in directives]:
        changed = next((position for position, text in directives if text not in {one for _, one in kept}), new.begin)
        raise Refused("directive", f"line {line_of(after, changed)}: a directive acts on what follows the kernel; only "
                                   "unroll pragmas may be changed")
    known = {text for _, text in _assembly(old)}
    if added := next((at for at, text in _assembly(new) if text not in known), 0):
        raise Refused("assembly", f"line {line_of(after, added)}: inline assembly is added, which can read files where "
                                  "it is compiled")
    return new


def _directives(kernel: KernelSource) -> list[tuple[int, bytes]]:
    """Return position and text of each directive in a body that is no plain unroll pragma."""
    read = kernel.body_tokens
    return [(token.begin, b"".join(one.text for one in read[at:at + (1 if token.kind == DIRECTIVE else 4)]))
            for at, token in enumerate(read) if token.text in PRAGMAS
            or (token.kind == DIRECTIVE and not is_unroll(token.text))]


def _assembly(kernel: KernelSource) -> list[tuple[int, bytes]]:
    """Return position and text of each statement of inline assembly in a body."""
    read = kernel.body_tokens
    found = []
    for at, token in enumerate(read):
        if token.text in ASM:
            end = next((index for index in range(at, len(read)) if read[index].text == b";"), len(read))
            found.append((token.begin, b" ".join(part.text for part in read[at:end])))
    return found


def is_unroll(directive: bytes) -> bool:
    """Return whether a directive asks for a loop to be unrolled, or not."""
    return bool(_UNROLL.match(directive)) and b"\\" not in directive


@dataclass(frozen=True)
class _Head:
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
            replacements.setdefault(name, []).append(b" ".join([arguments or b"", *(one.text for one in meaning)]))
    return {name: b" ".join(several) for name, several in replacements.items()}


def _check_macros(text: bytes, inside: Sequence[CodeToken], name: bytes, macros: Mapping[bytes, bytes]) -> None:
    """Raise Refused if a macro hides where the kernel ends, or what it is called."""
    braces, pastes = _that_reach(macros, _BRACES), _that_reach(macros, frozenset((b"##",)))
    for token in inside:
        if token.kind != WORD or token.text not in macros:
            continue
        where = f"line {line_of(text, token.begin)}: the macro {token.text.decode(errors='replace')}"
        if token.text == name or token.text in _PLAIN | _WITH_ARGUMENTS:
            raise Refused("macro_name", f"{where} is not what it looks like")
        if token.text in braces:
            raise Refused("macro_braces", f"{where} expands to braces: where the kernel's statements end is not known",
                          "write the macro out in this kernel")
        if token.text in pastes:
            raise Refused("macro_pastes", f"{where} makes names out of pieces: what it expands to is not known",
                          "write the macro out in this kernel")


def _that_reach(macros: Mapping[bytes, bytes], marks: frozenset[bytes]) -> frozenset[bytes]:
    """Return the macros whose expansion holds one of the marks, by themselves or by other macros."""
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


def _node(text: bytes, every: Sequence[CodeToken], begin: int, body: int) -> tuple[Tree, Node, Node]:
    """Return the tree, and the nodes of the definition and its body, which begin at these bytes. Raise Refused."""
    tree = _parse(_for_grammar(text, every))
    for node in _nodes(tree.root_node, frozenset(("function_definition",))):
        inner = node.child_by_field_name("body")
        if inner is not None and inner.start_byte == body:
            if wrong := next(_nodes(node, frozenset(("ERROR",)), missing=True), None):
                raise Refused("syntax", f"line {line_of(text, wrong.start_byte)} is not understood: "
                                        f"{_excerpt(text, wrong.start_byte)}")
            return tree, node, inner
    raise Refused("syntax", f"line {line_of(text, begin)}: the definition that begins here is not understood")


def _parse(text: bytes) -> Tree:
    try:
        from tree_sitter import Language, Parser
        from tree_sitter_cpp import language
    except ModuleNotFoundError as error:
        raise extras.missing(error) or Missing(str(error)) from error
    deadline = time.monotonic() + PARSE_S
    try:
        return Parser(Language(language())).parse(lambda at, _: text[at:at + PIECE],  # bytes at once cannot be stopped
                                                  progress_callback=lambda _, __: time.monotonic() > deadline)
    except ValueError as error:
        raise Refused("syntax", f"the file is not understood in {PARSE_S:g} s") from error


def _for_grammar(text: bytes, every: Sequence[CodeToken]) -> bytes:
    """Return a text of the same length without the words that are not C++; launches become calls."""
    blank, open_launch = bytearray(text), False
    if text.startswith(lexing.BOM):
        blank[:3] = b"   "
    read = lexing.code(every)
    closings = lexing.closings(read)
    for at, token in enumerate(read):
        if token.kind == WORD and token.text in _PLAIN:
            blank[token.begin:token.end] = b" " * len(token.text)
        elif token.kind == WORD and token.text in _WITH_ARGUMENTS and at + 1 < len(read) and read[at + 1].text == b"(":
            end = read[closings.get(at + 1, at)].end
            blank[token.begin:end] = re.sub(rb"[^\r\n]", b" ", text[token.begin:end])
        elif token.kind == DIRECTIVE and _PRAGMA.match(token.text):  # it may stand where the grammar has no place
            blank[token.begin:token.end] = re.sub(rb"[^\r\n]", b" ", token.text)
        elif token.text == b"<<<":
            blank[token.begin:token.end], open_launch = b"(  ", True
        elif token.text == b">>>" and open_launch:
            blank[token.begin:token.end], open_launch = b")  ", False
    return bytes(blank)


def _nodes(root: Node, kinds: frozenset[str], missing: bool = False) -> Iterator[Node]:
    """Yield nodes of these kinds, in the order of the text; missing: also those that the parser made up."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in kinds or (missing and (node.is_missing or node.is_error)):
            yield node
        waiting += reversed(node.children)


def _loops(kernel: KernelSource) -> Iterator[KernelLoop]:
    ends: list[int] = []
    for node in kernel.nodes(*_LOOPS):
        body = node.child_by_field_name("body")
        if body is None:
            continue
        while ends and ends[-1] <= node.start_byte:
            ends.pop()
        yield KernelLoop(_LOOPS[node.type], node.start_byte, node.end_byte, (body.start_byte, body.end_byte),
                   node.start_point[0] + 1, len(ends), _pragma_before(kernel, node.start_byte))
        ends.append(node.end_byte)


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


def _comparable(signature: Sequence[CodeToken], permitted: frozenset[bytes]) -> list[bytes]:
    """Return the tokens without those that may be added."""
    texts, at, closings = [], 0, lexing.closings(signature)
    while at < len(signature):
        text = signature[at].text
        if text == LAUNCH_BOUNDS and text in permitted:
            at = closings.get(at + 1, at) + 1
            continue
        if not (text in RESTRICTS and RESTRICT in permitted):
            texts.append(text)
        at += 1
    return texts


def _shown(before: Sequence[CodeToken], after: Sequence[CodeToken]) -> str:
    for old, new in zip(before, after, strict=False):
        if old.text != new.text:
            return f"{_printable(old.text)} became {_printable(new.text)}"
    longer = max(before, after, key=len)[min(len(before), len(after)):]
    return f"{_printable(longer[0].text)} is {'added' if len(after) > len(before) else 'gone'}"


def _first_difference(head: bytes, new_head: bytes, tail: bytes, new_tail: bytes, tail_begin: int) -> int:
    """Return the byte of the edited text at which what is outside first differs."""
    if head != new_head:
        return _common(head, new_head)
    return tail_begin + _common(tail, new_tail)


def _common(left: bytes, right: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def _excerpt(text: bytes, at: int) -> str:
    return _printable(text[at:].splitlines()[0] if text[at:] else b"")


def _printable(text: bytes) -> str:
    return "".join(filter(str.isprintable, text.decode(errors="replace")))[:60]

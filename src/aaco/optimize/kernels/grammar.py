"""tree-sitter's C++ grammar for CUDA and HIP: words that are not C++ are blanked, so that all positions hold."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aaco.core import extras
from aaco.core.errors import Missing
from aaco.optimize.kernels import lexing
from aaco.optimize.kernels.lexing import DIRECTIVE, WORD, CodeToken, line_of
from aaco.optimize.kernels.variants import Refused

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

PARSE_S, PIECE = 10.0, 1 << 16
KERNEL, LAUNCH_BOUNDS = b"__global__", b"__launch_bounds__"
PRAGMAS = (b"_Pragma", b"__pragma")
# Blanked: words of CUDA and HIP, and those which take arguments with them.
PLAIN = frozenset((KERNEL, b"__device__", b"__host__", b"__forceinline__", b"__noinline__", b"__shared__",
                   b"__constant__", b"__managed__", b"__grid_constant__", b"__extension__"))
WITH_ARGUMENTS = frozenset((LAUNCH_BOUNDS, b"__maxnreg__", b"__cluster_dims__", b"__block_size__", b"__align__",
                            b"__attribute__", b"__declspec", b"alignas", *PRAGMAS))
_PRAGMA = re.compile(rb"#\s*pragma\b")


def definition(text: bytes, all_tokens: Sequence[CodeToken], begin: int, body: int) -> tuple[Tree, Node, Node]:
    """Return the tree, and the nodes of the definition and its body, which begin at these bytes. Raise Refused."""
    tree = _parse(_for_grammar(text, all_tokens))
    for node in nodes(tree.root_node, frozenset(("function_definition",))):
        inner = node.child_by_field_name("body")
        if inner is not None and inner.start_byte == body:
            if wrong := next(nodes(node, frozenset(("ERROR",)), missing=True), None):
                raise Refused("syntax", f"line {line_of(text, wrong.start_byte)} is not understood: "
                                        f"{lexing.printable(text[wrong.start_byte:])}")
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


def _for_grammar(text: bytes, all_tokens: Sequence[CodeToken]) -> bytes:
    """Return a text of the same length without the words that are not C++; launches become calls."""
    blank, open_launch = bytearray(text), False
    if text.startswith(lexing.BOM):
        blank[:3] = b"   "
    read = lexing.code(all_tokens)
    closings = lexing.closings(read)
    for at, token in enumerate(read):
        if token.kind == WORD and token.text in PLAIN:
            blank[token.begin:token.end] = b" " * len(token.text)
        elif token.kind == WORD and token.text in WITH_ARGUMENTS and at + 1 < len(read) and read[at + 1].text == b"(":
            end = read[closings.get(at + 1, at)].end
            blank[token.begin:end] = re.sub(rb"[^\r\n]", b" ", text[token.begin:end])
        elif token.kind == DIRECTIVE and _PRAGMA.match(token.text):  # it may stand where the grammar has no place
            blank[token.begin:token.end] = re.sub(rb"[^\r\n]", b" ", token.text)
        elif token.text == b"<<<":
            blank[token.begin:token.end], open_launch = b"(  ", True
        elif token.text == b">>>" and open_launch:
            blank[token.begin:token.end], open_launch = b")  ", False
    return bytes(blank)


def nodes(root: Node, kinds: frozenset[str], missing: bool = False) -> Iterator[Node]:
    """Yield nodes of these kinds, in the order of the text; missing: also those that the parser made up."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in kinds or (missing and (node.is_missing or node.is_error)):
            yield node
        waiting += reversed(node.children)

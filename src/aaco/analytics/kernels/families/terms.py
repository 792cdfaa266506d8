"""The terms of kernel names: the parts of a name, and what a library's file declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

UNKNOWN = "unknown"
Rules = tuple[tuple[str, str], ...]  # (family, regular expression), the first that is found decides
Fields = dict[str, Any]  # those of KernelName that a library's `read` finds


class KernelName(Struct, frozen=True):
    """What a kernel's name says. What it does not say is None, or empty.

    normalised: short name, the same in every run and build: without suffixes, parameters, numbers of lambdas. family:
    one of operators.terms.FAMILIES. library: the file of this package whose rule decided; None: only by words. dtypes:
    element types as operators.terms.TensorType names them, operands first. layout: NN, NT, TN, TT of a GEMM (first and
    second operand, N as stored, T transposed), or nchw, nhwc. tile: of the output per workgroup, and the step along the
    summed dimension. ops: the operators fused in it, as the generator lists them. split: how the summed dimension is
    shared by workgroups: "none", "split_k", "stream_k"; split_count: among how many. direction: "forward", "backward".
    rule: library and expression that decided the family.
    """

    name: str
    normalised: str
    family: str = UNKNOWN
    library: str | None = None
    dtypes: tuple[str, ...] = ()
    layout: str | None = None
    tile: str | None = None
    ops: tuple[str, ...] = ()
    split: str | None = None
    split_count: int | None = None
    direction: str | None = None
    rule: str | None = None


class ParsedSymbol(Struct, frozen=True):
    """A parsed name. base: the function with its namespaces; arguments: of its template; both without what the compiler
    adds. is_plain: whether it is only an identifier, as generators of kernels and `extern "C"` give it."""

    base: str
    arguments: str = ""
    is_plain: bool = False

    @property
    def text(self) -> str:
        """Return the base and arguments."""
        return f"{self.base}<{self.arguments}>" if self.arguments else self.base


def tile_by(pattern: str) -> Callable[[ParsedSymbol], Fields]:
    """Return a reader of the tile that the pattern's groups give: 128x16x256; it finds nothing in a name without."""
    sizes = re.compile(pattern)

    def read(symbol: ParsedSymbol) -> Fields:
        tile = sizes.search(symbol.base)
        return {"tile": "x".join(size for size in tile.groups() if size)} if tile else {}

    return read


class KernelLibrary(Struct, frozen=True):
    """The names of one library. begins: how its symbols begin (regular expression on `Symbol.text`).

    rules: looked for in the base; inner: in the template's arguments, of what no rule knows and `launchers` is found
    in; otherwise: the family of the rest. read: finds the other fields. normalise: the library's own short form.
    """

    name: str
    begins: str
    rules: Rules = ()
    launchers: str = ""
    inner: Rules = ()
    otherwise: str = UNKNOWN
    read: Callable[[ParsedSymbol], Fields] | None = None
    normalise: Callable[[ParsedSymbol], str] | None = None

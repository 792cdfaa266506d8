"""A column more in a two-dimensional array in shared memory, so that a column's elements lie in different banks.

There are 32 banks of 4 bytes (CUDA C++ Programming Guide, shared memory; the same on AMD's LDS up to gfx942).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.lexing import WORD, CodeToken
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import ASM, KernelSource
from aaco.optimize.kernels.variants import Proposal

PERMITS: frozenset[bytes] = frozenset()
BANKS, MOST_STATIC = 32, 48 << 10
FOUR_BYTES = frozenset((b"float", b"int", b"unsigned", b"uint32_t", b"int32_t"))


class SharedArray(NamedTuple):
    """A declaration `__shared__ KIND name[rows][columns];`. inner: the bytes of its columns."""

    name: bytes
    kind: tuple[bytes, ...]
    rows: bytes
    columns: bytes
    inner: tuple[int, int]
    declared_at: int


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield the padding of each array, or why its layout may not change."""
    for array in _arrays(situation.kernel):
        name = f"padding of {guards.shown(array.name)}"
        if why := _against(situation, array):
            yield Inapplicable(name, f"Give {guards.shown(array.name)} a column more", why)
        else:
            yield Proposal(name, "shared_padding",
                           situation.kernel.replaced((array.inner[1], array.inner[1], b" + 1")))


def _against(situation: KernelSituation, array: SharedArray) -> str:
    """Return why the layout may not change; empty if it may."""
    rows, columns = situation.constant(array.rows), situation.constant(array.columns)
    if rows is None or columns is None:
        return "its size is not a plain number"
    if columns % BANKS:
        return f"its {columns} columns are no multiple of {BANKS}: a column's elements lie in different banks already"
    if len(array.kind) != 1 or array.kind[0] not in FOUR_BYTES:
        return f"an element of {guards.shown(b' '.join(array.kind))} may have to be aligned to more than 4 bytes"
    if 4 * rows * (columns + 1) > MOST_STATIC:
        return f"{4 * rows * (columns + 1):,} bytes are more than the {MOST_STATIC:,} of a block"
    if guards.any_of(situation.kernel.words, ASM):
        return "inline assembly may compute addresses in it"
    body = situation.kernel.body_tokens
    for at, token in enumerate(body):
        if token.text == array.name and token.begin != array.declared_at and (why := _odd_use(body, at)):
            return f"line {situation.kernel.line(token.begin)} {why}"
    return ""


def _odd_use(body: Sequence[CodeToken], at: int) -> str:
    """Return what a use of the array has that depends on its layout; empty if it is name[...][...]."""
    if body[at - 1].text in (b"&", b"sizeof"):
        return "takes its address or size, which padding changes"
    first = _bracketed(body, at + 1)
    second = _bracketed(body, first) if first else None
    if first is None or second is None:
        return "uses it without both indices, so as a pointer"
    if first == at + 4 and body[at + 2].text == b"0":
        return "indexes its first row, from which an index may run into the next"
    return "" if body[second].text != b"[" else "has an index too many"


def _bracketed(body: Sequence[CodeToken], at: int) -> int | None:
    """Return the index of the token after a pair of brackets that begins at `at`; None if none does."""
    if at >= len(body) or body[at].text != b"[":
        return None
    depth = 0
    for index in range(at, len(body)):
        depth += {b"[": 1, b"]": -1}.get(body[index].text, 0)
        if not depth:
            return index + 1
    return None


def _arrays(kernel: KernelSource) -> Iterator[SharedArray]:
    body = kernel.body_tokens
    for at, token in enumerate(body):
        if token.text != guards.SHARED or (at and body[at - 1].text == b"extern"):
            continue
        words = []
        at += 1
        while at < len(body) and body[at].kind == WORD:
            words.append(body[at])
            at += 1
        texts = [one.text for one in body[at:at + 7]]
        if len(words) >= 2 and len(texts) == 7 and texts[::3] == [b"[", b"[", b";"] and texts[2::3] == [b"]", b"]"]:
            yield SharedArray(words[-1].text, tuple(word.text for word in words[:-1]), texts[1], texts[4],
                              (body[at + 4].begin, body[at + 4].end), words[-1].begin)

"""Unroll a loop by a factor, not at all, or as the compiler chooses. The compiler does it: what is computed stays.

Blind factors were 12 to 182 % slower than the compiler's own choice for 3 of 7 kernels: each is only tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import ASM, KernelLoop, KernelSource
from aaco.optimize.kernels.variants import Proposal

PERMITS: frozenset[bytes] = frozenset()
FACTORS = (1, 2, 3, 4, 6, 8)


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield each factor for each loop, or why the loop cannot be unrolled."""
    kernel = situation.kernel
    for loop in kernel.loops:
        where = f"the loop at line {loop.line}"
        if why := _against(kernel, loop):
            yield Inapplicable(f"unroll of {where}", f"Unroll {where}", why)
            continue
        # NVIDIA's compilers ignore nounroll, and warn of it
        directives = [f"unroll {factor}" for factor in FACTORS] + ["nounroll"] * (situation.vendor != "NVIDIA")
        for directive in directives:
            text = _with_directive(kernel, loop, f"#pragma {directive}".encode())
            if text != kernel.text:
                yield Proposal(f"{directive} of {where}", "unroll", text)
        if loop.pragma is not None:
            yield Proposal(f"no pragma of {where}", "unroll", _without_directive(kernel, loop.pragma))


def _against(kernel: KernelSource, loop: KernelLoop) -> str:
    """Return why a loop cannot be unrolled; empty if it can."""
    words = guards.words_in(kernel, loop.begin, loop.end)
    if word := guards.any_of(words, ASM):
        return f"{guards.shown(word)} in it may hold labels, which unrolling would repeat"
    if b"goto" in words:
        return "goto enters or leaves it, so its turns cannot be put side by side"
    head = [token.text for token in kernel.tokens_in(loop.begin, loop.body[0])]
    if loop.kind == "for" and head[-2:] == [b";", b")"] and head[-3:-2] == [b";"]:
        return "it has no condition, so its turns cannot be put side by side"
    if loop.kind == "for" and b";" in head and head[head.index(b";") + 1:][:1] == [b";"]:
        return "it has no condition, so its turns cannot be put side by side"
    return ""


def _with_directive(kernel: KernelSource, loop: KernelLoop, directive: bytes) -> bytes:
    """Return the text with the directive on a line of its own before the loop, in place of one that is there."""
    if loop.pragma is not None:
        return kernel.replaced((*loop.pragma, directive))
    begin = kernel.text.rfind(b"\n", 0, loop.begin) + 1
    before = kernel.text[begin:loop.begin]
    newline = kernel.newline
    if before.strip():  # something stands before the loop on its line
        return kernel.replaced((loop.begin, loop.begin, newline + directive + newline))
    return kernel.replaced((begin, begin, before + directive + newline))


def _without_directive(kernel: KernelSource, pragma: tuple[int, int]) -> bytes:
    """Return the text without the line of the directive."""
    begin = kernel.text.rfind(b"\n", 0, pragma[0]) + 1
    return kernel.replaced((begin, kernel.text.index(b"\n", pragma[1]) + 1, b""))

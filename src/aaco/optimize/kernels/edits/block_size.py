"""Launch the same threads in blocks of another size. Only the launch changes, so the text stays.

It holds for kernels in which a thread knows its place as blockIdx.x * blockDim.x + threadIdx.x and waits for no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.grammar import LAUNCH_BOUNDS
from aaco.optimize.kernels.lexing import CodeToken
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import ASM, KernelSource
from aaco.optimize.kernels.variants import Proposal

PERMITS: frozenset[bytes] = frozenset()
SIZES = (64, 128, 256, 512, 1024)
INDEX = ((b"blockIdx", b"blockDim", b"threadIdx"), (b"blockDim", b"blockIdx", b"threadIdx"))
SHOWN = "blockIdx.x * blockDim.x + threadIdx.x"


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield each size that divides the captured threads, or why the block cannot be changed."""
    if why := _against(situation):
        yield Inapplicable("block_size", "Launch blocks of another size", why)
        return
    threads = situation.block[0] * situation.grid[0]
    for size in SIZES:
        if size != situation.block[0] and threads % size == 0:
            yield Proposal(f"blocks of {size} threads", "block_size", situation.kernel.text, block=(size, 1, 1),
                           grid=(threads // size, 1, 1))


def _against(situation: KernelSituation) -> str:
    """Return why the block cannot be changed; empty if it can."""
    kernel = situation.kernel
    if situation.block[1:] != (1, 1) or situation.grid[1:] != (1, 1):
        return "its launch has more than one dimension"
    if situation.dynamic_bytes:
        return "its dynamic shared memory may be sized by the block"
    if any(token.text == LAUNCH_BOUNDS for token in kernel.signature):
        return "its launch bounds were made for this block"
    words = guards.reached(kernel)
    if guards.SHARED in words:
        return "shared memory is the block's: another block would share other values"
    if word := guards.barriers(words):
        return f"{guards.shown(word)} makes the threads of a block wait for each other"
    if word := guards.lanes(words):
        return f"{guards.shown(word)} depends on which threads are in a wave"
    if guards.any_of(words, ASM):
        return "inline assembly may read its place in the block"
    return _place(kernel)


def _place(kernel: KernelSource) -> str:
    """Return why a thread's place is not only its number in the grid; empty if it is."""
    body = kernel.body_tokens
    uses = [at for at, token in enumerate(body) if token.text in guards.PLACE]
    if guards.any_of(guards.behind_names(kernel), guards.PLACE):
        return f"a function or macro that it uses reads a thread's place: only {SHOWN} in the kernel itself holds"
    at = 0
    while at < len(uses):
        if _is_index(body, uses[at]):
            at += 3
        elif _is_stride(body, uses[at]):
            at += 2
        else:
            line = kernel.line(body[uses[at]].begin)
            return f"line {line} reads {guards.shown(body[uses[at]].text)} otherwise than in {SHOWN}"
    return "" if uses else "its threads do not read their place"


def _is_index(body: Sequence[CodeToken], at: int) -> bool:
    texts = [token.text for token in body[at:at + 11]]
    return any(texts == [first, b".", b"x", b"*", second, b".", b"x", b"+", third, b".", b"x"]
               for first, second, third in INDEX) and _stands_alone(body, at, at + 11)


def _is_stride(body: Sequence[CodeToken], at: int) -> bool:
    texts = [token.text for token in body[at:at + 7]]
    return (texts[1:4] + texts[5:] == [b".", b"x", b"*", b".", b"x"]
            and {texts[0], texts[4]} == {b"gridDim", b"blockDim"})


def _stands_alone(body: Sequence[CodeToken], begin: int, end: int) -> bool:
    """Whether nothing around a sum binds to one of its parts. A cast of its first factor is none."""
    before = body[begin - 1].text if begin else b""
    after = body[end].text if end < len(body) else b""
    return before in (b"=", b"(", b",", b"[", b"return", b")") and after in (b";", b")", b",", b"]", b"<", b">=", b">")

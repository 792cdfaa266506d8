"""Promise the compiler the size of a block, and how many blocks of it a multiprocessor is to hold.

It then uses registers for that occupancy. Only this edit may add `__launch_bounds__` to a signature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels.grammar import KERNEL, LAUNCH_BOUNDS
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.variants import Proposal

PERMITS = frozenset((LAUNCH_BOUNDS,))
MOST_THREADS = 1024
AT_ONCE = (0, 1, 2, 4, 8)  # blocks of a multiprocessor at least; 0: not stated


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield the block's size with each count of blocks, or why no bounds can be given."""
    kernel = situation.kernel
    if LAUNCH_BOUNDS in {token.text for token in kernel.signature}:
        yield Inapplicable("launch_bounds", "Give launch bounds", "its signature has launch bounds already")
        return
    threads = max(math.prod(block) for block in situation.blocks)
    if threads > MOST_THREADS:
        yield Inapplicable("launch_bounds", "Give launch bounds", f"a block of {threads} threads has no bounds")
        return
    after = next(token.end for token in kernel.signature if token.text == KERNEL)
    for count in AT_ONCE:
        if count * threads > 2048:  # of a multiprocessor, of all architectures
            continue
        bounds = f" __launch_bounds__({threads}{f', {count}' if count else ''})".encode()
        yield Proposal(bounds.decode().strip(), "launch_bounds", kernel.replaced((after, after, bounds)))

"""A Triton kernel whose every read needs the value of the one before; it can be imported only where Triton can run."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pointer_chase(following, out, apart, reads):  # type: ignore[no-untyped-def]
    """Each program follows `reads` links from a start of its own and writes where it arrived."""
    program = tl.program_id(0).to(tl.int64)
    at = program * apart
    for _ in range(reads):
        at = tl.load(following + at)
    tl.store(out + program, at)

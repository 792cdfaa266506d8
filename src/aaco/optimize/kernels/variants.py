"""What a proposer offers, what the compiler makes of it, and why one is refused."""

from __future__ import annotations

from msgspec import Struct

from aaco.core.errors import AacoError

Dimensions = tuple[int, int, int]


class Refused(AacoError):
    """A proposal is not tried any further.

    reason: a short, fixed identifier, such as `outside_kernel`. detail: one sentence, with the line if there is one.
    """

    def __init__(self, reason: str, detail: str, fix: str = "") -> None:
        super().__init__(f"{reason}: {detail}", fix)
        self.reason = reason
        self.detail = detail


class Proposal(Struct, frozen=True):
    """A change of one kernel, as its proposer offers it.

    text: the whole source file with the edit. options: added to the compiler's. block and grid: those of the launch;
    None leaves them as captured.
    """

    name: str  # "unroll 4 of the loop at line 12"
    proposer: str  # "unroll", "command"
    text: bytes
    options: tuple[str, ...] = ()
    block: Dimensions | None = None
    grid: Dimensions | None = None


class RefusedOffer(Struct, frozen=True):
    """What a proposer offered that was refused before it could be compiled."""

    name: str
    proposer: str
    refused: Refused


class Resources(Struct, frozen=True):
    """What a compiled kernel needs; None where the compiler did not report it, and why.

    spill_bytes: stores and loads to local memory that too few registers cause, per thread.
    """

    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    why_absent: str = ""


class Variant(Struct, frozen=True):
    """A compiled proposal. code: a cubin, PTX or code object; entry: the mangled symbol of the kernel in it."""

    proposal: Proposal
    code: bytes
    entry: str
    resources: Resources | None

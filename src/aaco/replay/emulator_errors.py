"""How a caller tells that an emulator does not run a kernel, or that the kernel does not end."""

from __future__ import annotations

from aaco.core.errors import AacoError

NOT_EMULATED = "the emulator does not run this code"
NO_ANSWER = "gave no answer"  # calibration/child.py says so, too


class NotEmulated(AacoError):
    """The emulator lacks something that the code uses: nothing is known of what it computes."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{NOT_EMULATED}: {why}", "replay the launch on the device itself")

"""Errors of kernels that an emulator cannot run, or that do not end."""

from __future__ import annotations

from aaco.core.errors import AacoError

NOT_EMULATED = "the emulator does not run this code"
NO_ANSWER = "gave no answer"  # calibration/child.py says so, too


class NotEmulated(AacoError):
    """The emulator does not support something that the code uses: its results are not known."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{NOT_EMULATED}: {why}", "replay the launch on the device itself")

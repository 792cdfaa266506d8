"""What went wrong, where, and what the reader can try next; and the one table of exit codes."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class Exit(IntEnum):
    """Exit codes of every command: part of the public interface."""

    FINE = 0
    TOOL_ERROR = 1
    USAGE = 2
    REGRESSION = 3
    INCONCLUSIVE = 4
    MODEL_ERROR = 5
    MISSING = 6
    INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class AacoError(Exception):
    """An error a user can act on: `what` happened (and where), and `fix`, the next thing to try."""

    exit_code = Exit.TOOL_ERROR

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n  try: {self.fix}" if self.fix else self.what


class UsageError(AacoError):
    """The command or its configuration asks for something that cannot be."""

    exit_code = Exit.USAGE


class NoBaseline(UsageError):
    """There is nothing to compare with; under --strict that is an answer that could not be given."""


class BadCapture(AacoError):
    """A file exists but does not hold what its format promises."""

    exit_code = Exit.USAGE


class BadBundle(AacoError):
    """A session folder is damaged, or of a format this version cannot read."""

    exit_code = Exit.USAGE


class StorageError(AacoError):
    """The disk refused: it is full, read-only or not permitted."""

    exit_code = Exit.TOOL_ERROR


class ModelError(AacoError):
    """The model is missing, broken, unsupported, or does not accept its inputs."""

    exit_code = Exit.MODEL_ERROR


class Missing(AacoError):
    """Hardware, a driver, a provider or a program that was requested is not on this machine."""

    exit_code = Exit.MISSING


BY_EXIT_CODE: dict[int, type[AacoError]] = {
    Exit.TOOL_ERROR: AacoError,
    Exit.USAGE: UsageError,
    Exit.MODEL_ERROR: ModelError,
    Exit.MISSING: Missing,
}


def first_problem(error: ValidationError) -> str:
    """What a pydantic model says is wrong first, and where: "plan.batch: Input should be greater than 0"."""
    first: Any = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def first_line(error: Exception) -> str:
    """The first line of what an exception says; its type where it says nothing."""
    return str(error).strip().partition("\n")[0].strip() or type(error).__name__

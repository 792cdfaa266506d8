"""Work for clients in a separate process: an `aaco` command under limits of the kernel. It takes neither the memory nor
the time of this server, and a fault ends only that process."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from msgspec import Struct

from aaco.core.errors import BY_EXIT_CODE, AacoError, UsageError
from aaco.dashboard.settings import ServerSettings

PIECE = 1 << 16
MOST_TALK = 1 << 16
PREFIX, FIX = "aaco: ", "  try: "


class Bounds(Struct, frozen=True):
    """The limits of the process. file_bytes: of one file that it writes; None for no limit."""

    seconds: float
    memory_bytes: int
    answer_bytes: int
    file_bytes: int | None = None


async def call(server: ServerSettings, words: list[str], bounds: Bounds) -> bytes:
    """Return what the command prints. Raise AacoError with its message, or UsageError if a limit is reached.

    The command is killed when the caller is cancelled.
    """
    storage = server.config.config.storage
    environment = {**os.environ, "AACO_LOG_LEVEL": "error", "AACO_SESSION_DIR": str(storage.sessions_dir),
                   "AACO_BASELINE_DIR": str(storage.baselines_dir)}
    config = ["--config", str(server.config_file)] if server.config_file else []
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "aaco", words[0], *config, *words[1:],
                                                   stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        _limit(process, bounds)
        async with asyncio.timeout(bounds.seconds):
            answer, talk = await asyncio.gather(_answer(process, bounds.answer_bytes), _talk(process))
            code = await process.wait()
    except TimeoutError as error:
        raise UsageError(f"it took longer than {bounds.seconds:g} s", "ask for less at once") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if code:
        raise _error_of(talk, code)
    return answer


def _limit(process: Process, bounds: Bounds) -> None:
    """Set the limits of the process from outside: code between fork and exec is not safe with threads."""
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (bounds.memory_bytes, bounds.memory_bytes))
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        if bounds.file_bytes is not None:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (bounds.file_bytes, bounds.file_bytes))


async def _answer(process: Process, most: int) -> bytes:
    assert process.stdout
    parts, size = [], 0
    while piece := await process.stdout.read(PIECE):
        parts.append(piece)
        size += len(piece)
        if size > most:
            raise UsageError(f"the answer has more than {most >> 20} MiB", "ask for fewer rows or columns")
    return b"".join(parts)


async def _talk(process: Process) -> str:
    assert process.stderr
    end = b""
    while piece := await process.stderr.read(PIECE):
        end = (end + piece)[-MOST_TALK:]
    return end.decode(errors="replace")


def _error_of(talk: str, code: int) -> AacoError:
    """Return the error that the command reported (cli/say.py: `failed`)."""
    lines = talk.splitlines()
    at = max((number for number, line in enumerate(lines) if line.startswith(PREFIX)), default=None)
    if at is None:
        return UsageError("it needed more memory than it may have, or met a defect", "ask for less at once")
    fix = lines[at + 1].removeprefix(FIX) if lines[at + 1:] and lines[at + 1].startswith(FIX) else ""
    return BY_EXIT_CODE.get(code, AacoError)(lines[at].removeprefix(PREFIX), fix)

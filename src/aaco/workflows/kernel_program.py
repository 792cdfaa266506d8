"""A kept kernel in its program: the original text and the kept one are built and run in turns, as `aaco compare` does.

Each text has a copy of the project's folder of its own, where the build and the program run; the user's files are only
read. A third text, which no compiler takes, shows first that what runs depends on the source at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, UsageError
from aaco.core.show import Show
from aaco.governance.interleaved.duet import LEAST_MARGIN_PCT
from aaco.governance.verdict_document import RegressionVerdict
from aaco.optimize.kernels.acceptance import Gain
from aaco.optimize.kernels.log import FOLDER
from aaco.optimize.kernels.variants import Proposal
from aaco.runner import command as program
from aaco.workflows.duet import compare
from aaco.workflows.duet.compare import DuetRequest, DuetSide

BUILD_S = 1800.0
MOST_BYTES, MOST_FILES = 4 << 30, 100_000  # of a project: it is copied three times
NOT_COPIED = frozenset((".git", FOLDER))
BROKEN = b"#error this text is no kernel: a program that runs all the same was not built from it\n"
# As `aaco compare --command` has it, for any gain that it can show.
AS_COMPARE = DuetRequest(processes=8, pairs=5, warmup=1, tolerance_pct=LEAST_MARGIN_PCT)
Answer = Literal["faster", "not faster", "slower", "fails", "refused", "not tried"]


class KernelProgram(Struct, frozen=True):
    """How the program is built and run. build: empty if it compiles the source itself. project: the folder to copy.

    kernel_ms: the time of the kernel in one run of the program, as a session has it; None if none was named.
    """

    command: tuple[str, ...]
    build: tuple[str, ...]
    project: Path
    kernel_ms: float | None = None


class InProgram(Struct, frozen=True):
    """What the program says of a kept text. gain: of its wall time. session_id: of the comparison."""

    answer: Answer
    why: str
    gain: Gain | None = None
    session_id: str | None = None


def require(source: Path, runs: KernelProgram) -> None:
    """Raise UsageError for what cannot be built or run, before anything is measured."""
    if not files.is_folder(runs.project):
        raise UsageError(f"{runs.project}: no such folder", "--project: the folder in which the program is built")
    if not source.resolve().is_relative_to(runs.project.resolve()):
        raise UsageError(f"{source} is not in {runs.project}", "--project: a folder that holds the source")
    count = size = 0
    for number in _sizes(runs.project):
        count, size = count + 1, size + number
        if count > MOST_FILES or size > MOST_BYTES:
            raise UsageError(f"{runs.project}: more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB to copy",
                             "--project: a smaller folder that holds the source")


def try_in_program(source: Path, runs: KernelProgram, settings: Settings, seed: int | None, show: Show,
                   original: bytes, kept: Proposal, of_kernel: Gain) -> InProgram:
    """Run the program with the original and with the kept text in turns. of_kernel: what the kernel saved in replays.

    Raise UsageError if the program does not run with the original text, or runs with one that is no kernel.
    """
    if kept.block or kept.grid or kept.options:
        return InProgram("not tried", "it needs another launch or compiler option, which the program itself sets")
    with tempfile.TemporaryDirectory(prefix="aaco-program-") as folder:
        copies = {name: Path(folder, name) for name in ("original", "no-kernel", "kept")}
        texts = {"original": original, "no-kernel": BROKEN + original, "kept": kept.text}
        failed = {}
        for name, copy in copies.items():
            show.step(f"the program with the {name} text")
            failed[name] = _build_and_run(source, texts[name], runs, copy)
            if name == "original" and failed[name]:
                raise UsageError(f"the program does not run with the untouched source: {failed[name]}",
                                 "check --build and --command: both run in a copy of --project")
            if name == "no-kernel" and not failed[name]:
                raise UsageError(f"the program runs with a text of {source.name} that no compiler takes: what runs is "
                                 "not built from it", "--build: a command that builds it in the folder of --project")
        if failed["kept"]:
            return InProgram("fails", failed["kept"])
        sides = [DuetSide(command=_inside(copies[name], runs.command)) for name in ("original", "kept")]
        request = replace(AS_COMPARE, level=1 - settings.config.analysis.false_alarm_pct / 100, seed=seed)
        compared = compare.compare(sides[0], sides[1], request, settings, {}, show)
    return judge(compared.verdict, of_kernel, runs.kernel_ms, compared.session.id)


def judge(verdict: RegressionVerdict, of_kernel: Gain, kernel_ms: float | None, session_id: str | None = None
          ) -> InProgram:
    """Return what a comparison of the program's runs says.

    A program cannot save more than the kernel does in it: its share of the program's time x what it saves in replays.
    The share is the kernel's time in one run, by a session, over the unprofiled time; without a session, at most 1.
    """
    if verdict.effect_pct is None or verdict.ci is None or verdict.n_units is None or verdict.level is None:
        return InProgram("not faster", verdict.why, session_id=session_id)
    gain = Gain(-verdict.effect_pct, -verdict.ci[1], -verdict.ci[0], verdict.level, verdict.n_units.current)
    share = 1.0
    if kernel_ms is not None and verdict.baseline_value:
        share = min(1.0, kernel_ms / verdict.baseline_value)
    most = share * of_kernel.high
    if gain.low > most:
        whole = "" if kernel_ms is None else f", which takes {100 * share:.1f} % of the program's time"
        return InProgram("refused", f"{interval(gain)} less time, where the kernel{whole} can save {most:.1f} % at "
                         "most: a fault of the measurement, or launches of other shapes", gain, session_id)
    if verdict.status == "improved":
        return InProgram("faster", f"{interval(gain)} less time", gain, session_id)
    if gain.high < 0:
        more = Gain(-gain.percent, -gain.high, -gain.low, gain.level, gain.processes)
        return InProgram("slower", f"{interval(more)} more time", gain, session_id)
    return InProgram("not faster", f"{interval(gain)} less time there; {verdict.why}", gain, session_id)


def interval(gain: Gain) -> str:
    """Return a gain as a person reads it."""
    return f"{gain.percent:.1f} % [{gain.low:.1f}, {gain.high:.1f}]"


def phrase(tried: InProgram | None) -> str:
    """Return the answer in words. None: no program was named."""
    if tried is None:
        return "faster alone, not tried in the program"
    if tried.answer == "faster":
        assert tried.gain
        return f"faster in the program by {interval(tried.gain)}"
    return {"not faster": "faster alone, not in the program: ", "slower": "faster alone, slower in the program: ",
            "fails": "faster alone, and the program fails with it: ", "refused": "faster alone; the program's gain is "
            "refused: ", "not tried": "faster alone, not tried in the program: "}[tried.answer] + tried.why


def _build_and_run(source: Path, text: bytes, runs: KernelProgram, copy: Path) -> str:
    """Copy the project with this text of the source, build it and run it once; return what failed, empty for nothing.

    The text is newer than all that was built before.
    """
    with files.storage(runs.project):
        try:
            shutil.copytree(runs.project, copy, symlinks=True, ignore=_left_out)
        except shutil.Error as error:
            raise UsageError(f"{runs.project}: cannot be copied: {str(error)[:200]}",
                             "--project: a folder whose files you can read") from error
    files.write_atomically(copy / source.resolve().relative_to(runs.project.resolve()),
                           lambda file: file.write(text))
    for words, limit_s in ((runs.build, BUILD_S), (runs.command, None)):
        if words:
            try:
                ran = program.run(_inside(copy, words), limit_s)
            except AacoError as error:
                return error.what
            if ran.code:
                return f"{words[0]} {program.ending(ran.code)}: {ran.last_words or 'it printed nothing'}"[:500]
    return ""


def _inside(folder: Path, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs another one in a folder."""
    return ("env", "-C", str(folder), *words)


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the size of every file that is copied. Raise StorageError."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in NOT_COPIED]
        for name in names:
            with files.storage(Path(parent, name)):
                yield Path(parent, name).lstat().st_size


def _left_out(parent: str, names: list[str]) -> set[str]:
    """Return what is not copied: the history, the search's own files, and what is neither file, folder nor link."""
    modes = {name: Path(parent, name).lstat().st_mode for name in names}
    return {name for name, mode in modes.items() if name in NOT_COPIED
            or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))}

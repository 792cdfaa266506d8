"""A command under a vendor's profiler becomes a session: executed as often as it takes, and read like an import."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from aaco import __version__, importing, withholding
from aaco.analytics.roofline import formulas
from aaco.collectors import arguments, machine
from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, BadCapture, Missing, UsageError
from aaco.core.host import Host, ask, known
from aaco.core.plan import Command
from aaco.core.readings import Absent
from aaco.core.secrets import redact
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.importing import Chosen, Found
from aaco.pipeline import Run, outcome, seal
from aaco.profiler import jsonstream
from aaco.profiler import ncu as ncu_csv
from aaco.profiler.launchers import (
    COUNTERS,
    Kind,
    Launcher,
    Pass,
    Tool,
    Wanted,
    cupti,
    migraphx_driver,
    ncu,
    nsys,
    rocprof,
    rocprofv3,
)
from aaco.runner import command as program
from aaco.tracelake import layout

SCHEMA_VERSION = 2
# In the order in which one is looked for where none is named.
LAUNCHERS: dict[str, Launcher] = {one.NAME: one for one in (rocprofv3, rocprof, nsys, cupti, ncu, migraphx_driver)}
ANSWER_TIMEOUT_S = 20.0  # listing counters loads the ROCm runtime
MOST_ANSWER = 64 << 20  # bytes: an architecture has thousands of counters
MOST_PRINTED = 64 << 20  # bytes of a profiler whose output is what it records
MOST_TOLD = 1 << 20
PYTHON = re.compile(r"(python|pypy)[\d.]*")
MANY = 6  # counters that a line names
# What ncu counts where nobody says: what a roofline takes, and how full the multiprocessors were.
ROOFLINE = (*sorted(formulas.NVIDIA.counters), ncu_csv.OCCUPANCY)
NO_TRACE = ("no tracer is installed: this is a session of counters only, and durations are those of kernels run alone "
            "under ncu; with nsys on the PATH times are of a run of their own")


@dataclass(frozen=True)
class Share:
    """What one profiler is asked for: a trace and its counters may need two."""

    launcher: Launcher
    tool: Tool
    wanted: Wanted

    def passes(self, command: Command, raw: Path) -> list[Pass]:
        """Its executions. Raises AacoError for what it cannot do."""
        return self.launcher.passes(self.tool, self.wanted, command.argv, raw)


def trace(command: Command, wanted: Wanted, settings: Settings, name: str | None = None, tag: str = "",
          show: Show = SILENT) -> Run:
    """Run the command under a profiler, and explain what it recorded. Raises AacoError.

    name: of the profiler; None for the first that is installed for a device of this machine. The session keeps what the
    profiler wrote (profiler/rocprof_raw), without credentials, and how each execution went (profiler/executions.json).
    What fails leaves a session that says so, with all that was recorded until then.
    """
    launcher = LAUNCHERS[name] if name else first_installed(command.argv, show)
    refuse(launcher, wanted)
    _there(launcher, command.argv[0])
    shares, shown = share(launcher, wanted, command.argv, show), arguments.shown(command.argv)
    for one in shares:
        one.passes(command, Path())  # refuses what the tool cannot do before anything is written
    plan = {"model": redact(command.name), "imports": [], "traced": shown.words}
    session = Session.create(settings.config.storage.sessions_dir, plan, redact(tag), __version__)
    with outcome(session):
        folder = (session.folder / layout.ROCPROF_RAW).resolve()
        made = [(one, each) for one in shares for each in one.passes(command, folder)]
        failure: AacoError | None = None
        try:
            _execute(session, made, command, shown, folder, show)
        except AacoError as error:
            failure = error  # what was recorded until then is read all the same
        finally:
            closed = [folder / each.folder / name for _, each in made for name in each.closed]
            notes = withholding.withhold(folder, closed, shown)
        notes += [f"not all was recorded: {failure.what}"] if failure else []
        run = _read(session, made, folder, plan, settings, failure, notes, show)
        if failure:
            raise failure
        return run


def _read(session: Session, made: Sequence[tuple[Share, Pass]], folder: Path, plan: dict[str, Any], settings: Settings,
          failure: AacoError | None, notes: list[str], show: Show) -> Run:
    """The session of what the executions left. Raises AacoError; the failure, where nothing can be read after it."""
    try:
        chosen = _captures(made, folder, notes)
        session.amend(plan=plan | {"imports": [str(found.path) for found in chosen.captures]})
        importing.fill(session, importing.Reading(chosen, show), show)
        show.step("explaining")
        return Run(session, seal(session, settings, "failed" if failure else "complete", show))
    except AacoError as error:
        raise failure or error from error


def first_installed(command: Sequence[str], show: Show = SILENT, host: Host | None = None) -> Launcher:
    """The first profiler that is here and observes a device of this machine, and this command; of any device where none
    is found.

    Raises Missing.
    """
    gpus = [gpu for look in (machine.amd_gpus, machine.nvidia_gpus) for gpu in known(look, host or Host()) or ()]
    fitting = [one for one in LAUNCHERS.values() if one.TAKES != "model"
               and (one.VENDOR in {gpu.vendor for gpu in gpus} if gpus else one.TAKES == "command")]
    launcher = next((one for one in fitting if _is_here(one, command)), None)
    if launcher is None:
        names = _or([one.NAME for one in fitting])
        raise Missing(f"no profiler is installed, or none is on the PATH; looked for {names}", fitting[0].INSTALL)
    device = next((f"{gpu.vendor} {gpu.name or 'GPU'}" for gpu in gpus if gpu.vendor == launcher.VENDOR), None)
    show.step(f"profiler: {launcher.NAME}, the first installed for {device}" if device else
              f"profiler: {launcher.NAME}, the first installed; no GPU was found on this machine")
    return launcher


def share(launcher: Launcher, wanted: Wanted, command: Sequence[str], show: Show = SILENT) -> list[Share]:
    """What is wanted, split over the profilers that it takes, the one that traces first. Raises Missing.

    Counters distort times. Where a profiler counts but does not trace, the first installed that traces its devices runs
    too; where it traces but does not count, one that counts.
    """
    counter = launcher if "counters" in launcher.DOES else _alike(launcher, "counters")[0] if wanted.counters else None
    timing = replace(wanted, counters=(), kernels=None)
    if "trace" in launcher.DOES:
        if counter in (launcher, None):
            return [Share(launcher, find(launcher, wanted, command), wanted)]
        shares = [Share(launcher, find(launcher, timing, command), timing)]
    else:
        shares = [found for one in _alike(launcher, "trace") if (found := _able(one, timing, command))][:1]
        if not shares:
            show.step(NO_TRACE)
    assert counter is not None
    return [*shares, _counting(counter, wanted)]


def _able(launcher: Launcher, wanted: Wanted, command: Sequence[str]) -> Share | None:
    """The profiler if it is here, and observes this command."""
    if launcher.TAKES == "python" and _python(command) is None:
        return None
    try:
        return Share(launcher, find(launcher, wanted, command), wanted)
    except Missing:
        return None


def _counting(counter: Launcher, wanted: Wanted) -> Share:
    """The share of a profiler that counts only: what is asked for, else what a roofline takes and the chip has."""
    chosen = replace(wanted, counters=wanted.counters or ROOFLINE)
    tool = find(counter, chosen)
    return Share(counter, tool, chosen if wanted.counters else replace(chosen, counters=ncu.had(tool, ROOFLINE)))


def _alike(launcher: Launcher, kind: Kind) -> list[Launcher]:
    """Profilers of the same devices that do this, and take a program or a model as it does."""
    return [one for one in LAUNCHERS.values() if kind in one.DOES and one.VENDOR == launcher.VENDOR
            and (one.TAKES == "model") == (launcher.TAKES == "model")]


def _is_here(launcher: Launcher, command: Sequence[str]) -> bool:
    """Whether it is on the PATH, or the command's Python has it."""
    if launcher.TAKES == "python":
        return _able(launcher, Wanted(), command) is not None
    return shutil.which(launcher.NAME) is not None


def find(launcher: Launcher, wanted: Wanted, command: Sequence[str] = ()) -> Tool:
    """The installed profiler, asked for its version and options, and for its counters where some are wanted.

    Raises Missing.
    """
    path = _python(command) or sys.executable if launcher.TAKES == "python" else shutil.which(launcher.NAME)
    if path is None:
        raise Missing(f"{launcher.NAME} is not installed, or not on the PATH", launcher.INSTALL)
    answers = dict[str, str]()
    for question, words in launcher.QUESTIONS.items():
        if not question.startswith(COUNTERS) or wanted.counters or wanted.pc_sampling:
            with suppress(Absent):  # what it does not answer, the launcher does without
                # rocprof prints its help and its lists and ends with 1.
                answers[question] = ask([path, *words], ANSWER_TIMEOUT_S, MOST_ANSWER, any_code=question != "version")
    return launcher.tool(path, answers)


def _python(command: Sequence[str]) -> str | None:
    """The Python that runs the command, by its name or its first line; None where neither says it."""
    found = Path(shutil.which(command[0]) or "") if command else Path()
    if PYTHON.fullmatch(found.name) or not found.is_file():
        return str(found) if found.name else None
    with files.storage(found), found.open("rb") as file:
        words = file.readline(1000).decode(errors="replace").removeprefix("#!").split()
    return next((path for word in words if PYTHON.fullmatch(Path(word).name) and (path := shutil.which(word))), None)


def refuse(launcher: Launcher, wanted: Wanted) -> None:
    """Raise Missing for what neither the profiler nor another of its devices records, with one that does.

    Raises UsageError for options of what is not asked for.
    """
    for given, is_asked, option in ((wanted.att, wanted.thread_trace, "--att"),
                                    (wanted.sampling, wanted.pc_sampling, "--pc-sampling")):
        if given and not is_asked:
            raise UsageError(f"{option}-with without {option}", f"add {option}")
    if wanted.hsa and (launcher.VENDOR, launcher.TAKES) != ("AMD", "command"):
        raise Missing(f"{launcher.NAME} records no calls of HSA (--hsa)", f"--tool {rocprofv3.NAME}")
    asked: dict[Kind, tuple[bool, str]] = {
        "counters": (bool(wanted.counters), "counters (--pmc)"),
        "thread_trace": (wanted.thread_trace, "thread traces (--att)"),
        "pc_sampling": (wanted.pc_sampling, "samples of program counters (--pc-sampling)")}
    for kind, (is_asked, words) in asked.items():
        if is_asked and kind not in launcher.DOES and not (kind == "counters" and _alike(launcher, kind)):
            able = [one.NAME for one in LAUNCHERS.values() if kind in one.DOES]
            raise Missing(f"{launcher.NAME} records no {words}", f"--tool {_or(able)}")


def _there(launcher: Launcher, word: str) -> None:
    """Raise Missing where what stands behind the profiler's options is not there."""
    if launcher.TAKES != "model":
        program.find(word)
    elif not Path(word).is_file():
        raise Missing(f"{word}: no such file; {launcher.NAME} takes a model", "check the path of the model")


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _execute(session: Session, made: Sequence[tuple[Share, Pass]], command: Command, shown: arguments.Shown,
             folder: Path, show: Show) -> None:
    """Every execution, one after the other; how each went is kept before the next begins. Raises AacoError."""
    tools = {one.launcher.NAME: {"path": one.tool.path, "version": one.tool.version} for one, _ in made}
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tools": tools, "executions": []}
    for number, (one, each) in enumerate(made, 1):
        what = f" of {len(each.counters)} counters" if len(each.counters) > MANY else \
            f" of {', '.join(each.counters)}" if each.counters else ""
        show.step(f"{_named(each)}{what} by {one.launcher.NAME}: execution {number} of {len(made)} of {command.name}")
        with files.storage(folder):
            (folder / each.folder).mkdir(parents=True, exist_ok=True)
        for name, text in each.inputs.items():
            files.write_atomically(folder / each.folder / name, partial(_write, text.encode()))
        own = len(each.argv) - len(command.argv)
        account: dict[str, Any] = {
            "kind": each.kind, "tool": one.launcher.NAME, "folder": each.folder,
            "argv": [*each.argv[:own], *shown.words], "counters": list(each.counters), "code": None, "wall_ns": None,
            "said": ""}
        document["executions"].append(account)
        session.write_json(layout.EXECUTIONS, document)
        try:
            _run(one.launcher, each, command, shown, folder / each.folder, account)
        finally:
            session.write_json(layout.EXECUTIONS, document)
        show.progress(number, len(made))


def _run(launcher: Launcher, one: Pass, command: Command, shown: arguments.Shown, folder: Path,
         account: dict[str, Any]) -> None:
    """One execution, and what makes its files readable; into the account goes how each went. Raises AacoError."""
    what = f"{_named(one)}: {command.name} under {launcher.NAME}"
    ran = program.run(one.argv, command.timeout_s, environment=one.environment,
                      keep_bytes=MOST_PRINTED if one.prints else program.KEEP_BYTES)
    account |= {"code": ran.code, "wall_ns": ran.wall_ns,
                "said": shown.hide((ran.stderr or ran.stdout * (not one.prints))[-2000:]).decode(errors="replace")}
    if one.prints:
        with files.storage(folder), (folder / one.prints).open("ab") as file:
            file.write(ran.stdout)
    told = ran.stdout + ran.stderr + (jsonstream.head(folder / one.tells, MOST_TOLD) if one.tells else b"")
    for words, (meaning, fix) in launcher.REFUSALS.items():
        if words.encode() in told:
            account["refused"] = words
            if command.ignore_failure:
                return
            raise Missing(f"{what}: {meaning} ({words})", fix)
    failure = AacoError(f"{what} {_ended(ran, shown)}",
                        "run it without the profiler first; --ignore-failure goes on all the same"
                        ) if ran.code and not command.ignore_failure else None
    for step in one.after:  # after a failure, too: it may have recorded much until then
        made = program.run(step, command.timeout_s)
        account.setdefault("after", []).append({"argv": list(step), "code": made.code})
        if made.code:
            failure = failure or AacoError(
                f"{what}: {launcher.NAME} {step[1]} {_ended(made, shown)}",
                f"run {launcher.NAME} by hand: what it recorded is not kept, as nothing secret can be withheld from it")
    if failure:
        raise failure


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _named(one: Pass) -> str:
    return one.kind.replace("_", " ")


def _ended(ran: program.Ran, shown: arguments.Shown) -> str:
    last = shown.hide(ran.last_words.encode()).decode(errors="replace")
    return f"{program.ending(ran.code)}{': ' + last if last else ''}"


def _captures(made: Sequence[tuple[Share, Pass]], folder: Path, notes: list[str]) -> Chosen:
    """What the executions left: captures of their own, and those of which only the counters are taken.

    Raises BadCapture where they left none.
    """
    own, counted, left = dict[Path, Found](), list[tuple[Found, ...]](), list[importing.Left]()
    traces = any(one.kind == "trace" for _, one in made)
    for share, one in made:
        if one.kind != "trace" and not (folder / one.folder).is_dir():
            continue  # never begun: a note says why
        try:
            found = importing.discover(_files(folder / one.folder, one))
        except BadCapture as error:
            if one.kind == "trace" or not traces:
                raise BadCapture(f"{share.launcher.NAME} recorded nothing: {error.what}",
                                 "does the program use the GPU? profiler/executions.json has what it said") from error
            left.append(importing.Left(folder / one.folder, f"{_named(one)}: {error.what}"))
            continue
        left += found.left
        if one.kind == "counters" and traces:
            counted.append(found.captures)
        else:
            own |= {each.path: each for each in found.captures}
    notes = [*notes, *([] if traces else [NO_TRACE])]
    notes += [ncu.REPLAYED] if any(share.launcher is ncu for share, _ in made) else []
    return Chosen(tuple(own.values()), tuple(left), (folder,), tuple(counted), tuple(notes))


def _files(folder: Path, one: Pass) -> list[Path]:
    """The file to read of an execution, or its folder."""
    return next(([folder / name] for name in one.reads if (folder / name).is_file()), [folder])

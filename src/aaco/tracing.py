"""A command under a vendor's profiler becomes a session: executed as often as it takes, and read like an import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from aaco import __version__, discovery, importing, profilers, watching, withholding
from aaco.collectors import arguments
from aaco.core import clocks, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, BadCapture, Missing
from aaco.core.plan import Command
from aaco.core.secrets import redact
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.discovery import Chosen, Found, Left
from aaco.pipeline import Run, outcome, seal
from aaco.profiler import jsonstream
from aaco.profiler.launchers import Launcher, Pass, Wanted, ncu
from aaco.profilers import NO_TRACE, Share
from aaco.report import format
from aaco.runner import command as program
from aaco.tracelake import layout

SCHEMA_VERSION = 2
MOST_PRINTED = 64 << 20  # bytes of a profiler whose output is what it records
MOST_TOLD = 1 << 20


def trace(command: Command, wanted: Wanted, settings: Settings, name: str | None = None, tag: str = "",
          show: Show = SILENT, telemetry: bool = False) -> Run:
    """Run the command under a profiler, and explain what it recorded. Raises AacoError.

    name: of the profiler; None for the first that is installed for a device of this machine. The session keeps what the
    profiler wrote (profiler/rocprof_raw), without credentials, and how each execution went (profiler/executions.json).
    telemetry: record devices and operating system beside the execution that tells the times; times that are on none of
    this host's clocks leave that in the session's raw files only.
    What fails leaves a session that says so, with all that was recorded until then.
    """
    launcher = profilers.LAUNCHERS[name] if name else profilers.first_installed(command.argv, show)
    profilers.refuse(launcher, wanted)
    profilers.there(launcher, command.argv[0])
    shares, shown = profilers.share(launcher, wanted, command.argv, show), arguments.shown(command.argv)
    for one in shares:
        # Refuses what the tool cannot do before anything is written.
        one.passes(command, settings.config.storage.sessions_dir.resolve())
    plan = {"model": redact(command.name), "imports": [], "traced": shown.words, "telemetry": telemetry}
    session = Session.create(settings.config.storage.sessions_dir, plan, redact(tag), __version__)
    with outcome(session):
        session.amend(clocks=asdict(clocks.snapshot()))
        folder = (session.folder / layout.ROCPROF_RAW).resolve()
        made = [(one, each) for one in shares for each in one.passes(command, folder)]
        failure: AacoError | None = None
        accounts: list[dict[str, Any]] = []
        try:
            _execute(session, made, command, shown, folder, accounts, show)
        except AacoError as error:
            failure = error  # what was recorded until then is read all the same
        finally:
            closed = [folder / each.folder / name for _, each in made for name in each.closed]
            notes = withholding.withhold(folder, closed, shown)
        notes += [f"not all was recorded: {failure.what}"] if failure else []
        notes += watching.said(one["telemetry"] for one in accounts)
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


def _execute(session: Session, made: Sequence[tuple[Share, Pass]], command: Command, shown: arguments.Shown,
             folder: Path, accounts: list[dict[str, Any]], show: Show) -> None:
    """Every execution, one after the other; how each went is kept, and in `accounts`, before the next begins.

    Raises AacoError.
    """
    tools = {one.launcher.NAME: {"path": one.tool.path, "version": one.tool.version} for one, _ in made}
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tools": tools, "executions": accounts}
    for number, (one, each) in enumerate(made, 1):
        what = f" of {format.counters(each.counters)}" if each.counters else ""
        show.step(f"{_named(each)}{what} by {one.launcher.NAME}: execution {number} of {len(made)} of {command.name}")
        with files.storage(folder):
            (folder / each.folder).mkdir(parents=True, exist_ok=True)
        for name, text in each.inputs.items():
            files.write_atomically(folder / each.folder / name, partial(_write, text.encode()))
        own = len(each.argv) - len(command.argv)
        account: dict[str, Any] = {
            "kind": each.kind, "tool": one.launcher.NAME, "folder": each.folder,
            "argv": [*each.argv[:own], *shown.words], "counters": list(each.counters), "code": None, "wall_ns": None,
            "said": "", "telemetry": None}
        accounts.append(account)
        session.write_json(layout.EXECUTIONS, document)
        tier = session.record.planned.watched_by if each.kind == "trace" else None
        with watching.devices(session, tier):
            try:
                with watching.system(session, tier, show=show) as watch:
                    _run(one.launcher, each, command, shown, folder / each.folder, account, watch.begin)
            finally:
                account["telemetry"] = watch.told
                session.write_json(layout.EXECUTIONS, document)
        show.progress(number, len(made))


def _run(launcher: Launcher, one: Pass, command: Command, shown: arguments.Shown, folder: Path,
         account: dict[str, Any], started: Callable[[int], None]) -> None:
    """One execution, and what makes its files readable; into the account goes how each went. Raises AacoError."""
    what = f"{_named(one)}: {command.name} under {launcher.NAME}"
    ran = program.run(one.argv, command.timeout_s, started, one.environment,
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
    own, counted, left = dict[Path, Found](), list[tuple[Found, ...]](), list[Left]()
    traces = any(one.kind == "trace" for _, one in made)
    for share, one in made:
        if one.kind != "trace" and not (folder / one.folder).is_dir():
            continue  # never begun: a note says why
        try:
            found = discovery.discover(_files(folder / one.folder, one))
        except BadCapture as error:
            if one.kind == "trace" or not traces:
                raise BadCapture(f"{share.launcher.NAME} recorded nothing: {error.what}",
                                 "does the program use the GPU? profiler/executions.json has what it said") from error
            left.append(Left(folder / one.folder, f"{_named(one)}: {error.what}"))
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

"""A command under a vendor's profiler becomes a session: executed as often as it takes, and read like an import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from aaco import __version__
from aaco.core import clocks, files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, BadCapture, Missing
from aaco.core.plan import Command
from aaco.core.records import as_dict
from aaco.core.redaction.command_line import RedactedCommand, redact_command
from aaco.core.session import TRACED_BY, Session
from aaco.core.show import SILENT, Show
from aaco.pipeline import Run
from aaco.profiler.io import jsonstream
from aaco.profiler.launchers import Launcher, ProfilerPass, Wanted, ncu
from aaco.report import format
from aaco.runner import command as program
from aaco.steps import find_captures, import_captures
from aaco.steps.counted_executions import NO_TRACE
from aaco.steps.device import choose_profiler, redact_captures
from aaco.steps.device import telemetry as watching
from aaco.steps.device.choose_profiler import ProfilerShare
from aaco.steps.find_captures import CaptureFiles, CaptureSelection, SkippedFile
from aaco.steps.notes import of_telemetry
from aaco.steps.read_captures import CaptureReading
from aaco.steps.seal import outcome, seal
from aaco.tracelake import layout

SCHEMA_VERSION = 2
MOST_PRINTED = 64 << 20  # bytes of a profiler whose output is what it records
MOST_TOLD = 1 << 20


def trace(command: Command, wanted: Wanted, settings: Settings, name: str | None = None, tag: str = "",
          show: Show = SILENT, telemetry: bool = False) -> Run:
    """Run the command under a profiler, and explain what it recorded. Raises AacoError.

    name: of the profiler; None for the first that is installed for a device of this machine. The session keeps what the
    profiler wrote (profiler/rocprof_raw), without credentials, and how each execution went (profiler/executions.json).
    telemetry: record devices and operating system during the execution that gives the times; times that are on none of
    this host's clocks leave that in the session's raw files only.
    What fails leaves a session that says so, with all that was recorded until then.
    """
    launcher = choose_profiler.LAUNCHERS[name] if name else choose_profiler.first_installed(command.argv, show)
    choose_profiler.refuse(launcher, wanted)
    choose_profiler.there(launcher, command.argv[0])
    shares, shown = choose_profiler.share(launcher, wanted, command.argv, show), redact_command(command.argv)
    for share in shares:
        # Refuses what the tool cannot do before anything is written.
        share.passes(command, settings.config.storage.sessions_dir.resolve())
    plan = {"model": command.name, "imports": [], "traced": shown.words, "telemetry": telemetry}
    session = Session.create(settings.config.storage.sessions_dir, plan, tag, __version__)
    with outcome(session):
        session.amend(clocks=as_dict(clocks.snapshot()))
        folder = (session.folder / layout.ROCPROF_RAW).resolve()
        made = [(share, execution) for share in shares for execution in share.passes(command, folder)]
        failure: AacoError | None = None
        accounts: list[dict[str, Any]] = []
        try:
            _execute(session, made, command, shown, folder, accounts, show)
        except AacoError as error:
            failure = error  # what was recorded until then is read all the same
        finally:
            closed = [folder / execution.folder / name for _, execution in made for name in execution.closed]
            notes = redact_captures.redact_folder(folder, closed, shown)
        notes += [f"not all was recorded: {failure.what}"] if failure else []
        notes += of_telemetry(account["telemetry"] for account in accounts)
        run = _read(session, made, folder, plan, settings, failure, notes, show)
        if failure:
            raise failure
        return run


def _read(session: Session, made: Sequence[tuple[ProfilerShare, ProfilerPass]], folder: Path, plan: dict[str, Any],
          settings: Settings,
          failure: AacoError | None, notes: list[str], show: Show) -> Run:
    """The session of what the executions left. Raises AacoError; the failure, where nothing can be read after it."""
    try:
        captures = _captures(made, folder, notes)
        session.amend(plan=plan | {"imports": [str(capture.path) for capture in captures.captures]})
        import_captures.fill(session, CaptureReading(captures, show), show)
        show.step("explaining")
        return Run(session, seal(session, settings, "failed" if failure else "complete", show))
    except AacoError as error:
        raise failure or error from error


def _execute(session: Session, made: Sequence[tuple[ProfilerShare, ProfilerPass]], command: Command,
             shown: RedactedCommand,
             folder: Path, accounts: list[dict[str, Any]], show: Show) -> None:
    """Every execution, one after the other; how each went is kept, and in `accounts`, before the next begins.

    Raises AacoError.
    """
    tools = {share.launcher.NAME: {"path": share.tool.path, "version": share.tool.version} for share, _ in made}
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tools": tools, "executions": accounts}
    for number, (share, execution) in enumerate(made, 1):
        what = f" of {format.counters(execution.counters)}" if execution.counters else ""
        show.step(f"{_named(execution)}{what} by {share.launcher.NAME}: execution {number} of {len(made)} of "
                  f"{command.name}")
        with files.storage(folder):
            (folder / execution.folder).mkdir(parents=True, exist_ok=True)
        for name, text in execution.inputs.items():
            files.write_atomically(folder / execution.folder / name, partial(_write, text.encode()))
        tool_words = len(execution.argv) - len(command.argv)
        account: dict[str, Any] = {
            "kind": execution.kind, "tool": share.launcher.NAME, "folder": execution.folder,
            "argv": [*execution.argv[:tool_words], *shown.words], "counters": list(execution.counters),
            "code": None, "wall_ns": None, "said": "", "telemetry": None}
        if execution.kind == "trace":
            execution = replace(execution, environment={**execution.environment, TRACED_BY: session.id})
        accounts.append(account)
        session.write_json(layout.EXECUTIONS, document)
        tier = session.record.planned.watched_by if execution.kind == "trace" else None
        with watching.devices(session, tier):
            try:
                with watching.system(session, tier, show=show) as watch:
                    _run(share.launcher, execution, command, shown, folder / execution.folder, account, watch.begin,
                         show.output_fd if execution.kind == "trace" else None)
            finally:
                account["telemetry"] = watch.told
                session.write_json(layout.EXECUTIONS, document)
        show.progress(number, len(made))


def _run(launcher: Launcher, execution: ProfilerPass, command: Command, shown: RedactedCommand, folder: Path,
         account: dict[str, Any], started: Callable[[int], None], copy_fd: int | None) -> None:
    """Execute once and make its files readable; note in the account how each went. Raise AacoError."""
    what = f"{_named(execution)}: {command.name} under {launcher.NAME}"
    ran = program.run(execution.argv, command.timeout_s, started, execution.environment,
                      keep_bytes=MOST_PRINTED if execution.prints else program.KEEP_BYTES,
                      copy_fd=None if execution.prints else copy_fd)
    last_output = shown.redact_output((ran.stderr or ran.stdout * (not execution.prints))[-2000:])
    account |= {"code": ran.code, "wall_ns": ran.wall_ns, "said": last_output.decode(errors="replace")}
    if execution.prints:
        with files.storage(folder), (folder / execution.prints).open("ab") as file:
            file.write(ran.stdout)
    own_file = jsonstream.head(folder / execution.tells, MOST_TOLD) if execution.tells else b""
    printed = ran.stdout + ran.stderr + own_file
    for words, (meaning, fix) in launcher.REFUSALS.items():
        if words.encode() in printed:
            account["refused"] = words
            if command.ignore_failure:
                return
            raise Missing(f"{what}: {meaning} ({words})", fix)
    failure = AacoError(f"{what} {_ended(ran, shown)}",
                        "run it without the profiler first; --ignore-failure goes on all the same"
                        ) if ran.code and not command.ignore_failure else None
    for step in execution.after:  # after a failure, too: it may have recorded much until then
        made = program.run(step, command.timeout_s)
        account.setdefault("after", []).append({"argv": list(step), "code": made.code})
        if made.code:
            failure = failure or AacoError(
                f"{what}: {launcher.NAME} {step[1]} {_ended(made, shown)}",
                f"run {launcher.NAME} by hand: its recording cannot be redacted and is not kept")
    if failure:
        raise failure


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)


def _named(execution: ProfilerPass) -> str:
    return execution.kind.replace("_", " ")


def _ended(ran: program.Ran, shown: RedactedCommand) -> str:
    last = shown.redact_output(ran.last_words.encode()).decode(errors="replace")
    return f"{program.ending(ran.code)}{': ' + last if last else ''}"


def _captures(made: Sequence[tuple[ProfilerShare, ProfilerPass]], folder: Path, notes: list[str]) -> CaptureSelection:
    """What the executions left: captures of their own, and those of which only the counters are taken.

    Raises BadCapture where they left none.
    """
    by_path, counted, left = dict[Path, CaptureFiles](), list[tuple[CaptureFiles, ...]](), list[SkippedFile]()
    traces = any(execution.kind == "trace" for _, execution in made)
    for share, execution in made:
        if execution.kind != "trace" and not (folder / execution.folder).is_dir():
            continue  # never begun: a note says why
        try:
            discovered = find_captures.discover(_files(folder / execution.folder, execution))
        except BadCapture as error:
            if execution.kind == "trace" or not traces:
                raise BadCapture(f"{share.launcher.NAME} recorded nothing: {error.what}",
                                 "does the program use the GPU? profiler/executions.json has its output") from error
            left.append(SkippedFile(folder / execution.folder, f"{_named(execution)}: {error.what}"))
            continue
        left += discovered.left
        if execution.kind == "counters" and traces:
            counted.append(discovered.captures)
        else:
            by_path |= {capture.path: capture for capture in discovered.captures}
    notes = [*notes, *([] if traces else [NO_TRACE])]
    notes += [ncu.REPLAYED] if any(share.launcher is ncu for share, _ in made) else []
    return CaptureSelection(tuple(by_path.values()), tuple(left), (folder,), tuple(counted),
                            notes=tuple(notes))


def _files(folder: Path, execution: ProfilerPass) -> list[Path]:
    """The file to read of an execution, or its folder."""
    return next(([folder / name] for name in execution.reads if (folder / name).is_file()), [folder])

"""A command under a vendor's profiler becomes a session: executed as often as it takes, and read like an import."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from aaco import __version__, importing
from aaco.collectors import arguments, environment, machine
from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import AacoError, BadCapture, Missing, StorageError
from aaco.core.host import Host, ask, known
from aaco.core.plan import Command
from aaco.core.readings import Absent
from aaco.core.secrets import redact
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.importing import Chosen, Found
from aaco.pipeline import Run, outcome, seal
from aaco.profiler import ranks, sqlite
from aaco.profiler.launchers import COUNTERS, Kind, Launcher, Pass, Tool, Wanted, cupti, nsys, rocprofv3
from aaco.runner import command as program
from aaco.tracelake import layout, raw

SCHEMA_VERSION = 1
# In the order in which one is looked for where none is named.
LAUNCHERS: dict[str, Launcher] = {rocprofv3.NAME: rocprofv3, nsys.NAME: nsys, cupti.NAME: cupti}
ANSWER_TIMEOUT_S = 20.0  # listing counters loads the ROCm runtime
MOST_ANSWER = 64 << 20  # bytes: an architecture has thousands of counters
SECRET_TABLE = "rocpd_info_process"
PYTHON = re.compile(r"(python|pypy)[\d.]*")


def trace(command: Command, wanted: Wanted, settings: Settings, name: str | None = None, tag: str = "",
          show: Show = SILENT) -> Run:
    """Run the command under a profiler, and explain what it recorded. Raises AacoError.

    name: of the profiler; None for the first that is installed for a device of this machine. The session keeps what the
    profiler wrote (profiler/rocprof_raw), without credentials, and how each execution went (profiler/executions.json).
    What fails leaves a session that says so, with all that was recorded until then.
    """
    launcher = LAUNCHERS[name] if name else first_installed(show)
    _there(launcher, command.argv[0])
    tool, shown = find(launcher, wanted, command.argv), arguments.shown(command.argv)
    refuse(launcher, wanted)
    launcher.passes(tool, wanted, command.argv, Path())  # refuses what the tool cannot do before anything is written
    plan = {"model": redact(command.name), "imports": [], "traced": shown.words}
    session = Session.create(settings.config.storage.sessions_dir, plan, redact(tag), __version__)
    with outcome(session):
        folder = (session.folder / layout.ROCPROF_RAW).resolve()
        made = launcher.passes(tool, wanted, command.argv, folder)
        try:
            _execute(session, tool, made, command, shown, folder, show)
        finally:
            _withhold(folder)
        chosen = _captures(made, folder, tool)
        session.amend(plan=plan | {"imports": [str(found.path) for found in chosen.captures]})
        reading = importing.Reading(chosen, show)
        importing.fill(session, reading, show)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete", show))


def first_installed(show: Show = SILENT, host: Host | None = None) -> Launcher:
    """The first profiler on the PATH that observes a device of this machine; of any device where none is found.

    Raises Missing.
    """
    gpus = [gpu for look in (machine.amd_gpus, machine.nvidia_gpus) for gpu in known(look, host or Host()) or ()]
    fitting = [one for one in LAUNCHERS.values() if "trace" in one.DOES and one.TAKES == "command"
               and (not gpus or one.VENDOR in {gpu.vendor for gpu in gpus})]
    for launcher in fitting:
        if shutil.which(launcher.NAME):
            device = next((f"{gpu.vendor} {gpu.name or 'GPU'}" for gpu in gpus if gpu.vendor == launcher.VENDOR), None)
            show.step(f"profiler: {launcher.NAME}, the first installed for {device}" if device else
                      f"profiler: {launcher.NAME}, the first installed; no GPU was found on this machine")
            return launcher
    raise Missing(f"no profiler is installed, or none is on the PATH; looked for {_or([one.NAME for one in fitting])}",
                  f"{fitting[0].INSTALL}")


def find(launcher: Launcher, wanted: Wanted, command: Sequence[str] = ()) -> Tool:
    """The installed profiler, asked for its version and options, and for its counters where some are wanted.

    Raises Missing.
    """
    path = python_of(command) if launcher.TAKES == "python" else shutil.which(launcher.NAME)
    if path is None:
        raise Missing(f"{launcher.NAME} is not installed, or not on the PATH", launcher.INSTALL)
    answers = dict[str, str]()
    for question, words in launcher.QUESTIONS.items():
        if question != COUNTERS or wanted.counters:
            with suppress(Absent):  # what it does not answer, the launcher does without
                answers[question] = ask([path, *words], ANSWER_TIMEOUT_S, MOST_ANSWER)
    return launcher.tool(path, answers)


def python_of(command: Sequence[str]) -> str:
    """The Python that runs the command, by its name or its first line; where neither says it, this one stands for it.
    """
    found = Path(shutil.which(command[0]) or sys.executable) if command else Path(sys.executable)
    if PYTHON.fullmatch(found.name):
        return str(found)
    with files.storage(found), found.open("rb") as file:
        words = file.readline(1000).decode(errors="replace").removeprefix("#!").split()
    named = next((shutil.which(word) for word in words if PYTHON.fullmatch(Path(word).name)), None)
    return named or sys.executable


def refuse(launcher: Launcher, wanted: Wanted) -> None:
    """Raise Missing for a kind of execution that the profiler has none of, with the name of one that has."""
    asked: dict[Kind, tuple[bool, str]] = {
        "counters": (bool(wanted.counters), "counters (--pmc)"),
        "thread_trace": (wanted.thread_trace, "thread traces (--att)"),
        "pc_sampling": (wanted.pc_sampling, "samples of program counters (--pc-sampling)")}
    for kind, (is_asked, words) in asked.items():
        if is_asked and kind not in launcher.DOES:
            able = [one.NAME for one in LAUNCHERS.values() if kind in one.DOES]
            raise Missing(f"{launcher.NAME} records no {words}", f"--tool {_or(able)}")


def _there(launcher: Launcher, word: str) -> None:
    """Raise Missing where what stands behind the profiler's options is not there."""
    if launcher.TAKES != "model":
        program.find(word)
    elif not Path(word).is_file():
        raise Missing(f"{word}: no such file; {launcher.NAME} takes a model", "check the path of the model")


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"


def _execute(session: Session, tool: Tool, made: Sequence[Pass], command: Command, shown: arguments.Shown,
             folder: Path, show: Show) -> None:
    """Every execution, one after the other; how each went is kept before the next begins. Raises AacoError."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tool": {"path": tool.path, "version": tool.version},
                                "executions": []}
    for number, one in enumerate(made, 1):
        what = f" of {', '.join(one.counters)}" if one.counters else ""
        show.step(f"{one.kind.replace('_', ' ')}{what}: execution {number} of {len(made)} of {command.name}")
        with files.storage(folder):
            (folder / one.folder).mkdir(parents=True)
        own = len(one.argv) - len(command.argv)
        account: dict[str, Any] = {"kind": one.kind, "folder": one.folder, "argv": [*one.argv[:own], *shown.words],
                                   "counters": list(one.counters), "code": None, "wall_ns": None, "said": ""}
        document["executions"].append(account)
        session.write_json(layout.EXECUTIONS, document)
        try:
            _run(one, tool, command, shown, account)
        finally:
            session.write_json(layout.EXECUTIONS, document)
        show.progress(number, len(made))


def _run(one: Pass, tool: Tool, command: Command, shown: arguments.Shown, account: dict[str, Any]) -> None:
    """One execution, and what makes its files readable; into the account goes how each went. Raises AacoError."""
    what = f"{one.kind.replace('_', ' ')}: {command.name} under {Path(tool.path).name}"
    ran = program.run(one.argv, command.timeout_s, environment=one.environment)
    account |= {"code": ran.code, "wall_ns": ran.wall_ns,
                "said": shown.hide(ran.stderr[-2000:]).decode(errors="replace")}
    if ran.code and not command.ignore_failure:
        raise AacoError(f"{what} {_ended(ran, shown)}",
                        "run it without the profiler first; --ignore-failure reads what was recorded all the same")
    for step in one.after:
        made = program.run(step, command.timeout_s)
        account.setdefault("after", []).append({"argv": list(step), "code": made.code})
        if made.code:
            raise AacoError(f"{what}: {' '.join(map(str, step[:2]))} {_ended(made, shown)}",
                            f"what was recorded is in {layout.ROCPROF_RAW}/{one.folder}")


def _ended(ran: program.Ran, shown: arguments.Shown) -> str:
    last = shown.hide(ran.last_words.encode()).decode(errors="replace")
    return f"{program.ending(ran.code)}{': ' + last if last else ''}"


def _captures(made: Sequence[Pass], folder: Path, tool: Tool) -> Chosen:
    """What the executions left: captures of their own, and those of which only the counters are taken.

    Raises BadCapture where the trace left none.
    """
    own, counted, left = list[Found](), list[tuple[Found, ...]](), []
    for one in made:
        try:
            found = importing.discover([folder / one.folder])
        except BadCapture as error:
            if one.kind == "trace":
                raise BadCapture(f"{Path(tool.path).name} recorded nothing: {error.what}",
                                 "does the program use the GPU? profiler/executions.json has what it said") from error
            left.append(importing.Left(folder / one.folder, f"{one.kind.replace('_', ' ')}: {error.what}"))
            continue
        left += found.left
        if one.kind == "counters":
            counted.append(found.captures)
        else:
            own += found.captures
    return Chosen(tuple(own), tuple(left), (folder,), tuple(counted))


def _withhold(folder: Path) -> None:
    """Take the credentials out of what the profiler wrote: it keeps the environment and the command line."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            database = file.read(len(sqlite.MAGIC)) == sqlite.MAGIC
        if database:
            _withhold_rows(path)
        elif raw.is_text(path):
            raw.keep(path, path)


def _command(text: str) -> str:
    return " ".join(arguments.shown(text.split()).words)


def _environment(text: str) -> str:
    """The variables that a bundle may hold, and those that tell a rank."""
    try:
        found = json.loads(text)
    except ValueError:
        return "{}"
    there = {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
    told = {key: value for key, value in there.items() if key in (*ranks.RANK, *ranks.WORLD)}
    return json.dumps(environment.variables(there) | {key: redact(value) for key, value in told.items()})


SECRET_COLUMNS = {"command": _command, "environment": _environment}


def _withhold_rows(path: Path) -> None:
    """rocpd's tables of processes hold the whole environment; VACUUM so that no free page does either."""
    try:
        with closing(sqlite3.connect(path)) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                     if name.startswith(SECRET_TABLE)]
            for name in names:
                quoted = '"' + name.replace('"', '""') + '"'
                there = {row[1] for row in database.execute(f"PRAGMA table_info({quoted})")}
                for column, cleaned in SECRET_COLUMNS.items():
                    if column in there:
                        rows = database.execute(f"SELECT {column}, rowid FROM {quoted}").fetchall()
                        database.executemany(f"UPDATE {quoted} SET {column} = ? WHERE rowid = ?",
                                             [(cleaned(str(text or "")), key) for text, key in rows])
            database.commit()
            if names:
                database.execute("VACUUM")
    except sqlite3.Error as error:
        raise StorageError(f"{path}: its credentials could not be withheld: {error}",
                           "the file may be cut short: record it again; do not hand the session on") from error

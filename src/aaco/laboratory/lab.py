"""A laboratory: the knobs of a level turned, each with its request, state and reason, and all of it restored.

Knobs of the host go through the journal. The launcher turns the knobs of a process, in the process that becomes the
command, so they need no restoring.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from aaco.core.host import Host
from aaco.core.readings import Absent, or_why
from aaco.laboratory import journal, levels
from aaco.laboratory.bursts import Bursts
from aaco.laboratory.journal import Journal, Undone
from aaco.laboratory.knobs import KNOBS, cgroup, knob
from aaco.laboratory.knobs.knob import Knob, NotHere, Want
from aaco.laboratory.levels import Level
from aaco.laboratory.watchdog import Watchdog
from aaco.tracelake.document_schemas.evidence import KnobDrift

# Knobs of the host that mean nothing without a command in them.
GROUPED = {kind.name for kind in KNOBS.values() if kind.__module__ == cgroup.__name__}
FOR_COMMANDS = "is turned for a command: aaco lab run, or --lab"


class KnobResult(Struct, frozen=True):
    """The result of one knob. held: None if this machine has nothing that it could turn."""

    knob: str
    held: bool | None
    asked: dict[str, str] = field(default_factory=dict)  # by target
    before: dict[str, str] = field(default_factory=dict)
    why_not: str = ""  # and, where it holds, what a reader should know


class Lab(Struct):
    """A laboratory that is set up. `host_outcomes` and `process_outcomes` have the results."""

    level: Level
    want: Want
    host: Host
    journal: Journal
    report: int  # descriptor of what launchers say
    host_outcomes: list[KnobResult] = field(default_factory=list)
    of_commands: tuple[str, ...] = ()  # knobs of the host that only `aaco lab run` turns

    @property
    def knobs(self) -> list[Knob]:
        """Return the level's knobs, in the order of turning."""
        return [knob(name, self.host) for name in levels.knobs(self.level, self.want)]

    def set_up(self) -> None:
        """Turn the knobs of the host."""
        self.host_outcomes = [self._turn_knob(setting) for setting in self.knobs if setting.scope == "host"]

    def _turn_knob(self, setting: Knob) -> KnobResult:
        if setting.name in self.of_commands:
            return KnobResult(setting.name, None, why_not=FOR_COMMANDS)
        try:
            asked = setting.wishes(self.want)
        except Absent as reason:
            return refused(setting.name, reason)
        before, excused = dict[str, str](), list[str]()
        for target, value in asked.items():
            try:
                before[target] = self._set_target(setting, target, value)
            except Absent as reason:
                if not setting.excused(reason):
                    return KnobResult(setting.name, False, asked, before, str(reason))
                excused.append(str(reason))
        notes = [f"{len(excused)} of {len(asked)} managed by the driver stay: {excused[0]}"] if excused else []
        return KnobResult(setting.name, True, asked, before, "; ".join(filter(None, (*notes, setting.note()))))

    def _set_target(self, setting: Knob, target: str, value: str) -> str:
        """Turn one target and return its earlier value. Settings that vanish with our group need no journal.

        Raise Absent.
        """
        if not setting.vanishes:
            return self.journal.change(setting.name, setting, target, value).old
        return turn(setting, target, value)

    @property
    def launcher(self) -> list[str]:
        """Return the words before a command that run it under the process's knobs; the launcher becomes the command."""
        return self.launch(None)

    def launch(self, parent: int | None) -> list[str]:
        """Return the words of `launcher`. parent: the command dies with this process."""
        settings = [[setting.name, target, value] for setting in self._process_knobs() for target, value in
                    self._wishes(setting)[0].items()]
        job = {"settings": settings, "report": f"/proc/{os.getpid()}/fd/{self.report}", "parent": parent}
        return [sys.executable, "-P", "-m", "aaco.laboratory.launch", json.dumps(job)]

    @property
    def process_outcomes(self) -> list[KnobResult]:
        """Return the first launcher's report; before one ran, only the knobs that could not be requested."""
        content = b"" if self.of_commands else os.pread(self.report, 1 << 20, 0)
        reported: dict[str, Any] = json.loads((content.decode() or "{}").partition("\n")[0])
        outcomes = []
        for setting in self._process_knobs():
            asked, why_not = self._wishes(setting)
            if self.of_commands:
                outcomes.append(KnobResult(setting.name, None, why_not=FOR_COMMANDS))
            elif why_not:
                outcomes.append(why_not)
            elif setting.name in reported:
                outcomes.append(KnobResult(setting.name, asked=asked, **reported[setting.name]))
        return outcomes

    @property
    def outcomes(self) -> list[KnobResult]:
        """Return the result of every knob, in the order of the level."""
        by_name = {outcome.knob: outcome for outcome in (*self.host_outcomes, *self.process_outcomes)}
        return [by_name[setting.name] for setting in self.knobs if setting.name in by_name]

    @property
    def achieved(self) -> Level:
        """Return the level achieved: the highest with all its essential knobs in force."""
        return levels.achieved(self.level, {outcome.knob: outcome.held for outcome in self.outcomes})

    @property
    def in_bursts(self) -> bool:
        """Return whether the group is to run in bursts of real time."""
        return bool(self._group_folders()) and "real_time" in levels.knobs(self.level, self.want)

    @contextmanager
    def bursts(self) -> Iterator[None]:
        """Run the group in bursts of real time during the block, if the level has that."""
        if not self.in_bursts:
            yield
            return
        with Bursts(self._group_folders()[:1], self.want.cpus):
            yield

    def _group_folders(self) -> list[Path]:
        """Return the group's folders; none if there is no group."""
        return [Path(folder) for outcome in self.host_outcomes if outcome.knob == "group" and outcome.held
                for folder in outcome.asked]

    def _process_knobs(self) -> list[Knob]:
        """Return the knobs of the process. The group is joined first: it may limit the others."""
        settings = [setting for setting in self.knobs if setting.scope == "process"]
        return sorted(settings, key=lambda setting: setting.name != "membership")

    def _wishes(self, setting: Knob) -> tuple[dict[str, str], KnobResult | None]:
        """Return the values requested of a knob of the process, or its result if it is decided already."""
        if setting.name in ("membership", "real_time") and not self._group_folders():
            return {}, KnobResult(setting.name, False, why_not="there is no control group to hold the command together")
        try:
            return setting.wishes(self.want), None
        except Absent as reason:
            return {}, refused(setting.name, reason)


def refused(name: str, reason: Absent) -> KnobResult:
    """Return the result of a knob that was not turned."""
    return KnobResult(name, None if isinstance(reason, NotHere) else False, why_not=str(reason))


def turn(setting: Knob, target: str, value: str) -> str:
    """Set and read back, without a journal; return the earlier value. Raise Absent."""
    before = setting.read(target)
    if before != value:
        setting.write(target, value)
        now = setting.read(target)
        if now != value:
            raise Absent(f"{target}: asked for {value}, it is {now}")
    return before


@contextmanager
def quiet(level: Level, want: Want, folder: Path, host: Host | None = None) -> Iterator[Lab]:
    """Yield a laboratory for the length of the block. However the block or this process ends, the machine is restored.

    folder: where journals are kept. Raise StorageError.
    """
    host = host or Host()
    with _guard(folder, level, host) as kept, _open_report() as report:
        lab = Lab(level, replace(want, group=f"aaco-{kept.path.stem}"), host, kept, report)
        lab.set_up()
        with lab.bursts():
            yield lab


def enter(level: Level, want: Want, folder: Path, host: Host | None = None) -> Lab:
    """Return a laboratory that stays until its journal is undone: the knobs of the host without a control group of
    ours.

    Killed before its end, it leaves nothing changed. Raise StorageError.
    """
    host = host or Host()
    with _guard(folder, level, host) as kept, _open_report() as report:
        lab = Lab(level, want, host, kept, report, of_commands=tuple(GROUPED))
        lab.set_up()
        kept.enter()
    return lab


@contextmanager
def _guard(folder: Path, level: Level, host: Host) -> Iterator[Journal]:
    """Yield a new journal under a watchdog; undo it at the end, unless it was entered."""
    path = journal.place(folder)
    with Watchdog(path):
        kept = Journal.create(path, {"root": str(host.root), "level": level})
        try:
            yield kept
        finally:
            kept.close()
            if not journal.read(kept.path).entered:
                undo(kept.path, host)


@contextmanager
def _open_report() -> Iterator[int]:
    """Yield a file in memory for the launchers' reports: it cannot outlive the process."""
    report = os.memfd_create("aaco-lab")
    try:
        yield report
    finally:
        os.close(report)


def undo(path: Path, host: Host | None = None) -> list[Undone]:
    """Restore the values in a journal. Raise BadBundle, StorageError."""
    return journal.undo(path, lambda name: knob(name, host))


def drift(outcomes: Iterable[KnobResult], host: Host | None = None) -> list[KnobDrift]:
    """Return the deviations among the knobs of the host that held: another process has changed them."""
    lasting = [outcome for outcome in outcomes if outcome.held and outcome.knob in KNOBS
               and KNOBS[outcome.knob].scope == "host" and not KNOBS[outcome.knob].vanishes]
    held = [(outcome.knob, target, value) for outcome in lasting for target, value in outcome.asked.items()
            if target in outcome.before]  # not one that was excused
    states = [KnobDrift(knob=name, target=target, asked=asked, now=_read_now(knob(name, host), target))
              for name, target, asked in held]
    return [state for state in states if state.asked != state.now]


def _read_now(setting: Knob, target: str) -> str:
    reading, why_absent = or_why(lambda: setting.read(target))
    return why_absent if reading is None else reading

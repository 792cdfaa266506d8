"""A laboratory: the knobs of a level turned, each with what was asked, what holds and why not, and all of it put back.

Knobs of the host go through the journal. Knobs of a process are turned by the launcher, in the process that becomes the
command, so that nothing of ours needs putting back.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory import journal, levels
from aaco.laboratory.bursts import Bursts
from aaco.laboratory.journal import Journal, Undone
from aaco.laboratory.knobs import KNOBS, cgroup, knob
from aaco.laboratory.knobs.knob import Knob, NotHere, Want
from aaco.laboratory.levels import Level
from aaco.laboratory.watchdog import Watchdog

# Knobs of the host that mean nothing without a command in them.
GROUPED = {each.name for each in KNOBS.values() if each.__module__ == cgroup.__name__}
FOR_COMMANDS = "is turned for a command: aaco lab run, or --lab"


@dataclass(frozen=True)
class Outcome:
    """What became of one knob. held: None where there is nothing on this machine that it could turn."""

    knob: str
    held: bool | None
    asked: dict[str, str] = field(default_factory=dict)  # by target
    before: dict[str, str] = field(default_factory=dict)
    why_not: str = ""  # and, where it holds, what a reader should know


@dataclass
class Lab:
    """A laboratory that is set up. `host_outcomes` and `process_outcomes` say what holds."""

    level: Level
    want: Want
    host: Host
    journal: Journal
    report: int  # descriptor of what launchers say
    host_outcomes: list[Outcome] = field(default_factory=list)
    of_commands: tuple[str, ...] = ()  # knobs of the host that only `aaco lab run` turns

    @property
    def knobs(self) -> list[Knob]:
        """The level's knobs, in the order of turning."""
        return [knob(name, self.host) for name in levels.knobs(self.level, self.want)]

    def set_up(self) -> None:
        """Turn the knobs of the host."""
        self.host_outcomes = [self._turn(each) for each in self.knobs if each.scope == "host"]

    def _turn(self, each: Knob) -> Outcome:
        if each.name in self.of_commands:
            return Outcome(each.name, None, why_not=FOR_COMMANDS)
        try:
            asked = each.wishes(self.want)
        except Absent as reason:
            return refused(each.name, reason)
        before, excused = dict[str, str](), list[str]()
        for target, value in asked.items():
            try:
                before[target] = self._set(each, target, value)
            except Absent as reason:
                if not each.excused(reason):
                    return Outcome(each.name, False, asked, before, str(reason))
                excused.append(str(reason))
        notes = [f"{len(excused)} of {len(asked)} managed by the driver stay: {excused[0]}"] if excused else []
        return Outcome(each.name, True, asked, before, "; ".join(filter(None, (*notes, each.note()))))

    def _set(self, each: Knob, target: str, value: str) -> str:
        """Turn one target; what it held before. What vanishes with our group needs no journal. Raises Absent."""
        if not each.vanishes:
            return self.journal.change(each.name, each, target, value).old
        return turn(each, target, value)

    @property
    def launcher(self) -> list[str]:
        """What to put before a command so that it runs under the process's knobs; it becomes the command."""
        return self.launch(None)

    def launch(self, parent: int | None) -> list[str]:
        """The same; parent: a process that the command dies with."""
        settings = [[each.name, target, value] for each in self._process_knobs() for target, value in
                    self._wishes(each)[0].items()]
        job = {"settings": settings, "report": f"/proc/{os.getpid()}/fd/{self.report}", "parent": parent}
        return [sys.executable, "-P", "-m", "aaco.laboratory.launch", json.dumps(job)]

    @property
    def process_outcomes(self) -> list[Outcome]:
        """What the first launcher said; before one ran, only what could not even be asked for."""
        said: dict[str, Any] = json.loads((self._said() or "{}").partition("\n")[0])
        outcomes = []
        for each in self._process_knobs():
            asked, why_not = self._wishes(each)
            if self.of_commands:
                outcomes.append(Outcome(each.name, None, why_not=FOR_COMMANDS))
            elif why_not:
                outcomes.append(why_not)
            elif each.name in said:
                outcomes.append(Outcome(each.name, asked=asked, **said[each.name]))
        return outcomes

    @property
    def outcomes(self) -> list[Outcome]:
        """Of every knob, in the order of the level."""
        found = {each.knob: each for each in (*self.host_outcomes, *self.process_outcomes)}
        return [found[each.name] for each in self.knobs if each.name in found]

    @property
    def achieved(self) -> Level:
        """The honest level: the highest whose essential knobs all hold."""
        return levels.achieved(self.level, {each.knob: each.held for each in self.outcomes})

    @property
    def in_bursts(self) -> bool:
        """Whether what is in the group is to run in bursts of real time."""
        return bool(self._group()) and "real_time" in levels.knobs(self.level, self.want)

    @contextmanager
    def bursts(self) -> Iterator[None]:
        """While the block lasts, what is in the group runs in bursts of real time, where the level has that."""
        if not self.in_bursts:
            yield
            return
        with Bursts(self._group()[:1], self.want.cpus):
            yield

    def _group(self) -> list[Path]:
        """The group's folders; none where there is no group."""
        return [Path(folder) for each in self.host_outcomes if each.knob == "group" and each.held
                for folder in each.asked]

    def _process_knobs(self) -> list[Knob]:
        """The group is joined first: it may narrow what the others may ask for."""
        own = [each for each in self.knobs if each.scope == "process"]
        return sorted(own, key=lambda each: each.name != "membership")

    def _wishes(self, each: Knob) -> tuple[dict[str, str], Outcome | None]:
        """What is asked of a knob of the process, or what became of it already."""
        if each.name in ("membership", "real_time") and not self._group():
            return {}, Outcome(each.name, False, why_not="there is no control group to hold the command together")
        try:
            return each.wishes(self.want), None
        except Absent as reason:
            return {}, refused(each.name, reason)

    def _said(self) -> str:
        return "" if self.of_commands else os.pread(self.report, 1 << 20, 0).decode()


def refused(name: str, reason: Absent) -> Outcome:
    """The outcome of a knob that was not turned."""
    return Outcome(name, None if isinstance(reason, NotHere) else False, why_not=str(reason))


def turn(each: Knob, target: str, value: str) -> str:
    """Set and read back, without a journal; what it held before. Raises Absent."""
    before = each.read(target)
    if before != value:
        each.write(target, value)
        found = each.read(target)
        if found != value:
            raise Absent(f"{target}: asked for {value}, it is {found}")
    return before


@dataclass(frozen=True)
class Drift:
    """A target of a knob that was asked to be one thing and is another now."""

    knob: str
    target: str
    asked: str
    now: str


@contextmanager
def quiet(level: Level, want: Want, folder: Path, host: Host | None = None) -> Iterator[Lab]:
    """A laboratory for the length of the block. Whatever ends the block or this process, the machine is put back.

    folder: where journals are kept. Raises StorageError.
    """
    host = host or Host()
    with _guarded(folder, level, host) as kept, _report() as report:
        lab = Lab(level, replace(want, group=f"aaco-{kept.path.stem}"), host, kept, report)
        lab.set_up()
        with lab.bursts():
            yield lab


def enter(level: Level, want: Want, folder: Path, host: Host | None = None) -> Lab:
    """A laboratory that stays until its journal is undone: the knobs of the host without a control group of ours.

    Killed before its end, it leaves nothing behind. Raises StorageError.
    """
    host = host or Host()
    with _guarded(folder, level, host) as kept, _report() as report:
        lab = Lab(level, want, host, kept, report, of_commands=tuple(GROUPED))
        lab.set_up()
        kept.enter()
    return lab


@contextmanager
def _guarded(folder: Path, level: Level, host: Host) -> Iterator[Journal]:
    """A new journal under a watchdog; undone at the end, unless it was entered."""
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
def _report() -> Iterator[int]:
    """A file in memory for what launchers say: it cannot be left behind."""
    report = os.memfd_create("aaco-lab")
    try:
        yield report
    finally:
        os.close(report)


def undo(path: Path, host: Host | None = None) -> list[Undone]:
    """Put back what a journal says. Raises BadBundle, StorageError."""
    return journal.undo(path, lambda name: knob(name, host))


def drift(outcomes: Iterable[Outcome], host: Host | None = None) -> list[Drift]:
    """What no longer is as it was asked, of the knobs of the host that held: somebody else has changed it."""
    lasting = [each for each in outcomes if each.held and each.knob in KNOBS and KNOBS[each.knob].scope == "host"
               and not KNOBS[each.knob].vanishes]
    held = [(each.knob, target, value) for each in lasting for target, value in each.asked.items()
            if target in each.before]  # not one that was excused
    now = [(*asked, _now(knob(asked[0], host), asked[1])) for asked in held]
    return [Drift(*each) for each in now if each[2] != each[3]]


def _now(each: Knob, target: str) -> str:
    try:
        return each.read(target)
    except Absent as reason:
        return str(reason)

"""The journal: every change of the machine is on disk before it is made, so that any later process can undo it.

One file per laboratory, a JSON line each: first the owner, then a record before every change. A record is written and
fsynced, then the change is made. Undoing goes backwards and touches only settings that still hold our value, so it may
be interrupted, repeated, or done by another process. The kernel's settings do not outlive a boot, and none of our knobs
keeps its value in a file or device that does: a journal of an earlier boot has nothing to undo.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from aaco.core import files
from aaco.core.errors import BadBundle
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.session import Owner

SUFFIX = ".journal"
ENTERED = {"entered": True}
Fate = Literal["restored", "untouched", "foreign", "gone", "refused"]


class Setting(Protocol):
    """The interface of a knob to the journal. Values are text in one canonical spelling."""

    def read(self, target: str) -> str:
        """Return the value now. Raise Absent."""
        ...

    def write(self, target: str, value: str) -> None:
        """Set the value. Raise Absent with the reason if that is refused."""
        ...


class KnobChange(Struct, frozen=True):
    """One change: a knob's target held `old` and is to hold `new`."""

    knob: str
    target: str
    old: str
    new: str


class Undone(Struct, frozen=True):
    """The result of undoing one change.

    untouched: it holds the old value (never changed, or undone before). foreign: another process has changed it since.
    gone: the target is not there any more. refused: it holds our value and cannot be set back, for the reason given.
    """

    change: KnobChange
    fate: Fate
    detail: str = ""


class JournalAccount(Struct, frozen=True):
    """A journal as read: its owner, and the changes in the order they were begun."""

    path: Path
    owner: Owner
    about: dict[str, Any]
    entered: bool
    changes: tuple[KnobChange, ...]

    @property
    def lab(self) -> str:
        """Return the laboratory's name."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def of_this_boot(self) -> bool:
        """Return whether the kernel that was changed still runs."""
        return self.owner.boot_id == Owner.current().boot_id

    @property
    def abandoned(self) -> bool:
        """Return whether no process will undo it any more: neither its owner, nor the `aaco lab exit` that an entered
        one awaits.
        """
        return not self.of_this_boot or not (self.entered or self.owner.alive)


class Journal:
    """The journal of a laboratory that is being set up; opened by its owner only."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @classmethod
    def create(cls, path: Path, about: dict[str, Any]) -> Journal:
        """Return a new journal at `path`, owned by this process. Raise StorageError."""
        with files.storage(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        head = _encode_line({"schema_version": 1, "owner": Owner.current().model_dump(), **about})
        files.write_atomically(path, lambda file: file.write(head))
        with files.storage(path):
            _sync_folder(path.parent)
            return cls(path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def change(self, name: str, knob: Setting, target: str, new: str) -> KnobChange:
        """Write the record, set, read back. Raise Absent with the reason if the setting does not hold afterwards.

        A value that reads back differently is set back at once.
        """
        change = KnobChange(name, target, knob.read(target), new)
        if change.old == new:
            return change
        self._append(as_dict(change))
        knob.write(target, new)
        now = knob.read(target)
        if now != new:
            knob.write(target, change.old)
            raise Absent(f"{target}: asked for {new}, the kernel made it {now}; set back to {change.old}")
        return change

    def enter(self) -> None:
        """Keep the changes from now on until they are undone on request, whether this process lives or not."""
        self._append(ENTERED)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _append(self, record: dict[str, Any]) -> None:
        with files.storage(self.path):
            os.write(self._descriptor, _encode_line(record))
            os.fsync(self._descriptor)


def place(folder: Path) -> Path:
    """Return the path that a new journal of this process would have; nothing is made."""
    owner = Owner.current()
    return folder / f"{owner.pid}-{owner.start_ticks}-{os.urandom(2).hex()}{SUFFIX}"


def read(path: Path) -> JournalAccount:
    """Return the journal at `path`. A last record that was cut short is skipped: its change was never begun.

    Raise BadBundle, StorageError.
    """
    with files.storage(path):
        *lines, _ = path.read_bytes().split(b"\n")
    try:
        head, *records = (json.loads(line) for line in lines)
        owner = Owner.model_validate(head.pop("owner"))
        changes = tuple(KnobChange(**record) for record in records if record != ENTERED)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadBundle(f"{path}: not a journal: {error}", "look at the values in it, set them back, remove it") \
            from error
    return JournalAccount(path, owner, head, ENTERED in records, changes)


def accounts(folder: Path) -> Iterator[JournalAccount]:
    """Yield every journal in the folder, oldest first; one that is undone in the meantime is skipped.

    Raise BadBundle.
    """
    paths = folder.glob(f"*{SUFFIX}") if folder.is_dir() else ()
    for path in sorted(paths, key=lambda path: path.name):
        if path.exists():
            yield read(path)


def undo(path: Path, knob: Callable[[str], Setting]) -> list[Undone]:
    """Undo a journal's changes, newest first, and remove it unless something was refused.

    knob: finds a knob by its name; raises Absent for one that this version does not know. A journal that is gone is
    undone. Raise BadBundle, StorageError.
    """
    with _locked(path) as there:
        if not there:
            return []
        account = read(path)
        undone = [_undo_change(change, knob) for change in reversed(account.changes)] if account.of_this_boot else []
        if all(outcome.fate != "refused" for outcome in undone):
            with files.storage(path):
                path.unlink()
                _sync_folder(path.parent)
        return undone


def _undo_change(change: KnobChange, knob: Callable[[str], Setting]) -> Undone:
    try:
        setting = knob(change.knob)
    except Absent as reason:
        return Undone(change, "refused", str(reason))
    try:
        now = setting.read(change.target)
    except Absent as reason:
        return Undone(change, "gone", str(reason))
    if now == change.old:
        return Undone(change, "untouched")
    if now != change.new:
        return Undone(change, "foreign", now)
    return _set_back(change, setting)


def _set_back(change: KnobChange, setting: Setting) -> Undone:
    try:
        setting.write(change.target, change.old)
        now = setting.read(change.target)
    except Absent as reason:
        return Undone(change, "refused", str(reason))
    return Undone(change, "restored") if now == change.old else Undone(change, "refused", f"it stays {now}")


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the journal's lock (flock(2)): two processes that undo at once take turns.

    Yield whether the journal is still there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield path.exists()
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a new or removed name in the folder last (fsync(2)); some file systems do not support it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode_line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"

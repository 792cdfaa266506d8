"""The journal against an oracle in memory, with a crash at every write; and its file, cut and foreign."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aaco.core.errors import BadBundle
from aaco.core.readings import Absent
from aaco.core.session import Owner
from aaco.laboratory import journal
from aaco.laboratory.journal import Journal

TARGETS = ("governor", "turbo", "irq")
OURS = st.sampled_from(("a", "b", "c"))


class Crash(BaseException):
    """The process ends here."""


class Fuse:
    """Burns at a given step; None: never."""

    def __init__(self) -> None:
        self.left: int | None = None

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Crash


class FakeKnob:
    """A knob over a dictionary; the process may end before or after each write."""

    def __init__(self, machine: dict[str, str], fuse: Fuse) -> None:
        self.machine, self.fuse = machine, fuse

    def read(self, target: str) -> str:
        if target not in self.machine:
            raise Absent("gone")
        return self.machine[target]

    def write(self, target: str, value: str) -> None:
        self.fuse.step()
        self.machine[target] = value
        self.fuse.step()


class CrashingOs:
    """os, whose write may end the process before, amid and after a record, and whose fsync and unlink likewise."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes) -> int:
        self.fuse.step()
        try:
            self.fuse.step()
        except Crash:
            os.write(descriptor, data[:len(data) // 2])
            raise
        written = os.write(descriptor, data)
        self.fuse.step()
        return written

    def fsync(self, descriptor: int) -> None:
        self.fuse.step()
        os.fsync(descriptor)


class Machine(RuleBasedStateMachine):
    """Somebody's values, a laboratory's, and crashes; in the end everything is as somebody had it last.

    Mutations caught: a record written after the change (`_append` moved behind `knob.write`); undoing oldest first;
    undoing what holds another value; a truncated last record that is an error; a journal removed before it is undone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.fuse = Fuse()
        self.machine = dict.fromkeys(TARGETS, "found")
        self.theirs = dict(self.machine)
        self.knob = FakeKnob(self.machine, self.fuse)
        self.foreign = 0
        self.patch = patch.object(journal, "os", CrashingOs(self.fuse))
        self.patch.start()
        self.kept: Journal | None = None
        self.path: Path | None = None

    @initialize()
    def begin(self) -> None:
        self.kept = Journal.create(journal.place(self.folder), {})
        self.path = self.kept.path

    @precondition(lambda self: self.kept is not None)
    @rule(which=st.sampled_from(TARGETS), value=OURS, crash=st.none() | st.integers(0, 6))
    def change(self, which: str, value: str, crash: int | None) -> None:
        self.fuse.left = crash
        try:
            self.kept.change("knob", self.knob, which, value)
        except Crash:
            self.die()
        self.fuse.left = None

    @rule()
    def die(self) -> None:
        if self.kept is not None:
            self.kept.close()
            self.kept = None

    @rule(which=st.sampled_from(TARGETS))
    def somebody_else(self, which: str) -> None:
        self.foreign += 1
        self.machine[which] = self.theirs[which] = f"foreign {self.foreign}"

    @precondition(lambda self: self.kept is None and self.path is not None)
    @rule(crash=st.integers(0, 8))
    def interrupted_undo(self, crash: int) -> None:
        self.fuse.left = crash
        with suppress(Crash):
            journal.undo(self.path, lambda name: self.knob)
        self.fuse.left = None

    @precondition(lambda self: self.kept is None and self.path is not None)
    @rule()
    def undo(self) -> None:
        fates = [each.fate for each in journal.undo(self.path, lambda name: self.knob)]
        assert "refused" not in fates
        assert self.machine == self.theirs
        assert not self.path.exists()
        assert journal.undo(self.path, lambda name: self.knob) == []

    @invariant()
    def nothing_but_ours_or_theirs(self) -> None:
        assert all(self.machine[target] in ("a", "b", "c", self.theirs[target]) for target in TARGETS)

    def teardown(self) -> None:
        self.fuse.left = None
        self.die()
        if self.path is not None:
            journal.undo(self.path, lambda name: self.knob)
            assert self.machine == self.theirs
        self.patch.stop()
        shutil.rmtree(self.folder)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


@pytest.fixture
def machine() -> dict[str, str]:
    return dict.fromkeys(TARGETS, "found")


@pytest.fixture
def knob(machine: dict[str, str]) -> FakeKnob:
    return FakeKnob(machine, Fuse())


def test_a_record_names_everything_before_the_change(tmp_path: Path, knob: FakeKnob) -> None:
    seen: list[dict[str, object]] = []

    class Looking(FakeKnob):
        def write(self, target: str, value: str) -> None:
            seen.extend(map(json.loads, kept.path.read_bytes().splitlines()))
            super().write(target, value)

    kept = Journal.create(journal.place(tmp_path), {"level": "strict"})
    kept.change("governor", Looking(knob.machine, Fuse()), "turbo", "a")
    head, record = seen
    assert head["owner"] == Owner.current().model_dump()
    assert record == {"knob": "governor", "target": "turbo", "old": "found", "new": "a"}


def test_what_is_so_already_is_not_noted(tmp_path: Path, knob: FakeKnob) -> None:
    kept = Journal.create(journal.place(tmp_path), {})
    kept.change("knob", knob, "turbo", "found")
    assert journal.read(kept.path).changes == ()


def test_a_value_that_does_not_read_back_is_set_back(tmp_path: Path, machine: dict[str, str]) -> None:
    """Mutation: without the reading, a clamped value counts as set."""
    class Clamping(FakeKnob):
        def write(self, target: str, value: str) -> None:
            self.machine[target] = "clamped" if value == "a" else value

    kept = Journal.create(journal.place(tmp_path), {})
    with pytest.raises(Absent, match="asked for a, the kernel made it clamped; set back to found"):
        kept.change("knob", Clamping(machine, Fuse()), "turbo", "a")
    assert machine["turbo"] == "found"


def test_every_length_of_the_file_undoes_what_was_begun(tmp_path: Path, machine: dict[str, str],
                                                         knob: FakeKnob) -> None:
    """Cut anywhere behind the head: the complete records count, the last one cut short does not."""
    kept = Journal.create(journal.place(tmp_path), {})
    head = len(kept.path.read_bytes())
    for target in TARGETS:
        kept.change("knob", knob, target, "a")
    whole = kept.path.read_bytes()
    for length in range(head, len(whole) + 1):
        kept.path.write_bytes(whole[:length])
        assert len(journal.read(kept.path).changes) == whole[head:length].count(b"\n")


def test_an_earlier_boot_has_nothing_to_undo(tmp_path: Path, machine: dict[str, str], knob: FakeKnob) -> None:
    """The kernel forgot the change when it ended; a value that happens to be ours is somebody's now.

    Mutation: without the look at the boot id, it is set back.
    """
    kept = Journal.create(journal.place(tmp_path), {})
    kept.change("knob", knob, "turbo", "a")
    boot = Owner.current().boot_id
    kept.path.write_text(kept.path.read_text().replace(boot, "another"))
    assert journal.read(kept.path).abandoned
    assert journal.undo(kept.path, lambda name: knob) == []
    assert machine["turbo"] == "a"
    assert not kept.path.exists()


def test_what_refuses_keeps_the_journal_for_later(tmp_path: Path, machine: dict[str, str], knob: FakeKnob) -> None:
    kept = Journal.create(journal.place(tmp_path), {})
    kept.change("knob", knob, "turbo", "a")
    kept.change("knob", knob, "irq", "b")

    class Refusing(FakeKnob):
        def write(self, target: str, value: str) -> None:
            if target == "turbo":
                raise Absent("not permitted")
            super().write(target, value)

    first = journal.undo(kept.path, lambda name: Refusing(machine, Fuse()))
    assert [(each.change.target, each.fate) for each in first] == [("irq", "restored"), ("turbo", "refused")]
    assert [each.fate for each in journal.undo(kept.path, lambda name: knob)] == ["untouched", "restored"]
    assert machine == dict.fromkeys(TARGETS, "found")


def test_what_is_gone_needs_no_undoing(tmp_path: Path, machine: dict[str, str], knob: FakeKnob) -> None:
    kept = Journal.create(journal.place(tmp_path), {})
    kept.change("knob", knob, "turbo", "a")
    del machine["turbo"]
    assert [each.fate for each in journal.undo(kept.path, lambda name: knob)] == ["gone"]
    assert not kept.path.exists()


def test_a_living_owner_and_an_entered_laboratory_are_not_abandoned(tmp_path: Path) -> None:
    kept = Journal.create(journal.place(tmp_path), {})
    assert not journal.read(kept.path).abandoned
    owner = Owner.current()
    kept.path.write_text(kept.path.read_text().replace(f'"start_ticks": {owner.start_ticks}', '"start_ticks": 1'))
    assert journal.read(kept.path).abandoned
    kept.enter()
    assert not journal.read(kept.path).abandoned


@pytest.mark.parametrize("content", ["", "{}\n", "[]\n", "not json\n", '{"owner": 1}\n'])
def test_a_file_that_is_no_journal_is_said_to_be_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.journal"
    path.write_text(content)
    with pytest.raises(BadBundle, match="not a journal"):
        journal.read(path)

"""Declared findings: their order follows from what they read and write, and the driver writes only what is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from aaco.core import finding as declarations
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding, in_order
from aaco.core.session import Session
from aaco.core.tables import KERNEL_GROUPS, KERNEL_NAMES, KERNELS, OPERATORS
from aaco.steps import make_findings
from aaco.tracelake import layout, store


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "FINDINGS", {})
    monkeypatch.setattr(make_findings, "FINDINGS", declarations.FINDINGS)
    monkeypatch.setattr(make_findings, "declared", in_order)


def declare(name: str, *yielded, **declaration) -> None:
    """A finding of that name that yields what is given."""

    def find(session: Session, settings: Analysis) -> Results:
        """What a test plants."""
        yield from yielded

    find.__name__ = name
    finding(**declaration)(find)


def session_with(tmp_path: Path, *specs) -> Session:
    session = Session.create(tmp_path / "sessions", {"imports": []}, "", "0")
    session.write_json(layout.CAPTURES, {"schema_version": 1, "captures": [], "kernels_ran_on": ""})
    for spec in specs:
        store.write(session, spec, spec.build())
    return session


def test_readers_of_a_table_come_after_its_writers_and_the_named_ones_before() -> None:
    """Mutation: only what is named counts."""
    declare("last", reads=(OPERATORS,), after=("middle",))
    declare("middle")
    declare("costs", reads=(OPERATORS,), writes=(OPERATORS,), after=("first",))
    declare("first", writes=(OPERATORS,))
    declare("any", reads=(OPERATORS,))
    names = [found.name for found in in_order()]
    assert sorted(names) == ["any", "costs", "first", "last", "middle"]
    assert names.index("costs") < names.index("any")
    assert names.index("first") < names.index("costs") < names.index("last") > names.index("middle")


def test_a_circle_and_a_name_that_nobody_declares_are_refused() -> None:
    declare("one", after=("two",))
    declare("two", after=("one",))
    with pytest.raises(TypeError, match=r"in a circle: .*one.*two"):
        in_order()
    del declarations.FINDINGS["one"]
    with pytest.raises(TypeError, match="no finding is named 'one'"):
        in_order()


def test_a_finding_has_one_declaration_and_a_meaning() -> None:
    declare("one")
    with pytest.raises(TypeError, match="'one' is declared twice"):
        declare("one")
    with pytest.raises(TypeError, match="say in a docstring"):
        finding()(lambda session, settings: iter(()))


def test_what_is_read_decides_whether_it_is_asked(tmp_path: Path) -> None:
    """Mutation: asked all the same."""
    declare("of_kernels", ("of_kernels", {"schema_version": 1}), reads=(KERNELS,))
    declare("of_operators", ("of_operators", {"schema_version": 1}), reads=(KERNELS, OPERATORS))
    session = session_with(tmp_path, KERNELS)
    make_findings.make(session, Analysis(), {"kernels"})
    assert session.read_json(layout.finding("of_kernels")) == {"schema_version": 1}
    assert not (session.folder / layout.finding("of_operators")).exists()


def test_what_an_earlier_analysis_found_does_not_stay_but_evidence_does(tmp_path: Path) -> None:
    """Mutation: nothing is removed."""
    declare("groups", writes=(KERNEL_GROUPS, KERNEL_NAMES, "groups"))
    session = session_with(tmp_path, KERNELS, KERNEL_GROUPS, KERNEL_NAMES)
    session.write_json(layout.finding("groups"), {"schema_version": 1})
    assert make_findings.make(session, Analysis(), {"kernels", "kernel_groups"}) == set()
    assert store.holds(session, KERNEL_GROUPS) and not store.holds(session, KERNEL_NAMES)
    assert not (session.folder / layout.finding("groups")).exists()


def test_only_what_is_declared_may_be_written(tmp_path: Path) -> None:
    declare("names", (KERNEL_NAMES, KERNEL_NAMES.build()), writes=("names",))
    with pytest.raises(TypeError, match="does not declare"):
        make_findings.make(session_with(tmp_path, KERNELS), Analysis(), ())


def test_tables_are_written_whole_or_in_pieces_and_are_told(tmp_path: Path) -> None:
    declare("names", (KERNEL_NAMES, KERNEL_NAMES.build()), (KERNEL_GROUPS, iter([KERNEL_GROUPS.build()])),
            writes=(KERNEL_NAMES, KERNEL_GROUPS))
    session = session_with(tmp_path, KERNELS)
    assert make_findings.make(session, Analysis(), {"kernels"}) == {"kernel_names", "kernel_groups"}
    assert store.holds(session, KERNEL_NAMES) and store.holds(session, KERNEL_GROUPS)


def test_why_what_a_finding_would_write_is_not_there_follows_from_its_declaration(tmp_path: Path) -> None:
    session = session_with(tmp_path, KERNELS)
    declare("without", reads=(KERNELS, OPERATORS), writes=("without", KERNEL_GROUPS))
    declare("nothing", reads=(KERNELS,))
    declare("made", ("made", {"rows": 1}))
    make_findings.make(session, Analysis(), ())
    why = f"made from {OPERATORS.file}, which this session does not have"
    assert make_findings.why_absent(session) == {
        layout.finding("without"): why, KERNEL_GROUPS.file: why, layout.finding("nothing"): make_findings.NOTHING_OF_IT}
    (session.folder / layout.CAPTURES).unlink()
    assert set(make_findings.why_absent(session).values()) == {make_findings.NO_DEVICE_WORK}

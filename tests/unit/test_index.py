"""The index of sessions sees what came, went and changed, and reads nothing twice."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.session import Session, sessions
from aaco.tracelake import index
from aaco.tracelake.index import Choice, Entry, Index


def _made(root: Path, tag: str = "", model: str = "m") -> Session:
    made = Session.create(root, {"model": model, "backend": "cpu"}, tag, "0")
    made.finish("complete")
    return made


def _ids(found: Index) -> list[str]:
    return [each.session_id for each in found.entries()]


def test_an_index_of_nothing_is_empty(tmp_path: Path) -> None:
    assert Index(tmp_path / "nowhere").entries() == []


def test_sessions_are_seen_as_they_come_change_and_go(tmp_path: Path) -> None:
    found = Index(tmp_path)
    first, second = _made(tmp_path), _made(tmp_path)
    (tmp_path / "audit.jsonl").write_text("")
    assert _ids(found) == [each.id for each in sessions(tmp_path)]
    assert sorted(_ids(found)) == sorted([first.id, second.id])
    second.amend(tag="renamed")
    entry = found.find(second.id)
    assert entry is not None and entry.tag == "renamed"
    shutil.rmtree(first.folder)
    assert _ids(found) == [second.id] and found.find(first.id) is None


def test_a_record_is_read_once_until_it_is_replaced(tmp_path: Path) -> None:
    made, found = _made(tmp_path), Index(tmp_path)
    with patch.object(index, "entry", wraps=index.entry) as reading:
        found.entries()
        found.entries()
        assert reading.call_count == 1
        made.amend(tag="other")
        found.entries()
        assert reading.call_count == 2


def test_a_look_is_shared_for_as_long_as_it_may_be_old(tmp_path: Path) -> None:
    found = Index(tmp_path, age_s=3600)
    assert found.entries() == []
    made = _made(tmp_path)
    assert found.entries() == []
    assert _ids(Index(tmp_path)) == [made.id]


def test_a_record_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    made, found = _made(tmp_path), Index(tmp_path)
    (made.folder / "session.json").write_text("{")
    (each,) = found.entries()
    assert each.status == "unreadable" and "not valid JSON" in str(each.failure)
    (made.folder / "session.json").write_text("{}")
    assert "session_id" in str(found.entries()[0].failure)


def test_a_run_whose_process_has_gone_is_incomplete_without_a_new_look_at_the_file(tmp_path: Path) -> None:
    Session.create(tmp_path, {}, "", "0")
    (each,) = Index(tmp_path).entries()
    assert each.status == "running"
    with patch("aaco.core.session._start_ticks", return_value=None):
        assert each.status == "incomplete"


@pytest.mark.parametrize(("choice", "wanted"), [
    (Choice(), "cba"), (Choice(descending=False), "abc"), (Choice(tag="x"), "ca"), (Choice(by="tag"), "bca"),
    (Choice(text="b"), "b"), (Choice(since=datetime.fromisoformat("2026-01-02T00:00:00+00:00")), "cb"),
    (Choice(until=datetime.fromisoformat("2026-01-02T00:00:00+00:00")), "a"), (Choice(status="failed"), "")])
def test_sessions_are_chosen_and_sorted(choice: Choice, wanted: str) -> None:
    # b's time is written with another zone, and is still between the two others
    found = [Entry("a", Path("a"), "complete", tag="x", created_utc="2026-01-01T00:00:00+00:00"),
             Entry("b", Path("b"), "complete", tag="y", created_utc="2026-01-02T20:00:00-05:00"),
             Entry("c", Path("c"), "complete", tag="x", created_utc="2026-01-03T20:00:00+00:00")]
    assert "".join(each.session_id for each in choice.of(found)) == wanted


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("xy"), st.booleans()), max_size=12), st.booleans(),
       st.sampled_from(("created_utc", "session_id", "status", "model", "backend", "tag")))
def test_a_choice_keeps_every_session_that_it_takes_in_order(rows: list[tuple[int, str, bool]], descending: bool,
                                                             by: str) -> None:
    start = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    entries = [Entry(f"{number:02d}", Path(), "complete", tag=tag, created_utc=(
        (start + timedelta(days=day)).isoformat() if known else None)) for number, (day, tag, known) in enumerate(rows)]
    chosen = Choice(tag="x", by=by, descending=descending).of(entries)
    assert {each.session_id for each in chosen} == {each.session_id for each in entries if each.tag == "x"}
    keys = [(str(getattr(each, by) or ""), each.session_id) for each in chosen]
    assert keys == sorted(keys, reverse=descending)


def test_of_a_known_session_no_other_is_looked_at_and_it_is_never_old(tmp_path: Path) -> None:
    made, found = _made(tmp_path), Index(tmp_path, age_s=3600)
    assert found.find(made.id) and found.knows(made.id)
    with patch.object(Index, "_look", side_effect=AssertionError("it was looked for")):
        made.amend(tag="new")
        entry = found.find(made.id)
        assert entry is not None and entry.tag == "new"
    assert [each.tag for each in found.entries()] == ["new"]
    shutil.rmtree(made.folder)
    found.look_again()
    assert found.find(made.id) is None and not found.knows(made.id)

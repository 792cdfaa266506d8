"""Session folders: creation, status, lookup, damage."""

import json
import subprocess
import sys

import pytest

from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.session import FORMAT, Session, SessionManager, find, sessions


@pytest.fixture
def session(tmp_path):
    return Session.create(tmp_path, {"model": "m"}, "tagged", "0")


def test_a_new_session_is_running(tmp_path, session):
    assert session.status == "running"
    assert not (tmp_path / "latest").is_symlink()
    assert find("latest", tmp_path) == Session(session.folder.resolve())
    assert [found.id for found in sessions(tmp_path)] == [session.id]  # the pointer is not listed again


@pytest.mark.parametrize("status", ["failed", "incomplete"])
def test_only_a_session_that_came_to_its_end_is_latest(tmp_path, session, status):
    """Mutations: latest points at a session from its beginning; at one that failed; at an older that ended later."""
    later, last = (Session.create(tmp_path, {}, "", "0") for _ in range(2))
    last.finish(status)
    assert not (tmp_path / "latest").is_symlink() and find("latest", tmp_path).folder == later.folder  # which runs
    later.finish("complete")
    session.finish("complete")
    assert (tmp_path / "latest").resolve() == later.folder.resolve() == find("latest", tmp_path).folder
    (tmp_path / "latest").unlink()  # as in a folder that was copied
    assert find("latest", tmp_path).folder == later.folder


def test_sessions_of_one_second_are_listed_in_their_order(tmp_path):
    """Mutation: what tells them apart is random."""
    made = [Session.create(tmp_path, {}, "twelve", "0") for _ in range(12)]
    assert list(sessions(tmp_path)) == made[::-1] and len({each.id for each in made}) == 12
    assert find("twelve", tmp_path).id == made[-1].id


def test_the_folder_is_never_seen_without_its_record(tmp_path, session):
    assert (session.folder / "session.json").is_file()
    assert not [path for path in session.folder.parent.iterdir() if path.name.startswith(".")]


def test_finish_and_amend_round_trip(session):
    session.amend(machine_id="abc", note_of_a_later_version=3)
    session.finish("complete")
    record = Session.open(session.folder).record
    assert (record.status, record.machine_id, record.model_extra) == ("complete", "abc", {"note_of_a_later_version": 3})


def test_a_session_of_a_dead_process_is_incomplete(tmp_path):
    code = ("import sys, pathlib\nfrom aaco.core.session import Session\n"
            "print(Session.create(pathlib.Path(sys.argv[1]), {}, '', '0').folder)")
    folder = subprocess.run([sys.executable, "-c", code, str(tmp_path)], text=True, capture_output=True, check=True)
    assert Session.open(tmp_path / folder.stdout.strip()).status == "incomplete"


def test_a_reused_pid_is_not_the_owner(session):
    owner = session.record.owner
    session.amend(owner=owner.model_copy(update={"start_ticks": owner.start_ticks + 1}))
    assert session.status == "incomplete"


def test_a_reboot_ends_the_owner(session):
    session.amend(owner=session.record.owner.model_copy(update={"boot_id": "another"}))
    assert session.status == "incomplete"


def test_found_by_path_id_prefix_and_latest(tmp_path, session):
    assert find(str(session.folder), tmp_path).id == session.id
    assert find(session.id, tmp_path).id == session.id
    assert find(session.id[:-2], tmp_path).id == session.id
    session.finish("complete")
    assert find(str(tmp_path / "latest"), tmp_path).id == session.id


def test_an_import_is_found_by_its_name_and_a_run_of_a_model_is_not(tmp_path, session):
    """`aaco import TRACE --as bert`, then `aaco report bert`. Mutations: only tags; a run's model, too."""
    imported = Session.create(tmp_path, {"model": "bert", "imports": ["trace.json"]}, "", "0")
    assert find("bert", tmp_path).id == imported.id
    assert find("tagged", tmp_path).id == session.id
    with pytest.raises(UsageError, match="no session 'm'"):
        find("m", tmp_path)


def test_an_import_without_a_name_hides_no_other_session(tmp_path, session):
    """As in a session that somebody else wrote. Mutation: every import has a name."""
    Session.create(tmp_path, {"imports": ["trace.json"]}, "", "0")
    assert find("tagged", tmp_path).id == session.id


def test_a_trace_in_place_of_a_session_is_told_to_be_imported(tmp_path, session):
    """Mutation: a file is a session that is not there."""
    trace = tmp_path / "a trace.json"
    trace.write_text("{}")
    with pytest.raises(UsageError, match="is a file, not a session") as told:
        find(str(trace), tmp_path)
    assert f"aaco import '{trace}'" in told.value.fix


def test_without_its_pointer_latest_is_the_newest(tmp_path, session):
    """Sessions that were copied elsewhere, or whose latest was removed. Mutation: raise when the link leads nowhere."""
    assert find("latest", tmp_path).folder == session.folder
    (tmp_path / "latest").symlink_to("2001-01-01/20010101_000000_abcdef")
    assert find("latest", tmp_path).folder == session.folder


def test_unknown_and_ambiguous_references_are_usage_errors(tmp_path, session):
    Session.create(tmp_path, {}, "", "0")
    with pytest.raises(UsageError, match="ambiguous"):
        find(session.id[:4], tmp_path)  # the year
    for reference in ("nothing", "*", "../..", "[a"):
        with pytest.raises((UsageError, BadBundle)):
            find(reference, tmp_path)
    with pytest.raises(UsageError, match="no session yet"):
        find("latest", tmp_path / "empty")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}', "\x00\xff", '"text"'])
def test_a_damaged_record_is_a_bad_bundle(session, content):
    (session.folder / "session.json").write_text(content)
    with pytest.raises(BadBundle):
        Session.open(session.folder)


def test_a_newer_format_says_so(session):
    document = json.loads((session.folder / "session.json").read_text()) | {"schema_version": FORMAT + 1}
    (session.folder / "session.json").write_text(json.dumps(document))
    with pytest.raises(BadBundle, match="upgrade"):
        Session.open(session.folder)


def test_no_room_to_create_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Session.create(tmp_path / "file" / "sessions", {}, "", "0")


def test_a_session_of_the_missions_name_is_written_at_its_first_use(tmp_path):
    """Mutations: written when it is made; a folder for each use."""
    session = SessionManager.create_session(tmp_path / "sessions", "first")
    assert "first" in repr(session) and not (tmp_path / "sessions").exists()
    session.write_json("metrics/own.json", {"n": 1})
    session.amend(machine_id="m")
    assert [found.folder for found in sessions(tmp_path / "sessions")] == [session.folder]
    assert (session.record.tag, session.record.machine_id, session.status) == ("first", "m", "running")
    assert find("latest", tmp_path / "sessions").read_json("metrics/own.json") == {"n": 1}


def test_a_session_that_cannot_be_begun_leaves_no_folder(tmp_path, monkeypatch):
    """Mutation: its folder stays, hidden or not."""
    def full(*given, **more):
        raise StorageError("No space left on device", "free some space")

    monkeypatch.setattr("aaco.core.files.write_json", full)
    with pytest.raises(StorageError):
        Session.create(tmp_path, {}, "", "0")
    assert [path.name for path in tmp_path.glob("*/*")] == []

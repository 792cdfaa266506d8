"""`aaco bundle` on a real session: there and back, without secrets, and never half."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aaco.core import files
from tests.fakes import kernel_captures
from tests.system.conftest import Aaco

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fH3jL5"
FORMS = ("b.tar.zst", "b.aaco", "b.tar.gz", "b.json", "b.json.gz")


@pytest.fixture
def other(tmp_path, cache):
    """An empty folder, as on another machine."""
    return Aaco(tmp_path / "other", cache)


@pytest.fixture
def copied(recorded, tmp_path, cache):
    """A copy of the recorded folder that a test may change."""
    shutil.copytree(recorded.folder / "sessions", tmp_path / "own" / "sessions", symlinks=True)
    return Aaco(tmp_path / "own", cache)


def content(session):
    return {path.relative_to(session).as_posix(): path.read_bytes() for path in session.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", FORMS)
def test_there_and_back(recorded, other, name):
    """Mutation: an import keeps the owner or writes another file."""
    bundle = other.folder / name
    digest = recorded.inside("bundle", "export", "-o", bundle).stdout.split()[0]
    assert digest == files.sha256(bundle)
    assert other.inside("bundle", "verify", bundle, "--sha256", digest).stdout.startswith("whole: ")
    other.inside("bundle", "verify", bundle, "--sha256", "0" * 64, expect=2)
    other.inside("bundle", "import", bundle)
    imported = next((other.folder / "sessions").glob("2*/2*"))
    before, after = content(recorded.latest), content(imported)
    record = json.loads(before.pop("session.json"))
    assert json.loads(after.pop("session.json")) == record | {"owner": None}
    assert after == before  # nothing in a clean session looks like a credential
    other.inside("info", imported)
    assert "is there already" in other.inside("bundle", "import", bundle, expect=2).stderr
    again = other.folder / f"again-{name}"
    other.inside("bundle", "export", imported.name, "-o", again)
    assert again.read_bytes() == bundle.read_bytes()
    assert sorted(path.name for path in (other.folder / "sessions").iterdir()) == [imported.parent.name]


def test_what_was_imported_is_a_session_like_any_other(recorded, other):
    bundle = other.folder / "b.tar.zst"
    recorded.inside("bundle", "export", "-o", bundle)
    name = recorded.latest.name
    other.inside("bundle", "import", bundle)
    assert name in other.inside("report", name).stdout
    other.inside("summary", name)
    other.inside("sla", "check", name, expect=(0, 3))
    other.inside("baseline", "save", "theirs", name)
    verdict = json.loads(other.inside("diff", "theirs", name, "--json").stdout)
    assert verdict["status"] == "inconclusive" and "both sides" in verdict["why"]
    assert "nothing to explain" in other.inside("root-cause", name, "--baseline", name).stdout
    other.inside("analyze", name)


def test_planted_secrets_do_not_leave(copied, other):
    """Mutation: files are handed out as they are."""
    session = copied.latest
    (session / "runtime" / "command-000.out").write_text(f"login with {TOKEN}\nok\n")
    (session / "model" / "weights.bin").write_bytes(b"\0\1\2" * 50 + TOKEN.encode() + b"\0" * 20)
    (session / "runtime" / "blob.bin").write_bytes(b"\0\xff" * 100)
    table = pa.table({"name": pa.array([TOKEN, "conv", None]).dictionary_encode(), "n": [1, 2, 3]})
    pq.write_table(table, session / "telemetry" / "notes.parquet")
    record = json.loads((session / "session.json").read_text())
    (session / "session.json").write_text(json.dumps(record | {"tag": f"token={TOKEN}"}))
    (session / "manifest.json").write_text(json.dumps(_resealed(session)))
    bundle = other.folder / "b.json"
    done = copied.inside("bundle", "export", "-o", bundle)
    assert "weights.bin: left out" in done.stderr and "command-000.out: credentials were taken out" in done.stderr
    other.inside("bundle", "import", bundle)
    imported = next((other.folder / "sessions").glob("2*/2*"))
    assert not any(TOKEN.encode() in raw for raw in content(imported).values())
    assert (imported / "runtime" / "command-000.out").read_text() == "login with <withheld>\nok\n"
    assert pq.read_table(imported / "telemetry" / "notes.parquet").to_pydict() == {
        "name": ["<withheld>", "conv", None], "n": [1, 2, 3]}
    assert not (imported / "model" / "weights.bin").exists() and (imported / "runtime" / "blob.bin").exists()
    absent = json.loads((imported / "manifest.json").read_text())["absent"]
    assert "left out of the bundle" in absent["model/weights.bin"]
    page = other.folder / "report.html"
    copied.inside("bundle", "export", "-o", page)
    assert TOKEN not in page.read_text() and "<html" in page.read_text()


@pytest.mark.parametrize("name", ["kernel", "kernel.aacocap"])
def test_the_memory_of_captured_kernels_does_not_leave(copied, other, name):
    """Mutation: files of a capture are handed out like others."""
    session = copied.latest
    kernel_captures.write(session / "model" / name)
    (session / "manifest.json").write_text(json.dumps(_resealed(session)))
    done = copied.inside("bundle", "export", "-o", other.folder / "b.tar.zst")
    assert "it holds the memory of a captured kernel" in done.stderr
    other.inside("bundle", "import", other.folder / "b.tar.zst")
    imported = next((other.folder / "sessions").glob("2*/2*"))
    assert not [path for path in imported.rglob("*") if path.suffix == ".aacocap" or path.parent.name == "blobs"]


def _resealed(session):
    document = json.loads((session / "manifest.json").read_text())
    for path in session.rglob("*"):
        if path.is_file() and path.name not in ("session.json", "manifest.json"):
            document["files"][path.relative_to(session).as_posix()] = {
                "sha256": files.sha256(path), "bytes": path.stat().st_size, "rows": None}
    return document


def test_damage_is_not_handed_on_and_leaves_nothing(copied, other):
    bundle = other.folder / "b.tar.zst"
    copied.inside("bundle", "export", "-o", bundle)
    raw = bytearray(bundle.read_bytes())
    raw[len(raw) // 2] ^= 4
    bundle.write_bytes(raw)
    assert other.inside("bundle", "verify", bundle, expect=2).stdout
    other.inside("bundle", "import", bundle, expect=2)
    assert not list(other.folder.glob("sessions/*"))
    other.inside("bundle", "import", bundle, "--max-bytes", 1000, expect=2)
    (copied.latest / "env.json").write_text("{}")
    assert "changed since" in copied.inside("bundle", "export", "-o", bundle, expect=2).stderr
    copied.inside("bundle", "export", "-o", "x.zip", expect=2)
    copied.inside("bundle", "import", "nothing.tar.zst", expect=2)


def test_a_session_whose_own_manifest_disagrees_is_refused(copied, other):
    """By somebody who made a whole bundle over a changed file. Mutation: the session's manifest is not asked."""
    from aaco.core.session import Session
    from aaco.tracelake.share import archive, redact_bundle

    (copied.latest / "env.json").write_text("{}")
    found, _ = redact_bundle.redact_session(Session(copied.latest), other.folder)
    listed = [archive.File(name=each.name, bytes=each.path.stat().st_size, sha256=files.sha256(each.path))
              for each in found]
    contents = archive.Contents(session_id=copied.latest.name, status="complete", tool_version="0", files=listed)
    paths = {each.name: each.path for each in found}
    bundle = other.folder / "b.tar.zst"
    archive.write(bundle, contents, lambda name: paths[name].open("rb"), "tar.zst")
    assert "whole" in other.inside("bundle", "verify", bundle).stdout
    assert "env.json: changed" in other.inside("bundle", "import", bundle, expect=2).stderr
    assert not list((other.folder / "sessions").iterdir())


def test_an_import_that_is_killed_leaves_no_session(recorded, other):
    bundle = other.folder / "b.json"
    recorded.inside("bundle", "export", "-o", bundle)
    process = subprocess.Popen(other.command("bundle", "import", bundle), cwd=other.folder, env=other.environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((other.folder / "sessions").glob(".bundle-*/*/*")):
        pass
    process.send_signal(signal.SIGKILL)
    killed = process.wait() == -signal.SIGKILL
    found = list((other.folder / "sessions").glob("2*/2*"))
    assert len(found) == (0 if killed else 1) or (found[0] / "manifest.json").exists()
    assert other.inside("ls").returncode == 0
    if not found:
        other.inside("bundle", "import", bundle)


def test_a_killed_run_can_be_handed_on_and_a_running_one_not(copied, other):
    session = copied.latest
    record = json.loads((session / "session.json").read_text())
    owner = {"pid": os.getpid(), "start_ticks": 0, "boot_id": "x"}
    (session / "session.json").write_text(json.dumps(record | {"status": "running", "owner": owner}))
    (session / "manifest.json").unlink()
    bundle = other.folder / "b.tar.gz"
    copied.inside("bundle", "export", "-o", bundle)
    other.inside("bundle", "import", bundle)
    assert "incomplete" in other.inside("ls").stdout
    from aaco.core.session import Owner

    mine = Owner.current().model_dump()
    (session / "session.json").write_text(json.dumps(record | {"status": "running", "owner": mine}))
    assert "is running" in copied.inside("bundle", "export", "-o", bundle, expect=2).stderr

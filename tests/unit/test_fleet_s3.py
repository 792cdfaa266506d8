"""A lake in a bucket: the same answers as in a folder, and what a store or another writer can do to it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aaco.cli import app
from aaco.core.errors import AacoError, BadBundle, NoBaseline, StorageError, UsageError
from aaco.fleet import answers, compaction, remote, s3, signed
from aaco.fleet import ingest as fleet_ingest
from aaco.fleet.catalog import Catalog
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.lakes import open_store
from aaco.fleet.s3 import S3Store
from benchmarks.fleet._bundles import FleetPlan, sessions
from tests import object_store
from tests.fleets import bundles_of
from tests.object_store import BUCKET, KEY, SECRET, FakeS3

PLAN = FleetPlan(24, models=2, devices=1, nodes=4, days=40, iterations=20, regressions=1, regression=1.3, seed=3)
LAKE = Path(f"s3://{BUCKET}/fleets/one")
STORES = ("with conditions", "without conditions", "rclone", "moto")


folder = bundles_of(PLAN)


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of the stores, and short waits."""
    for name, value in {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                        "AACO_CACHE_DIR": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(signed, "PAUSE_S", 0.001)
    monkeypatch.setattr(s3, "SETTLE_S", 0.01)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with object_store.fake() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """A store that does not keep conditions."""
    with object_store.fake(conditional=False) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Any store, by name."""
    kind = request.param
    if kind in object_store.HOW:
        if object_store.lacks(kind):
            pytest.skip(f"{kind} is not installed: {object_store.HOW[kind]}")
        with object_store.real(kind, tmp_path / "store") as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            yield kind
        return
    with object_store.fake(kind == "with conditions") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield kind


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


def other_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AACO_CACHE_DIR", str(tmp_path / "other"))


def test_a_lake_in_a_bucket_gives_the_answers_of_a_folder(store: str, folder: Path, tmp_path: Path) -> None:
    """Independent: the same bundles in a folder. Both halves are taken in and compacted one after the other."""
    paths = bundles([folder])
    for lake in (LAKE, tmp_path / "lake"):
        for part in (paths[::2], paths[1::2]):
            assert len(ingest(lake, part).added) == 12
            assert compaction.compact(lake).sessions == 12
        assert ingest(lake, paths).present == 24
    for verb in (answers.regressions, answers.top, answers.trend, answers.heatmap):
        assert verb(LAKE) == verb(tmp_path / "lake")
    assert {row["session_id"] for row in answers.regressions(LAKE)["worse"]} == sessions(PLAN)[1].regressions
    assert answers.status(LAKE)["lake"] == f"s3://{BUCKET}/fleets/one"
    assert open_store(LAKE).keeps_conditions() == (store in ("with conditions", "moto"))


def test_verbs_take_a_lake_in_a_bucket(server: FakeS3, folder: Path) -> None:
    for verb, code in ((["ingest", str(folder)], 0), (["compact"], 0), (["status"], 0), (["regressions"], 3),
                       (["retire", sorted(sessions(PLAN)[1].regressions)[0], "--author", "ann", "--reason", "x"], 0),
                       (["regressions"], 0), (["compact"], 0)):
        done = run(*verb, "--lake", f"s3://{BUCKET}")
        assert done.exit_code == code, done.output
    assert "23 sessions" in run("status", "--lake", f"s3://{BUCKET}").output
    kinds = {name.split("/")[0] for name in server.objects}
    assert kinds == {"head.json", "catalog", "manifests", "months", "sums", "data"}
    assert sum(name.startswith("catalog/") for name in server.objects) == 1


def test_no_credential_is_kept_or_shown(server: FakeS3, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SESSIONTOKEN")
    ingest(LAKE, bundles([folder]))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WRONGSECRET")
    shown = run("status", "--lake", str(LAKE), "--json")
    assert "403 SignatureDoesNotMatch" in str(shown.exception)
    texts = [repr(shown.exception), str(shown.exception), shown.output, repr(open_store(LAKE).bucket.account),
             *(content.decode("latin-1") for content, _ in server.objects.values()), *server.objects]
    for secret in (KEY, SECRET, "SESSIONTOKEN", "WRONGSECRET"):
        assert not any(secret in text for text in texts)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_missing_credentials_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="needs credentials"):
        answers.status(LAKE)


@pytest.mark.parametrize("lake", ["s3://", "s3://key:secret@bucket/x", "s3://B/x", "s3://bucket/../x",
                                  "s3://bucket/\x1b"])
def test_a_name_that_is_no_bucket_is_refused_and_not_repeated(lake: str) -> None:
    with pytest.raises(UsageError, match="no name of a lake") as refused:
        answers.status(Path(lake))
    assert "secret" not in str(refused.value)


def test_an_address_with_credentials_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:hidden@127.0.0.1:1")
    with pytest.raises(UsageError, match="AWS_ENDPOINT_URL") as refused:
        answers.status(LAKE)
    assert "hidden" not in str(refused.value)


def test_a_bucket_or_a_lake_that_is_not_there_is_named(server: FakeS3) -> None:
    with pytest.raises(StorageError, match="s3://elsewhere: no such bucket"):
        answers.status(Path("s3://elsewhere/x"))
    with pytest.raises(NoBaseline, match="no lake"):
        answers.status(LAKE)


def test_a_store_that_refuses_is_named(server: FakeS3) -> None:
    server.forbidden = True
    with pytest.raises(StorageError, match="refused: 403 AccessDenied"):
        answers.status(LAKE)


def test_a_busy_store_is_asked_again_and_then_named(server: FakeS3, folder: Path) -> None:
    ingest(LAKE, bundles([folder])[:1])
    server.failures = signed.TRIES - 1
    assert answers.status(LAKE)["sessions"] == 1
    server.failures = 1000
    with pytest.raises(StorageError, match=f"failed {signed.TRIES} times: 503 SlowDown"):
        answers.status(LAKE)


def test_a_silent_store_is_named(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(signed, "TRIES", 2)
    server.silent_s = 0.2
    with pytest.raises(StorageError, match="failed 2 times: no answer"):
        answers.status(LAKE)


def test_a_store_that_fails_during_a_question_is_named(server: FakeS3, folder: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads the columns: its message names our key, of which only the code is passed on."""
    ingest(LAKE, bundles([folder]))
    monkeypatch.setattr(signed, "TRIES", 1)
    lake = open_store(LAKE)
    original = S3Store.dataset

    def refusing(self: S3Store, *arguments: object) -> object:
        server.forbidden = True
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(S3Store, "dataset", refusing)
    with pytest.raises(StorageError, match=r"the store refused: (ACCESS_DENIED|403 AccessDenied)"):
        answers.regressions(lake)


def test_an_object_that_is_missing_is_named(server: FakeS3, folder: Path) -> None:
    ingest(LAKE, bundles([folder]))
    compaction.compact(LAKE)
    del server.objects[next(name for name in server.objects if "/months/" in name)]
    with pytest.raises(BadBundle, match="missing"):
        answers.regressions(LAKE)


def test_a_changed_or_later_head_and_catalog_are_named(server: FakeS3, folder: Path) -> None:
    ingest(LAKE, bundles([folder])[:1])
    head, catalog = (next(name for name in server.objects if part in name) for part in ("head.json", "/catalog/"))
    kept = dict(server.objects)
    server.objects[catalog] = kept[catalog][0] + b"x", 0
    with pytest.raises(BadBundle, match="changed since it was written"):
        answers.status(LAKE)
    server.objects[head] = kept[head][0].replace(b'"schema_version": 1', b'"schema_version": 9'), 0
    with pytest.raises(BadBundle, match="head of a lake format 9, this version of aaco reads up to 1"):
        answers.status(LAKE)
    server.objects[head] = b"<html>", 0
    with pytest.raises(BadBundle, match="not valid JSON"):
        answers.status(LAKE)


def test_a_catalog_of_a_later_format_is_named(server: FakeS3, folder: Path) -> None:
    ingest(LAKE, bundles([folder])[:1])
    with Catalog.open(LAKE, write=True) as catalog:
        catalog._connection.execute("PRAGMA user_version = 99")
        catalog._file.publish(catalog._connection)
    with pytest.raises(BadBundle, match=f"s3://{BUCKET}/fleets/one/catalog.db: catalog format 99"):
        answers.status(LAKE)


def test_of_two_writers_the_slower_one_is_refused_and_loses_nothing(store: str, folder: Path) -> None:
    """Mutation: the head is written without its condition."""
    paths = bundles([folder])
    ingest(LAKE, paths[:2])
    with Catalog.open(LAKE, write=True) as slow:
        assert len(ingest(LAKE, paths[2:4]).added) == 2
        with pytest.raises(StorageError, match="another writer was faster"):
            slow.retire([row["session_id"] for row in slow.sessions()], "ann", "x")
    assert answers.status(LAKE)["sessions"] == 4
    assert len(ingest(LAKE, paths).added) == 20


def test_a_new_lake_is_made_by_one_writer(store: str, folder: Path) -> None:
    paths = bundles([folder])
    with Catalog.open(LAKE, create=True):
        ingest(LAKE, paths[:1])
        with Catalog.open(LAKE, create=True) as late:
            late._file.publish(late._connection)
    with Catalog.open(LAKE, write=True):
        assert answers.status(LAKE)["sessions"] == 1


def test_without_conditions_only_one_machine_writes(careless: FakeS3, folder: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a second writer is not refused."""
    ingest(LAKE, bundles([folder])[:1])
    other_machine(monkeypatch, tmp_path)
    for write_it in (lambda: ingest(LAKE, bundles([folder])), lambda: compaction.compact(LAKE)):
        with pytest.raises(UsageError, match="another machine writes this lake"):
            write_it()
    assert answers.status(LAKE)["sessions"] == 1
    shutil.copy(tmp_path / "cache" / s3.WRITER, tmp_path / "other" / s3.WRITER)
    assert len(ingest(LAKE, bundles([folder])).added) == 23


def test_with_conditions_any_machine_writes(server: FakeS3, folder: Path, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(LAKE, bundles([folder])[:1])
    other_machine(monkeypatch, tmp_path)
    assert len(ingest(LAKE, bundles([folder])).added) == 23


def test_an_answer_that_was_lost_is_no_other_writer(server: FakeS3, folder: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is written, its answer is lost, and the second try finds the condition broken by the first."""
    original = signed.Bucket._ask
    lost = []

    def losing(self: signed.Bucket, method: str, key: str, *arguments: object) -> signed.Reply:
        reply = original(self, method, key, *arguments)  # type: ignore[arg-type]
        if method == "PUT" and key.endswith(s3.HEAD) and not lost:
            lost.append(key)
            raise ConnectionResetError
        return reply

    monkeypatch.setattr(signed.Bucket, "_ask", losing)
    assert len(ingest(LAKE, bundles([folder])[:2]).added) == 2
    assert lost and answers.status(LAKE)["sessions"] == 2


def test_what_a_killed_writer_left_is_removed_after_a_day_and_not_before(server: FakeS3, folder: Path) -> None:
    """Mutation: young objects, which another compaction may be about to name, are removed."""
    ingest(LAKE, bundles([folder])[:4])
    old, young = (f"fleets/one/data/month=2026-01/{age}.parquet" for age in ("old", "young"))
    server.objects[old], server.objects[young] = (b"x", time.time() - 2 * s3.LEFT_S), (b"x", time.time())
    compaction.compact(LAKE)
    assert old not in server.objects and young in server.objects
    assert not [name for name in server.objects if "/landing/" in name]


def test_catalogs_and_probes_of_killed_writers_are_removed_after_a_day(server: FakeS3, folder: Path) -> None:
    """Mutation: the present catalog, which is old where nothing was written for a day, is removed too."""
    ingest(LAKE, bundles([folder])[:4])
    compaction.compact(LAKE)
    for name, (content, _) in list(server.objects.items()):
        server.objects[name] = content, time.time() - 2 * s3.LEFT_S
    killed = {f"fleets/one/{name}" for name in ("catalog/old.db", "probe/old")}
    server.objects |= dict.fromkeys(killed, (b"x", time.time() - 2 * s3.LEFT_S))
    server.objects["fleets/one/catalog/young.db"] = b"x", time.time()
    assert compaction.compact(LAKE).removed == 2
    assert not killed & set(server.objects) and "fleets/one/catalog/young.db" in server.objects
    assert answers.status(LAKE)["sessions"] == 4


@pytest.mark.parametrize("times", [1, 1000])
def test_an_ingest_that_another_writer_overtakes_enters_its_sessions_again(
        times: int, server: FakeS3, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: it gives up at once."""
    monkeypatch.setattr(fleet_ingest, "PAUSES_S", (0.01,) * 4)
    paths, original, overtaken = bundles([folder]), S3Store.replace, []

    def replace(self: S3Store, head: s3.Head, condition: dict[str, str] | None = None) -> s3.Seen | None:
        if len(overtaken) == times:
            return original(self, head, condition)
        overtaken.append(head)
        return None

    ingest(LAKE, paths[:1])
    monkeypatch.setattr(S3Store, "replace", replace)
    if times == 1:
        done = ingest(LAKE, paths)
        assert (len(done.added), done.present, done.refused) == (23, 1, {})
    else:
        with pytest.raises(StorageError, match="another writer was faster"):
            ingest(LAKE, paths)
        assert len(overtaken) == 5
    assert answers.status(LAKE)["sessions"] == (24 if times == 1 else 1)


def test_a_catalog_replaced_between_two_looks_is_looked_at_again(server: FakeS3, folder: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(LAKE, bundles([folder])[:1])
    original = S3Store.seen
    looks = []

    def seen(self: S3Store) -> s3.Seen | None:
        found = original(self)
        looks.append(found)
        if len(looks) == 1:
            ingest(LAKE, bundles([folder])[:2])
        return found

    monkeypatch.setattr(S3Store, "seen", seen)
    assert answers.status(LAKE)["sessions"] == 2


def test_a_catalog_that_was_opened_for_reading_publishes_nothing(server: FakeS3, folder: Path) -> None:
    ingest(LAKE, bundles([folder])[:1])
    with Catalog.open(LAKE) as catalog, pytest.raises(RuntimeError):
        catalog.retire([row["session_id"] for row in catalog.sessions()], "ann", "x")
    assert answers.status(LAKE)["sessions"] == 1


def test_errors_of_arrow_keep_their_code_only() -> None:
    lake = S3Store(signed.Bucket(signed.Account("http", "h", "r", KEY, SECRET, ""), BUCKET), "p")
    for text, kind, words in ((f"AWS Error ACCESS_DENIED: {KEY}", StorageError, "refused: ACCESS_DENIED"),
                              ("AWS Error NO_SUCH_BUCKET", StorageError, "no such bucket"),
                              (f"AWS Error SLOW_DOWN: {KEY}", StorageError, "failed: SLOW_DOWN"),
                              (f"broken {KEY}", BadBundle, "unreadable: OSError")):
        error: AacoError = lake.failure(OSError(text))
        assert isinstance(error, kind) and words in str(error) and KEY not in str(error)
    assert "missing" in str(lake.failure(FileNotFoundError("x")))


def test_the_catalog_is_a_database_that_others_can_read(server: FakeS3, folder: Path, tmp_path: Path) -> None:
    """Independent: SQLite reads the object."""
    ingest(LAKE, bundles([folder])[:3])
    [content] = [content for name, (content, _) in server.objects.items() if "/catalog/" in name]
    (tmp_path / "copy.db").write_bytes(content)
    with sqlite3.connect(tmp_path / "copy.db") as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (3,)


def test_bundles_in_a_bucket_enter_as_those_in_a_folder(server: FakeS3, folder: Path, tmp_path: Path) -> None:
    """Mutation: what is damaged is refused by a name of a temporary file."""
    paths = bundles([folder])
    for path in paths[:4]:
        server.objects[f"bundles/{path.name[:8]}/{path.name}"] = path.read_bytes(), time.time()
    server.objects["bundles/broken.tar.zst"] = paths[5].read_bytes()[:1000], time.time()
    server.objects["bundles/notes.txt"] = b"x", time.time()
    url, lake = f"s3://{BUCKET}/bundles", ["--lake", str(tmp_path / "lake"), "--json"]
    done = run("ingest", url, str(paths[4]), *lake)
    assert done.exit_code == 2
    document = json.loads(done.stdout)
    assert (len(document["added"]), list(document["refused"])) == (5, [f"{url}/broken.tar.zst"])
    assert str(tmp_path) not in json.dumps(document) and "aaco-fleet-" not in json.dumps(document)
    ingest(tmp_path / "local", paths[:5])
    assert answers.regressions(tmp_path / "lake") == answers.regressions(tmp_path / "local")
    again = json.loads(run("ingest", f"{url}/{paths[0].name[:8]}/{paths[0].name}", *lake).stdout)
    assert (again["added"], again["present"]) == ([], 1)


def test_bundles_of_a_bucket_come_in_batches(server: FakeS3, folder: Path, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    for path in bundles([folder])[:5]:
        server.objects[f"bundles/{path.name}"] = path.read_bytes(), time.time()
    monkeypatch.setattr(remote, "MOST_OBJECTS", 2)
    monkeypatch.setattr(remote, "SMALL_BYTES", 10)
    assert len(remote.ingest_all(tmp_path / "lake", [Path(f"s3://{BUCKET}/bundles")]).added) == 5
    sizes = {"a": 400, "b": 700, "c": 2000, "d": 1}
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    assert [list(batch) for batch in remote._batches(sizes)] == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize(("url", "why"), [
    ("s3://lake/empty", "s3://lake/empty: no bundle is there"),
    ("s3://nowhere/x", "s3://nowhere/x: no bundle is there"), ("s3://lake/a/../b", "no name of a lake")])
def test_a_bucket_without_bundles_is_named_before_anything_is_written(server: FakeS3, folder: Path, tmp_path: Path,
                                                                      url: str, why: str) -> None:
    done = run("ingest", str(bundles([folder])[0]), url, "--lake", str(tmp_path / "lake"))
    assert isinstance(done.exception, AacoError) and why in str(done.exception)
    assert not (tmp_path / "lake").exists()

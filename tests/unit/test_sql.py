"""SQL over sessions: what it answers, and the walls around it."""

from __future__ import annotations

import shutil

import pytest

from aaco.core.errors import BadBundle, UsageError
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, COPIES, KERNELS
from aaco.tracelake import manifest, sql
from aaco.tracelake.ingest.lake import Writer

SECRET = "content-of-another-file"


@pytest.fixture(params=["plain", "a 'quoted' [folder] with * and ?"])
def sessions(request, tmp_path):
    """Two sessions, in folders whose names are no patterns and no SQL."""
    return [made(tmp_path / request.param, count) for count in (3, 2)]


def made(root, count, name="k"):
    session = Session.create(root, {"model": "m", "imports": []}, "", "0")
    with Writer(session) as writer:
        starts = [100 * at for at in range(count)]
        ends = [start + 10 for start in starts]
        writer.add(KERNELS.build(kernel_id=range(count), kernel_name=[f"{name}{at}" for at in range(count)],
                                 t_start_ns=starts, t_end_ns=ends, dur_ns=[10] * count, stream_id=[7] * count), 0)
        writer.add(API_CALLS.build(call_id=[0, 1], name=["outer", "inner"], domain=["hip", "hip"], thread_id=[1, 1],
                                   t_start_ns=[0, 5], t_end_ns=[50, 9], dur_ns=[50, 4]), 0)
        writer.write([None])
    return session


def asked(sessions, query, **settings):
    with sql.ask(sessions, query, **settings) as answer:
        return [row for batch in answer.batches for row in batch.to_pylist()]


def refused(sessions, query):
    with pytest.raises(UsageError) as error:
        asked(sessions, query)
    assert error.value.fix
    return error.value.what


def test_tables_of_several_sessions(sessions):
    first, second = (session.id for session in sessions)
    rows = asked(sessions, "select session_id, count(*) as n from kernels group by all")
    assert {row["session_id"]: row["n"] for row in rows} == {first: 3, second: 2}
    query = f"select max(t_start_ns) as last from kernels where session_id = '{second}'"
    assert asked(sessions, query) == [{"last": 100}]
    assert asked(sessions[:1], "select count(*) as n from copies") == [{"n": 0}]


@pytest.mark.parametrize("query", [
    "from duckdb_settings()", "select \"current_setting\"('temp_directory')", "from PG_catalog.pg_settings",
    "select sql from duckdb_views()", "from sqlite_master", "from query('select 1')", "from information_schema.views",
    "from json_execute_serialized_sql('{}')", "from which_secret('x', 'y')", "from duckdb_extensions()",
    "select list_transform([1], lambda x: system.main.current_setting('temp_directory'))",
    "with t as (from system.main.duckdb_settings) from t", "from kernels where 'x'.current_setting() = ''"])
def test_a_query_learns_nothing_of_the_engine(sessions, query):
    """Mutation: every name that is a SELECT's is asked for."""
    assert "which is no table of a session" in refused(sessions, query)


def test_names_of_the_engine_may_be_words_and_columns(sessions):
    query = "select 'current_setting' as query, '\"function_name\":\"query\"' as pg_x from kernels limit 1"
    assert asked(sessions, query) == [{"query": "current_setting", "pg_x": '"function_name":"query"'}]


def test_events_are_everything_with_a_time(sessions):
    rows = asked(sessions[:1], "select type, name, ts_ns, dur_ns, stream, thread, id, parent, preorder, subtree "
                               "from events order by ts_ns, dur_ns desc")
    assert [(row["type"], row["name"], row["ts_ns"]) for row in rows] == [
        ("hip", "outer", 0), ("kernel", "k0", 0), ("hip", "inner", 5), ("kernel", "k1", 100), ("kernel", "k2", 200)]
    assert rows[2] == {"type": "hip", "name": "inner", "ts_ns": 5, "dur_ns": 4, "stream": None, "thread": 1, "id": 1,
                       "parent": 0, "preorder": 1, "subtree": 1}
    assert rows[1]["stream"] == 7
    for table, columns in sql.EVENT_SOURCES.items():
        assert set(columns) <= set(sql.EVENT_COLUMNS), table


def test_a_join_of_all_kinds_of_names(sessions):
    query = """WITH known AS (SELECT kernel_name, count(*) AS n FROM Kernels GROUP BY kernel_name)
               SELECT sum(n)::int AS n FROM kernels JOIN known USING (kernel_name)"""
    assert asked(sessions, query) == [{"n": 9}]  # k0 and k1 are in both sessions
    assert {row["name"] for row in asked(sessions, "show tables")} >= {"kernels", "events", "counters"}
    assert asked(sessions, "select 1 as one") == [{"one": 1}]


@pytest.mark.parametrize("query", [
    "select * from read_csv('{file}')", "select * from '{file}'", "select * from read_text('{file}')",
    "select * from read_blob('{file}')", "select * from glob('{folder}/*')", "select * from sniff_csv('{file}')",
    "select * from read_parquet('{folder}/**/*.parquet')", "select * from parquet_metadata('{other}')",
    "select * from read_parquet('{other}')", "select * from read_json('{file}')", "select * from read_duckdb('{file}')",
    "select * from read_parquet('https://localhost:1/x.parquet')", "select * from which_secret('s3://x', 's3')",
    "select getenv('HOME')", "select * from kernels where kernel_name = getenv('HOME')",
    "copy kernels to '{folder}/out.csv'", "copy (select 1) to '{parquet}'", "copy kernels from '{file}'",
    "attach '{file}' as other", "attach '{folder}/new.db'", "install httpfs", "load httpfs", "load '{file}'",
    "set memory_limit = '100GB'", "set enable_external_access = true", "reset lock_configuration",
    "set allowed_paths = ['{file}']", "pragma enable_profiling", "pragma database_list", "export database '{folder}/x'",
    "import database '{folder}'", "create table t as select 1", "create view v as select 1", "drop view kernels",
    "insert into kernels select * from kernels", "delete from kernels", "update kernels set dur_ns = 0", "checkpoint",
    "call pragma_version()", "prepare p as select 1", "execute p", "use memory", "vacuum", "begin",
    "select 1; select 2", "select 1; copy kernels to '{folder}/out.csv'", "", ";", "-- nothing", "selec 1",
    "select * from no_such_table", "select no_such_column from kernels", "explain analyze copy kernels to '{folder}/o'",
])
def test_nothing_but_the_tables_can_be_reached(tmp_path, query):
    """Mutations seen to fail: enable_external_access left true, the kind of statement not looked at."""
    session, other = made(tmp_path / "lake", 2), made(tmp_path / "elsewhere", 1)
    secret = tmp_path / "secret.csv"
    secret.write_text(SECRET)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    places = {"file": secret, "folder": tmp_path, "other": other.folder / KERNELS.file,
              "parquet": session.folder / KERNELS.file}
    assert SECRET not in refused([session], query.format(**places))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("query", [
    "copy kernels to '{folder}/out.csv'", "copy (select 1) to '{parquet}'", "attach '{file}' as other",
    "attach '{folder}/new.db'", "install httpfs", "load httpfs", "set memory_limit = '100GB'",
    "set enable_external_access = true", "set allowed_paths = ['{file}']", "reset memory_limit",
    "set temp_directory = '{folder}'", "export database '{folder}/x'", "import database '{folder}'",
])
def test_the_other_walls_stand_without_the_first(tmp_path, monkeypatch, query):
    """As if a statement of another kind had passed for a SELECT. Mutations seen to fail: the configuration not locked,
    enable_external_access left true."""
    monkeypatch.setattr(sql, "_refuse_all_but_select", lambda connection, query: None)
    test_nothing_but_the_tables_can_be_reached(tmp_path, query)


def test_a_name_in_the_table_is_no_file_name(tmp_path):
    session = made(tmp_path, 2, name="'; drop view kernels; --")
    assert len(asked([session], "select kernel_name from kernels")) == 2


def test_a_query_that_needs_too_much_is_refused(tmp_path, monkeypatch):
    session = made(tmp_path, 3)
    monkeypatch.setattr(sql, "OVERFLOW", "1MB")
    query = "select list(a.range) as all_of_them from range(30000000) a, kernels"
    with pytest.raises(UsageError, match="emory") as error:
        asked([session], query, memory="50MB")
    assert "window" in error.value.fix


def test_a_damaged_table_is_named(tmp_path):
    session = made(tmp_path, 3)
    path = session.folder / KERNELS.file
    path.write_bytes(path.read_bytes()[:-100])
    assert KERNELS.file in refused([session], "select * from kernels")


def test_a_table_that_was_changed_is_not_answered_from(tmp_path):
    """One flipped bit is decompressed into other numbers. Mutation: ask without `manifest.refuse_changed`."""
    session = made(tmp_path, 200)
    manifest.write(session, {})
    path = session.folder / KERNELS.file
    good = path.read_bytes()
    assert asked([session], "select sum(dur_ns) as ns from kernels") == [{"ns": 2000}]
    path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with pytest.raises(BadBundle, match="changed since"):
        asked([session], "select sum(dur_ns) from kernels")
    assert asked([session], "select count(*) as calls from api_calls") == [{"calls": 2}]


def test_a_table_of_an_older_version_lacks_columns(tmp_path):
    """Columns that a file has not are null, those it has in another order are found by name."""
    import pyarrow.parquet as pq

    session = made(tmp_path, 2)
    path = session.folder / KERNELS.file
    with path.open("rb") as file:
        table = pq.ParquetFile(file).read()
    with path.open("wb") as file:
        pq.write_table(table.drop(["capture", "rank"]).select(["dur_ns", "kernel_name"]), file)
    assert asked([session], "select kernel_name, dur_ns, capture from kernels order by 1")[0] == {
        "kernel_name": "k0", "dur_ns": 10, "capture": None}
    shutil.copytree(session.folder, session.folder.with_name("another"))
    assert len(asked([session, Session(session.folder.with_name("another"))], "select * from kernels")) == 4


def test_overflow_is_cleaned_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sql.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    session = made(tmp_path / "lake", 3)
    query = "select count(*) as n from (select range, hash(range) h from range(3000000) order by h)"
    assert asked([session], query, memory="60MB") == [{"n": 3_000_000}]
    assert not list((tmp_path / "tmp").iterdir())
    assert COPIES.name in sql.EVENT_SOURCES


@pytest.mark.parametrize(("value", "spelt"), [
    ("'infinity'::timestamp", "infinity"), ("'-infinity'::date", "-infinity"),
    ("date '290000-01-01'", "290000-01-01"),
    ("to_timestamp(1e12)", "33658-09-27 01:46:40+00"), ("['infinity'::date]", "[infinity]"),
    ("time '24:00:00'", "24:00:00"),
    ("340282366920938463463374607431768211455::uhugeint", "340282366920938463463374607431768211455"),
    ("'inf'::double", float("inf")), ("1e308 * 10", float("inf")),
    ("170141183460469231731687303715884105727", 2**127 - 1)])
def test_what_python_cannot_hold_comes_as_text(tmp_path, value, spelt):
    """Mutation: the values as they are, of which the first is a traceback and the huge number -1."""
    rows = asked([made(tmp_path, 1)], f'select {value} as "a ""b""", 7 as n from kernels', spelt=True)
    assert [list(row.items()) for row in rows] == [[('a "b"', spelt), ("n", 7)]]

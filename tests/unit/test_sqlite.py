"""profiler.sqlite: what it reads, what it refuses, and that it leaves the file and its folder alone."""

import gzip
import os
import random
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.io import sqlite

KINDS = {"a": "int", "b": "real", "c": "text"}


def make(path, count=5000, journal="DELETE"):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute("CREATE TABLE t (a INTEGER, b REAL, c TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, i / 4, f"name {i}") for i in range(count)])
    connection.commit()
    return path, connection


@pytest.fixture
def file(tmp_path):
    path, connection = make(tmp_path / "t.db")
    connection.close()
    return path


def read(path):
    with sqlite.opened(path) as database:
        batches = list(database.stream("SELECT a, b, c FROM t NOT INDEXED", KINDS, "t"))
        return pa.Table.from_batches(batches), database.problems()


def refused(path, match):
    with pytest.raises(BadCapture, match=match) as told:
        read(path)
    assert str(path) in str(told.value)
    assert told.value.fix


def test_a_table_comes_back_as_it_was_written(file):
    table, problems = read(file)
    assert table.schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert table.to_pydict() == {"a": list(range(5000)), "b": [i / 4 for i in range(5000)],
                                 "c": [f"name {i}" for i in range(5000)]}
    assert problems == []


@pytest.mark.parametrize("name", ["we?ird #%41 '.db", "ä\n.db", "a&mode=rwc.db"])
def test_any_file_name(tmp_path, name):
    """Fails when the path goes into the URI unquoted."""
    path, connection = make(tmp_path / name, 3)
    connection.close()
    assert read(path)[0].num_rows == 3
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_a_name_that_is_no_unicode(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db"))
    make(tmp_path / "x.db", 3)[1].close()
    (tmp_path / "x.db").rename(path)
    assert read(path)[0].num_rows == 3


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_read_only_file_in_a_read_only_folder(tmp_path, journal):
    """Fails when it is not opened immutable: SQLite then puts two files beside a database of the WAL kind."""
    folder = tmp_path / "captures"
    folder.mkdir()
    file, connection = make(folder / "t.db", journal=journal)
    connection.close()
    before = file.read_bytes()
    file.chmod(0o400)
    folder.chmod(0o500)
    try:
        with sqlite.opened(file) as database:
            assert len(list(database.stream("SELECT a, b, c FROM t", KINDS, "t"))) == 1
            assert [found.name for found in folder.iterdir()] == [file.name]
    finally:
        folder.chmod(0o700)
    assert file.read_bytes() == before
    assert [found.name for found in folder.iterdir()] == [file.name]


@pytest.mark.parametrize("rows", [1, 7, 4096])
@pytest.mark.parametrize(("value", "column", "left"), [
    ("word", "a", None), (2.5, "a", None), (b"\x01", "a", None), ("word", "b", None), (b"\x01", "b", None)])
def test_a_value_that_does_not_fit_is_null_and_counted(file, monkeypatch, rows, value, column, left):
    """The driver stops at it, in its first batch or later. Fails when what it had read by then is read again."""
    monkeypatch.setattr(sqlite, "BATCH_ROWS", rows)
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE t SET {column} = ? WHERE a = 3000", (value,))
    table, problems = read(file)
    expected = [i if column == "a" else i / 4 for i in range(5000)]
    expected[3000] = left
    assert table[column].to_pylist() == expected
    assert problems == [f"1 value of t.{column} is not of the column's type: read as absent"]


@pytest.mark.parametrize(("value", "column", "read_as"), [
    (7, "c", "7"), (b"\xffa", "c", "\N{REPLACEMENT CHARACTER}a"), (5.0, "a", 5), (9, "b", 9.0), (None, "c", None)])
def test_a_value_that_means_the_same_in_its_columns_type_is_taken(file, value, column, read_as):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE u AS SELECT * FROM t")
        connection.execute(f"UPDATE u SET {column} = ? WHERE a = 40", (value,))
    with sqlite.opened(file) as database:
        table = pa.Table.from_batches(database.stream("SELECT a, b, c FROM u NOT INDEXED", KINDS, "u"))
        assert table[column][40].as_py() == read_as
        assert database.problems() == []


def test_text_that_is_no_unicode_is_read_with_its_errors_replaced(file):
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE t SET c = CAST(x'ff41' AS TEXT) WHERE a = 1")
    assert read(file)[0]["c"][1].as_py() == "\N{REPLACEMENT CHARACTER}A"


@pytest.mark.parametrize("first", [0, 4999])
def test_columns_of_nulls(file, monkeypatch, first):
    monkeypatch.setattr(sqlite, "BATCH_ROWS", 100)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE t SET b = NULL, c = NULL WHERE a <= ?", (first,))
    table, problems = read(file)
    assert table["c"].null_count == table["b"].null_count == first + 1
    assert problems == []


def test_gzip(file, tmp_path):
    zipped = tmp_path / "t.rpd.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    assert read(zipped)[0].equals(read(file)[0])
    assert sqlite.table_names(zipped) == sqlite.table_names(file) == {"t"}


def test_gzip_leaves_no_temporary_file(file, tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(sqlite.tempfile, "tempdir", str(folder))
    zipped = tmp_path / "t.db.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    read(zipped)
    zipped.write_bytes(gzip.compress(file.read_bytes())[:-20])
    refused(zipped, "cut short")
    assert list(folder.iterdir()) == []


def test_gzip_that_grows_beyond_reason(tmp_path, file):
    """Fails when what is expanded is weighed neither against its header nor against what it was: 200 MB are written."""
    path = tmp_path / "bomb.rpd.gz"
    for head in (sqlite.MAGIC, file.read_bytes()):
        path.write_bytes(gzip.compress(head + bytes(200_000_000), 6))
        refused(path, "expands to more than")


@pytest.mark.parametrize(("content", "match"), [
    (b"", "empty"), (b"SQLite format 3\0", "cut short"), (b"x" * 5000, "not an SQLite database, or an encrypted one"),
    (gzip.compress(b"{}" * 100), "not an SQLite database"), (b"\x1f\x8b\x08 no gzip", "not gzip"),
    (sqlite.MAGIC + bytes(4080), "damaged")])
def test_what_is_no_database(tmp_path, content, match):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    refused(path, match)
    assert sqlite.table_names(path) == set()


def test_missing_folder_and_forbidden(tmp_path, file):
    refused(tmp_path / "none.db", "no such file")
    refused(tmp_path, "directory")
    assert sqlite.table_names(tmp_path / "none.db") == sqlite.table_names(tmp_path) == set()
    if os.geteuid():
        file.chmod(0)
        refused(file, "denied")


def test_a_write_ahead_log_beside_it_is_not_ignored(tmp_path):
    """Its newest rows are in the log. Fails when the file alone is read: 0 rows, and no word of the others."""
    path, connection = make(tmp_path / "t.db", journal="WAL")
    refused(path, "t.db-wal")
    connection.close()
    assert read(path)[0].num_rows == 5000


def test_a_transaction_that_was_cut_off_is_not_ignored(tmp_path):
    path, connection = make(tmp_path / "t.db", 50_000)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("UPDATE t SET a = a + 1")
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    journal = tmp_path / "copy.db-journal"
    journal.write_bytes((tmp_path / "t.db-journal").read_bytes())
    connection.rollback()
    refused(copy, "copy.db-journal")
    journal.write_bytes(b"")
    assert read(copy)[0].num_rows == 50_000


def test_a_file_that_changes_while_it_is_read(file):
    with pytest.raises(BadCapture, match="changed while it was read"), sqlite.opened(file) as database:
        list(database.stream("SELECT a, b, c FROM t", KINDS, "t"))
        with sqlite3.connect(file) as connection:
            connection.execute("INSERT INTO t VALUES (1, 1, 'x')")


@pytest.mark.parametrize("seed", range(30))
def test_cut_it_is_refused(file, seed):
    whole = file.read_bytes()
    file.write_bytes(whole[: random.Random(seed).randrange(len(whole))])
    refused(file, "cut short|empty|SQLite")


@pytest.mark.parametrize("seed", range(60))
def test_flipped_it_is_read_or_refused_with_its_name(file, seed):
    chance, damaged = random.Random(seed), bytearray(file.read_bytes())
    for _ in range(30):
        damaged[chance.randrange(100 if seed % 2 else 0, len(damaged))] ^= 1 << chance.randrange(8)
    file.write_bytes(damaged)
    try:
        read(file)
    except BadCapture as told:
        assert str(file) in str(told)


def endless(path):
    """Make every inner page of a table lead to one and the same next one, 15 levels deep: rows without end, nearly."""
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[16:18], "big")
    with sqlite3.connect(path) as reader:
        root = reader.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()[0]
    inner = raw[(root - 1) * size:root * size]
    assert inner[0] == 5  # an inner page of a table, whose cells begin with the number of a child page
    cells = [int.from_bytes(inner[12 + 2 * i:14 + 2 * i], "big") for i in range(int.from_bytes(inner[3:5], "big"))]
    leaves = [page for page in range(2, len(raw) // size + 1) if raw[(page - 1) * size] == 13][:15]
    for page, child in zip([root, *leaves], leaves, strict=False):
        for cell in cells:
            inner[cell:cell + 4] = child.to_bytes(4, "big")
        inner[8:12] = child.to_bytes(4, "big")
        raw[(page - 1) * size:page * size] = inner
    path.write_bytes(raw)


def test_pages_that_are_linked_in_twice_do_not_make_a_table_endless(tmp_path):
    """Fails when rows, and SQLite's steps, are not counted against what the file can hold."""
    path, connection = make(tmp_path / "t.db", 200_000)
    connection.close()
    endless(path)
    with pytest.raises(BadCapture, match="more rows than"), sqlite.opened(path) as database:
        for _ in database.stream("SELECT a FROM t NOT INDEXED", {"a": "int"}, "t"):
            pass
    with pytest.raises(BadCapture, match="interrupted"), sqlite.opened(path) as database:
        database.value("SELECT sum(a) FROM t NOT INDEXED")


def test_only_plain_tables_are_seen(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE VIEW v AS SELECT * FROM t")
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(words)")
        connection.execute("CREATE TABLE g (a, b AS (a + 1), c AS (a + 2) STORED)")
        connection.execute("CREATE TABLE w (k TEXT PRIMARY KEY, a) WITHOUT ROWID")
        connection.execute('CREATE TABLE "odd ""name" (id INTEGER PRIMARY KEY, "Rowid", "a""b")')
    with sqlite.opened(file) as database:
        assert not {"v", "f"} & set(database.tables)
        assert "b" not in database.tables["g"]
        assert (database.tables["t"].rowid, database.tables["t"].key) == ("rowid", None)
        assert (database.tables["w"].rowid, database.tables["w"].key) == (None, "k")
        odd = database.tables['odd "name']
        assert (odd.rowid, odd.key) == ("_rowid_", "id")
        assert odd.columns == {"id": "id", "rowid": "Rowid", 'a"b': 'a"b'}
        column = sqlite.quoted(odd.columns['a"b'])
        assert list(database.rows(f"SELECT {column} FROM {sqlite.quoted(odd.name)}")) == []


def test_a_value_longer_than_any_name_is_refused(file):
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE t SET c = ? WHERE a = 1", ("x" * (sqlite.LONGEST_VALUE + 1),))
    with pytest.raises(BadCapture, match="too big"), sqlite.opened(file) as database:
        list(database.rows("SELECT c FROM t"))

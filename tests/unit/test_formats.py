"""Which parser reads a file, and what is said of one that is only the beginning of a capture."""

from __future__ import annotations

import gzip
import sqlite3

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.formats import registry
from aaco.steps import find_captures


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rows (text)")
        connection.executemany("INSERT INTO rows VALUES (?)", [("x" * 500,)] * 100)
    return path


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_the_beginning_of_a_database_is_not_of_an_unknown_format(database, kept):
    """SQLite opens it no more, so no parser sees its tables. Mutation: recognise nothing and leave it at that."""
    assert registry.recognise(database) is None
    whole = database.read_bytes()
    database.write_bytes(whole[:int(len(whole) * kept)])
    with pytest.raises(BadCapture, match="cut short"):
        registry.recognise(database)


def test_the_beginning_of_a_gzip_file_is_not_of_an_unknown_format(tmp_path):
    path = tmp_path / "trace.json.gz"
    whole = gzip.compress(b'{"nothing": "we know"}' * 100)
    path.write_bytes(whole)
    assert registry.recognise(path) is None
    path.write_bytes(whole[:-12])
    with pytest.raises(BadCapture, match="cut short"):
        registry.recognise(path)


@pytest.mark.parametrize(("name", "way"), [
    ("r.nsys-rep", "nsys export --type sqlite"), ("r.ncu-rep", "ncu --import"), ("r.tar.zst", "aaco bundle import"),
    ("m.onnx", "aaco run"), ("notes.txt", "known: att, ")])
def test_a_file_that_is_no_capture_says_how_to_come_to_one(tmp_path, name, way):
    """Alone or in a folder. Mutations: the list of formats, always; only of the first file of a folder."""
    file = tmp_path / name
    file.write_bytes(b"\0other")
    with pytest.raises(BadCapture) as alone:
        registry.read(file)
    (tmp_path / "a.txt").write_text("nothing")
    with pytest.raises(BadCapture) as inside:
        find_captures.discover([tmp_path])
    assert way in alone.value.fix and way in inside.value.fix

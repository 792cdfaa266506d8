"""profiler.csvstream against the csv module, over every way to quote, order and break rows."""

import csv
from unittest import mock

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.core.tables import INT, NAME, REAL, TEXT
from aaco.profiler.io import csvstream
from aaco.profiler.io.csvstream import CsvTally, Layout
from tests import csvs

COLUMNS = {"name": NAME, "start": INT, "end": INT, "queue": INT, "value": REAL, "note": TEXT}
LAYOUT = Layout(COLUMNS, frozenset({"start", "end"}), "name")
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text("<>(),\"' \n:*&[]abc1", max_size=30),
    st.sampled_from(["", "void k<float, 4>(float*, int)", 'say "hi", twice', "a\nb", "__amd_rocclr_copyBuffer", "核"]))
TIMES = st.integers(0, csvstream.GREATEST - 1)
ROWS = st.lists(st.fixed_dictionaries({
    "name": NAMES, "start": TIMES, "end": TIMES, "queue": st.none() | st.integers(-1 << 63, (1 << 63) - 1),
    "value": st.floats(allow_nan=False), "note": st.sampled_from(["x", "y,z", ""])}), max_size=12)


def read(path, layout=LAYOUT):
    """All rows as dicts, and the tally."""
    tally = CsvTally()
    head = csvstream.header(path, {})
    found = [row for table in csvstream.read(path, head, layout, tally) for row in table.to_pylist()]
    return found, tally


def small_blocks(size):
    return mock.patch.multiple(csvstream, BLOCK_BYTES=size, WINDOW_BYTES=max(size // 3, 1))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, order=st.permutations(list(COLUMNS)), extra=st.booleans(), bom=st.booleans(),
       quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]), newline=st.sampled_from(["\n", "\r\n"]),
       block=st.sampled_from([16, 61, 1 << 20]))
def test_what_the_csv_module_writes_reads_as_it_reads_it(tmp_path, rows, order, extra, bom, quoting, newline, block):
    """Broken by: cutting blocks at any newline, trying `_anchored` before quotes that span lines."""
    order = [*order, "unknown"] if extra else order
    table = [order, *([{**row, "unknown": "?"}[name] for name in order] for row in rows)]
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" * bom + csvs.text(table, quoting, newline).encode())
    with small_blocks(block):
        found, tally = read(path)
    assert found == rows
    assert (tally.rows, tally.broken) == (len(rows), 0)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
       cut=st.none() | st.integers(0, 10**6), block=st.sampled_from([16, 1 << 20]))
def test_a_damaged_file_reads_or_is_a_bad_capture_and_no_row_is_lost_silently(tmp_path, rows, flips, cut, block):
    table = [list(COLUMNS), *(list(row.values()) for row in rows)]
    data = bytearray(csvs.text(table).encode())
    head = data.index(b"\n") + 1
    for at, value in flips:
        if len(data) > head:
            data[head + at % (len(data) - head)] = value
    path = tmp_path / "t.csv"
    path.write_bytes(data if cut is None else data[:cut % (len(data) + 1)])
    with small_blocks(block):
        try:
            found, tally = read(path)
        except BadCapture:
            return
    lines = path.read_bytes().count(b"\n")
    assert len(found) == tally.rows <= lines + 1
    assert all(0 <= row["start"] < csvstream.GREATEST for row in found if "start" in row)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.text("<>(), *&ab\"'", min_size=1, max_size=30).filter(
    lambda name: name != '"' and not name.startswith('"') and not name.endswith('"')), TIMES, TIMES), max_size=10),
       quoted=st.booleans(), block=st.sampled_from([16, 1 << 20]))
def test_names_that_nobody_escaped_are_split_by_the_numbers_around_them(tmp_path, rows, quoted, block):
    """As a tool writes them that puts quotes around a name, or not even those. Broken by: BESIDE all true."""
    lines = ['"queue","name","start","end"'] + [
        f'{index},"{name}",{start},{end}' if quoted else f"{index},{name},{start},{end}"
        for index, (name, start, end) in enumerate(rows)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n", newline="")
    with small_blocks(block):
        found, tally = read(path)
    found.sort(key=lambda row: row["queue"])
    assert [(row["name"], row["start"], row["end"]) for row in found] == [
        (name.replace('""', '"') if quoted and _standard(name) else name, start, end) for name, start, end in rows]
    assert tally.broken == 0


def _standard(name):
    """Whether the quotes in it happen to be what the standard calls escaped."""
    return '"' in name and name.replace('""', "").count('"') == 0


def test_pieces_have_the_types_asked_for(tmp_path):
    path = csvs.write(tmp_path / "t.csv", [list(COLUMNS), ["a", 1, 2, 3, 4.5, "n"], ['b "c', 1, 2, "", 4.5, "n"]])
    tables = list(csvstream.read(path, csvstream.header(path, {}), LAYOUT, CsvTally()))
    assert {str(table.schema.field(name).type) for table in tables for name in ("start", "queue")} == {"int64"}
    assert all(pa.types.is_dictionary(table.schema.field("name").type) for table in tables)

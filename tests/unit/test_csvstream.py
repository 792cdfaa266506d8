"""profiler.csvstream on files that no CSV writer would have written."""

import os

import pytest

from aaco.core.errors import BadCapture
from aaco.core.tables import INT, NAME, REAL
from aaco.profiler.io import csvstream
from aaco.profiler.io.csvstream import CsvTally, Layout

LAYOUT = Layout({"name": NAME, "start": INT, "queue": INT, "value": REAL}, frozenset({"start"}), "name")
HEADER = b"name,start,queue,value\n"


def read(tmp_path, data, aliases=()):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    tally, head = CsvTally(), csvstream.header(path, dict(aliases))
    return [row for table in csvstream.read(path, head, LAYOUT, tally) for row in table.to_pylist()], tally, head


def test_rows_of_another_width_are_left_out_with_their_lines(tmp_path):
    """Broken by: `tally.reject(line)` without the number of the row. A blank line is no row, and ends the fast way."""
    for blank in (b"", b"\n"):
        rows, tally, head = read(tmp_path, HEADER + b'a,1,2,3\nshort\nb,4,5,6\n"c",1,2,3,4,5\n' + blank + b"d,7,8,9\n")
        assert [row["name"] for row in rows] == ["a", "b", "d"]
        assert (tally.rows, tally.broken, tally.lines) == (3, 2, [3, 5])
        assert "at line 3, 5" in tally.problems(head)[0]


def test_a_row_that_is_split_and_still_none_is_not_said_to_be_mended(tmp_path):
    """Broken by: counting it before its required numbers are looked at."""
    _, tally, _ = read(tmp_path, HEADER + b"a,1,2,3\n,,,,,,,\n")
    assert (tally.rows, tally.broken, tally.repaired) == (1, 1, 0)


def test_line_numbers_survive_names_of_several_lines(tmp_path):
    _, tally, _ = read(tmp_path, HEADER + b'"a\nb",1,2,3\nbroken\n"c",1,2,3\n')
    assert tally.lines == [4]


def test_a_quote_nobody_closed_costs_its_row_only(tmp_path):
    rows, tally, _ = read(tmp_path, HEADER + b'a,1,2,3\n"b,4,5,6\n' + b"".join(b"c%d,1,2,3\n" % i for i in range(200)))
    assert len(rows) == 201
    assert tally.broken == 1 and tally.lines == [3]


def test_an_open_quote_never_makes_it_hold_more_than_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(csvstream, "LONGEST_ROW_BYTES", 500)
    monkeypatch.setattr(csvstream, "BLOCK_BYTES", 100)
    rows, tally, _ = read(tmp_path, HEADER + b'"b,4,5,6\n' + b"".join(b"c%d,1,2,3\n" % i for i in range(2000)))
    assert len(rows) == 2000 and tally.broken == 1


def test_a_gigantic_field_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(csvstream, "LONGEST_ROW_BYTES", 1000)
    monkeypatch.setattr(csvstream, "BLOCK_BYTES", 100)
    with pytest.raises(BadCapture, match="line 3 is longer than 1000 bytes"):
        read(tmp_path, HEADER + b"a,1,2,3\n" + b"x" * 5000 + b",1,2,3\n")


@pytest.mark.parametrize("cell", [b"9223372036854775808", b"1.5", b"1e9", b"abc", b"1_000", b"--1", b"0x", b"\xd9\xa3"])
def test_a_number_that_is_none_is_absent_where_it_may_be_and_else_costs_the_row(tmp_path, cell):
    """Broken by: a `_whole_number` without its pattern or its bounds."""
    rows, tally, head = read(tmp_path, HEADER + b"a,1," + cell + b",3\nb," + cell + b",2,3\nc,1,2,3\n")
    assert [(row["name"], row["start"], row["queue"]) for row in rows] == [("a", 1, None), ("c", 1, 2)]
    assert (tally.rows, tally.broken, tally.lines) == (2, 1, [3])
    assert "1 value of queue is no numbers of 64 bits: read as absent" in tally.problems(head)


def test_none_is_how_a_missing_counter_is_written(tmp_path):
    rows, tally, head = read(tmp_path, HEADER + b"a,1,None,None\nNone,1,2,3\n")
    assert [(row["name"], row["queue"], row["value"]) for row in rows] == [("a", None, None), ("None", 2, 3.0)]
    assert not tally.problems(head)


def test_numbers_of_every_width_are_exact(tmp_path):
    """Broken by: reading numbers as float64, where 2^53 + 1 is 2^53."""
    rows, tally, _ = read(tmp_path, HEADER + b"a,9007199254740993,-9223372036854775808,1e308\n"
                                             b"b,4611686018427387903,9223372036854775807,nan\n,1,0x7ffb26354000,\n")
    assert [row["start"] for row in rows] == [9007199254740993, 4611686018427387903, 1]
    assert [row["queue"] for row in rows] == [-9223372036854775808, 9223372036854775807, 0x7FFB26354000]
    assert not tally.broken and rows[2]["value"] is None


@pytest.mark.parametrize("start", [b"-1", b"4611686018427387904", b"", b'""'])
def test_a_time_out_of_all_ages_costs_the_row(tmp_path, start):
    rows, tally, _ = read(tmp_path, HEADER + b"a,%s,2,3\nb,1,2,3\n" % start)
    assert [row["name"] for row in rows] == ["b"] and tally.lines == [2]


def test_what_is_not_utf8_is_replaced_and_counted(tmp_path):
    rows, tally, head = read(tmp_path, HEADER + b'a\xff\xfe,1,2,3\n\xef\xbf\xbd,1,2,3\n"x\xff",1,2,3,4\n')
    assert [row["name"] for row in rows] == ["a\ufffd\ufffd", "\ufffd"]
    assert tally.replaced == 3 and tally.broken == 1
    assert "3 characters are not UTF-8 and were replaced" in tally.problems(head)


def test_columns_are_found_in_any_order_and_spelling_and_the_first_of_two_is_read(tmp_path):
    rows, _, head = read(tmp_path, b'\xef\xbb\xbf"Queue-Id","START","Kernel Name","start"\r\n3,1,k,9\r\n',
                         {"queue_id": "queue", "kernel_name": "name"})
    assert rows == [{"name": "k", "start": 1, "queue": 3}]
    assert head.repeated == ("start",)
    assert CsvTally().problems(head) == ["column start stands more than once: the first is read"]


def test_lines_that_end_with_a_comma(tmp_path):
    assert read(tmp_path, b"name,start,\na,1,\nb,2,\n")[0] == [{"name": "a", "start": 1}, {"name": "b", "start": 2}]
    assert read(tmp_path, b"name,start\na,1,\nb,2,\n")[0] == [{"name": "a", "start": 1}, {"name": "b", "start": 2}]


def test_a_second_header_is_no_row(tmp_path):
    rows, tally, _ = read(tmp_path, HEADER + b"a,1,2,3\n" + HEADER + b"b,1,2,3\n")
    assert len(rows) == 2 and tally.lines == [3]


@pytest.mark.parametrize("tail, said", [(b"b,1,2", "truncated: the row at line 3 is cut off"),
                                        (b"b,1,2,3", "the last row may be cut"), (b"b,1,2,3\n", "")])
def test_a_file_that_ends_in_a_row(tmp_path, tail, said):
    _, tally, head = read(tmp_path, HEADER + b"a,1,2,3\n" + tail)
    assert said in " ".join(tally.problems(head))
    assert bool(tally.problems(head)) == bool(said)


def test_what_cannot_be_opened_or_has_no_header(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "locked").write_bytes(HEADER)
    (tmp_path / "locked").chmod(0)
    (tmp_path / "quote").write_bytes(b'"name')
    names = ["missing", "empty", ".", "quote"] + ([] if os.geteuid() == 0 else ["locked"])
    for name in names:
        with pytest.raises(BadCapture, match=str(tmp_path)):
            csvstream.header(tmp_path / name, {})
        assert csvstream.sniff(tmp_path / name, {}) is None

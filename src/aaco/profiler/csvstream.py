"""CSV as profilers write it: whole blocks to Arrow, exact integers, bounded memory, every row accounted for.

A block of rows goes through pyarrow's reader when its quoting is sound and every number is one. Anything else is read
row by row, because profilers write names without escaping them: a kernel name may hold commas that nobody quoted, a
marker quotes that nobody doubled. Such a row is split from both ends, where only numbers stand, and what is left in the
middle is the name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BufferedReader, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from aaco.core.errors import BadCapture
from aaco.core.tables import NAME, REAL, TEXT

BLOCK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 16  # small enough that numpy's temporaries stay in the cache and cost no page faults
LONGEST_ROW_BYTES = 1 << 20  # the longest kernel name seen has 7,071 characters; a header of 2,700 counters has 100 kB
GREATEST = 1 << 62  # a time beyond it is no time, and the difference of two below it fits an int64
MOST_LINES = 64  # of one row: a name with more newlines is no name but a quote that nobody closed
KEPT_LINES = 5
NULLS = ["", "None"]  # None stands in rocprof's files for a counter that a dispatch was not counted on
BROKEN = "not a whole row under its header"
BOM = b"\xef\xbb\xbf"
QUOTE, NEWLINE = b'"\n'
BESIDE = np.isin(np.arange(256), list(b'",\n\r'))  # what may stand beside a quote, outside of it
WHOLE = re.compile(r"\s*(-?(?:[0-9]+|0[xX][0-9a-fA-F]+))\s*", re.ASCII)
DECIMAL = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf))\s*", re.ASCII | re.I)


@dataclass(frozen=True)
class Header:
    """The first line of a file: the columns as written, and where each of ours is (of a repeated one, the first).

    size: bytes of the line, its newline included.
    """

    written: tuple[str, ...]
    at: Mapping[str, int]
    repeated: tuple[str, ...]
    size: int

    def __contains__(self, name: str) -> bool:
        return name in self.at


@dataclass(frozen=True)
class Layout:
    """How to read the rows under a header.

    columns: our name of every column wanted and its type: INT, REAL, TEXT or NAME.
    required: times, durations and numbers by which rows are told apart. A row is left out where one of those the file
    has is no whole number from 0 to 2^62; what is no number in any other column becomes null. An empty field and None
    are null.
    free: the column whose text may hold commas and quotes that nobody escaped.
    """

    columns: Mapping[str, pa.DataType]
    required: frozenset[str] = frozenset()
    free: str | None = None


@dataclass
class Tally:
    """What became of a file's rows. rows: read; broken: left out, with the first of their line numbers."""

    rows: int = 0
    broken: int = 0
    lines: list[int] = field(default_factory=list)
    repaired: int = 0
    replaced: int = 0
    not_numbers: dict[str, int] = field(default_factory=dict)
    last_line: int | None = None  # where the file does not end with a newline
    last_broken: int | None = None

    def reject(self, line: int) -> None:
        """Count a row that is left out."""
        self.broken += 1
        self.last_broken = line
        if len(self.lines) < KEPT_LINES:
            self.lines.append(line)

    def problems(self, header: Header) -> list[str]:
        """What a reader of the capture should know, in sentences without the file's name."""
        said = [f"column {name} stands more than once: the first is read" for name in header.repeated]
        if self.broken:
            said.append(f"{self.broken} rows have not the fields of the header and are left out, the first at line "
                        f"{', '.join(map(str, self.lines))}")
        if self.repaired:
            said.append(f"{self.repaired} rows have commas or quotes in a name that nobody escaped: "
                        "split by the numbers on both sides of it")
        if self.replaced:
            said.append(f"{self.replaced} characters are not UTF-8 and were replaced")
        said += [f"{count} values of {name} are no numbers of 64 bits: read as absent"
                 for name, count in sorted(self.not_numbers.items())]
        if self.last_line is not None:
            said.append(f"truncated: the row at line {self.last_line} is cut off" if self.last_line == self.last_broken
                        else "no newline at the end: the last row may be cut")
        return said


def plain(name: str) -> str:
    """A header in the form alias tables are written in: lower case, one kind of separator."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def header(path: Path, aliases: Mapping[str, str]) -> Header:
    """The file's header. `aliases` gives our name of a plain header; a header it does not know keeps its plain form.

    Raises BadCapture where the file cannot be read or its first line is no CSV header.
    """
    with opened(path) as file:
        line = file.readline(LONGEST_ROW_BYTES)
    written = _fields(_text(line.removeprefix(BOM)).strip("\r\n"))
    if written is None:
        raise BadCapture(f"{path}: the first line is not a CSV header", "check that it is the file the profiler wrote")
    names = [aliases.get(plain(name), plain(name)) for name in written]
    first = {name: index for index, name in reversed(list(enumerate(names))) if name}
    twice = sorted({written[index] for index, name in enumerate(names) if name and first[name] != index})
    return Header(tuple(written), first, tuple(twice), len(line))


def sniff(path: Path, aliases: Mapping[str, str]) -> Header | None:
    """The header, or None where there is none to read. Never raises."""
    try:
        return header(path, aliases)
    except BadCapture:
        return None


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The file, opened for reading; what the system says against it, then or later, is a BadCapture."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise BadCapture(f"{path}: no such file", "check the path") from error
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error


def read(path: Path, head: Header, layout: Layout, tally: Tally) -> Iterator[pa.Table]:
    """The rows in blocks, with the layout's columns that the file has; what became of each is added to the tally.

    Raises BadCapture where a row is longer than LONGEST_ROW_BYTES.
    """
    reader = _Reader(head, layout, tally)
    with opened(path) as file:
        file.seek(head.size)
        for block in _blocks(path, file, tally):
            for table in reader.tables(block):
                tally.rows += table.num_rows
                yield table


@dataclass(frozen=True)
class _Block:
    """Whole rows, valid until the next block is read. line: number of the first; lines: how many lines they take.

    sound: its quotes stand where the CSV standard has them.
    """

    data: memoryview | bytes
    line: int
    lines: int
    sound: bool


def _blocks(path: Path, file: BufferedReader, tally: Tally) -> Iterator[_Block]:
    """The rows behind the header. Raises BadCapture where one is longer than LONGEST_ROW_BYTES."""
    buffer = bytearray(LONGEST_ROW_BYTES + BLOCK_BYTES + 1)
    view, filled, line = memoryview(buffer), 0, 2
    while more := file.readinto(view[filled:filled + BLOCK_BYTES]):
        filled += more
        cut, sound = _whole_rows(buffer, filled)
        if filled - cut > LONGEST_ROW_BYTES:
            raise BadCapture(f"{path}: the row at line {line} is longer than {LONGEST_ROW_BYTES} bytes",
                             "check that the file is CSV")
        if cut:
            block = _Block(view[:cut], line, buffer.count(b"\n", 0, cut), sound)
            yield block
            line += block.lines
        buffer[:filled - cut] = buffer[cut:filled]
        filled -= cut
    if buffer[:filled].strip():
        lines = buffer.count(b"\n", 0, filled)
        if buffer[filled - 1] != NEWLINE:
            tally.last_line = line + lines
            buffer[filled], filled, lines = NEWLINE, filled + 1, lines + 1
        yield _Block(view[:filled], line, lines, sound=False)


def _whole_rows(buffer: bytearray, filled: int) -> tuple[int, bool]:
    """Where the last row ends, behind the last newline that no quotes enclose, and whether the quotes before are sound.

    Where quotes that nobody closed enclose more than the longest row, it is the last newline.
    """
    last = buffer.rfind(b"\n", 0, filled) + 1
    count, sound = _quotes(np.frombuffer(buffer, np.uint8, last)) if last else (0, True)
    if count % 2 == 0:
        return last, sound
    values = np.frombuffer(buffer, np.uint8, last)
    newlines = np.flatnonzero(values == NEWLINE)
    before = np.searchsorted(np.flatnonzero(values == QUOTE), newlines)
    outside = newlines[before % 2 == 0]
    cut = int(outside[-1]) + 1 if len(outside) else 0
    return (cut, sound) if filled - cut <= LONGEST_ROW_BYTES else (last, False)


def _quotes(values: NDArray[np.uint8]) -> tuple[int, bool]:
    """How many quotes, and whether each that opens stands behind the end of a field and each that closes before one.

    Two together inside a field close and open it again, as the standard's escape should.
    """
    count, sound = 0, True
    for at in range(0, len(values), WINDOW_BYTES):
        where = np.flatnonzero(values[at:at + WINDOW_BYTES] == QUOTE) + at
        opens, closes = where[count % 2::2], where[1 - count % 2::2]
        sound = sound and bool(BESIDE[values[opens - 1]].all() and BESIDE[values[closes + 1]].all())
        count += len(where)
    return count, sound


class _Reader:
    """Turns blocks of rows into tables."""

    def __init__(self, head: Header, layout: Layout, tally: Tally) -> None:
        self.tally = tally
        self.wanted = {name: head.at[name] for name in layout.columns if name in head}
        self.kinds = {name: layout.columns[name] for name in self.wanted}
        self.required = [name for name in self.wanted if name in layout.required]
        self.width = len(head.written)
        self.free = head.at.get(layout.free) if layout.free else None
        named = {index: name for name, index in self.wanted.items()}
        self.names = [named.get(index, f"column {index}") for index in range(self.width)]
        self.convert = pa.csv.ConvertOptions(
            column_types=self.kinds, include_columns=list(self.wanted), null_values=NULLS, strings_can_be_null=False)

    def tables(self, block: _Block) -> list[pa.Table]:
        """The block's rows."""
        if not block.sound:
            return self._one_by_one(block)
        try:
            return [self._whole(block)]
        except pa.ArrowInvalid:
            block = self._as_utf8(block)
        broken: list[tuple[int, str]] = []
        try:
            table = self._whole(block, broken)
        except pa.ArrowInvalid:
            return self._one_by_one(block)
        return [table, self._table(self._mended(broken, block.line))]

    def _whole(self, block: _Block, broken: list[tuple[int, str]] | None = None) -> pa.Table:
        """The block as pyarrow reads it, rows of another width put into `broken`. Raises ArrowInvalid."""
        def put_aside(row: Any) -> str:
            assert broken is not None
            broken.append((row.number, row.text))
            return "skip"

        table = pa.csv.read_csv(
            pa.py_buffer(block.data), convert_options=self.convert,
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(block.data) + 1, column_names=self.names),
            parse_options=pa.csv.ParseOptions(invalid_row_handler=put_aside if broken is not None else None))
        if table.num_rows + len(broken or ()) != block.lines:
            raise pa.ArrowInvalid("rows that are no lines")
        for name in self.required:
            if not _all_sane(table[name]):
                raise pa.ArrowInvalid(f"{name}: not all there")
        return table

    def _as_utf8(self, block: _Block) -> _Block:
        data = bytes(block.data)
        text = _text(data)
        lost = text.count("\ufffd") - data.count("\ufffd".encode())
        self.tally.replaced += lost
        return replace(block, data=text.encode()) if lost else block

    def _mended(self, broken: Iterable[tuple[int, str]], line: int) -> Iterator[list[str]]:
        for number, text in broken:
            fields = self._split(text)
            if fields is None or not self._has_required(fields):
                self.tally.reject(line + number - 1)
            else:
                yield fields

    def _one_by_one(self, block: _Block) -> list[pa.Table]:
        text = _text(bytes(self._as_utf8(block).data))
        return [self._table(self._rows(text, block.line))]

    def _rows(self, text: str, line: int) -> Iterator[list[str]]:
        """The rows of a text, each of as many lines as its quotes say; `line` is the number of the first."""
        lines = text.split("\n")[:-1]
        at = 0
        while at < len(lines):
            fields, taken = self._row(lines, at) if lines[at].strip() else (None, 1)
            if fields is not None and self._has_required(fields):
                yield fields
            elif lines[at].strip():
                self.tally.reject(line + at)
            at += taken

    def _row(self, lines: list[str], at: int) -> tuple[list[str] | None, int]:
        """The row that begins at a line and how many lines it takes; a line that begins no row is one by itself."""
        line, more, taken = lines[at].removesuffix("\r"), "", 1
        if line.count('"') % 2:  # quotes may span lines, up to the next line with an odd number of them
            end = next((end for end in range(at + 1, min(at + MOST_LINES, len(lines)))
                        if lines[end].count('"') % 2), at)
            more, taken = "\n".join(lines[at:end + 1]).removesuffix("\r"), end + 1 - at
        for text, count in ((line, 1), (more, taken)):
            if (fields := self._standard(text)) is not None:
                return fields, count
        return self._anchored(line), 1

    def _split(self, text: str) -> list[str] | None:
        """The row's fields, as many as the header has; None where that cannot be."""
        return self._standard(text) or self._anchored(text)

    def _standard(self, text: str) -> list[str] | None:
        """The fields as the CSV standard has them. One more at the end, empty, is how old tools end a line."""
        fields = _fields(text) or [] if text.count(",") >= self.width - 1 else []
        if len(fields) == self.width + 1 and not fields[-1]:
            fields.pop()
        return fields if len(fields) == self.width else None

    def _anchored(self, text: str) -> list[str] | None:
        """The fields counted from both ends, what is left between being the name."""
        if self.free is None:
            return None
        parts = text.split(",")
        behind = len(parts) - (self.width - self.free - 1)
        if behind <= self.free:
            return None
        fields = [*map(_bare, parts[:self.free]), ",".join(parts[self.free:behind]), *map(_bare, parts[behind:])]
        name = fields[self.free]
        fields[self.free] = ""
        if _half_quoted(name) or any('"' in field for field in fields):
            return None
        fields[self.free] = _bare(name)
        if not self._has_required(fields):
            return None
        self.tally.repaired += 1
        return fields

    def _has_required(self, fields: list[str]) -> bool:
        return all(whole_number(fields[self.wanted[name]], 0, GREATEST) is not None for name in self.required)

    def _table(self, rows: Iterator[list[str]]) -> pa.Table:
        columns = list(zip(*rows, strict=True))
        return pa.table({name: self._column(name, columns[index] if columns else ())
                         for name, index in self.wanted.items()})

    def _column(self, name: str, texts: Iterable[str]) -> pa.Array:
        kind = self.kinds[name]
        if kind == NAME:
            return pa.array(texts, TEXT).dictionary_encode()
        if kind == TEXT:
            return pa.array(texts, TEXT)
        values = [_real(text) if kind == REAL else whole_number(text) for text in texts]
        lost = sum(value is None and text not in NULLS for value, text in zip(values, texts, strict=True))
        if lost:
            self.tally.not_numbers[name] = self.tally.not_numbers.get(name, 0) + lost
        return pa.array(values, kind)


def _all_sane(column: pa.ChunkedArray) -> bool:
    found = pc.min_max(column).as_py()
    return not column.null_count and (not len(column) or (found["min"] >= 0 and found["max"] < GREATEST))


def _fields(text: str) -> list[str] | None:
    """The fields of one row as the CSV standard has them, or None."""
    try:
        rows = list(csv.reader(StringIO(text, newline=""), strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _bare(field: str) -> str:
    return field[1:-1] if len(field) > 1 and field[0] == field[-1] == '"' else field


def _half_quoted(field: str) -> bool:
    return field == '"' or field.startswith('"') != field.endswith('"')


def whole_number(text: str, least: int = -1 << 63, most: int = 1 << 63) -> int | None:
    """The integer that a text is, decimal or hexadecimal, from `least` to below `most`; else None."""
    found = WHOLE.fullmatch(text)
    if found is None or len(found[1]) > 40:
        return None
    value = int(found[1], 16 if "x" in found[1].lower() else 10)
    return value if least <= value < most else None


def _real(text: str) -> float | None:
    found = DECIMAL.fullmatch(text)
    return float(found[1]) if found else None


def _text(block: bytes) -> str:
    return block.decode("utf-8", "replace")

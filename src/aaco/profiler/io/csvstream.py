"""CSV as profilers write it: whole blocks to Arrow, exact integers, bounded memory, every row accounted for.

pyarrow's reader reads a block of rows if its quoting is valid and every number parses. Any other block is read row by
row, because profilers write names without escaping them: a kernel name may hold unquoted commas, a marker undoubled
quotes. Such a row is split from both ends, where all fields are numbers; the middle is the name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from aaco.core.errors import BadCapture
from aaco.core.tables import NAME, REAL, TEXT
from aaco.core.words import counted
from aaco.profiler.io.readable import readable

BLOCK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 16  # small enough that numpy's temporaries stay in the cache and cost no page faults
LONGEST_ROW_BYTES = 1 << 20  # the longest kernel name seen has 7,071 characters; a header of 2,700 counters has 100 kB
GREATEST = 1 << 62  # a larger number is not a time, and the difference of two smaller ones fits an int64
MOST_LINES = 64  # of one row: a name with more newlines is an unclosed quote
KEPT_LINES = 5
NULLS = ["", "None"]  # rocprof writes None for a counter that it did not collect in a dispatch
BROKEN = "not a whole row under its header"
BOM = b"\xef\xbb\xbf"
QUOTE, NEWLINE = b'"\n'
NEXT_TO_QUOTE = np.isin(np.arange(256), list(b'",\n\r'))  # what may be next to a quote, outside of it
WHOLE = re.compile(r"\s*(-?(?:[0-9]+|0[xX][0-9a-fA-F]+))\s*", re.ASCII)
DECIMAL = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf))\s*", re.ASCII | re.I)


class Header(Struct, frozen=True):
    """The first line of a file: the columns as written, and each column's index by our name (the first if repeated).

    size: bytes of the line with its newline.
    """

    written: tuple[str, ...]
    at: Mapping[str, int]
    repeated: tuple[str, ...]
    size: int

    def __contains__(self, name: str) -> bool:
        return name in self.at


class Layout(Struct, frozen=True):
    """How to read the rows under a header.

    columns: our name of every column to read and its type: INT, REAL, TEXT or NAME.
    required: times, durations and numbers that identify rows. A row is left out if one of them that the file has is not
    an integer from 0 to 2^62; a value of any other column that is not a number becomes null. An empty field and None
    are null.
    free: the column whose text may hold commas and quotes that are not escaped.
    """

    columns: Mapping[str, pa.DataType]
    required: frozenset[str] = frozenset()
    free: str | None = None


class CsvTally(Struct):
    """What became of a file's rows: rows read, and broken rows left out, with the first of their line numbers."""

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
        """Return the defects of the file, in sentences without its name."""
        problems = [f"column {name} stands more than once: the first is read" for name in header.repeated]
        if self.broken:
            problems.append(f"{counted(self.broken, 'rows have not the fields of the header and are')} left out, "
                            f"the first at line {', '.join(map(str, self.lines))}")
        if self.repaired:
            problems.append(f"{counted(self.repaired, 'rows have')} commas or quotes in a name that nobody escaped: "
                            "split by the numbers on both sides of it")
        if self.replaced:
            problems.append(f"{self.replaced} characters are not UTF-8 and were replaced")
        problems += [counted(count, f"values of {name} are no numbers of 64 bits: read as absent")
                     for name, count in sorted(self.not_numbers.items())]
        if self.last_line is not None:
            problems.append(f"truncated: the row at line {self.last_line} is cut off"
                            if self.last_line == self.last_broken else "no newline at the end: the last row may be cut")
        return problems


def plain(name: str) -> str:
    """Return a column name as alias tables write it: lower case, one kind of separator."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def header(path: Path, aliases: Mapping[str, str]) -> Header:
    """Return the file's header. `aliases` maps plain column names to ours; a name not in it keeps its plain form.

    Raise BadCapture if the file cannot be read or its first line is not a CSV header.
    """
    with opened(path) as file:
        line = file.readline(LONGEST_ROW_BYTES)
    written = _split_standard(_decode(line.removeprefix(BOM)).strip("\r\n"))
    if written is None:
        raise BadCapture(f"{path}: the first line is not a CSV header", "check that it is the file the profiler wrote")
    names = [aliases.get(plain(name), plain(name)) for name in written]
    index_by_name = {name: index for index, name in reversed(list(enumerate(names))) if name}
    repeated = sorted({written[index] for index, name in enumerate(names) if name and index_by_name[name] != index})
    return Header(tuple(written), index_by_name, tuple(repeated), len(line))


def sniff(path: Path, aliases: Mapping[str, str]) -> Header | None:
    """Return the header, or None if it cannot be read. Never raise."""
    try:
        return header(path, aliases)
    except BadCapture:
        return None


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Yield the file, opened for reading. Raise BadCapture for every error of the operating system, also in the block.
    """
    with readable(path), path.open("rb") as file:
        yield file


def read(path: Path, head: Header, layout: Layout, tally: CsvTally) -> Iterator[pa.Table]:
    """Yield the rows in blocks, with the layout's columns that the file has; the tally counts what became of each row.

    Raise BadCapture if a row is longer than LONGEST_ROW_BYTES.
    """
    reader = _CsvReader(head, layout, tally)
    with opened(path) as file:
        file.seek(head.size)
        for block in _read_blocks(path, file, tally):
            for table in reader.tables(block):
                tally.rows += table.num_rows
                yield table


class _RowBlock(Struct, frozen=True):
    """Whole rows, valid until the next block is read. line: number of the first; lines: the number of lines.

    sound: its quotes are where the CSV standard has them.
    """

    data: memoryview | bytes
    line: int
    lines: int
    sound: bool


def _read_blocks(path: Path, file: BufferedReader, tally: CsvTally) -> Iterator[_RowBlock]:
    """Yield the rows after the header. Raise BadCapture if one is longer than LONGEST_ROW_BYTES."""
    buffer = bytearray(LONGEST_ROW_BYTES + BLOCK_BYTES + 1)
    view, filled, line = memoryview(buffer), 0, 2
    while read_count := file.readinto(view[filled:filled + BLOCK_BYTES]):
        filled += read_count
        end, sound = _find_last_row_end(buffer, filled)
        if filled - end > LONGEST_ROW_BYTES:
            raise BadCapture(f"{path}: the row at line {line} is longer than {LONGEST_ROW_BYTES} bytes",
                             "check that the file is CSV")
        if end:
            block = _RowBlock(view[:end], line, buffer.count(b"\n", 0, end), sound)
            yield block
            line += block.lines
        buffer[:filled - end] = buffer[end:filled]
        filled -= end
    if buffer[:filled].strip():
        lines = buffer.count(b"\n", 0, filled)
        if buffer[filled - 1] != NEWLINE:
            tally.last_line = line + lines
            buffer[filled], filled, lines = NEWLINE, filled + 1, lines + 1
        yield _RowBlock(view[:filled], line, lines, sound=False)


def _find_last_row_end(buffer: bytearray, filled: int) -> tuple[int, bool]:
    """Return where the last row ends, after the last newline outside quotes, and whether the quotes before are sound.

    If unclosed quotes enclose more than the longest row, that is the last newline.
    """
    last = buffer.rfind(b"\n", 0, filled) + 1
    count, sound = _count_quotes(np.frombuffer(buffer, np.uint8, last)) if last else (0, True)
    if count % 2 == 0:
        return last, sound
    values = np.frombuffer(buffer, np.uint8, last)
    newlines = np.flatnonzero(values == NEWLINE)
    quotes_before = np.searchsorted(np.flatnonzero(values == QUOTE), newlines)
    outside = newlines[quotes_before % 2 == 0]
    cut = int(outside[-1]) + 1 if len(outside) else 0
    return (cut, sound) if filled - cut <= LONGEST_ROW_BYTES else (last, False)


def _count_quotes(values: NDArray[np.uint8]) -> tuple[int, bool]:
    """Return the number of quotes, and whether all opening ones follow the end of a field and all closing ones precede
    it.

    Two together inside a field close and open it again, as the standard's escape should.
    """
    count, sound = 0, True
    for at in range(0, len(values), WINDOW_BYTES):
        where = np.flatnonzero(values[at:at + WINDOW_BYTES] == QUOTE) + at
        opens, closes = where[count % 2::2], where[1 - count % 2::2]
        sound = sound and bool(NEXT_TO_QUOTE[values[opens - 1]].all() and NEXT_TO_QUOTE[values[closes + 1]].all())
        count += len(where)
    return count, sound


class _CsvReader:
    """Converts blocks of rows to tables."""

    def __init__(self, head: Header, layout: Layout, tally: CsvTally) -> None:
        self.tally = tally
        self.index_by_name = {name: head.at[name] for name in layout.columns if name in head}
        self.type_by_name = {name: layout.columns[name] for name in self.index_by_name}
        self.required = [name for name in self.index_by_name if name in layout.required]
        self.width = len(head.written)
        self.free = head.at.get(layout.free) if layout.free else None
        name_by_index = {index: name for name, index in self.index_by_name.items()}
        self.names = [name_by_index.get(index, f"column {index}") for index in range(self.width)]
        self.convert = pa.csv.ConvertOptions(
            column_types=self.type_by_name, include_columns=list(self.index_by_name), null_values=NULLS,
            strings_can_be_null=False)

    def tables(self, block: _RowBlock) -> list[pa.Table]:
        """Return the block's rows."""
        if not block.sound:
            return self._read_row_by_row(block)
        try:
            return [self._read_block(block)]
        except pa.ArrowInvalid:
            block = self._replace_non_utf8(block)
        broken: list[tuple[int, str]] = []
        try:
            table = self._read_block(block, broken)
        except pa.ArrowInvalid:
            return self._read_row_by_row(block)
        return [table, self._build_table(self._repair_rows(broken, block.line))]

    def _read_block(self, block: _RowBlock, broken: list[tuple[int, str]] | None = None) -> pa.Table:
        """Return the block as pyarrow reads it; rows of another width are appended to `broken`. Raise ArrowInvalid."""
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
            if not _is_in_range(table[name]):
                raise pa.ArrowInvalid(f"{name}: not all there")
        return table

    def _replace_non_utf8(self, block: _RowBlock) -> _RowBlock:
        data = bytes(block.data)
        text = _decode(data)
        lost = text.count("\ufffd") - data.count("\ufffd".encode())
        self.tally.replaced += lost
        return replace(block, data=text.encode()) if lost else block

    def _repair_rows(self, broken: Iterable[tuple[int, str]], line: int) -> Iterator[list[str]]:
        for number, text in broken:
            fields = self._split_standard(text) or self._split_from_ends(text)
            if fields is None or not self._has_required(fields):
                self.tally.reject(line + number - 1)
            else:
                yield fields

    def _read_row_by_row(self, block: _RowBlock) -> list[pa.Table]:
        text = _decode(bytes(self._replace_non_utf8(block).data))
        return [self._build_table(self._read_rows(text, block.line))]

    def _read_rows(self, text: str, line: int) -> Iterator[list[str]]:
        """Yield the rows of a text, each with as many lines as its quotes enclose; `line` is the number of the first.
        """
        lines = text.split("\n")[:-1]
        at = 0
        while at < len(lines):
            fields, taken = self._read_row(lines, at) if lines[at].strip() else (None, 1)
            if fields is not None and self._has_required(fields):
                yield fields
            elif lines[at].strip():
                self.tally.reject(line + at)
            at += taken

    def _read_row(self, lines: list[str], at: int) -> tuple[list[str] | None, int]:
        """Return the row that begins at a line and its number of lines; a line that begins no row counts as one."""
        line, quoted_row, line_count = lines[at].removesuffix("\r"), "", 1
        if line.count('"') % 2:  # quotes may span lines, up to the next line with an odd number of them
            end = next((end for end in range(at + 1, min(at + MOST_LINES, len(lines)))
                        if lines[end].count('"') % 2), at)
            quoted_row, line_count = "\n".join(lines[at:end + 1]).removesuffix("\r"), end + 1 - at
        for text, count in ((line, 1), (quoted_row, line_count)):
            if (fields := self._split_standard(text)) is not None:
                return fields, count
        return self._split_from_ends(line), 1

    def _split_standard(self, text: str) -> list[str] | None:
        """Return the fields by the CSV standard. An additional empty field at the end is how old tools end a line."""
        fields = _split_standard(text) or [] if text.count(",") >= self.width - 1 else []
        if len(fields) == self.width + 1 and not fields[-1]:
            fields.pop()
        return fields if len(fields) == self.width else None

    def _split_from_ends(self, text: str) -> list[str] | None:
        """Return the fields counted from both ends; what remains in the middle is the name."""
        if self.free is None:
            return None
        parts = text.split(",")
        end = len(parts) - (self.width - self.free - 1)
        if end <= self.free:
            return None
        fields = [*map(_unquote, parts[:self.free]), ",".join(parts[self.free:end]), *map(_unquote, parts[end:])]
        name = fields[self.free]
        fields[self.free] = ""
        if _is_half_quoted(name) or any('"' in field for field in fields):
            return None
        fields[self.free] = _unquote(name)
        if not self._has_required(fields):
            return None
        self.tally.repaired += 1
        return fields

    def _has_required(self, fields: list[str]) -> bool:
        return all(whole_number(fields[self.index_by_name[name]], 0, GREATEST) is not None for name in self.required)

    def _build_table(self, rows: Iterator[list[str]]) -> pa.Table:
        columns = list(zip(*rows, strict=True))
        return pa.table({name: self._build_column(name, columns[index] if columns else ())
                         for name, index in self.index_by_name.items()})

    def _build_column(self, name: str, texts: Iterable[str]) -> pa.Array:
        kind = self.type_by_name[name]
        if kind == NAME:
            return pa.array(texts, TEXT).dictionary_encode()
        if kind == TEXT:
            return pa.array(texts, TEXT)
        values = [_real_number(text) if kind == REAL else whole_number(text) for text in texts]
        lost = sum(value is None and text not in NULLS for value, text in zip(values, texts, strict=True))
        if lost:
            self.tally.not_numbers[name] = self.tally.not_numbers.get(name, 0) + lost
        return pa.array(values, kind)


def _is_in_range(column: pa.ChunkedArray) -> bool:
    limits = pc.min_max(column).as_py()
    return not column.null_count and (not len(column) or (limits["min"] >= 0 and limits["max"] < GREATEST))


def _split_standard(text: str) -> list[str] | None:
    """Return the fields of one row by the CSV standard, or None."""
    try:
        rows = list(csv.reader(StringIO(text, newline=""), strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _unquote(field: str) -> str:
    return field[1:-1] if len(field) > 1 and field[0] == field[-1] == '"' else field


def _is_half_quoted(field: str) -> bool:
    return field == '"' or field.startswith('"') != field.endswith('"')


def whole_number(text: str, least: int = -1 << 63, most: int = 1 << 63) -> int | None:
    """Return the decimal or hexadecimal integer of a text, from `least` to below `most`, else None."""
    match = WHOLE.fullmatch(text)
    if match is None or len(match[1]) > 40:
        return None
    value = int(match[1], 16 if "x" in match[1].lower() else 10)
    return value if least <= value < most else None


def _real_number(text: str) -> float | None:
    match = DECIMAL.fullmatch(text)
    return float(match[1]) if match else None


def _decode(block: bytes) -> str:
    return block.decode("utf-8", "replace")

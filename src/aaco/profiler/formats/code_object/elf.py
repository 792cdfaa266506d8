"""Sections and symbols of a GPU's ELF file. Every offset comes from the file, so each is checked before use.

Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import BadCapture

MAGIC = b"\x7fELF"
NOTES, SYMBOLS = 7, (2, 11)
FIX = "compile it again, or check that it was copied whole"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class ElfHeader(Struct, frozen=True):
    """What the header says of the code. abi_version: the ninth byte of the file. flags: the machine's own."""

    abi_version: int
    flags: int


class ElfSection(Struct, frozen=True):
    """A section: its type, its address once loaded, its offset in the file, and the section it is linked to."""

    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int


class ElfSymbol(Struct, frozen=True):
    """A symbol: its type (1 an object, 2 a function), the number of its section, its place there and its size."""

    name: str
    kind: int
    section: int
    position: int
    size: int


def read_sections(path: Path, data: bytes, machine: int, of: str, hint: str) -> tuple[ElfHeader, list[ElfSection]]:
    """Return the header and the sections of a file for a machine. Raise BadCapture.

    of: the machine in words. hint: what to try with a file for another machine.
    """
    ident, _, found_machine, _, _, _, start, flags, _, _, _, size, count, names = _HEADER.unpack(
        part(path, data, 0, _HEADER.size))
    if not ident.startswith(MAGIC) or ident[4:6] != b"\x02\x01":
        raise BadCapture(f"{path}: not a 64-bit little-endian ELF file", FIX)
    if found_machine != machine:
        raise BadCapture(f"{path}: ELF of machine {found_machine}, not of {of} ({machine})", hint)
    if size < _SECTION.size:
        raise BadCapture(f"{path}: its section headers are {size} bytes long", FIX)
    rows = [_SECTION.unpack(part(path, data, start + number * size, _SECTION.size)) for number in range(count)]
    texts = part(path, data, rows[names][4], rows[names][5]) if 0 < names < count else b""
    return ElfHeader(ident[8], flags), [ElfSection(text_at(texts, row[0]), row[1], row[3], row[4], row[5], row[6])
                                        for row in rows]


def symbols(path: Path, data: bytes, sections: Sequence[ElfSection]) -> Iterator[ElfSymbol]:
    """Yield the symbols of all tables. Raise BadCapture."""
    for table in sections:
        if table.kind in SYMBOLS and table.link < len(sections):
            texts = content(path, data, sections[table.link])
            for at in range(table.offset, table.offset + table.size - _SYMBOL.size + 1, _SYMBOL.size):
                name_at, info, _, section, position, size = _SYMBOL.unpack(part(path, data, at, _SYMBOL.size))
                yield ElfSymbol(text_at(texts, name_at), info & 0xF, section, position, size)


def content(path: Path, data: bytes, section: ElfSection) -> bytes:
    """Return the bytes of a section. Raise BadCapture."""
    return part(path, data, section.offset, section.size)


def part(path: Path, data: bytes, offset: int, size: int) -> bytes:
    """Return a part of the file. Raise BadCapture if the file ends before it does."""
    if size < 0 or offset < 0 or offset + size > len(data):
        raise BadCapture(f"{path}: cut short or damaged: {size} bytes at {offset} are not in it", FIX)
    return data[offset:offset + size]


def text_at(texts: bytes, at: int) -> str:
    """Return the text that begins there in a table of texts that end with a zero; empty beyond the table."""
    end = texts.find(b"\0", at)
    return texts[at:end if end >= 0 else len(texts)].decode("utf-8", "replace") if at < len(texts) else ""

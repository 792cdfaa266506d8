"""The headers of a tar archive that has nothing but a name and a size to say of its files (POSIX.1-2001)."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 512


def headers(name: str, size: int) -> Iterator[bytes]:
    """A member's header (POSIX.1-2001 ustar), after one of type x where name or size do not fit into it."""
    raw = name.encode()
    if len(raw) > 100 or size >= 8**11:
        records = b"".join(map(_record, (("path", name), ("size", str(size)))))
        yield _header(b"PaxHeader", len(records), b"x") + records + bytes(-len(records) % BLOCK)
    yield _header(raw[:100], min(size, 8**11 - 1), b"0")


def _header(name: bytes, size: int, kind: bytes) -> bytes:
    fields = (name.ljust(100, b"\0"), b"0000644\0", b"0000000\0", b"0000000\0", b"%011o\0" % size, b"00000000000\0",
              b" " * 8, kind, bytes(100), b"ustar\x0000", bytes(64 + 183))
    plain = b"".join(fields)
    return plain[:148] + b"%06o\0 " % sum(plain) + plain[156:]


def _record(item: tuple[str, str]) -> bytes:
    """A record of a pax header: its own length, a space, key=value and a newline."""
    text = f" {item[0]}={item[1]}\n".encode()
    length = len(text) + len(str(len(text)))
    return str(length + (len(str(length)) > len(str(len(text))))).encode() + text

"""Redaction of what comes in pieces: where text may be cut so that no credential is, and what binary content shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from aaco.core.redaction import find_credentials

LONGEST = 16 << 20  # characters: a stretch without any end of a record is cut after this
_RECORD_ENDS = ("},", "\n")
_RECORD_END = re.compile("|".join(map(re.escape, _RECORD_ENDS)))
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "
_PRINTABLE = re.compile(rb"[\x20-\x7e]{8,}")
_PRINTABLE_TAIL = re.compile(rb"[\x20-\x7e]{0,4096}\Z")


def safe_cut(text: str) -> int:
    """Return where the text may be cut so that no credential is: after a record, and not inside a private key."""
    if len(text) > LONGEST:
        return len(text)
    end = max(text.rfind(mark) + len(mark) if mark in text else 0 for mark in _RECORD_ENDS)
    key = text.rfind(_KEY_BEGIN, 0, end)
    return key if key >= 0 and text.find(_KEY_END, key, end) < 0 else end


def split_records(text: str) -> Iterator[str]:
    """Yield the text record by record, which are lines or JSON objects; a private key is in one record."""
    start = 0
    for end in _RECORD_END.finditer(text):
        key = text.find(_KEY_BEGIN, start, end.end())
        if key < 0 or text.find(_KEY_END, key, end.end()) >= 0:
            yield text[start:end.end()]
            start = end.end()
    yield text[start:]


def shows_credential(pieces: Iterable[bytes]) -> bool:
    """Return whether a stretch of plain letters, as strings(1) finds them, holds a credential.

    A stretch across two pieces is searched as a whole.
    """
    tail = b""
    for piece in pieces:
        content = tail + piece
        if any(find_credentials(stretch.decode()) for stretch in _PRINTABLE.findall(content)):
            return True
        match = _PRINTABLE_TAIL.search(content)
        tail = match[0] if match else b""
    return False

"""The search of a record, after the load, for what no single read holds: a key that a model wrote back token by token,
and a key in base64."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from aaco.llm import record
from aaco.llm.key_filter import is_in, pattern_of, plain_forms
from aaco.llm.record import Kind, Recorded

# What models write, by the fields that servers have it in.
TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|refusal|arguments)"\s*:\s*"'
                  rb'([^"\\]*+(?:\\.[^"\\]*+)*+)', re.DOTALL)
BODY, END = int(Kind.BODY), int(Kind.END)
SHORTEST = 5  # letters of base64: fewer are found in any text


def blank(path: Path, key: bytes) -> None:
    """Put stars in place of all text of an answer that the key is in, and of the key in base64 anywhere.

    Rows and times stay. Raise BadCapture, StorageError.
    """
    search = _KeySearch(key)
    search.read(path)
    if search.is_found:
        record.rewrite(path, search.cleaned)


class _KeySearch:
    """Finds the requests that hold a key in their text, then puts stars in its place."""

    def __init__(self, key: bytes) -> None:
        encoded = _in_base64(key)
        self._encoded = re.compile(b"|".join(map(pattern_of, encoded)) or rb"(?!)")
        self._base64, self._forms = encoded, [*plain_forms(key), *encoded]
        self._requests: set[int] = set()
        self.is_found = False

    def read(self, path: Path) -> None:
        """Look at each block, and at the text of each answer when it has ended."""
        texts, find = defaultdict[int, list[bytes]](list), TEXT.findall
        for block in record.read(path):
            self.is_found |= is_in(self._base64, block.content)
            for request, kind, begin, end in _rows(block):
                if kind == BODY:
                    texts[request] += find(block.content, begin, end)
                elif kind == END:
                    self._look(request, texts.pop(request, []))
        for request, pieces in texts.items():
            self._look(request, pieces)

    def _look(self, request: int, pieces: list[bytes]) -> None:
        if is_in(self._forms, b"".join(pieces)):
            self._requests.add(request)
            self.is_found = True

    def cleaned(self, block: Recorded) -> bytes:
        """Return the bytes of a block as they are kept, as many."""
        pieces = [TEXT.sub(_starred, block.content[begin:end]) if request in self._requests else
                  block.content[begin:end] for request, _, begin, end in _rows(block)]
        content = b"".join(pieces)
        return self._encoded.sub(lambda match: b"*" * len(match[0]), content)


def _rows(block: Recorded) -> list[tuple[int, int, int, int]]:
    """Return of each row its request, its kind, and where its bytes begin and end."""
    ends = np.cumsum(block.rows["size"])
    columns = (block.rows["request"], block.rows["kind"], ends - block.rows["size"], ends)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _starred(match: re.Match[bytes]) -> bytes:
    return match[0].removesuffix(match[1]) + b"*" * len(match[1])


def _in_base64(key: bytes) -> list[bytes]:
    """Return the letters of base64 that a key surely has in any text: it may begin at each of three places in them."""
    forms = set()
    for before in range(3):
        begin, end = -(-8 * before // 6), 8 * (before + len(key)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(before) + key)[begin:end])
    return sorted(form for form in forms if len(form) >= SHORTEST)

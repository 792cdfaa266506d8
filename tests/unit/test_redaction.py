"""Redaction of documents and of what comes in pieces: no credential passes because it was cut, nested or in binary."""

from __future__ import annotations

import pytest

from aaco.core.redaction import REDACTED, redact_json
from aaco.core.redaction.pieces import LONGEST, safe_cut, shows_credential, split_records

DASHES = "-" * 5
KEY = f"{DASHES}BEGIN PRIVATE KEY{DASHES}\nabc\ndef\n{DASHES}END PRIVATE KEY{DASHES}\n"
LOGIN = "https://user:" + "hunter2hunter2@host/x"


def test_texts_and_names_of_a_document_are_redacted():
    document = {"url": [LOGIN, ("plain", 1, None)], f"{LOGIN} said": {"n": 0.5}}
    place = f"https://user:{REDACTED}@host/x"
    assert redact_json(document) == {"url": [place, ["plain", 1, None]], f"{place} said": {"n": 0.5}}


def test_text_is_cut_after_a_record_and_never_inside_a_private_key():
    assert safe_cut("one\ntwo\nthr") == len("one\ntwo\n")
    assert safe_cut('{"a": 1},{"b"') == len('{"a": 1},')
    assert safe_cut("one\n" + KEY[:40]) == len("one\n") and safe_cut("one\n" + KEY + "x") == len("one\n" + KEY)
    assert safe_cut("no end") == 0 and safe_cut("x" * (LONGEST + 1)) == LONGEST + 1


def test_a_private_key_is_in_one_record():
    records = list(split_records(f"one\n{KEY}two\nlast"))
    assert records == ["one\n", KEY, "two\n", "last"]


@pytest.mark.parametrize("piece", [1, 7, 1 << 10])
def test_a_credential_in_binary_content_shows_wherever_it_is_cut(piece):
    def pieces(content):
        return (content[start:start + piece] for start in range(0, len(content), piece))

    assert shows_credential(pieces(b"\0\1" + LOGIN.encode() + b"\xff"))
    assert not shows_credential(pieces(b"\0\1kernel_name_of_a_library\xff"))

"""Some fields of a document are held against its form like the whole."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.tracelake import documents, layout

NAME = layout.DERIVED_METRICS
READING = ('{"value": 1.5, "why_absent": null, "ci_low": null, "ci_high": null, "band": null}')


def _holding(root: Path, text: bytes) -> Session:
    made = Session.create(root, {}, "", "0")
    (made.folder / NAME).parent.mkdir()
    (made.folder / NAME).write_bytes(text)
    return made


def test_the_fields_asked_for_are_read_and_the_others_are_not_looked_at(tmp_path: Path) -> None:
    made = _holding(tmp_path, f'{{"schema_version": 1, "a": {READING}, "b": "no reading"}}'.encode())
    assert documents.some(made, NAME, ["a", "absent"])["a"]["value"] == 1.5
    with pytest.raises(BadBundle):
        documents.some(made, NAME, ["b"])
    assert documents.some(Session.create(tmp_path, {}, "", "0"), NAME, ["a"]) == {}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b'{"a": "\\ud800"}',
                                  b"[" * 100_000])
def test_what_is_no_document_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(BadBundle):
        documents.some(_holding(tmp_path, text), NAME, ["a"])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    made = _holding(tmp_path_factory.mktemp("any"), text)
    with suppress(BadBundle):
        assert isinstance(documents.some(made, NAME, ["a"]), dict)

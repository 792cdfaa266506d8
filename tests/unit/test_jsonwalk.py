"""profiler.jsonwalk against json.loads: the same values, whatever the layout and wherever the reads fall."""

import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.io import jsonstream, jsonwalk
from aaco.profiler.io.jsonwalk import Walk


class Record(msgspec.Struct):
    n: int
    s: str = ""


RECORDS = st.lists(st.builds(dict, n=st.integers(-5, 5), s=st.text('"\\{}[], ab\né', max_size=8)), max_size=6)
DOCUMENTS = st.fixed_dictionaries({
    "before": st.dictionaries(st.text(max_size=3), st.text('"\\{}[]x', max_size=5), max_size=2), "long": RECORDS,
    "between": st.none() | st.integers() | st.floats(-1, 1) | st.text('"\\{[', max_size=4), "other": RECORDS,
    "after": st.lists(st.booleans(), max_size=2)})


def walked(text, tmp_path):
    walk, found = Walk(tmp_path / "x.json", io.BytesIO(text)), {}
    for key in walk.entries():
        if key in ("long", "other"):
            found[key] = [msgspec.to_builtins(record) for batch in walk.objects(Record) for record in batch]
        else:
            found[key] = walk.decoded(Any)
    walk.end()
    return found, walk


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.sampled_from([None, 0, 3]), st.integers(1, 40))
def test_it_reads_what_json_loads_reads(tmp_path_factory, document, indent, block):
    """Fails when a bracket inside a string counts, or a number that a read cuts in two is taken as whole."""
    text = json.dumps(document, indent=indent).encode()
    old = jsonwalk.BLOCK_BYTES, jsonstream.CHUNK_BYTES
    jsonwalk.BLOCK_BYTES, jsonstream.CHUNK_BYTES = block, block + 7
    try:
        found, walk = walked(text, tmp_path_factory.getbasetemp())
    finally:
        jsonwalk.BLOCK_BYTES, jsonstream.CHUNK_BYTES = old
    assert found == document
    assert walk.problems == []


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, st.floats(0, 0.999))
def test_cut_short_it_is_refused_or_says_so(tmp_path_factory, document, share):
    text = json.dumps(document).encode()
    try:
        found, walk = walked(text[:int(share * len(text))], tmp_path_factory.getbasetemp())
    except BadCapture:
        return
    assert walk.problems
    assert all(found[key] == document[key][:len(found[key])] for key in ("long", "other") if key in found)


@pytest.mark.parametrize("text", [b"", b"[", b"{", b'{"long" 1}', b'{"long": [1]}', b'{"a": 1,}', b'{"a": 1 "b": 2}',
                                  b'{"a": }', b'{"a": [1}', b'{"a": "x}', b'{"long": {}}', b'{"a": 1} 2', b'{1: 2}',
                                  b'{"\xff": 1}', b'{"long": [{"n": "x"}]}'])
def test_what_is_no_such_document(tmp_path, text):
    with pytest.raises(BadCapture, match=r"x\.json"):
        walked(text, tmp_path)


def test_elements_and_typed_values(tmp_path):
    walk = Walk(tmp_path / "x", io.BytesIO(b'\xef\xbb\xbf [ {"n": 1}, {"n": 2, "s": "b"} ] '))
    assert walk.is_array()
    assert [walk.decoded(Record) for _ in walk.elements()] == [Record(1), Record(2, "b")]
    walk.end()


def test_a_value_without_end_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonwalk, "LIMIT_BYTES", 1 << 16)
    monkeypatch.setattr(jsonwalk, "BLOCK_BYTES", 1 << 10)
    with pytest.raises(BadCapture, match="more than"):
        walked(b'{"a": "' + b"x" * 10**6, tmp_path)
    with pytest.raises(BadCapture, match="more than"):
        walked(b'{"a": ' + b"[" * 10**6, tmp_path)

"""profiler.jsonints against json, over generated arrays and over text that is not such arrays."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.profiler.io import jsonints

INTEGERS = st.integers(-(1 << 62) + 1, (1 << 62) - 1)
JSON = st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.integers(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def text(document, spaced):
    return json.dumps(document, indent=1 if spaced else None, separators=None if spaced else (",", ":")).encode()


@given(st.integers(2, 6).flatmap(lambda width: st.lists(st.lists(INTEGERS, min_size=width, max_size=width))),
       st.booleans())
def test_rows(document, spaced):
    blocks = list(jsonints.rows(text(document, spaced), at_least=2))
    assert [row for block in blocks for row in block.tolist()] == document


@given(st.lists(st.lists(INTEGERS, min_size=3, max_size=3), min_size=5), st.booleans())
def test_rows_in_many_blocks(document, spaced):
    """Mutation: cut a block at its last comma instead of the end of a row."""
    before, jsonints.CHUNK_BYTES = jsonints.CHUNK_BYTES, 100
    try:
        blocks = list(jsonints.rows(text(document, spaced), at_least=3))
    finally:
        jsonints.CHUNK_BYTES = before
    assert [row for block in blocks for row in block.tolist()] == document
    assert len(blocks) > 1 or len(text(document, spaced)) < 110


@given(st.lists(INTEGERS), st.booleans())
def test_flat(document, spaced):
    assert jsonints.flat(text(document, spaced)).tolist() == document


@given(st.lists(st.tuples(INTEGERS, st.lists(st.tuples(INTEGERS, INTEGERS)))), st.booleans())
def test_tree(document, spaced):
    values, depth, first = jsonints.tree(text(document, spaced))
    expected = []
    for wait, links in document:
        expected.append((wait, 2, True))
        expected += [entry for one, other in links for entry in ((one, 4, True), (other, 4, False))]
    assert list(zip(values.tolist(), depth.tolist(), first.tolist(), strict=True)) == expected


@pytest.mark.parametrize("bad", [b"[[1,2],[3]]", b"[[1.5,2]]", b'[["1",2]]', b"[[1e3,2]]", b"[1,[2,3]]", b"{}", b"7",
                                 b"[[1,[2]]]", b"[[1,null]]", b"[[9223372036854775808,1]]",
                                 b"[[-4611686018427387904,1]]", b"[[]]", b"[[1,2],3]", b"[[true,false]]"])
def test_anything_else_is_a_value_error(bad):
    """Mutation: leave out the comparison with LARGEST, and numpy's own limit is read as a number."""
    with pytest.raises(ValueError, match=r".+"):
        list(jsonints.rows(bad, at_least=2))


@given(JSON)
def test_any_json_is_read_exactly_or_is_a_value_error(document):
    raw = json.dumps(document).encode()
    readers = (lambda: [row for block in jsonints.rows(raw, 1) for row in block.tolist()],
               lambda: jsonints.flat(raw).tolist())
    for read in readers:
        with contextlib.suppress(ValueError):
            assert read() == ([] if document is None else document)
    with contextlib.suppress(ValueError):
        assert jsonints.tree(raw)[0].tolist() == list(leaves(document))


def leaves(document):
    """The integers of nested lists."""
    if isinstance(document, list):
        for one in document:
            yield from leaves(one)
    elif type(document) is int:
        yield document


def test_null_is_empty():
    assert not list(jsonints.rows(b"null", at_least=5))
    assert not len(jsonints.flat(b" null "))
    assert not len(jsonints.tree(b"[]")[0])
    assert not len(jsonints.tree(b"null\n")[0])

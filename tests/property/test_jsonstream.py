"""profiler.jsonstream against json.loads, with chunks so small that every kind of place is cut."""

import gzip
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.io import jsonstream

TRICKY = st.sampled_from(["},{", "]}", '"', "\\", "\\\"},{", "[{", "}\n  ,\n{", "é€😀", "\u2028", "traceEvents",
                          "]", ""])
TEXTS = st.lists(TRICKY | st.text(max_size=5), max_size=3).map("".join)
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-10**12, 10**12) | TEXTS,
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
                      max_leaves=6)
EVENTS = st.lists(st.fixed_dictionaries({"name": TEXTS, "args": VALUES}), max_size=12)
FIELDS = st.dictionaries(TEXTS.filter(lambda key: key != "traceEvents"), VALUES, max_size=3)
LAYOUTS = st.sampled_from([{"separators": (",", ":")}, {"indent": 2}, {"indent": None}, {"indent": "\t"},
                           {"separators": (" ,\r\n", " : ")}, {"ensure_ascii": False}])


class Event(msgspec.Struct):
    name: str
    args: msgspec.Raw


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonstream, "CHUNK_BYTES", 37)
        patch.setattr(jsonstream, "BLOCK_BYTES", 16)
        yield


def read(path):
    document = jsonstream.JsonDocument(path, Event)
    events = [(event.name, json.loads(bytes(event.args))) for batch in document.batches() for event in batch]
    return events, document


@settings(max_examples=120)
@given(EVENTS, FIELDS, FIELDS, LAYOUTS, st.booleans(), st.booleans())
def test_any_layout_reads_as_json_reads_it(tmp_path_factory, events, before, after, layout, bare, zipped):
    """Fails when strings are not skipped in the bracket count, or when a guess is taken without decoding it."""
    whole = events if bare else before | {"traceEvents": events} | after
    text = json.dumps(whole, **layout).encode()
    path = tmp_path_factory.mktemp("json") / "t.json"
    path.write_bytes(gzip.compress(text) if zipped else text)
    found, document = read(path)
    assert found == [(event["name"], event["args"]) for event in events]
    assert document.fields == ({} if bare else {key: value for key, value in whole.items() if key != "traceEvents"})
    assert not document.problems


@settings(max_examples=80)
@given(EVENTS, FIELDS, LAYOUTS, st.booleans(), st.data())
def test_a_cut_file_is_refused_or_gives_the_first_events_and_says_so(tmp_path_factory, events, fields, layout, bare,
                                                                    data):
    """Fails when the rest of a text without an end is dropped silently."""
    text = json.dumps(events if bare else {"traceEvents": events} | fields, **layout).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    path = tmp_path_factory.mktemp("json") / "t.json"
    path.write_bytes(text[:cut])
    try:
        found, document = read(path)
    except BadCapture as error:
        assert "byte" in str(error)
        return
    assert found == [(event["name"], event["args"]) for event in events][:len(found)]
    assert document.problems
    assert bare or b"]" in text[:cut] or len(found) <= len(events)


@settings(max_examples=100)
@given(EVENTS, FIELDS, LAYOUTS, st.data())
def test_flipped_bytes_are_read_or_refused(tmp_path_factory, events, fields, layout, data):
    text = bytearray(json.dumps({"traceEvents": events} | fields, **layout).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("json") / "t.json"
    path.write_bytes(bytes(text))
    try:
        read(path)
    except BadCapture as error:
        assert str(path) in str(error)

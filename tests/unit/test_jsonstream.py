"""profiler.jsonstream on documents that do not end well."""

import gzip
import json

import msgspec
import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.io import jsonstream


class Event(msgspec.Struct):
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


def read(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_bytes(text)
    document = jsonstream.JsonDocument(path, Event)
    return [event.name for batch in document.batches() for event in batch], document


@pytest.mark.parametrize("text", [b"", b" ", b"\xef\xbb\xbf", b"null", b"3", b'"traceEvents"', b"{}", b'{"a":[]}',
                                  b'{"a"', b'{"traceEvents":', b'{"traceEvents":3}', b'{"traceEvents":{}}',
                                  b'{"traceEvents":[}',
                                  b'{"traceEvents":[3]}', b'{"traceEvents":[null]}', b'[{"name":3}]', b"[{}{}]",
                                  b'[{"name":"\xff"}]', b'[{"args":{"a":"\xff"}}]', b'[{"args":NaN}]', b"[{}]]",
                                  b'[{"args":Infinity}]', b'[{"args":' + b"[" * 10**5,
                                  b'{"a":' * 10**5, b'{"traceEvents":[{}],"a":' + b"[" * 10**5,
                                  b'{"traceEvents":[{}],"a":}',
                                  b'{"traceEvents":[{}],"traceEvents":[]}', b'{"traceEvents":[{}]} x', b"[{}] x",
                                  b'\xff\xfe[\x00{\x00', b"\x00" * 100, b"[{}}", b'[{"name":"a\x01b"}]'])
def test_what_is_no_array_of_events_is_a_bad_capture_that_names_the_byte(tmp_path, text):
    with pytest.raises(BadCapture, match=r"t\.json: byte \d+: "):
        read(tmp_path, text)


@pytest.mark.parametrize(("text", "names"), [
    (b"[]", []), (b'{"traceEvents":[]}', []), (b'\xef\xbb\xbf[{"name":"a"}]', ["a"]), (b'[{"name":"a"},]', ["a"]),
    (b'[{"name":"a","name":"b"}]', ["b"]), (b'\n\t {"x":"traceEvents","traceEvents" : [ {"name":"a"} ] }\n', ["a"]),
    (b'{"x":{"traceEvents":[{"name":"no"}]},"traceEvents":[{"name":"a"}]}', ["a"])])
def test_odd_but_readable(tmp_path, text, names):
    found, document = read(tmp_path, text)
    assert (found, document.problems) == (names, [])


@pytest.mark.parametrize(("text", "names", "halves"), [
    (rb'[{"name":"a\ud800"}]', ["a\ufffd"], 1), (rb'[{"name":"\uDC00\ud83d\ude00"}]', ["\ufffd😀"], 1),
    (rb'[{"name":"\ud83d\ud83d\ude00\ude00"}]', ["\ufffd😀\ufffd"], 2), (rb'[{"name":"\\ud800"}]', [r"\ud800"], 0),
    (rb'[{"name":"\ud800\\"},{"args":{"\udfff":"\"\ud800"}}]', ["\ufffd\\", ""], 3),
    (b'[{"name":"a\xed\xa0\x80b"},{"name":"\xed\x9f\xbf"}]', ["a\ufffdb", "\ud7ff"], 1),
    (rb'{"\ud800":1,"traceEvents":[{"name":"a"}],"b":"\udc00"}', ["a"], 2)])
def test_half_a_surrogate_pair_costs_one_character_and_is_said(tmp_path, text, names, halves):
    """What counts UTF-16 units may cut a name inside a character. Mutation: fails without the pair in the pattern
    (a whole pair is lost), without the escaped backslash in it, and when the count waits for the second decoding."""
    found, document = read(tmp_path, text)
    assert (found, document.halves, len(document.problems)) == (names, halves, bool(halves))


def test_halves_are_counted_once_wherever_chunks_are_cut(tmp_path, monkeypatch):
    """Mutation: fails when a chunk whose guessed end was wrong forgets the halves that it replaced."""
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", 1 << 6)
    text = b"[" + b",".join(rb'{"name":"},{\ud800","args":{"a":"},{\udc00},{"}}' for _ in range(200)) + b"]"
    found, document = read(tmp_path, text)
    assert (found, document.halves) == (["},{\ufffd"] * 200, 400)


@pytest.mark.parametrize("text", [b'[{"name":"a"}', b'[{"name":"a"},', b'[{"name":"a"} ,\n ',
                                  b'{"traceEvents":[{"name":"a"},\n', b'{"traceEvents":[{"name":"a"}]',
                                  b'{"traceEvents":[{"name":"a"}]\n'])
def test_a_missing_end_is_said(tmp_path, text):
    """Chrome's own traces may lack the bracket; what was to follow it is not there either."""
    found, document = read(tmp_path, text)
    assert found == ["a"]
    assert len(document.problems) == 1


def test_the_byte_of_an_error_is_the_byte_of_the_text(tmp_path):
    """Fails when the offset of the chunk is not added."""
    good = b"[" + b",".join(b'{"name":"%d"}' % number for number in range(10**6))
    with pytest.raises(BadCapture, match=rf"byte {len(good) + 12}: "):
        read(tmp_path, good + b',{"name":"a"x}]')
    with pytest.raises(BadCapture, match=r"byte 1677\d+: .*Expected `str`, got `int`"):
        read(tmp_path, good + b',{"name":3}]')


def test_an_event_larger_than_the_limit_is_refused_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(jsonstream, "LIMIT_BYTES", 1 << 14)
    monkeypatch.setattr(jsonstream, "BLOCK_BYTES", 1 << 9)
    for text in (b'[{"name":"' + b"},{" * (1 << 14), b'{"x":"' + b"a" * (1 << 16), b"[{}]" + b" " * (1 << 16),
                 b'{"traceEvents":[{}],"x":"' + b"a" * (1 << 16)):
        with pytest.raises(BadCapture, match="16384 bytes"):
            read(tmp_path, text)


def test_events_longer_than_a_chunk_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", 1 << 10)
    names = ["},{" * size for size in (1, 1000, 2, 3000, 0)]
    assert read(tmp_path, json.dumps([{"name": name} for name in names]).encode())[0] == names


def test_a_damaged_gzip_stream(tmp_path):
    zipped = gzip.compress(b'[{"name":"a"}]')
    for text in (zipped[:-9], zipped[:11], zipped[:1] + b"\x8b" + b"junk" * 9, zipped[:-8] + b"\x00" * 8):
        with pytest.raises(BadCapture, match="gzip"):
            read(tmp_path, text)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadCapture):
            list(jsonstream.JsonDocument(path, Event).batches())
        assert jsonstream.head(path) == b""


def test_a_number_behind_the_events(tmp_path):
    text = b'{"traceEvents":[' + b'{"name":"base\\": 5"},' * 10**5 + b'{}],"base" : 17}'
    for name, stored in (("a.json", text), ("a.json.gz", gzip.compress(text, 1))):
        (tmp_path / name).write_bytes(stored)
        assert jsonstream.number_behind(tmp_path / name, "base") == 17
        assert jsonstream.number_behind(tmp_path / name, "other") is None

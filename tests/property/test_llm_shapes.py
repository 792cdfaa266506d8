"""Chunks that are taken together by their shape mean what each of them means by itself, whatever bytes they have."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.llm import shapes
from aaco.llm.answers import Malformed, decode, kind_of
from aaco.llm.parse import Parsing
from aaco.llm.record import Kind, ReadRecorder
from aaco.llm.shapes import UNKNOWN, ChunkShapes

HEAD = json.dumps({"status": 200, "content-type": "text/event-stream"}).encode()
TEXTS = [b"", "\u00e9".encode(), b"\xff", b"\\n", b"\\\"", b"\\x", b'"', b'","refusal":"', b"\t", b"\x00"]
COUNTS = [b"007", b"-1", b"1.5", b"1e3", b"4x4", b"null", b"", b"9" * 15, b"9" * 16, b" 4", b"4 ", b'"4"', b"0"]
FORMS = (b'{"id":"%s","created":%s,"model":"m","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],'
         b'"usage":{"prompt_tokens":%s,"completion_tokens":%s}}',
         b'{"id": "%s", "created": %s, "choices": [{"delta": {"reasoning": "%s"}}], "x": %s, '
         b'"usage": {"completion_tokens": %s}}',
         b'{"id":"%s","created":%s,"choices":[{"text":"%s"}],"n":%s,"completion_tokens":%s}',
         b'{"id":"%s","created":%s,"choices":[{"delta":{"content":"%s"},"finish_reason":"stop"}],"n":%s,"m":%s}',
         b'{"id":"%s","created":%s,"choices":[{"text":"%s"}],"timings":{"predicted_n":%s},"usage":null,"n":%s}',
         b'{"id":"%s","created":%s,"choices":[{"delta":{"content":"%s"}}],"n":%s,"usage":{"completion_tokens":null,'
         b'"details":{"completion_tokens":%s}}}',
         b'{"id":"%s","created":%s,"error":null,"choices":[{"delta":{"reasoning_content":"%s"}}],"a":%s,"b":%s}')


@st.composite
def _chunk(draw: st.DrawFn, forms: Sequence[bytes] = FORMS) -> bytes:
    """A chunk as servers send it; of each second one a text or a count is another, or a byte."""
    fields = [draw(st.sampled_from([b" the", b"of", b"a"])), b"%d" % draw(st.integers(0, 99)), b" is",
              b"%d" % draw(st.integers(0, 9)), b"%d" % draw(st.integers(0, 300))]
    odd = draw(st.integers(0, 11))
    if odd < len(fields):
        fields[odd] = draw(st.sampled_from(COUNTS if odd in (1, 3, 4) else TEXTS))
    data = bytearray(draw(st.sampled_from(forms)) % tuple(fields))
    if odd == len(fields):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return b"data: " + bytes(data) + b"\n\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape is made of the first chunk without one."""
    monkeypatch.setattr(shapes, "WORTH", 1)
    monkeypatch.setattr(shapes, "TRIES", 5)


@given(st.sampled_from(FORMS).flatmap(lambda form: st.lists(_chunk([form]), min_size=5, max_size=20)))
@settings(max_examples=200)
def test_what_has_a_shape_means_what_its_bytes_say(found: list[bytes]):
    """Each is decoded beside it. Mutation: a text is not looked for quotes, or a number for its letters."""
    _check(found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("places", "values"), [((0, 2), TEXTS), ((1, 3, 4), COUNTS)])
def test_a_chunk_with_something_else_in_a_hole_is_not_taken_for_one_of_the_shape(
        form: bytes, places: Sequence[int], values: Sequence[bytes]):
    """Mutations: a text may have a backslash, a number letters or a zero before it, or bytes are no UTF-8."""
    plain = [b"a", b"17", b" the", b"8", b"9"]
    for place in places:
        for odd in values:
            _check([b"data: " + form % tuple(fields) + b"\n\n" for fields in (
                plain, plain, [*plain[:place], odd, *plain[place + 1:]], plain)])


def _check(found: Sequence[bytes]) -> None:
    """Hold what the shapes say of these chunks against each of them decoded."""
    found = [piece for piece in found if piece.count(b"\n") == 2 and piece.startswith(b"data: {")]
    ends = np.cumsum([len(piece) for piece in found], dtype=np.int64)
    known = ChunkShapes()
    for _ in range(2):
        shape, total = known.of(b"".join(found), ends - [len(piece) for piece in found], ends, np.arange(len(found)))
        for piece, number, tokens in zip(found, shape.tolist(), total.tolist(), strict=True):
            if number == UNKNOWN:
                continue
            chunk = decode(piece[6:-2])
            assert kind_of(chunk) == known.met[number].kind and chunk.error is None and chunk.timings is None
            assert not any(choice.finish_reason for choice in chunk.choices)
            counted = chunk.usage and chunk.usage.completion_tokens
            assert tokens == (UNKNOWN if counted is None else counted)


def test_chunks_of_a_server_have_a_shape():
    """Else nothing above is tested."""
    found = [b"data: " + FORMS[0] % (b"id-%d" % number, b"17", b" word", b"8", b"%d" % number) + b"\n\n"
             for number in range(1, 200)]
    ends = np.cumsum([len(piece) for piece in found])
    begins = ends - [len(piece) for piece in found]
    shape, total = ChunkShapes().of(b"".join(found), begins, ends, np.arange(len(found)))
    assert (shape == 0).all() and total.tolist() == list(range(1, 200))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_runs_of_chunks_become_the_rows_that_each_of_them_becomes(data: st.DataObject):
    """Answers that take turns, in blocks of any size. Mutation: what the last chunk of a run says is left out."""
    requests = data.draw(st.integers(1, 3))
    chunk = _chunk(data.draw(st.sampled_from([FORMS[:1], FORMS[:2], FORMS])))
    rows = data.draw(st.lists(st.tuples(st.integers(0, requests - 1), st.one_of(
        chunk, chunk, chunk, st.sampled_from([b"data: [DONE]\n\n", b"data: {", b"}\n\n", b": x\n\n"])),
        st.integers(0, 9)), max_size=40))
    _check_tables(rows, requests, data.draw(st.integers(0, requests)))


@pytest.mark.parametrize("totals", [(3, 4, 5), (0, None, 1, 2), (5, 2, 1), (1, None, 2), (1, 2, None), (2, 2, 3)])
def test_counts_that_are_missing_or_fall_are_taken_as_one_by_one(totals: Sequence[int | None]):
    """Mutations: of a run the counts are believed though some before it are missing, or though they fall."""
    rows = []
    for total in totals:
        form = FORMS[6] if total is None else FORMS[0]
        chunk = b"data: " + form % (b"a", b"17", b" the", b"8", b"%d" % (total or 0)) + b"\n\n"
        rows += [(0, chunk, 1), (0, chunk, 1), (0, b": x\n\n", 1)]
    _check_tables(rows, 1, 1)
    _check_tables(rows, 1, 0)


def _check_tables(rows: Sequence[tuple[int, bytes, int]], requests: int, ended: int) -> None:
    """Hold the tables of a record against those by each chunk. rows: a request, what was read, and 0 where that has no
    stamp and ends a block; ended: how many requests did."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = ReadRecorder(path := Path(folder) / "reads")
        recorder.add(-1, Kind.CLOCK, 10**18, 0, b"100")
        for request in range(requests):
            recorder.add(request, Kind.DISPATCH, 100, 100)
            recorder.add(request, Kind.HEAD, 10**18 + 200, 210, HEAD)
        for at, (request, content, stamp) in enumerate(rows):
            recorder.add(request, Kind.BODY, 10**18 + 1000 * at + 1000 if stamp else 0, 1000 * at + 1500, content, 5)
            if not stamp:
                recorder.flush()
        for request in range(ended):
            recorder.add(request, Kind.END, 0, 10**6)
        recorder.close()
        assert _tables(path, True) == _tables(path, False)


def _tables(path: Path, takes_runs: bool) -> list[list[dict[str, Any]]]:
    parsing = Parsing(path, ["m"])
    parsing.takes_runs = takes_runs
    events = [row for piece in parsing.events() for row in piece.to_pylist()]
    return [events, parsing.requests().to_pylist()]


def test_a_text_that_is_no_chunk_has_no_shape():
    """Its bytes are looked at before they are believed."""
    assert shapes.shape_of(b'data: {"id":"a"\n\n') is None
    with pytest.raises(Malformed):
        decode(b'{"id":"a"')

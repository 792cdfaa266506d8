"""The record of a load: rows come back, a torn block costs only itself, a damaged one is an error, no key is in it."""

from __future__ import annotations

import base64
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from aaco.core.errors import BadCapture, StorageError
from aaco.llm import key_search, record
from aaco.llm.answers import MOST_LINE
from aaco.llm.parse import Parsing
from aaco.llm.record import Kind, ReadRecorder
from aaco.llm.stamps import ClockLooks


def written(path: Path, blocks: int = 2) -> Path:
    recorder = ReadRecorder(path)
    for block in range(blocks):
        for row in range(3):
            recorder.add(row, Kind.BODY, 100 + row, 200 + row, f"block {block} row {row}".encode(), 50)
        recorder.flush()
    recorder.close()
    return path


def test_rows_and_bytes_come_back(tmp_path: Path):
    first, second = record.read(written(tmp_path / "reads"))
    assert first.rows["request"].tolist() == [0, 1, 2] and first.rows["user_ns"].tolist() == [200, 201, 202]
    assert second.content == b"block 1 row 0block 1 row 1block 1 row 2" and second.rows["since_ns"].tolist() == [50] * 3


def test_the_looks_at_the_clocks_are_found_without_the_rest(tmp_path: Path):
    path = recorded(tmp_path / "reads", [ECHO % b"x"] * 3, flush=True)
    blocks = list(record.read(path))
    assert len(blocks) == 4 and list(map(str, record.read(path, Kind.CLOCK))) == list(map(str, blocks[:1]))


def test_a_record_cut_anywhere_keeps_its_whole_blocks(tmp_path: Path):
    """Mutation: what is left of a torn block is read."""
    whole = written(tmp_path / "reads").read_bytes()
    counts = []
    for size in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        counts.append(sum(len(block.rows) for block in record.read(tmp_path / "cut")))
    assert set(counts) == {0, 3, 6} and counts == sorted(counts) and counts[-2:] == [3, 6]


def test_a_flipped_byte_is_an_error_or_a_torn_end(tmp_path: Path):
    """Mutation: no checksum."""
    whole = written(tmp_path / "reads").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "bad").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1:])
        try:
            read = [block.content for block in record.read(tmp_path / "bad")]
        except BadCapture:
            continue
        assert len(read) < 2  # a size that reaches beyond the end


HEAD = b'{"status": 200, "content-type": "text/event-stream"}'
ZIPPED_HEAD = HEAD.replace(b"}", b', "content-encoding": "gzip"}')
KEY = b"sk-a/+%b"
ECHO = b'data: {"choices":[{"delta":{"content":"your key is %s"},"finish_reason":"stop"}]}\n\n'
FORMS = [KEY, KEY.replace(b"/", b"\\/"), KEY.replace(b"-", b"\\u002d").replace(b"+", b"\\u002B"),
         KEY.replace(b"/", b"\\\\/").replace(b"s", b"\\\\u0073"), b"sk-a%2f%2B%25b"]


def recorded(path: Path, reads: list[bytes], head: bytes = HEAD, key: bytes = KEY, flush: bool = False) -> Path:
    """The record of an answer in these reads, among those of another."""
    recorder = ReadRecorder(path, key)
    recorder.add(-1, Kind.CLOCK, 10**18, 0, b"100")
    for request in (0, 1):
        recorder.add(request, Kind.DISPATCH, 1, 1)
        recorder.add(request, Kind.HEAD, 10**18 + 2, 2, head if request else HEAD)
    for number, read in enumerate(reads):
        recorder.add(1, Kind.BODY, 10**18 + 10 * number + 10, 10 * number + 11, read, 10 * number + 5)
        recorder.add(0, Kind.BODY, 10**18 + 10 * number + 12, 10 * number + 13, ECHO % b"none", 10 * number + 5)
        if flush:
            recorder.flush()
    recorder.add(0, Kind.END, 0, 10**6)
    recorder.add(1, Kind.END, 0, 10**6)
    recorder.close()
    return path


def tables(path: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    parsing = Parsing(path)
    events = [row for piece in parsing.events() for row in piece.to_pylist()]
    return events, parsing.requests().to_pylist()


def bytes_of(path: Path) -> bytes:
    """What is kept of the answer, its reads one after the other."""
    kept = b""
    for block in record.read(path):
        ends = np.cumsum(block.rows["size"])
        kept += b"".join(block.content[end - row["size"]:end] for row, end in zip(block.rows, ends, strict=True)
                         if row["request"] == 1)
    return kept


@pytest.mark.parametrize("form", FORMS)
def test_no_key_reaches_the_file_however_it_is_cut(tmp_path: Path, form: bytes):
    """Nor does keeping it out change a time or a count. Mutations: no escapes; a cut line does not wait."""
    stream = ECHO % b"x" + ECHO % form + b"data: [DONE]"
    for number, at in enumerate(range(len(ECHO % b"x") - 1, len(stream) - 4, 5)):
        reads = [stream[:at], stream[at:at + 4], stream[at + 4:]]
        path = recorded(tmp_path / f"{number}", reads, flush=number % 2 == 0)
        kept = bytes_of(path)
        assert b"your key is ***" in kept and not any(part in kept for part in (b"sk-", b"k-a", b"u002d", b"%2f"))
        assert tables(path) == tables(recorded(tmp_path / f"{number} plain", reads, key=b""))


def test_no_key_reaches_the_file_in_a_compressed_stream(tmp_path: Path):
    """Mutation: compressed streams are kept as they came."""
    zipped = gzip.compress(ECHO % KEY + b"data: [DONE]\n\n")
    path = recorded(tmp_path / "reads", [zipped[:20], zipped[20:]], ZIPPED_HEAD)
    assert b"your key is ********" in bytes_of(path)
    _, (_, answer) = tables(path)
    assert answer["status"] == "ok" and answer["chunks"] == 1
    for number, bad in enumerate([b"no gzip", gzip.compress(bytes(MOST_LINE + 1))]):
        _, (other, answer) = tables(recorded(tmp_path / f"bad{number}", [bad], ZIPPED_HEAD))
        assert answer["status"] == "malformed" and other["status"] == "ok"


SPOKEN = b'data: {"choices":[{"delta":{"%s":"%s"},"finish_reason":null}]}\n\n'
LONG_KEY = b"sk-0%41/89abcd"


def pieces_of(text: bytes, length: int) -> list[bytes]:
    return [text[at:at + length] for at in range(0, len(text), length)]


@pytest.mark.parametrize("text", [
    LONG_KEY, base64.b64encode(b"Bearer " + LONG_KEY), base64.b64encode(b"me:" + LONG_KEY),
    base64.urlsafe_b64encode(b"????" + LONG_KEY + b":")])
@pytest.mark.parametrize("field", [b"content", b"reasoning"])
def test_a_key_that_a_model_writes_token_by_token_is_blanked(tmp_path: Path, text: bytes, field: bytes):
    """Its whole text becomes stars, and nothing else: times, counts and the other answer stay.

    Mutations: the pieces are not joined; one place of base64 only.
    """
    reads = [SPOKEN % (field, piece.replace(b"/", b"\\/").replace(b"-", b"\\u002d"))
             for piece in (b"it is ", *pieces_of(text, 3), b"!")]
    path = recorded(tmp_path / "reads", [*reads, b"data: [DONE]\n\n"], key=LONG_KEY, flush=len(field) > 7)
    before = tables(path)
    key_search.blank(path, LONG_KEY)
    kept = bytes_of(path)
    assert set(b"".join(key_search.TEXT.findall(kept))) == set(b"*")
    assert tables(path) == before
    assert sum(block.content.count(b"your key is none") for block in record.read(path)) == len(reads) + 1


@pytest.mark.parametrize("form", [base64.b64encode(b"Bearer " + LONG_KEY), b"Basic " + base64.b64encode(
    b":" + LONG_KEY)])
def test_a_key_in_base64_is_found_in_any_field(tmp_path: Path, form: bytes):
    read = b'data: {"error": {"message": "no", "header": "%s"}}\n\n' % form
    path = recorded(tmp_path / "reads", [ECHO % b"x", read], key=LONG_KEY)
    key_search.blank(path, LONG_KEY)
    assert form[-14:-4] not in bytes_of(path) and b'"message": "no", "header": "' in bytes_of(path)
    assert ECHO % b"x" in bytes_of(path)


@pytest.mark.parametrize("form", [LONG_KEY, LONG_KEY.replace(b"%", b"%25")])
def test_a_key_that_holds_an_escape_is_found(tmp_path: Path, form: bytes):
    """Mutation: content is compared without escapes, and the key with them."""
    assert b"your key is ****" in bytes_of(recorded(tmp_path / "reads", [ECHO % form], key=LONG_KEY))


def test_a_record_without_the_key_is_not_written_again(tmp_path: Path):
    path = recorded(tmp_path / "reads", [ECHO % b"x", SPOKEN % (b"content", b"sk-")], key=LONG_KEY)
    before = path.stat()
    key_search.blank(path, LONG_KEY)
    assert path.stat() == before


def test_what_holds_no_key_is_kept_as_it_came(tmp_path: Path):
    """Whole lines, an answer that is no stream, and a line without end."""
    reads = [ECHO % b"\\u00e9 100%25", b"data: x\r\n", b"\r", b"\ndata: half"]
    assert bytes_of(recorded(tmp_path / "reads", reads)) == bytes_of(recorded(tmp_path / "plain", reads, key=b""))
    document = [b'{"error": "no"}']
    head = b'{"status": 401}'
    assert bytes_of(recorded(tmp_path / "a", document, head)) == bytes_of(recorded(tmp_path / "b", document, head, b""))
    _, (_, answer) = tables(recorded(tmp_path / "long", [b"data: " + b"x" * MOST_LINE, b"\n\n"]))
    assert answer["status"] == "malformed"


def test_what_cannot_be_written_is_said(tmp_path: Path):
    with pytest.raises(StorageError):
        ReadRecorder(tmp_path)
    recorder = ReadRecorder(tmp_path / "reads")
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), recorder._descriptor)
    recorder.add(0, Kind.BODY, 0, 0, b"x")
    with pytest.raises(StorageError, match="No space"):
        recorder.close()


def test_stamps_around_a_step_of_the_wall_clock_are_not_used():
    """Looks at 1, 2, 3 s; the wall clock is set by 5 ms between the second and the third."""
    seconds = np.array([1, 2, 3]) * 1_000_000_000
    looks = ClockLooks(seconds, np.array([-10**18, -10**18 + 40, -10**18 - 5_000_000]), np.array([100, 100, 100]))
    read_at = np.array([1_500_000_000, 2_500_000_000, 3_500_000_000, 3_600_000_000, 1_600_000_000])
    stamps = np.array([10**18 + 1_499_990_000, 10**18 + 2_499_990_000, 10**18 + 5_000_000 + 3_499_990_000, 0,
                       10**18 + 1_700_000_000])
    assert looks.steps == 1
    assert looks.monotonic(stamps, read_at).tolist() == [1_499_990_000, 0, 3_499_990_000, 0, 0]

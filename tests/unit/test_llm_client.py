"""How the client reads: chunks that the parser need not see, and what is known of when it looked at a socket."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httptools
import pytest

from aaco.llm import client, stamps
from aaco.llm.client import MS, Load
from aaco.llm.connection import ServerConnection, chunk_begin, chunk_header
from aaco.llm.record import ReadRecorder

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class PlainParser:
    """httptools without anything of ours around it."""

    def __init__(self) -> None:
        self.body, self.is_complete = b"", False
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, content: bytes) -> None:
        self.body += content

    def on_message_complete(self) -> None:
        self.is_complete = True


def chunk(drawn: random.Random) -> bytes:
    """A chunk: most as servers write them, some in every other form that the grammar allows."""
    content = drawn.choice([b"data: {}\n\n", b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n",
                            drawn.randbytes(drawn.randint(1, 400))])
    size = drawn.choice([b"%x", b"%x", b"%x", b"%X", b"0%x"]) % len(content)
    return size + drawn.choice([b"", b"", b"", b";name=value"]) + b"\r\n" + content + b"\r\n"


@pytest.mark.parametrize("seed", range(20))
def test_whole_chunks_that_the_parser_does_not_see_change_nothing(seed: int):
    """Answers in reads of whole chunks, of several, and of parts. Mutations: a chunk is taken inside another one; after
    the first byte of the next size."""
    drawn = random.Random(seed)
    ours, plain = ServerConnection(socket.AF_INET), PlainParser()
    ours.begin(0, b"", 0)
    chunks = [HEAD, *(chunk(drawn) for _ in range(200)), b"0\r\n\r\n"]
    whole, ends, at = b"".join(chunks), [], 0
    for piece in chunks:
        at += len(piece)
        ends += [at] * drawn.choice([1, 1, 0]) + [at + drawn.randint(1, 3)] * drawn.choice([0, 0, 0, 1])
    body, begin = b"", 0
    for end in sorted({end for end in ends if end < len(whole)} | {len(whole)}):
        plain.parser.feed_data(whole[begin:end])
        body += ours.feed(whole[begin:end])
        assert (body, ours.is_complete) == (plain.body, plain.is_complete), (begin, end)
        begin = end
    assert ours.is_complete and ours.is_alive
    ours.close()


@pytest.mark.parametrize(("reads", "body"), [
    ([b"1\r\nx\r\n", b"a\r\n", b"5\r\nhello\r\n", b"\r\n"], b"x5\r\nhello\r\n"),
    ([b"1\r\nx\r\n1", b"5\r\nhello\r\n", b"of 21 bytes...\r\n"], b"xhello\r\nof 21 bytes...")])
def test_what_looks_like_a_chunk_but_is_none_is_parsed(reads: list[bytes], body: bytes):
    """Read alone, after a read that ends with the header of its chunk, or inside it.

    Mutations: a header ends a chunk, too; the next byte after an end begins a chunk wherever the read ends.
    """
    ours = ServerConnection(socket.AF_INET)
    ours.begin(0, b"", 0)
    assert b"".join(map(ours.feed, [HEAD, *reads, b"0\r\n\r\n"])) == body and ours.is_complete
    ours.close()


def test_most_reads_of_a_stream_are_left_out_of_the_parser(monkeypatch: pytest.MonkeyPatch):
    """Mutation: all are parsed."""
    ours = ServerConnection(socket.AF_INET)
    ours.begin(0, b"", 0)
    ours.feed(HEAD)
    ours.feed(b"5\r\nhello\r\n")
    parsed: list[bytes] = []
    monkeypatch.setattr(ours, "_parser", type("Parser", (), {"feed_data": lambda self, data: parsed.append(data)})())
    assert [ours.feed(b"%x\r\n%s\r\n" % (size, b"x" * size)) for size in (1, 15, 16, 300)] == [
        b"x" * size for size in (1, 15, 16, 300)]
    assert not parsed
    monkeypatch.undo()
    ours.close()


@pytest.mark.parametrize("size", [1, 9, 10, 15, 16, 255, 256, 4095, 4096, 70_000])
def test_a_header_says_the_size_of_its_chunk(size: int):
    """Every length of a read has at most one header. Mutation: the end of the chunk is part of its size."""
    content = b"%x\r\n%s\r\n" % (size, b"y" * size)
    assert chunk_header(len(content)) == b"%x\r\n" % size and chunk_begin(content) == len(b"%x\r\n" % size)
    for wrong in (content[:-1] + b"x", b"g" + content[1:], content[:-2], b"0\r\n\r\n", b"", b"\r\n"):
        assert not chunk_begin(wrong)


class Looks:
    """An epoll of which each call takes a planned time and returns a planned answer; and the clock of that."""

    def __init__(self, *calls: tuple[int, list[Any]]) -> None:
        self.at, self.calls, self.begun = 10**12, list(calls), []

    def poll(self, timeout: float, most: int) -> list[Any]:
        self.begun.append((self.at, timeout))
        took, ready = self.calls.pop(0)
        self.at += took
        return ready

    def now(self) -> int:
        return self.at


@pytest.mark.parametrize(("calls", "looked"), [
    ([(20_000, [(5, 1)])], 0), ([(30 * MS, [(5, 1)]), (0, [(5, 1), (6, 1)])], 30 * MS),
    ([(40 * MS, []), (0, [])], 40 * MS)])
def test_when_the_sockets_were_looked_at_is_never_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           calls: Any, looked: int):
    """Before a short wait, or before the look after a long one, whose answer counts.

    Mutation: after the wait, when the kernel had looked before.
    """
    recorder = ReadRecorder(tmp_path / "reads")
    ours = client._Client(Load([b""], None, 1), [], [], [recorder], lambda done, total: None)
    ours._epoll.close()
    looks = Looks(*calls)
    monkeypatch.setattr(ours, "_epoll", looks)
    monkeypatch.setattr(stamps, "now", looks.now)
    ready = ours._wait(looks.at + 40 * MS)
    assert ready == calls[-1][1] and ours._looked == 10**12 + looked
    assert 0.039 < looks.begun[0][1] < 0.04  # epoll rounds up to milliseconds
    recorder.close()
    ours._waits.close()


@pytest.mark.parametrize(("since", "opened", "due", "stamped", "rested"), [
    (20_000, client.MANY, 10 * MS, True, client.SPACING_NS - 100_000), (600_000, client.MANY, 10 * MS, True, 400_000),
    (2 * client.SPACING_NS, client.MANY, 10 * MS, True, 0), (20_000, client.MANY - 1, 10 * MS, True, 0),
    (20_000, client.MANY, 200_000, True, 200_000), (20_000, client.MANY, 10 * MS, False, 0)])
def test_looks_at_many_sockets_are_apart_where_each_event_has_its_stamp(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, opened: int, due: int, stamped: bool, rested: int):
    """0.1 ms after a look, which came `since` after the one before. Nothing that is due waits.

    Mutations: what is due waits, too; a rest without stamps; with few connections; after rare looks.
    """
    recorder = ReadRecorder(tmp_path / "reads")
    ours = client._Client(Load([b""], None, 1), [], [], [recorder], lambda done, total: None)
    at, rests = [10**12], []

    def sleep(seconds: float) -> None:
        rests.append(round(seconds * stamps.NS))
        at[0] += rests[-1]

    monkeypatch.setattr(stamps, "now", lambda: at[0])
    monkeypatch.setattr(client.time, "sleep", sleep)
    monkeypatch.setattr(ours, "_by_descriptor", dict.fromkeys(range(opened)))
    ours._looked, ours._since = at[0] - 100_000, at[0] - 100_000 - since
    ours._spacing = client.SPACING_NS if stamped else 0
    assert ours._rest(at[0] + due) == 10**12 + rested and sum(rests) == rested
    recorder.close()
    ours._epoll.close()
    ours._waits.close()


def test_a_read_without_a_stamp_ends_the_rests(tmp_path: Path):
    """Its time is that of the look: a later look would be a later time. Mutation: looks stay apart."""
    recorder = ReadRecorder(tmp_path / "reads")
    ours = client._Client(Load([b""], None, 1), [], [], [recorder], lambda done, total: None)
    connection = ServerConnection(socket.AF_INET)
    connection.begin(0, b"", 0)
    stamp = (socket.SOL_SOCKET, stamps.SO_TIMESTAMPING, stamps.STAMP.pack(1_700_000_000, 5) * 3)
    for raw, messages, spacing in ((HEAD, [stamp], client.SPACING_NS), (b"1\r\nx\r\n", [], 0)):
        connection.receive = lambda most, room, answer=(raw, messages): (*answer, 0, None)  # type: ignore[assignment]
        ours._read(connection)
        assert ours._spacing == spacing
    connection.close()
    recorder.close()
    ours._epoll.close()
    ours._waits.close()


def test_what_is_said_in_a_conversation_is_kept_however_it_comes(tmp_path: Path):
    """A read that is a whole chunk, too, as most are where the client is not late. Mutation: those are not listened to.
    """
    said, recorder = [], ReadRecorder(tmp_path / "reads")
    talk = SimpleNamespace(count=1, add=lambda request, body: said.append((request, body)))
    ours = client._Client(Load([], None, 1, conversations=talk), [], [], [recorder],  # type: ignore[arg-type]
                          lambda done, total: None)
    connection = ServerConnection(socket.AF_INET)
    connection.begin(0, b"", 0)
    for raw in (HEAD, b"1\r\nx\r\n", b"1\r\ny\r\n"):
        connection.receive = lambda most, room, raw=raw: (raw, [], 0, None)  # type: ignore[assignment]
        ours._read(connection)
    assert said == [(0, b"x"), (0, b"y")]
    connection.close()
    recorder.close()
    ours._epoll.close()
    ours._waits.close()


def test_what_is_due_soon_is_waited_for_to_the_microsecond(tmp_path: Path):
    """Mutation: epoll waits for all of it, in whole milliseconds."""
    recorder = ReadRecorder(tmp_path / "reads")
    ours = client._Client(Load([b""], None, 1), [], [], [recorder], lambda done, total: None)
    begin = stamps.now()
    late = []
    for _ in range(20):
        until = stamps.now() + 300_000
        assert not ours._wait(until)
        late.append(stamps.now() - until)
    assert min(late) >= 0 and min(late) < 600_000 and stamps.now() > begin
    recorder.close()
    ours._epoll.close()
    ours._waits.close()

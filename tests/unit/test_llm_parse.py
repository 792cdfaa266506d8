"""A record becomes tables: which times events get, and between which times the others lie."""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.tables import LLM_EVENTS
from aaco.llm import answers, parse
from aaco.llm.parse import Parsing
from aaco.llm.record import Kind, ReadRecorder
from tests.fakes.llm_server import DONE, event, sse

WALL = 10**18  # CLOCK_REALTIME minus CLOCK_MONOTONIC, ns
HEAD = json.dumps({"status": 200, "content-type": "text/event-stream"}).encode()


def parsed(path: Path, *reads: tuple[int, int, int, bytes], head: bytes = HEAD
           ) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Events and the request of an answer with these reads: kernel's time (0: none), user's, since when, content."""
    recorder = ReadRecorder(path)
    recorder.add(-1, Kind.CLOCK, WALL, 0, b"100")
    recorder.add(0, Kind.DISPATCH, 1_000, 1_500)
    recorder.add(0, Kind.SENT, 0, 2_000)
    recorder.add(0, Kind.FIRST, WALL + 5_000, 9_000)
    recorder.add(0, Kind.HEAD, WALL + 5_000, 9_000, head)
    for kernel, user, since, content in reads:
        recorder.add(0, Kind.BODY, kernel and WALL + kernel, user, content, since)
    recorder.add(0, Kind.END, 0, 90_000)
    recorder.close()
    parsing = Parsing(path)
    events = [row for piece in parsing.events() for row in piece.to_pylist()]
    return events, parsing.requests().to_pylist()[0]


def test_an_event_has_the_time_of_the_kernel_and_not_of_a_late_client(tmp_path: Path):
    """The client read 25 us later. Mutation: the time of the read."""
    events, request = parsed(tmp_path / "reads", (10_000, 35_000, 8_000, event("a")), (40_000, 41_000, 36_000, DONE))
    assert [(row["t_ns"], row["earliest_ns"], row["delay_ns"]) for row in events] == [
        (10_000, None, 25_000), (40_000, None, 1_000)]
    assert [row["kind"] for row in events] == ["content", "done"] and set(events[0]) == set(LLM_EVENTS.columns)
    assert (request["t_intended_ns"], request["t_send_ns"], request["t_sent_ns"]) == (1_000, 1_500, 2_000)
    assert (request["t_first_byte_ns"], request["t_first_ns"], request["t_end_ns"]) == (5_000, 10_000, 90_000)


def test_of_events_that_were_read_together_only_the_last_has_a_time(tmp_path: Path):
    """The others came since the client looked before. Mutation: all have the stamp."""
    events, request = parsed(tmp_path / "reads", (10_000, 11_000, 9_500, event("a")),
                             (30_000, 31_000, 20_000, event("b") + event("c") + DONE))
    assert [(row["t_ns"], row["earliest_ns"]) for row in events] == [
        (10_000, None), (30_000, 20_000), (30_000, 20_000), (30_000, None)]
    assert (request["t_last_ns"], request["t_last_earliest_ns"]) == (30_000, 20_000)
    assert (request["t_first_ns"], request["t_first_earliest_ns"]) == (10_000, None)


def test_after_a_full_read_what_follows_came_after_its_end(tmp_path: Path):
    """since_ns 0: something may have been left. Then the stamp of the read before is the bound."""
    events, _ = parsed(tmp_path / "reads", (10_000, 11_000, 9_500, event("a")),
                       (30_000, 31_000, 0, event("b") + event("c")))
    assert [row["earliest_ns"] for row in events] == [None, 10_000, None]


def test_events_that_were_read_with_the_header_may_have_come_before_its_stamp(tmp_path: Path):
    """The stamp is that of the last packet. Mutation: the header's stamp bounds them."""
    events, _ = parsed(tmp_path / "reads", (5_000, 9_000, 2_500, event("a") + event("b")))
    assert [(row["t_ns"], row["earliest_ns"]) for row in events] == [(5_000, 2_500), (5_000, None)]


def test_a_read_without_a_stamp_bounds_nothing_behind_it(tmp_path: Path):
    """What came next may have come before the client looked at the clock. Mutation: its time is a bound."""
    events, _ = parsed(tmp_path / "reads", (0, 20_000, 9_500, event("a")), (30_000, 31_000, 0, event("b") + event("c")))
    assert [row["earliest_ns"] for row in events] == [9_500, 9_500, None]


def test_a_read_that_ends_inside_an_event_gives_no_time(tmp_path: Path):
    whole = event("b")
    events, _ = parsed(tmp_path / "reads", (10_000, 11_000, 9_500, event("a") + whole[:9]),
                       (30_000, 31_000, 20_000, whole[9:]))
    assert [(row["t_ns"], row["earliest_ns"]) for row in events] == [(10_000, 9_500), (30_000, None)]


def test_without_a_stamp_the_time_is_the_read_and_an_interval(tmp_path: Path):
    """Mutation: it is taken for exact."""
    events, _ = parsed(tmp_path / "reads", (0, 11_000, 9_500, event("a")), (0, 31_000, 20_000, event("b")))
    assert [(row["t_ns"], row["earliest_ns"], row["delay_ns"]) for row in events] == [
        (11_000, 9_500, None), (31_000, 20_000, None)]


pieces = st.lists(st.sampled_from([
    event("a"), event("b", usage={"completion_tokens": 2}), event(""), event("a") + event("b"), event("a")[:-1], b"\n",
    event("a")[:9], event("a")[9:], b"data: {}\n\n", b"data: {\n\n", b"data: {", b": comment\n\n", b"data: {\r\n\r\n",
    sse({"error": {"message": "no"}}), sse({"choices": [{"delta": {"reasoning": "hm"}}]}), DONE]), max_size=12)


@given(pieces)
def test_reads_that_are_one_event_are_known_by_their_letters(found: list[bytes]):
    """Mutation: a line that ends elsewhere is one, too."""
    ends = np.cumsum([len(piece) for piece in found], dtype=np.int64)
    assert answers.are_one_event(b"".join(found), ends).tolist() == [
        piece.startswith(b"data: {") and piece.count(b"\n") == 2 and piece.endswith(b"\n\n") for piece in found]


@given(pieces, st.booleans())
def test_a_read_that_is_one_event_is_read_as_any_other(found: list[bytes], is_gzip: bool):
    """With the short way and without it the tables are the same. Mutation: what follows the begin of an event is one
    by itself."""
    compress = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    sent = [compress.compress(piece) + compress.flush(zlib.Z_SYNC_FLUSH) for piece in found] if is_gzip else found
    head = HEAD[:-1] + b', "content-encoding": "gzip"}' if is_gzip else HEAD
    reads = [(0 if at % 5 == 4 else 10_000 + 100 * at, 10_050 + 100 * at, 0, piece) for at, piece in enumerate(sent)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        short = parsed(Path(folder) / "short", *reads, head=head)
        patch.setattr(parse, "are_one_event", lambda content, ends: np.zeros(len(ends), bool))
        assert short == parsed(Path(folder) / "whole", *reads, head=head)

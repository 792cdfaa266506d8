"""profiler.io.malformed: every sound event is read, whatever stands where one was."""

from __future__ import annotations

import json
import random

import pytest

from aaco.profiler.formats.pytorch.chrome import ChromeEvent
from aaco.profiler.io import jsonstream

BAD = [b'{"ph": "X", "name": "a\nb", "args": {"list": [{"ph2": 1}, {"q": 2}]}}',
       b'{"ph": "X", "name": "say "no", "ts": 1}',
       b'{"ph": "X", "args": {"rate": inf}}', b'{"ph": "X", "args": {"rate": NaN}}', b'{"ph": "X", "name": "\xff"}',
       b'{"ph": "X", "name": "open, "ts": 1, "args": {"x": {}}}', b"{}}", b"null", b'{"ph": "X", "ts": 1.2.3}']


@pytest.mark.parametrize("seed", range(40))
def test_the_others_are_read_at_any_size_of_chunk(tmp_path, monkeypatch, seed):
    """Mutation: a malformed event ends where any object begins, also one of its arguments."""
    chance = random.Random(seed)
    monkeypatch.setattr(jsonstream, "CHUNK_BYTES", chance.choice([300, 900, 1 << 20]))
    count = chance.randrange(1, 60)
    bad_places = set(chance.sample(range(count), chance.randrange(1, min(4, count) + 1)))
    events = [chance.choice(BAD) if place in bad_places else json.dumps(
        {"ph": "X", "name": f"k{place}", "ts": place, "args": {"shapes": [{"a": 1}, {"b": [place]}]}}).encode()
        for place in range(count)]
    bare = chance.random() < 0.3
    text = b"[" + b",\n ".join(events) + b"]"
    path = tmp_path / "t.json"
    path.write_bytes(text if bare else b'{"schemaVersion": 1, "traceEvents": ' + text + b', "traceName": "n"}')
    document = jsonstream.JsonDocument(path, ChromeEvent)
    with jsonstream.skipping_bad(True):
        names = [event.name for batch in document.batches() for event in batch]
    assert names == [f"k{place}" for place in range(count) if place not in bad_places]
    assert 0 < len(document.bad_events) <= len(bad_places)  # neighbours are one gap
    assert not document.cut and any("malformed events left out" in problem for problem in document.problems)


def test_a_sound_file_loses_nothing_and_one_that_is_cut_says_so(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [{"ph": "X", "name": "a"}, {"ph": "X", "name": "b"}, {"ph": "X", "na')
    document = jsonstream.JsonDocument(path, ChromeEvent)
    with jsonstream.skipping_bad(True):
        assert [event.name for batch in document.batches() for event in batch] == ["a", "b"]
    assert document.cut and len(document.bad_events) == 1

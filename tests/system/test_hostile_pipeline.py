"""The whole pipeline on captures that were damaged by someone who knows their structure (benchmarks/hostile.py)."""

from __future__ import annotations

from benchmarks import hostile
from benchmarks.hostile_readers import READERS, total
from tests import third_party

MUTANTS, SEED = 138, 7  # six of each format; the benchmark makes thousands. Three end before they start


def test_damaged_captures_are_read_or_refused_and_nothing_is_lost_without_a_word(monkeypatch):
    """Mutations: records that end before they start are rows; a failure that leaves its session."""
    monkeypatch.setattr(hostile, "CAPTURES", third_party.captures())
    tallies = hostile.run(MUTANTS, SEED)
    assert not [failure for tally in tallies.values() for failure in tally.failures]
    assert sum(sum(tally.outcomes.values()) for tally in tallies.values()) == MUTANTS
    assert all(tallies[form].outcomes["read"] for form in READERS)


def test_the_plain_readers_count_what_has_a_time():
    pairs = [(5, 9), (9, 5), (0, 5), (5, 0), (5, None), (5, 6 + (1 << 53)), (6, 8), (6, 7), (10**18, 10**18 + 1)]
    assert total(pairs) == (3, 7)
    assert total(pairs, from_zero=True) == (4, 12)
    assert total([(5, 9), (6, 8), (10**15, 10**15 + 1)]) == (2, 6)

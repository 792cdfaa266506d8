"""Numbers in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.words import counted, in_time
from aaco.report.format import duration


@pytest.mark.parametrize(("ns", "words"), [
    (0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (50_020_000, "50.0 ms"), (257_085_121, "257 ms"),
    (-7_000_000_000, "-7.00 s"), (9996, "10.0 us"), (5_000_000_000_000, "5,000 s")])
def test_times_have_three_digits_and_the_unit_that_fits(ns, words):
    assert in_time(ns) == words


@given(st.integers(-10**13, 10**13))
def test_a_time_has_the_same_digits_in_a_sentence_and_in_a_table(ns):
    assert in_time(ns) == duration(ns)


@pytest.mark.parametrize(("count", "sentence"), [
    (3, "3 copies name an agent and are left out"), (1, "1 copy names an agent and is left out"),
    (1_000, "1,000 copies name an agent and are left out")])
def test_a_sentence_of_many_is_of_one_where_there_is_one(count, sentence):
    """"1 records of 'copy' look like work of a device and are missing". Mutation: a plural for every count."""
    assert counted(count, "copies name an agent and are left out") == sentence
    assert counted(1, "kernel records have no time") == "1 kernel record has no time"
    assert counted(1, "bytes of buffers hold records") == "1 byte of buffers holds records"
    assert counted(1, "events begin or end between") == "1 event begins or ends between"
    for name in ("begin", "have.name", "'are they'"):
        assert counted(1, f"values of {name} are no numbers") == f"1 value of {name} is no numbers"

"""Demangling of anything: it ends, answers what it was asked, and answers a symbol alike whatever stands beside it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.profiler.io.demangle import LONGEST_TEXT, demangled

# The letters of the grammar, in which most strings say something for a while.
GRAMMAR = st.text("NIEKPRSTLFXDZCvifjlbdxsU_0123456789tAaonwe", max_size=300)
DEEP = st.builds(lambda part, times, rest: part * times + rest, GRAMMAR.filter(bool), st.integers(1, 400), GRAMMAR)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(max_size=60) | (GRAMMAR | DEEP).map("_Z1fI".__add__) | (GRAMMAR | DEEP).map("_Z".__add__),
                max_size=40))
def test_it_ends_and_answers_what_it_was_asked(names):
    found = demangled([*names, "_Z1fv"])
    assert found.keys() <= {*names, "_Z1fv"} and found["_Z1fv"] == "f()"
    assert all(text and len(text) <= LONGEST_TEXT for text in found.values())

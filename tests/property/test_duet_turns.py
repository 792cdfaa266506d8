"""The device's time in each turn against counting every ns of it; work that is of no turn is refused."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.attribution import turns
from aaco.core.readings import Absent

UNIT_NS = 10_000  # so coarse that what the clocks may be apart decides nothing


def slowly(works, spans):
    """Per turn the units in which something runs; None where that cannot be said."""
    cells = [set() for _ in spans]
    for start, end in works:
        if end <= spans[0][0]:
            continue
        held = [at for at, (begin, finish) in enumerate(spans) if begin <= start and end <= finish]
        if not held:
            return None
        cells[held[0]] |= set(range(start, end))
    return [len(some) for some in cells] if all(cells) else None


@st.composite
def recorded(draw):
    """Turns one after the other, and work: mostly within them, now and then anywhere."""
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(2, 9)), min_size=1, max_size=6))
    edges = list(accumulate((step for pair in steps for step in pair), initial=5))[1:]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    works = []
    for begin, finish in spans:
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(begin, finish - 1))
            works.append((start, draw(st.integers(start + 1, finish))))
    anywhere = st.tuples(st.integers(0, edges[-1] + 3), st.integers(1, 6)).map(lambda one: (one[0], sum(one)))
    return draw(st.permutations(works + draw(st.lists(anywhere, max_size=1)))), spans


def busy(works, spans):
    columns = (*zip(*works, strict=True), *zip(*spans, strict=True))
    return turns.busy_ns(*(UNIT_NS * np.array(column, np.int64) for column in columns))


@given(recorded())
def test_every_unit_of_work_counts_once_in_its_turn(found):
    """Mutation: a sum in place of the union; work that lies across turns given to one of them."""
    works, spans = found
    expected = slowly(works, spans)
    if expected is None:
        with pytest.raises(Absent):
            busy(works, spans)
    else:
        assert busy(works, spans).tolist() == [count * UNIT_NS for count in expected]


def test_a_microsecond_between_the_clocks_moves_nothing_and_more_is_said():
    spans = [np.array([100_000, 200_000]), np.array([150_000, 250_000])]
    assert turns.busy_ns(np.array([99_200, 249_000]), np.array([120_000, 250_900]), *spans).tolist() == [20_800, 1_900]
    with pytest.raises(Absent, match="1 of 2 pieces of the device's work lie in no turn"):
        turns.busy_ns(np.array([98_000, 249_000]), np.array([120_000, 250_900]), *spans)


@pytest.mark.parametrize("works, why", [([(0, 1)], "did nothing in 1 of 1"), ([(6, 7), (8, 30)], "no turn")])
def test_what_cannot_be_said_has_its_reason(works, why):
    with pytest.raises(Absent, match=why):
        busy(works, [(5, 20)])

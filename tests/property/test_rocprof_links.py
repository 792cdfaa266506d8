"""profiler.rocprof_links against a search through all calls and all work for every arrow."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aaco.profiler.formats.rocprof_legacy.rocprof_links import NONE, Spots, linked, paired

SPOT = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 12))
SPOTS = st.lists(SPOT, max_size=12)


def slowly(arrows, calls, works):
    """The least id of the arrows of each call, and that of its call for each piece of work."""
    pairs, taken = [], {}
    for number, (row, lane, us), end in sorted(arrows, key=lambda arrow: arrow[2][2]):
        begun = [(at, index) for index, (r, lane_, at) in enumerate(calls) if (r, lane_) == (row, lane) and at <= us]
        there = [index for index, spot in enumerate(works) if spot == end]
        nth = taken[end] = taken.get(end, -1) + 1
        if begun and nth < len(there):
            pairs.append((max(begun)[1], there[nth], number))
    of_call = [min((number for call, _, number in pairs if call == index), default=NONE) for index in range(len(calls))]
    of_work = [next((of_call[call] for call, work, _ in pairs if work == index), NONE) for index in range(len(works))]
    return of_call, of_work


@example(calls=[(1, 1, 0)], works=[(0, 0, 0)], arrows=[((0, 0, 0), (0, 0, 0)), ((1, 1, 0), (0, 0, 0))])
@settings(max_examples=300, deadline=None)
@given(calls=SPOTS, works=SPOTS, arrows=st.lists(st.tuples(SPOT, SPOT), max_size=12))
def test_every_arrow_finds_the_call_and_the_work_that_a_search_finds(calls, works, arrows):
    """Broken by: side="left" in `_begun`, dropping `nth` in `_at`, the last work taken for arrows past it."""
    numbered = [(number, start, end) for number, (start, end) in enumerate(arrows)]
    ids = Spots.of([(number, 0, 0) for number, _, _ in numbered]).row
    found = linked(paired(ids, Spots.of([end for _, _, end in numbered]), ids,
                          Spots.of([start for _, start, _ in numbered])), Spots.of(calls), Spots.of(works))
    assert [column.tolist() for column in found] == list(map(list, slowly(numbered, calls, works)))


@given(starts=st.lists(st.integers(0, 5), max_size=8), ends=st.lists(st.integers(0, 5), max_size=8))
def test_an_end_is_paired_with_the_first_start_of_its_id(starts, ends):
    column = Spots.of([(number, 0, 0) for number in ends]).row
    begin = Spots.of([(number, 0, 0) for number in starts]).row
    found = paired(column, Spots.of([(0, 0, at) for at in range(len(ends))]), begin,
                   Spots.of([(1, 1, at) for at in range(len(starts))]))
    assert list(zip(found.ids.tolist(), found.start.us.tolist(), found.end.us.tolist(), strict=True)) == [
        (number, starts.index(number), at) for at, number in enumerate(ends) if number in starts]

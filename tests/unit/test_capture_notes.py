"""What captures of an import say of ranks that are not among them."""

import pytest

from aaco.core.inputs import OF_THE_HOST
from aaco.core.readings import Reading
from aaco.steps import notes


def said(*ranks):
    listed = [{"index": number, "rank": rank, "world_size": size, "problems": []}
              for number, (rank, size) in enumerate(ranks)]
    return notes.of_captures({"captures": listed, "notes": []})


def test_ranks_without_a_capture_are_counted():
    """Mutation: ranks without a number are one."""
    assert said((0, 4), (2, 4)) == ["captures of 2 of 4 ranks are missing: what the others waited for, and which rank "
                                    "is late, is not known."]


@pytest.mark.parametrize("ranks", [[(0, 2), (1, 2)], [(None, 2)], [(0, 1)], [(None, None)], [(0, 2), (1, 2), (1, 2)]])
def test_where_all_are_there_or_not_numbered_nothing_is_said(ranks):
    assert said(*ranks) == []


@pytest.mark.parametrize(("why", "said"), [
    (f"on CUDAExecutionProvider {OF_THE_HOST}", ["kernel times are the host's part of each node, not the device's: "
                                                 "trace it, too (aaco trace -- PROGRAM)."]), ("not recorded", [])])
def test_times_of_the_host_are_not_taken_for_the_devices(why, said):
    """Mutation: an import says nothing of it."""
    readings = {"device_limited_pct": Reading("device_limited_pct", "pct", None, why)}
    assert list(notes.of_import({}, readings)) == said

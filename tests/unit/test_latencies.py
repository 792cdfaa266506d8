"""Latencies as people keep them."""

import pytest

from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.core.errors import UsageError
from aaco.profiler.formats import latencies


@pytest.mark.parametrize(("text", "expected"), [
    ("1.5\n2.5\n", [1.5, 2.5]), ("ms\n1.5\n2.5\n", [1.5, 2.5]), ("i,t_ns,latency_us\n0,5,1500\n1,9,2500\n", [1.5, 2.5]),
    ("iteration,Latency (s)\n0,0.002\n", [2.0]), ("latency_ns\n2500000\n\n", [2.5])])
def test_a_file_says_its_unit_in_the_header(tmp_path, text, expected):
    """Mutation: taking the first column with a unit in place of the one called latency."""
    path = tmp_path / "times.csv"
    path.write_text(text)
    assert latencies.read(str(path)) == pytest.approx(expected)


def test_a_number_is_milliseconds():
    assert latencies.read("3.5") == [3.5]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "ms\n", "ms\nfast\n", "ms\n0\n", "1,2\n3,4\n", "x_ms,y_ms\n1,2\n",
                                  "ms\nnan\n", "latency_ms\n-1\n", "\x00\n"])
def test_what_is_no_list_of_latencies_is_refused_with_a_way_out(tmp_path, text):
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        latencies.read(str(path))
    assert refused.value.fix


def test_no_file_and_no_number():
    with pytest.raises(UsageError, match="No such file"):
        latencies.read("nowhere.csv")


@pytest.mark.parametrize(("count", "fastest"), [(9, None), (10, 2.0), (20, 3.0)])
def test_the_fastest_tenth_is_known_of_ten_steps_and_more(count, fastest):
    given = Unprofiled.of([float(number) for number in range(count, 0, -1)], "times.csv")
    assert (given.count, given.median_ms, given.fastest_ms) == (count, (count + 1) / 2, fastest)

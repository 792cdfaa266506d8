"""Dispatches by duration, however the table is sliced, against counting them one by one.

Mutations that these tests caught: `side="left"`, `length <= self._below_ns`, kernels of the host counted, the second
column of _by_name not added to.
"""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics.timeline.launch_tax import COLUMNS, EDGES_US, Durations, LaunchTax
from aaco.analytics.timeline.trace import trace
from aaco.core.config import Config
from aaco.core.documents import decode, encode
from tests import timed

LIMIT_NS = 10_000
EDGES = [1000 * edge for edge in EDGES_US]
NS = st.sampled_from(EDGES).flatmap(lambda edge: st.sampled_from([max(0, edge - 1), edge, edge + 1])) | st.integers(
    0, 6_000_000)
ROWS = st.lists(st.tuples(NS, st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=1, max_size=30)


@given(ROWS, st.integers(1, 7))
@example([(LIMIT_NS, "a", False)], 1)
def test_buckets_and_short_kernels(rows, piece):
    table = timed.kernels(*(timed.at(10**8 * n, 10**8 * n + ns, kernel_name=name, device_id=None if host else 0)
                            for n, (ns, name, host) in enumerate(rows)), timed.at(10**12, 10**12 + 5, kernel_name="z"))
    durations = Durations(LIMIT_NS)
    for begin in range(0, len(table), piece):
        durations.feed(table.slice(begin, piece).select(COLUMNS))
    found = durations.result(trace(table, Config.default().analysis))
    mine = [(ns, name or "unnamed") for ns, name, host in rows if not host] + [(5, "z")]
    for bucket in found.buckets:
        top = float("inf") if bucket.to_us is None else 1000 * bucket.to_us
        inside = [ns for ns, _ in mine if 1000 * bucket.from_us <= ns < top]
        assert (bucket.count, bucket.ns) == (len(inside), sum(inside))
    assert (found.kernels, found.kernel_ns) == (len(mine), sum(ns for ns, _ in mine))
    short = [(ns, name) for ns, name in mine if ns < LIMIT_NS]
    assert (found.short, found.short_ns) == (len(short), sum(ns for ns, _ in short))
    counts, total = Counter(name for _, name in short), Counter(name for _, name in mine)
    assert {one.kernel_name: (one.count, one.calls) for one in found.top} == {
        name: (count, total[name]) for name, count in counts.items()}
    assert [one.count for one in found.top] == sorted(counts.values(), reverse=True)
    assert found.names == len(counts)
    assert sum(part.ns for part in found.gaps.values()) == found.idle_ns
    if found.score is not None:
        assert abs(found.score - len(short) / len(mine) * (1e9 * len(mine) / found.span_ns) / 1000) < 1e-9
    assert decode(encode(found), LaunchTax) == replace(found, gaps=dict(found.gaps))

"""Whatever the graph and the durations, no nanosecond is made or lost."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics import attribution
from aaco.core import tables

COST = st.one_of(st.none(), st.integers(0, 10**12))


@given(st.lists(st.tuples(COST, COST), min_size=1, max_size=8), st.data())
def test_shares_sum_to_each_kernels_duration(costs, data):
    ids = list(range(len(costs)))
    nodes = tables.GRAPH_NODES.build(node_id=ids, flops_each=[cost[0] for cost in costs],
                                     bytes_each=[cost[1] for cost in costs])
    sources = data.draw(st.lists(st.lists(st.sampled_from(ids), unique=True), min_size=1, max_size=4))
    executed = tables.EXECUTED_NODES.build(executed_id=range(len(sources)), name=[str(i) for i in range(len(sources))],
                                           source_nodes=sources)
    ran = data.draw(st.lists(st.tuples(st.integers(0, len(sources)), st.integers(0, 2**62)), max_size=12))
    kernels = tables.KERNELS.build(kernel_id=range(len(ran)), executed_node=[str(name) for name, _ in ran],
                                   dur_ns=[duration for _, duration in ran])
    total = defaultdict(int)
    for row in attribution.map_nodes(kernels, executed, nodes).to_pylist():
        assert row["share_ns"] >= 0
        total[row["kernel_id"]] += row["share_ns"]
    assert dict(total) == {index: duration for index, (_, duration) in enumerate(ran)}

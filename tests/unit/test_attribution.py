"""Kernel time shared out over nodes: conserved to the ns."""

import numpy as np
import pytest

from aaco.analytics import attribution
from aaco.core import tables

NODES = tables.GRAPH_NODES.build(node_id=[0, 1, 2, 3], flops_each=[900, 100, 0, 0], bytes_each=[8, 8, 30, 10])
EXECUTED = tables.EXECUTED_NODES.build(
    executed_id=[0, 1, 2, 3], name=["fused", "single", "moved", "inserted"],
    op_type=["Conv", "Relu", "Copy", "Reorder"], domain=[""] * 4, source_nodes=[[0, 1], [2], [2, 3], []])


def kernels(names, durations):
    return tables.KERNELS.build(kernel_id=range(len(names)), kernel_name=names, executed_node=names, dur_ns=durations,
                                iteration=[0] * len(names))


def rows(mapped):
    return [tuple(row[name] for name in ("node_id", "kernel_id", "method", "share_ns")) for row in mapped.to_pylist()]


def test_fused_time_is_split_by_flops_then_bytes_and_the_rest_stays_unattributed():
    mapped = attribution.map_nodes(kernels(["fused", "single", "moved", "inserted", "stranger"], [1001, 7, 40, 5, 6]),
                                   EXECUTED, NODES)
    assert rows(mapped) == [
        (0, 0, "modelled", 901), (1, 0, "modelled", 100), (2, 1, "exact_symbol", 7), (2, 2, "modelled", 30),
        (3, 2, "modelled", 10), (None, 3, "unattributed", 5), (None, 4, "unattributed", 6)]
    assert mapped["confidence"].to_pylist() == [None, None, 1.0, None, None, None, None]


def test_groups_equal_numpy():
    durations = np.random.default_rng(5).integers(1, 10**6, 300)
    found = attribution.group(kernels(["a"] * 200 + ["b"] * 100, durations), 10**9).to_pylist()
    by_name = {row["kernel_name"]: row for row in found}
    a = durations[:200]
    assert by_name["a"]["total_ns"] == a.sum()
    assert by_name["a"]["p50_ns"] == pytest.approx(np.quantile(a, 0.5))
    assert by_name["a"]["p99_ns"] == pytest.approx(np.quantile(a, 0.99))
    assert by_name["a"]["std_ns"] == pytest.approx(a.std(ddof=1))
    assert by_name["b"]["pct_of_window"] == pytest.approx(100 * durations[200:].sum() / 1e9)
    assert sum(row["pct_of_kernel_time"] for row in found) == pytest.approx(100)


def test_too_few_calls_have_no_p99_and_one_has_no_spread():
    row = attribution.group(kernels(["a"], [5]), None).to_pylist()[0]
    assert (row["p99_ns"], row["std_ns"], row["pct_of_window"]) == (None, None, None)


def test_shares_are_exact_beyond_what_a_float_can_count():
    duration = 2**62 + 1
    mapped = attribution.map_nodes(kernels(["fused"], [duration]), EXECUTED, NODES)
    assert sum(mapped["share_ns"].to_pylist()) == duration

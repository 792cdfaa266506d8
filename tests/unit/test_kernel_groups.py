"""examinations.kernel_groups: sorted on disk a little at a time, the table is that of everything in memory."""

import numpy as np
import pytest

from aaco.analytics.kernels import kernel_groups as analytics
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNEL_GROUPS, KERNELS
from aaco.steps import make_findings
from aaco.steps.findings import kernel_groups
from aaco.tracelake import layout, store
from aaco.tracelake.ingest.lake import Writer


@pytest.mark.parametrize("run_bytes", [1 << 10, 1 << 22])
def test_however_little_is_sorted_at_once_the_table_is_the_same(tmp_path, monkeypatch, run_bytes):
    """Mutation: `dur_ns` left out of the order."""
    monkeypatch.setattr(kernel_groups, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(store, "ROW_GROUP", 500)
    session = Session.create(tmp_path, {"model": "m", "imports": []}, "", "0")
    chance, count = np.random.default_rng(5), 4_000
    start, took = np.sort(chance.integers(0, 10**9, count)), chance.integers(-5, 10**6, count)
    rows = KERNELS.build(kernel_id=np.arange(count), kernel_name=chance.choice(["a", "b", "c"], count).tolist(),
                         family=chance.choice(["gemm", "copy"], count).tolist(), t_start_ns=start,
                         t_end_ns=start + took, dur_ns=took)
    with Writer(session) as writer:
        writer.add(rows, 0)
        writer.write([None])
    tables = {"kernels": {"start_ns": 0, "end_ns": 10**9}}
    session.write_json(layout.CAPTURES, {"schema_version": 1, "captures": [{"tables": tables}]})
    monkeypatch.setattr(kernel_groups.documents, "require", lambda session, name: session.read_json(name))
    make_findings.make_one(session, "kernel_groups", Analysis())
    whole = rows.select(analytics.COLUMNS).unify_dictionaries().combine_chunks()
    wanted = analytics.group(whole.to_batches, 10**9).to_pylist()
    found = store.read(session, KERNEL_GROUPS).to_pylist()
    assert [row["kernel_name"] for row in found] == [row["kernel_name"] for row in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine == pytest.approx(theirs)


def test_waiting_of_a_name_with_several_families_is_told_once():
    """At the row with the longest kernel. Mutation: the first row of the name."""
    rows = KERNELS.build(kernel_id=range(4), kernel_name=["a", "a", "a", "b"], family=["gemm", "gemm", "copy", "copy"],
                         dur_ns=[600, 600, 1000, 7]).select(analytics.COLUMNS).unify_dictionaries().combine_chunks()
    groups = analytics.with_skew(analytics.group(rows.to_batches, None), {"a": 990})
    assert [(row["family"], row["kernel_name"], row["skew_ns"]) for row in groups.to_pylist()] == [
        ("gemm", "a", None), ("copy", "a", 990), ("copy", "b", None)]
    families = analytics.by_family(groups).to_pylist()
    assert [(row["family"], row["total_ns"], row["skew_ns"]) for row in families] == [
        ("gemm", 1200, None), ("copy", 1007, 990)]
